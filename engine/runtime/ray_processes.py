"""The processes that Ray starts below this one: kept from ending too early, and from ending too slowly."""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_RAYLET: Final = "raylet"
_RAYLET_MOST_MS: Final = 10_000

_HELD_BACK: Final = frozenset({signal.SIGTERM, signal.SIGINT})
"""Signals that wait until Ray has started: an exception in the midst of its start breaks the process."""


class RayProcesses:
    """What is started while `starting` lasts, and what that starts in turn, ends at no SIGTERM and no SIGINT.

    Service managers and shells send them to all processes of a group. Ray's would end before this one has had
    every detector saved; they end with this one in any case.
    """

    def __init__(self) -> None:
        self._raylet: _Process | None = None
        self._others: list[_Process] = []

    @property
    def lost_descriptor(self) -> int | None:
        """A descriptor that can be read from once the raylet has ended, with which all actors end.

        None where Ray was not started here, or where the system has no descriptors of processes.
        """
        return None if self._raylet is None else self._raylet.descriptor

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

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """End Ray within this context. It sends each process a SIGTERM and waits a second, one after another.

        The raylet is the first; once it is gone nobody needs the others, and they are ended together, what it
        started itself and would have ended at its SIGTERM included.
        """
        if self._raylet is None:
            yield
            return
        self._others += _held(_children(self._raylet.pid))
        helper = threading.Thread(target=self._end_others, daemon=True)
        helper.start()
        try:
            yield
        finally:
            helper.join()

    def _remember(self, pids: set[int]) -> None:
        for process in _held(pids):
            if _program(process.pid) == _RAYLET:
                self._raylet = process
            else:
                self._others.append(process)

    def _end_others(self) -> None:
        assert self._raylet is not None
        # The descriptor of a process can be read from when the process has ended.
        poll = select.poll()
        poll.register(self._raylet.descriptor, select.POLLIN)
        poll.poll(_RAYLET_MOST_MS)
        for process in self._others:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(process.descriptor, signal.SIGKILL)
        for process in (self._raylet, *self._others):
            os.close(process.descriptor)
        self._raylet, self._others = None, []


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
