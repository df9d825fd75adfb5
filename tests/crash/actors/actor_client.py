"""Starts, drives and kills processes, each with one actor."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from engine.runtime.contract.requests.calls import Reply
from engine.runtime.contract.requests.operations import Operation
from tests.crash.actors import actor_process
from tests.crash.actors.actor_process import MAIN, Channel

ROOT = Path(__file__).parents[3]
ANSWER_WITHIN_S = 30.0


class Gone(Exception):
    """The process died before it answered."""


class Halted(Exception):
    """The process halted at the given moment, without an answer. Names the moment."""


class Failed(Exception):
    """The actor raised a StorageError: its kind and its text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.by_successor = "is owned by epoch" in text
        """Whether a successor fenced it, before it did anything or before it answered."""


class ActorProcess:
    """One process. `halted` is the moment at which it halted, if it did."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(path))
        self._channel = Channel(connection)
        said = self._channel.receive()
        assert said is not None
        self.pid = int(said[1])
        self.dead = False
        self.halted: str | None = None
        self.saving = False
        self.owed = False
        """Whether it stopped before it could send the last result."""
        self.saved = 0
        self.not_saved: list[str] = []
        self._channel.send(settings)

    def tell(self, what: str, *arguments: Any) -> None:
        """Send a request without waiting for its result."""
        try:
            self._channel.send(what, *arguments)
        except (BrokenPipeError, ConnectionResetError):
            raise Gone from None

    def hear(self, within_s: float = ANSWER_WITHIN_S) -> Any:
        """Return the result of the last request. Raises Gone, Failed, and Halted if there will be none."""
        while True:
            match self.listen(within_s):
                case ["done", result]:
                    return result
                case ["failed", kind, text]:
                    raise Failed(kind, text)
                case ["halted", actor_process.MAIN, moment]:
                    raise Halted(moment)

    def ask(self, what: str, *arguments: Any) -> Any:
        self.tell(what, *arguments)
        return self.hear()

    def activate(self, detector_id: str, epoch: int) -> int:
        """Activate a detector; return how many records were replayed."""
        return int(self.ask("activate", detector_id, epoch))

    def handle(self, batch: Sequence[Operation]) -> Reply:
        return reply_of(self.ask("handle", batch))

    def halt(self, moment: int, who: str = MAIN, how: str = "sleep") -> None:
        """Make a thread halt at the moment with this number, counted from now."""
        self.tell("halt", moment, who, how)

    def quiet(self, seconds: float) -> bool:
        """Whether no message comes for this long."""
        return not self._channel.waits(seconds)

    def wait_until_saved(self, within_s: float = ANSWER_WITHIN_S) -> bool:
        """Return when the last snapshot that was begun is written, or never will be; return which."""
        while self.saving:
            self.listen(within_s)
        return self.saved > 0 and not self.not_saved

    def listen(self, within_s: float = ANSWER_WITHIN_S) -> list[Any]:
        """Receive and note the next message. Raises Gone."""
        assert self._channel.waits(within_s), f"no word for {within_s} s"
        message = self._channel.receive()
        match message:
            case None:
                raise Gone
            case ["halted", who, moment]:
                self.halted = moment
                self.saving = self.saving and who != actor_process.SAVER
            case ["saved"]:
                self.saved += 1
                self.saving = False
            case ["not saved", kind, _]:
                self.not_saved.append(kind)
                self.saving = False
        return message

    def save(self) -> bool:
        """Begin a snapshot; return whether there is anything to write."""
        # It may be done, or halt, before the answer comes.
        self.saving = True
        begun = bool(self.ask("save"))
        self.saving = self.saving and begun
        return begun

    def kill(self) -> list[list[Any]]:
        """Kill it; once it can do nothing more, return what it had said."""
        assert not self.dead
        os.kill(self.pid, signal.SIGKILL)
        return self.until_dead()

    def until_dead(self) -> list[list[Any]]:
        """Receive the messages until its end."""
        said = []
        # Its end of the socket is closed only when the last of its threads is gone.
        while (message := self._channel.receive()) is not None:
            said.append(message)
        self._channel.close()
        self.dead = True
        return said

    def wait_until_stopped(self) -> None:
        """Return when no thread of it runs any more."""
        give_up_s = time.monotonic() + ANSWER_WITHIN_S
        stat = Path(f"/proc/{self.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < give_up_s
            time.sleep(0.0005)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.wait_until_stopped()

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)


def reply_of(said: Any) -> Reply:
    """The process's answers to a batch."""
    return msgspec.convert(said, Reply)


class ActorProcesses:
    """Starts processes over one data folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made: list[ActorProcess] = []

    def start(self, **settings: Any) -> ActorProcess:
        process = ActorProcess(self._path, settings)
        self._made = [one for one in self._made if not one.dead] + [process]
        return process

    def close(self) -> None:
        for process in self._made:
            if not process.dead:
                process.kill()


@contextmanager
def actor_processes(data: Path) -> Iterator[ActorProcesses]:
    """Start the forking parent; on exit, kill all processes that are still alive."""
    folder = tempfile.mkdtemp(prefix="rd-")
    path = Path(folder) / "socket"
    spawner = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.crash.actors.actor_process", str(path), str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    assert spawner.stdin is not None
    assert spawner.stdout is not None
    assert spawner.stdout.readline() == b"ready\n"
    made = ActorProcesses(path)
    try:
        yield made
    finally:
        made.close()
        spawner.stdin.close()
        spawner.wait(10)
        spawner.stdout.close()
        shutil.rmtree(folder)
