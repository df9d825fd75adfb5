"""Keeps a failure that goes on from filling the log: what is repeated is written once in a while."""

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TextIO

REPEATED: Final = "repeated"
"""The attribute of a record that says how many records it stands for."""

EVERY_S: Final = 10.0
"""How often a message is written while it is repeated."""

_LOOK_S: Final = 1.0
_MESSAGES_MAX: Final = 1000
"""How many messages are known at once. What is beyond them is written."""
_COUNTED_ALREADY: Final = "rule_detector.requests"
"""The logger of requests, which bounds its lines itself: each of them says something else."""
_NUMBER: Final = re.compile(r"(?<!\w)\d+(?:\.\d+)?(?!\w)")

_Key = tuple[str, int, str]


@dataclass(slots=True)
class _Repeated:
    """A message that was written a moment ago."""

    written_s: float
    held_back: int = 0
    last: logging.LogRecord | None = None


class Repeats:
    """Decides which warnings and errors are written.

    A message is written at once. Those that follow and differ in nothing but numbers are held back, and the
    last of them is written every ten seconds with `repeated`: how many there were.
    """

    def __init__(self) -> None:
        self._known: dict[_Key, _Repeated] = {}

    @property
    def holds_any(self) -> bool:
        """Whether any message was held back and not written yet."""
        return any(one.held_back for one in self._known.values())

    def take(self, record: logging.LogRecord, now_s: float) -> bool:
        """Return whether a record is to be written now; otherwise it is held back."""
        if record.levelno < logging.WARNING or record.name == _COUNTED_ALREADY:
            return True
        key = record.name, record.levelno, _NUMBER.sub("0", record.getMessage())
        if (known := self._known.get(key)) is not None:
            known.held_back += 1
            known.last = record
            return False
        if len(self._known) >= _MESSAGES_MAX:
            self._forget(now_s)
        if len(self._known) < _MESSAGES_MAX:
            self._known[key] = _Repeated(now_s)
        return True

    def due(self, now_s: float, *, all_: bool = False) -> list[logging.LogRecord]:
        """Return the records that are to be written now, each for all that were held back; or all at once."""
        found = []
        for known in self._known.values():
            if known.last is not None and (all_ or now_s >= known.written_s + EVERY_S):
                setattr(known.last, REPEATED, known.held_back)
                found.append(known.last)
                known.written_s, known.held_back, known.last = now_s, 0, None
        self._forget(now_s)
        return found

    def _forget(self, now_s: float) -> None:
        """Forget the messages that were not repeated."""
        self._known = {
            key: known
            for key, known in self._known.items()
            if known.held_back or now_s < known.written_s + EVERY_S
        }


class RepeatsHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream, without the repetitions."""

    def __init__(self, stream: TextIO, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._now_s = now_s
        self._repeats = Repeats()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or hold it back."""
        if self._repeats.take(record, self._now_s()):
            super().emit(record)
        elif self._timer is None:
            self._look_later()

    def write_due(self) -> None:
        """Write what was held back for long enough."""
        self.acquire()
        try:
            self._write(self._repeats.due(self._now_s()))
        finally:
            self.release()

    def close(self) -> None:
        """Write everything that was held back."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            self._write(self._repeats.due(self._now_s(), all_=True))
        finally:
            self.release()
        super().close()

    def _write(self, records: list[logging.LogRecord]) -> None:
        for record in records:
            super().emit(record)

    def _look_later(self) -> None:
        self._timer = threading.Timer(_LOOK_S, self._look)
        self._timer.daemon = True
        self._timer.start()

    def _look(self) -> None:
        self.acquire()
        try:
            self._timer = None
            self.write_due()
            if self._repeats.holds_any:
                self._look_later()
        finally:
            self.release()
