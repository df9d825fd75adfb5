"""The child processes that Ray starts: protected from early signals, and ended in bounded time."""

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
"""The essential programs of Ray: all actors end with the raylet, and nothing starts without the control store
(gcs_server)."""

_AGENTS: Final = {
    "DashboardAgent": "dashboard agent",
    "dashboard/agent.py": "dashboard agent",
    "RuntimeEnvAgent": "runtime environment agent",
    "runtime_env/agent/": "runtime environment agent",
}
"""What the command line of each agent of the raylet contains, before and after the agent sets its title."""

_SHUTDOWN_MOST_S: Final = 5.0
_KILLED_MOST_S: Final = 2.0

_ORPHAN_WATCH: Final = Path(__file__).with_name("orphan_watch.py")
"""The program that kills Ray's processes if this one is killed.

Without it, Ray's agents would notice the end of the raylet, but wait ten minutes for the control store, which
has ended too, to confirm it.
"""

_HELD_BACK: Final = frozenset({signal.SIGTERM, signal.SIGINT})
"""Signals that are blocked while Ray starts: an exception of a handler would break the process."""


class RayProcesses:
    """The processes started within `starting`, and their children. They ignore SIGTERM and SIGINT.

    Service managers and shells send these signals to the whole process group, which would end Ray before this
    process has saved all detectors. Ray's processes end with this one in any case.
    """

    def __init__(self) -> None:
        self._essential: dict[str, _Process] = {}
        self._others: list[_Process] = []
        self._agents: dict[str, _Process] = {}
        self._holds_raylet = False
        self._earlier: set[int] = set()
        """The children that this process had before it started Ray."""
        self._orphan_watch: subprocess.Popen[bytes] | None = None

    @property
    def essential(self) -> dict[str, int]:
        """The names and pidfds of the essential processes. A pidfd is readable once its process has ended.

        Empty if this process did not start Ray, or if the system has no pidfds.
        """
        return {name: process.descriptor for name, process in self._essential.items()}

    @property
    def agents(self) -> dict[str, int]:
        """The names and pidfds of the raylet's agents. The raylet ends itself when one of them ends."""
        return {name: process.descriptor for name, process in self._agents.items()}

    def hold_raylet(self) -> None:
        """Suspend the raylet, so that it does not end itself and all workers before detectors are saved.

        It would do so a few tenths of a second after the end of one of its agents.
        """
        if (raylet := self._essential.get(_RAYLET)) is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(raylet.descriptor, signal.SIGSTOP)
                self._holds_raylet = True

    def stopped(self) -> list[str]:
        """Return the names of the essential processes that are stopped. Callable from any thread."""
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
            # Pending signals are delivered on unblocking; Ray's handler, which aborts, must not get them.
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def ended_early(self) -> list[str]:
        """Return the names of the essential processes that have ended while Ray is starting."""
        started = _children(os.getpid()) - self._earlier
        return [name for pid in started if state_of(pid) == ENDED and (name := _name(pid)) in _ESSENTIAL]

    def kill_started(self) -> None:
        """Kill and reap the processes started so far."""
        for process in _held_children(os.getpid(), self._earlier):
            # Ray may have reaped it.
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(process.descriptor, signal.SIGKILL)
                os.waitid(os.P_PIDFD, process.descriptor, os.WEXITED)
            os.close(process.descriptor)

    def end(self, shutdown: Callable[[], None]) -> bool:
        """End Ray by `shutdown` in bounded time, and kill its remaining processes.

        Returns whether `shutdown` returned; if not, a thread is still running it. Ray sends SIGTERM to one
        process after another and waits a second for each, starting with the raylet. Once the raylet has ended
        the others are useless, so they and its children are killed together.
        """
        if self._orphan_watch is not None:
            self._orphan_watch.communicate(b"\n")
        raylet = self._essential.get(_RAYLET)
        if raylet is not None:
            self._others += _children_of(raylet)
            if self._holds_raylet:
                # A stopped process handles no other signal.
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
        """Start the program that kills Ray's processes if this process is killed.

        Ray itself ends the raylet and the control store with this process, and workers end with the raylet.
        """
        if (raylet := self._essential.get(_RAYLET)) is None:
            return
        children = _children_of(raylet)
        descriptors = [one.descriptor for one in (*self._essential.values(), *self._others, *children)]
        # -I and -S ignore the environment and installed packages, which saves memory.
        command = [sys.executable, "-I", "-S", str(_ORPHAN_WATCH), *map(str, descriptors)]
        self._orphan_watch = subprocess.Popen(  # noqa: S603 -- all ours
            command,
            stdin=subprocess.PIPE,
            pass_fds=descriptors,
            # It must survive signals that end this process. It inherits that SIGTERM and SIGINT are blocked.
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
    """Open pidfds of the children of a running process; none if the system has no pidfds."""
    held: list[_Process] = []
    if hasattr(os, "pidfd_open"):
        for pid in sorted(_children(parent).difference(but)):
            with contextlib.suppress(OSError):
                process = _Process(pid, os.pidfd_open(pid))
                # The child may have ended, and another process may have got its pid.
                if parent_of(pid) == parent:
                    held.append(process)
                else:
                    os.close(process.descriptor)
    return held


def _children_of(parent: _Process) -> list[_Process]:
    """Open pidfds of the children of a process; none if it has ended, since its pid may be reused."""
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
    """Return the raylet's agent that has a command line; None if it is not an agent's."""
    return next((name for part, name in _AGENTS.items() if part in command_line), None)


def _name(pid: int) -> str:
    """Return the kernel's name of a process, even after its end; empty if it was reaped."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""
