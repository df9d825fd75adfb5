"""Processes with an actor each, as whoever kills them sees them."""

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

from engine.runtime.contract.operations import Operation, Reply, decode_reply, encode_batch
from tests.crash import driver
from tests.crash.driver import MAIN, Line

ROOT = Path(__file__).parents[2]
ANSWER_WITHIN_S = 30.0


class Gone(Exception):
    """The process died before it answered."""


class Halted(Exception):
    """The process came to the moment at which it was to halt, and has not answered. Says which."""


class Failed(Exception):
    """The actor raised a StorageError: its kind and its text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.by_successor = "is owned by epoch" in text
        """Whether a successor fenced it off, before it did anything or before it answered."""


class Victim:
    """One process. What it says unasked is kept: `halted` is the moment at which it halted."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(path))
        self._line = Line(connection)
        said = self._line.receive()
        assert said is not None
        self.pid = int(said[1])
        self.dead = False
        self.halted: str | None = None
        self.saving = False
        self.owed = False
        """Whether it stopped before it could say what came of the last thing that it was asked."""
        self.saved = 0
        self.not_saved: list[str] = []
        self._line.send(settings)

    def tell(self, what: str, *arguments: Any) -> None:
        """Ask for something without waiting for what comes of it."""
        try:
            self._line.send(what, *arguments)
        except (BrokenPipeError, ConnectionResetError):
            raise Gone from None

    def hear(self, within_s: float = ANSWER_WITHIN_S) -> Any:
        """Give what came of the last thing asked. Raises Gone and Failed; Halted if it never will."""
        while True:
            match self.listen(within_s):
                case ["done", result]:
                    return result
                case ["failed", kind, text]:
                    raise Failed(kind, text)
                case ["halted", driver.MAIN, moment]:
                    raise Halted(moment)

    def ask(self, what: str, *arguments: Any) -> Any:
        self.tell(what, *arguments)
        return self.hear()

    def activate(self, detector_id: str, epoch: int) -> int:
        """Wake a detector; how many records were taken again."""
        return int(self.ask("activate", detector_id, epoch))

    def handle(self, batch: Sequence[Operation]) -> Reply:
        return decode_reply(self.ask("handle", encode_batch(batch)))

    def halt(self, moment: int, who: str = MAIN, how: str = "sleep") -> None:
        """Have it halt at the moment with this number, of those that a thread comes to from now on."""
        self.tell("halt", moment, who, how)

    def quiet(self, seconds: float) -> bool:
        """Whether nothing is said for so long."""
        return not self._line.waits(seconds)

    def wait_until_saved(self, within_s: float = ANSWER_WITHIN_S) -> bool:
        """Come back when the last snapshot that was begun is written, and tell; or when it never will be."""
        while self.saving:
            self.listen(within_s)
        return self.saved > 0 and not self.not_saved

    def listen(self, within_s: float = ANSWER_WITHIN_S) -> list[Any]:
        """Give the next thing that it says, having taken note of it. Raises Gone."""
        assert self._line.waits(within_s), f"no word for {within_s} s"
        message = self._line.receive()
        match message:
            case None:
                raise Gone
            case ["halted", who, moment]:
                self.halted = moment
                self.saving = self.saving and who != driver.SAVER
            case ["saved"]:
                self.saved += 1
                self.saving = False
            case ["not saved", kind, _]:
                self.not_saved.append(kind)
                self.saving = False
        return message

    def save(self) -> bool:
        """Begin a snapshot; tells whether there is anything to be written."""
        # It may be done, or halt, before the answer comes.
        self.saving = True
        begun = bool(self.ask("save"))
        self.saving = self.saving and begun
        return begun

    def kill(self) -> list[list[Any]]:
        """Kill it, and give what it had said by then, once it can do nothing any more."""
        assert not self.dead
        os.kill(self.pid, signal.SIGKILL)
        return self.until_dead()

    def until_dead(self) -> list[list[Any]]:
        """Give what it said until its end."""
        said = []
        # Its end of the socket is closed only when the last of its threads is gone.
        while (message := self._line.receive()) is not None:
            said.append(message)
        self._line.close()
        self.dead = True
        return said

    def wait_until_stopped(self) -> None:
        """Come back when no thread of it runs any more."""
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


class Nursery:
    """Makes victims over one data folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made: list[Victim] = []

    def victim(self, **settings: Any) -> Victim:
        victim = Victim(self._path, settings)
        self._made = [one for one in self._made if not one.dead] + [victim]
        return victim

    def close(self) -> None:
        for victim in self._made:
            if not victim.dead:
                victim.kill()


@contextmanager
def nursery(data: Path) -> Iterator[Nursery]:
    """Give what makes victims; all that still live are killed at the end."""
    folder = tempfile.mkdtemp(prefix="rd-")
    path = Path(folder) / "socket"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.crash.driver", str(path), str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    made = Nursery(path)
    try:
        yield made
    finally:
        made.close()
        process.stdin.close()
        process.wait(10)
        process.stdout.close()
        shutil.rmtree(folder)
