"""The processes that Ray starts below this one: kept from ending too early, and from ending too slowly."""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_RAYLET: Final = "raylet"
_ESSENTIAL: Final = frozenset({_RAYLET, "gcs_server"})
"""The programs without which Ray is of no use: with the raylet all actors end, and nothing starts without the
other, the control store."""

_SHUTDOWN_MOST_S: Final = 5.0
_KILLED_MOST_S: Final = 2.0
_STOPPED: Final = "T"

_HELD_BACK: Final = frozenset({signal.SIGTERM, signal.SIGINT})
"""Signals that wait until Ray has started: an exception in the midst of its start breaks the process."""


class RayProcesses:
    """What is started while `starting` lasts, and what that starts in turn, ends at no SIGTERM and no SIGINT.

    Service managers and shells send them to all processes of a group. Ray's would end before this one has had
    every detector saved; they end with this one in any case.
    """

    def __init__(self) -> None:
        self._essential: dict[str, _Process] = {}
        self._others: list[_Process] = []

    @property
    def essential(self) -> dict[str, int]:
        """The processes without which Ray is of no use: name and a descriptor, readable once it has ended.

        Empty where Ray was not started here, or where the system has no descriptors of processes.
        """
        return {name: process.descriptor for name, process in self._essential.items()}

    def stopped(self) -> list[str]:
        """Give the names of the essential processes that a signal has stopped. For any thread."""
        return [name for name, process in self._essential.items() if _state(process.pid) == _STOPPED]

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Start Ray within this context, in the main thread."""
        earlier = _children(os.getpid())
        handlers = {number: signal.getsignal(number) for number in _HELD_BACK}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            yield
        finally:
            self._remember(_children(os.getpid()) - earlier)
            # A signal that came meanwhile takes effect at the end of this, and must then not meet the handler
            # that Ray has installed, which aborts.
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self, shutdown: Callable[[], None]) -> bool:
        """Have `shutdown` end Ray, in a bounded time, and kill what is left of it; tell whether it came back.

        Where it did not, a thread is still within it. Ray sends each process a SIGTERM and waits a second,
        one after another. The raylet is the first. Once it is gone nobody needs the others: they are killed
        together, with those that the raylet started.
        """
        raylet = self._essential.get(_RAYLET)
        if raylet is not None:
            self._others += _held(_children(raylet.pid))
        thread = threading.Thread(target=shutdown, name="ray shutdown", daemon=True)
        thread.start()
        if raylet is None:
            thread.join(_SHUTDOWN_MOST_S)
        else:
            # The descriptor of a process can be read from when the process has ended.
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
    """Of the process; unlike the id it never comes to mean another one."""


def _held(pids: set[int]) -> list[_Process]:
    """Give the processes that are still there; none where the system has no descriptors of processes."""
    held: list[_Process] = []
    if hasattr(os, "pidfd_open"):
        for pid in sorted(pids):
            with contextlib.suppress(OSError):
                held.append(_Process(pid, os.pidfd_open(pid)))
    return held


def _children(parent: int) -> set[int]:
    """Give the ids of a process's children; none where there is no /proc."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The second field is the program's name in parentheses, and may hold anything.
            if int(path.read_bytes().rpartition(b")")[2].split()[1]) == parent:
                found.add(int(path.parent.name))
    return found


def _program(pid: int) -> str:
    """Give the name of the file that a process runs."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return Path(os.fsdecode(command.split(b"\0")[0])).name


def _state(pid: int) -> str:
    """Give the letter by which the kernel tells a process's state; empty where it has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
