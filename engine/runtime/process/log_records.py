"""Forwards log records of a service's other processes, whose own logs nobody reads, to the service's log."""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

import msgspec

LOGGED: Final = "logged"
"""The note that carries a record for the service's log."""

WORK: Final[ContextVar[Mapping[str, str]]] = ContextVar("work", default={})  # noqa: B039 -- nobody changes it
"""The current work as log fields: the detector and the operation. Empty between operations."""

_OWN_LOGS: Final = ("engine", "snapshots")
_TEXT_CHARS: Final = 16_000
"""The maximum number of characters of a message or a traceback."""
_PERIOD_S: Final = 10.0


class Logged(msgspec.Struct, frozen=True, array_like=True):
    """A record of another process's log, for the log of a service."""

    logger: str
    level: int
    message: str
    fields: dict[str, str]
    detail: str

    @classmethod
    def of(cls, record: logging.LogRecord) -> "Logged":
        """Return the record to forward: bounded, and with the work that was current when it was logged."""
        detail = getattr(record, "detail", None) or ""
        if record.exc_info:
            detail += "".join(traceback.format_exception(*record.exc_info))
        fields: Mapping[str, Any] = {**WORK.get(), **(getattr(record, "fields", None) or {})}
        shown = {name: bounded(str(value)) for name, value in fields.items()}
        return cls(record.name, record.levelno, bounded(record.getMessage()), shown, bounded(detail))

    def log(self, **fields: str) -> None:
        """Log the record in this process, with additional `fields`."""
        extra = {"fields": {**self.fields, **fields}, "detail": self.detail}
        logging.getLogger(self.logger).log(self.level, "%s", self.message, extra=extra)


class ForwardedLogs(logging.Handler):
    """Forwards the records of this process's log, at most `records_max` in ten seconds.

    A further record then counts the omitted ones. Records that cannot be sent go to standard error.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[Logged], bool],
        *,
        records_max: int,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`send` is called in the loop; it returns False if there is no receiver."""
        super().__init__()
        self._loop = loop
        self._send = send
        self._records_max = records_max
        self._clock_s = clock_s
        self._sent = 0
        self._left_out = 0
        self._period_ends_s = 0.0

    def begin(self) -> None:
        for name in _OWN_LOGS:
            logging.getLogger(name).addHandler(self)

    def end(self) -> None:
        for name in _OWN_LOGS:
            logging.getLogger(name).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, from any thread."""
        now_s = self._clock_s()
        if now_s >= self._period_ends_s:
            self._sent, self._period_ends_s = 0, now_s + _PERIOD_S
        if self._sent < self._records_max:
            self._sent += 1
            self._in_loop(self._deliver, Logged.of(record))
            return
        self._left_out += 1
        if self._left_out == 1:
            self._in_loop(self._loop.call_later, self._period_ends_s - now_s, self._tell_left_out)

    def _in_loop(self, function: Callable[..., object], *arguments: object) -> None:
        # The loop is closed as the process ends.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)

    def _tell_left_out(self) -> None:
        self.acquire()
        left_out, self._left_out = self._left_out, 0
        self.release()
        message = f"{left_out} more records of this process were left out of the log within {_PERIOD_S:g} s"
        self._deliver(Logged(__name__, logging.WARNING, message, {}, ""))

    def _deliver(self, logged: Logged) -> None:
        if not self._send(logged) and (last_resort := logging.lastResort) is not None:
            text = f"{logged.message}\n{logged.detail}".rstrip()
            last_resort.handle(logging.LogRecord(logged.logger, logged.level, "", 0, "%s", (text,), None))


def bounded(text: str) -> str:
    """Cut the middle out of a long text: the end of a traceback says what failed."""
    if len(text) <= _TEXT_CHARS:
        return text
    half = _TEXT_CHARS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
