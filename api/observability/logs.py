"""The log on standard error, as text or JSON, safe against log injection.

Control characters are escaped, tokens are hidden, and all lines of a record but the first are indented.
Repeated warnings and errors are written every ten seconds, with a count.
"""

import json
import logging
import math
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TextIO

from api.settings import Settings

REPEATED: Final = "repeated"
"""The attribute of a record that says how many records it stands for."""

EVERY_S: Final = 10.0
"""The interval at which a repeated message is written."""

_LOOK_S: Final = 1.0
_MESSAGES_MAX: Final = 1000
"""The maximum number of messages whose repetitions are suppressed; further messages are always written."""
_COUNTED_ALREADY: Final = "rule_detector.requests"
"""The logger of requests, whose lines all differ, and which limits their number itself."""
_NUMBER: Final = re.compile(r"(?<!\w)\d+(?:\.\d+)?(?!\w)")

_Key = tuple[str, int, str]
FIELDS: Final = "fields"
"""The `extra` key of a record's fields: values by name."""
DETAIL: Final = "detail"
"""The `extra` key of the text of an error in another process."""
_FOR_DEVELOPERS: Final = ("ray", "opentelemetry", "py.warnings")
"""The loggers of Ray, OpenTelemetry and Python's warnings, whose records appear only at level debug."""
_TOKEN: Final = re.compile(r"rd_[A-Za-z0-9_-]{43}")
_HIDDEN: Final = "[hidden]"
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/=+@-]+")
_MARGIN: Final = "    "
INTERVAL_S: Final = 10.0


@dataclass(slots=True)
class _Repeated:
    """A recently written message."""

    written_s: float
    held_back: int = 0
    last: logging.LogRecord | None = None


class RepeatsHandler(logging.StreamHandler[TextIO]):
    """Writes records to a stream, warnings and errors without their repetitions.

    A message is written at once. Following ones that differ only in numbers are suppressed; every ten seconds
    the last of them is written, with their number as `repeated`.
    """

    def __init__(self, stream: TextIO, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._now_s = now_s
        self._known: dict[_Key, _Repeated] = {}
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or suppress it."""
        if not self._holds_back(record):
            super().emit(record)
        elif self._timer is None:
            self._look_later()

    def write_due(self, *, all_: bool = False) -> None:
        """Write the last suppressed record of each message that is due, or of all messages."""
        self.acquire()
        try:
            now_s = self._now_s()
            for known in self._known.values():
                if known.last is not None and (all_ or now_s >= known.written_s + EVERY_S):
                    setattr(known.last, REPEATED, known.held_back)
                    super().emit(known.last)
                    known.written_s, known.held_back, known.last = now_s, 0, None
            self._forget(now_s)
        finally:
            self.release()

    def close(self) -> None:
        """Write all suppressed messages."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            self.write_due(all_=True)
        finally:
            self.release()
        super().close()

    def _holds_back(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.name == _COUNTED_ALREADY:
            return False
        key = record.name, record.levelno, _NUMBER.sub("0", record.getMessage())
        if (known := self._known.get(key)) is not None:
            known.held_back += 1
            known.last = record
            return True
        now_s = self._now_s()
        if len(self._known) >= _MESSAGES_MAX:
            self._forget(now_s)
        if len(self._known) < _MESSAGES_MAX:
            self._known[key] = _Repeated(now_s)
        return False

    def _forget(self, now_s: float) -> None:
        """Forget the messages that were not repeated."""
        self._known = {
            key: known
            for key, known in self._known.items()
            if known.held_back or now_s < known.written_s + EVERY_S
        }

    def _look_later(self) -> None:
        self._timer = threading.Timer(_LOOK_S, self._look)
        self._timer.daemon = True
        self._timer.start()

    def _look(self) -> None:
        self.acquire()
        try:
            self._timer = None
            self.write_due()
            if any(one.held_back for one in self._known.values()):
                self._look_later()
        finally:
            self.release()


def set_up(settings: Settings) -> None:
    """Configure this process's logging to standard error according to the settings."""
    handler = RepeatsHandler(sys.stderr)
    secrets = () if settings.bootstrap_token is None else (settings.bootstrap_token,)
    make = JsonFormatter if settings.log_format == "json" else TextFormatter
    handler.setFormatter(make(secrets))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    # These records do not help operators. Failures that matter become errors of the service.
    level = logging.NOTSET if settings.log_level == "debug" else logging.CRITICAL
    for name in _FOR_DEVELOPERS:
        logger = logging.getLogger(name)
        # Ray's own handler would bypass this log.
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(level)
    # It says for each of its sockets that it runs, and how to quit, which the service does by itself.
    logging.getLogger("hypercorn.error").setLevel(min(level, logging.WARNING))


class _Formatter(logging.Formatter):
    """Hides tokens: those of this service by their form, and the given secrets."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._secrets = secrets

    def _hidden(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return _TOKEN.sub(_HIDDEN, text) if "rd_" in text else text

    def _fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the fields of a record without the empty ones."""
        fields: Mapping[str, Any] = getattr(record, FIELDS, None) or {}
        if (repeated := getattr(record, REPEATED, 0)) > 0:
            fields = {**fields, REPEATED: repeated}
        return {
            name: self._hidden(value) if isinstance(value, str) else _finite(value)
            for name, value in fields.items()
            if value is not None and value != ""
        }

    def _detail(self, record: logging.LogRecord) -> str:
        parts = [getattr(record, DETAIL, None) or ""]
        if record.exc_info:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(record.stack_info)
        return self._hidden("\n".join(part for part in parts if part))


class TextFormatter(_Formatter):
    """A record as text: time, level, logger, message, fields as `name=value`. Tracebacks are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record without a line end."""
        message = escaped(self._hidden(record.getMessage()))
        line = f"{_time(record)} {record.levelname} {record.name}: {message}"
        for name, value in self._fields(record).items():
            line += f" {name}={_shown(value)}"
        more = (_MARGIN + escaped(line) for line in self._detail(record).splitlines())
        return "\n".join([line, *more])


class JsonFormatter(_Formatter):
    """A record as JSON on one line: `time`, `level`, `logger`, `message`, the fields, `detail`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record without a line end."""
        document: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._hidden(record.getMessage()),
            **self._fields(record),
        }
        if detail := self._detail(record):
            document["detail"] = detail
        return _json(document)


def escaped(text: str) -> str:
    """Return a text with its unprintable characters escaped as in Python."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _finite(value: object) -> object:
    """Return an infinity or NaN, which JSON lacks, as text; any other value unchanged."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _shown(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else _json(text)


def _json(value: object) -> str:
    """Return JSON in printable ASCII, which cannot control a terminal or end a line."""
    return json.dumps(value, ensure_ascii=True, default=str, allow_nan=False).replace("\x7f", "\\u007f")


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


_log = logging.getLogger("rule_detector.requests")


class ThrottleLog:
    """Collects refusals, and logs them at most once in INTERVAL_S."""

    def __init__(
        self, message: str, causes: Sequence[str], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`causes` are in the order of the log record's fields."""
        self._message = message
        self._causes = causes
        self._now_s = now_s
        self._logged_s = -math.inf
        self._pending: Counter[str] = Counter()

    def note(self, causes: Counter[str]) -> None:
        """Add refusals by cause, and log all unlogged ones if it is time. Must be called regularly."""
        self._pending += causes
        now_s = self._now_s()
        if not self._pending or now_s - self._logged_s < INTERVAL_S:
            return
        self._logged_s = now_s
        by_cause = {cause: self._pending[cause] for cause in self._causes if self._pending[cause]}
        fields = {"count": self._pending.total(), **by_cause}
        self._pending = Counter()
        _log.warning("%s", self._message, extra={FIELDS: fields})
