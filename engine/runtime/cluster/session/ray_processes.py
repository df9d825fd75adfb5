"""The processes that Ray starts under this one: protected from early signals, and ended in bounded time."""

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_RAYLET: Final = "raylet"
_ESSENTIAL: Final = frozenset({_RAYLET, "gcs_server"})
"""The programs that Ray cannot do without: all actors end with the raylet, and nothing starts without the
control store (gcs_server)."""

_SHUTDOWN_MOST_S: Final = 5.0
_KILLED_MOST_S: Final = 2.0
_STOPPED: Final = "T"
_ENDED: Final = "Z"

_KILL_ORPHANS: Final = "trap '' TERM INT HUP; read line || kill -9 \"$@\" 2>/dev/null"
"""A script that kills processes when its standard input ends without a line: then this process was killed.

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
        self._earlier: set[int] = set()
        """The children that this process had before Ray was started."""
        self._killer: subprocess.Popen[bytes] | None = None

    @property
    def essential(self) -> dict[str, int]:
        """The processes that Ray cannot do without: their names and pidfds.

        A pidfd is readable once its process has ended. Empty if Ray was not started here, or if there are
        no pidfds.
        """
        return {name: process.descriptor for name, process in self._essential.items()}

    def stopped(self) -> list[str]:
        """Return the names of the essential processes that a signal has stopped. Callable from any thread."""
        return [name for name, process in self._essential.items() if _state(process.pid) == _STOPPED]

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Start Ray within this context, in the main thread."""
        self._earlier = _children(os.getpid())
        handlers = {number: signal.getsignal(number) for number in _HELD_BACK}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            yield
        finally:
            self._remember(_children(os.getpid()) - self._earlier)
            self._guard()
            # A signal that arrived meanwhile takes effect on unblocking, and must not meet Ray's handler,
            # which aborts.
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def ended_early(self) -> list[str]:
        """Return the names of the essential processes that have ended while Ray is starting."""
        started = _children(os.getpid()) - self._earlier
        return [name for pid in started if _state(pid) == _ENDED and (name := _name(pid)) in _ESSENTIAL]

    def kill_started(self) -> None:
        """Kill what was started so far, and reap it."""
        for pid in _children(os.getpid()) - self._earlier:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def end(self, shutdown: Callable[[], None]) -> bool:
        """End Ray by `shutdown` in bounded time, and kill what is left of it.

        Returns whether `shutdown` returned. If it did not, a thread still runs it. Ray sends SIGTERM to one
        process after another and waits a second for each, starting with the raylet. Once the raylet has ended
        nobody needs the others, so they and its children are killed together.
        """
        if self._killer is not None:
            self._killer.communicate(b"\n")
        raylet = self._essential.get(_RAYLET)
        if raylet is not None:
            self._others += _held(_children(raylet.pid))
        thread = threading.Thread(target=shutdown, name="ray shutdown", daemon=True)
        thread.start()
        if raylet is None:
            thread.join(_SHUTDOWN_MOST_S)
        else:
            # A pidfd is readable once its process has ended.
            poll = select.poll()
            poll.register(raylet.descriptor, select.POLLIN)
            poll.poll(_SHUTDOWN_MOST_S * 1_000)
        for process in (*self._essential.values(), *self._others):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(process.descriptor, signal.SIGKILL)
            os.close(process.descriptor)
        self._essential, self._others = {}, []
        thread.join(_KILLED_MOST_S)
        return not thread.is_alive()

    def _guard(self) -> None:
        """Have the raylet's children killed if this process is killed."""
        if (raylet := self._essential.get(_RAYLET)) is not None:
            pids = map(str, sorted(_children(raylet.pid)))
            command = ["/bin/sh", "-c", _KILL_ORPHANS, "sh", *pids]
            self._killer = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 -- all ours

    def _remember(self, pids: set[int]) -> None:
        for process in _held(pids):
            program = _program(process.pid)
            if program in _ESSENTIAL:
                self._essential[program] = process
            else:
                self._others.append(process)


class _Process(NamedTuple):
    pid: int
    descriptor: int
    """The pidfd; unlike the pid it is never reused for another process."""


def _held(pids: set[int]) -> list[_Process]:
    """Open pidfds of the processes that still exist; none if the system has no pidfds."""
    held: list[_Process] = []
    if hasattr(os, "pidfd_open"):
        for pid in sorted(pids):
            with contextlib.suppress(OSError):
                held.append(_Process(pid, os.pidfd_open(pid)))
    return held


def _children(parent: int) -> set[int]:
    """Return the pids of a process's children; none without /proc."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The second field is the program's name in parentheses, which may contain anything.
            if int(path.read_bytes().rpartition(b")")[2].split()[1]) == parent:
                found.add(int(path.parent.name))
    return found


def _program(pid: int) -> str:
    """Return the file name of a process's program."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return Path(os.fsdecode(command.split(b"\0")[0])).name


def _name(pid: int) -> str:
    """Return the name that the kernel has for a process, also after its end; empty if it was reaped."""
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _state(pid: int) -> str:
    """Return the kernel's letter for a process's state; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
