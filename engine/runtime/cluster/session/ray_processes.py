"""The processes that Ray starts under this one: protected from early signals, and ended in bounded time."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from engine.runtime.process.processes import ENDED, STOPPED, parent_of, state_of

_RAYLET: Final = "raylet"
_ESSENTIAL: Final = frozenset({_RAYLET, "gcs_server"})
"""The programs that Ray cannot do without: all actors end with the raylet, and nothing starts without the
control store (gcs_server)."""

_AGENTS: Final = {
    "DashboardAgent": "dashboard agent",
    "dashboard/agent.py": "dashboard agent",
    "RuntimeEnvAgent": "runtime environment agent",
    "runtime_env/agent/": "runtime environment agent",
}
"""What the command line of an agent of the raylet contains, before and after it takes its own title."""

_SHUTDOWN_MOST_S: Final = 5.0
_KILLED_MOST_S: Final = 2.0

_ORPHAN_WATCH: Final = Path(__file__).with_name("orphan_watch.py")
"""The program that kills Ray's processes if this one is killed.

Ray's agents notice that the raylet has ended, but wait ten minutes for the control store to say so, and that
has ended too.
"""

_HELD_BACK: Final = frozenset({signal.SIGTERM, signal.SIGINT})
"""Signals that are blocked while Ray starts: an exception in the middle would break the process."""


class RayProcesses:
    """The processes started within `starting`, and their children, which ignore SIGTERM and SIGINT.

    Service managers and shells send these to the whole process group. Ray's processes would end before this
    one has saved every detector. They end with this process in any case.
    """

    def __init__(self) -> None:
        self._essential: dict[str, _Process] = {}
        self._others: list[_Process] = []
        self._agents: dict[str, _Process] = {}
        self._holds_raylet = False
        self._earlier: set[int] = set()
        """The children that this process had before Ray was started."""
        self._orphan_watch: subprocess.Popen[bytes] | None = None

    @property
    def essential(self) -> dict[str, int]:
        """The processes that Ray cannot do without: their names and pidfds.

        A pidfd is readable once its process has ended. Empty if Ray was not started here, or if there are
        no pidfds.
        """
        return {name: process.descriptor for name, process in self._essential.items()}

    @property
    def agents(self) -> dict[str, int]:
        """The agents of the raylet, which ends itself if one of them does: their names and pidfds."""
        return {name: process.descriptor for name, process in self._agents.items()}

    def hold_raylet(self) -> None:
        """Stop the raylet, so that it does not end itself and all workers before their detectors are saved.

        A raylet does so some tenths of a second after the end of one of its agents.
        """
        if (raylet := self._essential.get(_RAYLET)) is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(raylet.descriptor, signal.SIGSTOP)
                self._holds_raylet = True

    def stopped(self) -> list[str]:
        """Return the names of the essential processes that a signal has stopped. Callable from any thread."""
        return [name for name, process in self._essential.items() if state_of(process.pid) == STOPPED]

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Start Ray within this context, in the main thread."""
        self._earlier = _children(os.getpid())
        handlers = {number: signal.getsignal(number) for number in _HELD_BACK}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            yield
        finally:
            self._remember(_held_children(os.getpid(), self._earlier))
            self._guard()
            # A signal that arrived meanwhile takes effect on unblocking, and must not meet Ray's handler,
            # which aborts.
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def ended_early(self) -> list[str]:
        """Return the names of the essential processes that have ended while Ray is starting."""
        started = _children(os.getpid()) - self._earlier
        return [name for pid in started if state_of(pid) == ENDED and (name := _name(pid)) in _ESSENTIAL]

    def kill_started(self) -> None:
        """Kill what was started so far, and reap it."""
        for process in _held_children(os.getpid(), self._earlier):
            # Ray may have reaped it.
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(process.descriptor, signal.SIGKILL)
                os.waitid(os.P_PIDFD, process.descriptor, os.WEXITED)
            os.close(process.descriptor)

    def end(self, shutdown: Callable[[], None]) -> bool:
        """End Ray by `shutdown` in bounded time, and kill what is left of it.

        Returns whether `shutdown` returned. If it did not, a thread still runs it. Ray sends SIGTERM to one
        process after another and waits a second for each, starting with the raylet. Once the raylet has ended
        nobody needs the others, so they and its children are killed together.
        """
        if self._orphan_watch is not None:
            self._orphan_watch.communicate(b"\n")
        raylet = self._essential.get(_RAYLET)
        if raylet is not None:
            self._others += _children_of(raylet)
            if self._holds_raylet:
                # It would take no other signal.
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(raylet.descriptor, signal.SIGKILL)
        thread = threading.Thread(target=shutdown, name="ray shutdown", daemon=True)
        thread.start()
        if raylet is None:
            thread.join(_SHUTDOWN_MOST_S)
        else:
            _has_ended(raylet, _SHUTDOWN_MOST_S)
        for process in (*self._essential.values(), *self._others, *self._agents.values()):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(process.descriptor, signal.SIGKILL)
            os.close(process.descriptor)
        self._essential, self._others, self._agents = {}, [], {}
        thread.join(_KILLED_MOST_S)
        return not thread.is_alive()

    def _guard(self) -> None:
        """Have Ray's processes killed if this process is killed.

        Ray has the raylet and the control store end with this process, and workers end with the raylet.
        """
        if (raylet := self._essential.get(_RAYLET)) is None:
            return
        children = _children_of(raylet)
        descriptors = [one.descriptor for one in (*self._essential.values(), *self._others, *children)]
        # -I and -S: without the environment and the packages that are installed, a Python takes less memory.
        command = [sys.executable, "-I", "-S", str(_ORPHAN_WATCH), *map(str, descriptors)]
        self._orphan_watch = subprocess.Popen(  # noqa: S603 -- all ours
            command,
            stdin=subprocess.PIPE,
            pass_fds=descriptors,
            # It must outlive what ends this process. SIGTERM and SIGINT are blocked here, and so there.
            start_new_session=True,
        )
        for child in children:
            if (name := agent_name(command_line(child.pid))) is None or name in self._agents:
                os.close(child.descriptor)
            else:
                self._agents[name] = child

    def _remember(self, processes: list["_Process"]) -> None:
        for process in processes:
            program = _program(process.pid)
            if program in _ESSENTIAL:
                self._essential[program] = process
            else:
                self._others.append(process)


class _Process(NamedTuple):
    pid: int
    descriptor: int
    """The pidfd; unlike the pid it is never reused for another process."""


def _held_children(parent: int, but: Collection[int] = ()) -> list[_Process]:
    """Open pidfds of the children of a living process; none if the system has no pidfds."""
    held: list[_Process] = []
    if hasattr(os, "pidfd_open"):
        for pid in sorted(_children(parent).difference(but)):
            with contextlib.suppress(OSError):
                process = _Process(pid, os.pidfd_open(pid))
                # The child may have ended before, and another process got its number.
                if parent_of(pid) == parent:
                    held.append(process)
                else:
                    os.close(process.descriptor)
    return held


def _children_of(parent: _Process) -> list[_Process]:
    """Open pidfds of the children of a process; none if it has ended, since its number may be another's."""
    children = _held_children(parent.pid)
    if not _has_ended(parent, within_s=0.0):
        return children
    for child in children:
        os.close(child.descriptor)
    return []


def _has_ended(process: _Process, within_s: float) -> bool:
    """Wait for the end of a process; return whether it has ended."""
    poll = select.poll()
    # A pidfd is readable once its process has ended.
    poll.register(process.descriptor, select.POLLIN)
    return bool(poll.poll(within_s * 1_000))


def _children(parent: int) -> set[int]:
    """Return the pids of a process's children; none without /proc."""
    pids = (int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat"))
    return {pid for pid in pids if parent_of(pid) == parent}


def _program(pid: int) -> str:
    """Return the file name of a process's program."""
    return Path(command_line(pid).split("\0")[0]).name


def command_line(pid: int) -> str:
    """Return a process's command line, with NUL between arguments; empty if it has ended."""
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return ""


def agent_name(command_line: str) -> str | None:
    """Return which agent of the raylet has a command line; None if none has."""
    return next((name for part, name in _AGENTS.items() if part in command_line), None)


def _name(pid: int) -> str:
    """Return the name that the kernel has for a process, also after its end; empty if it was reaped."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""
