"""The program that is killed: a process with one OperationExecutor over real files, driven over a socket.

    python -m tests.crash.actors.actor_process SOCKET DATA

It forks such a process for each connection, until its input ends. The parent has imported the engine already,
so hundreds of them start in no time.
"""

import contextlib
import ctypes
import dataclasses
import os
import random
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from engine.language.limits import DEFAULT_LIMITS
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from snapshots.errors import StorageError
from snapshots.files import OpenFile, RealFiles

LENGTH = struct.Struct("<I")
MAIN, SAVER = "main", "saver"

_PR_SET_PTRACER = 0x59616D61
_PR_SET_PDEATHSIG = 1


class Channel:
    """One end of the socket. Whole messages may be sent from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, *message: Any) -> None:
        data = msgspec.msgpack.encode(message)
        with self._lock:
            self._connection.sendall(LENGTH.pack(len(data)) + data)

    def receive(self) -> list[Any] | None:
        """Return the next message; None if the other end is gone."""
        header = self._exactly(LENGTH.size)
        if header is None:
            return None
        data = self._exactly(*LENGTH.unpack(header))
        return None if data is None else msgspec.msgpack.decode(data)

    def waits(self, seconds: float) -> bool:
        """Whether a message or the end comes within the time."""
        # `select` takes no descriptor beyond 1 023, which a process with many tests may have.
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(seconds * 1_000))

    def close(self) -> None:
        self._connection.close()

    def _exactly(self, bytes_: int) -> bytes | None:
        data = b""
        while len(data) < bytes_:
            try:
                more = self._connection.recv(bytes_ - len(data))
            except ConnectionResetError:
                return None
            if not more:
                return None
            data += more
        return data


class HaltingFiles(RealFiles):
    """Real files that announce a given moment before, within or after a call, and halt there."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._left = -1
        self._who = MAIN
        self._how = ""
        self.slow_s = 0.0
        """The longest delay of each call."""

    def halt_at(self, moment: int, who: str, how: str) -> None:
        """Halt at the moment with this number from now: `sleep` halts the thread, `stop` the process."""
        self._left, self._who, self._how = moment, who, how

    def moment(self, what: str, at_halt: Callable[[], object] = lambda: None) -> None:
        if self._left < 0 or threading.current_thread().name != self._who:
            return
        self._left -= 1
        if self._left >= 0:
            return
        at_halt()
        self._channel.send("halted", self._who, what)
        if self._how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(3600)

    def around(self, what: str, call: Callable[[], Any]) -> Any:
        if self.slow_s:
            time.sleep(self.slow_s * random.random())
        self.moment(f"before {what}")
        result = call()
        self.moment(f"after {what}")
        return result

    def names(self, folder: Path) -> list[str]:
        return self.around("names", lambda: super(HaltingFiles, self).names(folder))

    def read(self, path: Path) -> bytes:
        return self.around("read", lambda: super(HaltingFiles, self).read(path))

    def create(self, path: Path) -> OpenFile:
        made = self.around(f"create {kind_of(path)}", lambda: super(HaltingFiles, self).create(path))
        return _HaltingFile(self, made, kind_of(path))

    def write_again(self, path: Path, offset: int, data: bytes) -> None:
        self.around("write_again", lambda: super(HaltingFiles, self).write_again(path, offset, data))

    def rename(self, old: Path, new: Path) -> None:
        self.around(f"rename {kind_of(old)}", lambda: super(HaltingFiles, self).rename(old, new))

    def remove(self, path: Path) -> None:
        self.around(f"remove {kind_of(path)}", lambda: super(HaltingFiles, self).remove(path))

    def sync_folder(self, folder: Path) -> None:
        self.around("sync_folder", lambda: super(HaltingFiles, self).sync_folder(folder))


class _HaltingFile:
    def __init__(self, files: HaltingFiles, file: OpenFile, kind: str) -> None:
        self._files = files
        self._file = file
        self._kind = kind

    def write(self, data: bytes) -> int:
        half = len(data) // 2
        written = 0

        def write_half() -> None:
            nonlocal written
            written = self._file.write(data[:half])

        if half:
            self._files.moment(f"within write {self._kind}", write_half)
        rest = memoryview(data)[written:]
        return written + int(self._files.around(f"write {self._kind}", lambda: self._file.write(rest)))

    def write_start(self, data: bytes) -> None:
        self._files.around(f"write_start {self._kind}", lambda: self._file.write_start(data))

    def reserve(self, begin: int, bytes_: int) -> None:
        self._files.around(f"reserve {self._kind}", lambda: self._file.reserve(begin, bytes_))

    def release(self, end: int) -> None:
        self._files.around(f"release {self._kind}", lambda: self._file.release(end))

    def sync(self) -> None:
        self._files.around(f"sync {self._kind}", self._file.sync)

    def sync_data(self) -> None:
        self._files.around(f"sync_data {self._kind}", self._file.sync_data)

    def is_named(self, path: Path) -> bool:
        return bool(self._files.around(f"is_named {self._kind}", lambda: self._file.is_named(path)))

    def descriptor(self) -> int | None:
        return self._file.descriptor()

    def close(self) -> None:
        self._file.close()


def kind_of(path: Path) -> str:
    """Return the kind of a file, by its name."""
    if path.name.endswith(".unfinished"):
        return "unfinished"
    return path.name.split("-")[0]


class ServedActor:
    """The actor of this process, and its requests."""

    def __init__(self, channel: Channel, data: Path, settings: dict[str, Any]) -> None:
        self._channel = channel
        self._files = HaltingFiles(channel)
        limits = dataclasses.replace(DEFAULT_LIMITS, **settings.pop("limits", {}))
        chosen = RuntimeSettings(data=data, limits=limits, **settings)
        self._actor = OperationExecutor(chosen, files=self._files)
        self._saver: threading.Thread | None = None

    def take(self, what: str, *arguments: Any) -> None:
        """Carry out a request and send the result."""
        match what:
            case "halt":
                self._files.halt_at(*arguments)
            case "slow":
                (self._files.slow_s,) = arguments
            case "save":
                self._say(self._begin_saving)
            case "handle":
                (batch,) = arguments
                self._say(lambda: self._actor.handle(msgspec.convert(batch, list[Operation])))
            case "position":
                self._say(self._position)
            case "activate":
                self._say(lambda: self._actor.activate(*arguments).records)
            case _:
                self._say(getattr(self._actor, what))

    def _say(self, work: Callable[[], Any]) -> None:
        try:
            result = work()
        except StorageError as error:
            self._channel.send("failed", type(error).__name__, str(error))
        else:
            self._channel.send("done", result)

    def _begin_saving(self) -> bool:
        if self._saver is not None:
            self._saver.join()
            self._saver = None
        if not self._actor.begin_saving():
            return False
        self._saver = threading.Thread(target=self._finish_saving, name=SAVER, daemon=True)
        self._saver.start()
        return True

    def _finish_saving(self) -> None:
        try:
            self._actor.finish_saving()
        except StorageError as error:
            self._channel.send("not saved", type(error).__name__, str(error))
        else:
            self._channel.send("saved")

    def _position(self) -> tuple[int | None, int]:
        active = self._actor._active
        assert active is not None
        return active.detector.clock_us, active.detector.events_seen


def serve(connection: socket.socket, data: Path) -> None:
    """Carry out requests until the other end is gone."""
    threading.current_thread().name = MAIN
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Let strace attach.
    prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)
    channel = Channel(connection)
    channel.send("pid", os.getpid())
    settings = channel.receive()
    if settings is None:
        return
    served = ServedActor(channel, data, settings[0])
    with contextlib.suppress(BrokenPipeError):
        while (message := channel.receive()) is not None:
            served.take(*message)


def main() -> None:
    """Fork a process for each connection."""
    # Nobody waits for the children.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            try:
                serve(connection, Path(sys.argv[2]))
            finally:
                os._exit(0)
        connection.close()


if __name__ == "__main__":
    main()
