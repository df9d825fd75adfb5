"""The log on standard error, as text or JSON, safe against log injection.

Control characters are escaped, tokens are hidden, and all lines of a record but the first are indented.
A warning or an error that is repeated is written every ten seconds, with a count.
"""

import json
import logging
import math
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from api.observability.repeats import REPEATED, RepeatsHandler
from api.settings import Settings

FIELDS: Final = "fields"
"""The `extra` key of a record's fields: values by name."""

DETAIL: Final = "detail"
"""The `extra` key of an error's text that came from another process."""

_FOR_DEVELOPERS: Final = ("ray", "opentelemetry", "py.warnings")
"""The loggers of Ray, of OpenTelemetry and of Python's warnings, which log at level debug only."""
_TOKEN: Final = re.compile(r"rd_[A-Za-z0-9_-]{43}")
_HIDDEN: Final = "[hidden]"
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/=+@-]+")
_MARGIN: Final = "    "


def set_up(settings: Settings) -> None:
    """Make this process log to standard error according to the settings."""
    handler = RepeatsHandler(sys.stderr)
    secrets = () if settings.bootstrap_token is None else (settings.bootstrap_token,)
    make = JsonFormatter if settings.log_format == "json" else TextFormatter
    handler.setFormatter(make(secrets))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    # Operators cannot act on these records. Failures that matter become errors of the service.
    level = logging.NOTSET if settings.log_level == "debug" else logging.CRITICAL
    for name in _FOR_DEVELOPERS:
        logger = logging.getLogger(name)
        # Ray installs a handler of its own, which would bypass this log.
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(level)


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
        said = f"{_time(record)} {record.levelname} {record.name}: {message}"
        for name, value in self._fields(record).items():
            said += f" {name}={_shown(value)}"
        more = (_MARGIN + escaped(line) for line in self._detail(record).splitlines())
        return "\n".join([said, *more])


class JsonFormatter(_Formatter):
    """A record as JSON on one line: `time`, `level`, `logger`, `message`, the fields, `detail`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record without a line end."""
        said: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._hidden(record.getMessage()),
            **self._fields(record),
        }
        if detail := self._detail(record):
            said["detail"] = detail
        return _json(said)


def escaped(text: str) -> str:
    """Return a text with its unprintable characters escaped as in Python."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _finite(value: object) -> object:
    """Return a number that JSON does not have, an infinity or none at all, as a text."""
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


INTERVAL_S: Final = 10.0

_log = logging.getLogger("rule_detector.requests")


class ThrottleLog:
    """Collects refusals, and logs them at most once in INTERVAL_S."""

    def __init__(
        self, message: str, causes: Sequence[str], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """`causes` are in the order of the line's fields."""
        self._message = message
        self._causes = causes
        self._now_s = now_s
        self._said_s = -math.inf
        self._unsaid: Counter[str] = Counter()

    def note(self, causes: Counter[str]) -> None:
        """Add refusals by cause, and log all that are not logged yet if it is time. Call it regularly."""
        self._unsaid += causes
        now_s = self._now_s()
        if not self._unsaid or now_s - self._said_s < INTERVAL_S:
            return
        self._said_s = now_s
        by_cause = {cause: self._unsaid[cause] for cause in self._causes if self._unsaid[cause]}
        fields = {"count": self._unsaid.total(), **by_cause}
        self._unsaid = Counter()
        _log.warning("%s", self._message, extra={FIELDS: fields})
