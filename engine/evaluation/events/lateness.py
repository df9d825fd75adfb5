"""Messages and refusals for events that are late or ahead of the clock."""

import re
from typing import Final

from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

_DECADES_US: Final = 1_000_000_000_000_000
"""An event that is 30 years late or ahead probably has its time in another unit."""
_PLAUSIBLE_FROM_MS: Final = 315_532_800_000
"""The beginning of 1980. A time in seconds is before it until the year 11968."""
_PLAUSIBLE_TO_MS: Final = 4_133_980_800_000
"""The end of 2100. A time in microseconds is after it from February 1970 on."""

_LATE: Final = re.compile(rb"the event came ([0-9]{1,16}(?:[.][0-9]{1,3})?) ms late")
_GAP: Final = b"\0"
"""Stands for a lateness. Encoded messages have no such byte."""
LATE_US_MAX: Final = 2**32 - 1
"""The longest lateness that is taken out of messages: more than an hour."""


def late(late_us: int) -> Entry:
    """Return the message about a late event."""
    return Entry(2001, f"the event came {_ms(late_us)} ms late and was evaluated at the detector's time")


def not_milliseconds(timestamp_ms: float) -> list[Entry]:
    """Return the message about the time of a detector's first event, if the time is implausible."""
    if _PLAUSIBLE_FROM_MS <= timestamp_ms < _PLAUSIBLE_TO_MS:
        return []
    when = "before 1980" if timestamp_ms < _PLAUSIBLE_FROM_MS else "after 2100"
    said = f"the detector's first event is {when}: timestamp_ms counts milliseconds since 1970; it set the "
    return [Entry(2007, f"{said}detector's clock, so send the right times to a new detector")]


def too_late(late_us: int, limits: Limits) -> Refusal:
    """Return the Refusal for an event that is too late."""
    said = f"the event is {_ms(late_us)} ms late, at most {limits.late_ms_max} ms are accepted; "
    why = "the first event sets a detector's clock, so send recorded events to a new detector"
    hint = "; timestamp_ms counts milliseconds, not seconds" if late_us > _DECADES_US else ""
    return Refusal(Entry(1402, said + why + hint))


def too_far_ahead(ahead_us: int, limits: Limits) -> Refusal:
    """Return the Refusal for an event or a tick that is too far ahead of the server's clock."""
    said = f"the time is {_ms(ahead_us)} ms ahead of the server's; "
    hint = "; timestamp_ms counts milliseconds since 1970" if ahead_us > _DECADES_US else ""
    return Refusal(Entry(1402, f"{said}at most {limits.ahead_ms_max} ms are accepted{hint}"))


def without_lateness(messages: bytes) -> tuple[bytes, int]:
    """Return encoded messages with a gap in place of the lateness, and the lateness; 0 if they name none.

    So messages about events that differ only in their lateness are equal.
    """
    found = _LATE.search(messages)
    if found is not None:
        late_us = round(float(found[1]) * 1_000)
        common = messages[: found.start(1)] + _GAP + messages[found.end(1) :]
        if late_us <= LATE_US_MAX and with_lateness(common, late_us) == messages:
            return common, late_us
    return messages, 0


def with_lateness(common: bytes, late_us: int) -> bytes:
    """Return the messages that `without_lateness` took apart."""
    return common.replace(_GAP, _ms(late_us).encode())


def _ms(duration_us: int) -> str:
    """Return microseconds as milliseconds, without trailing zeros."""
    return f"{duration_us / 1_000:.3f}".rstrip("0").rstrip(".")
