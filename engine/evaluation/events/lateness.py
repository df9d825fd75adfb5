"""Messages and refusals for events that are late or ahead of the clock."""

import re
from typing import Final

from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

_DECADES_US: Final = 1_000_000_000_000_000
"""An event that is later than 30 years probably has its time in seconds."""

_LATE: Final = re.compile(rb"the event came ([0-9]{1,16}(?:[.][0-9]{1,3})?) ms late")
_GAP: Final = b"\0"
"""Stands for a lateness. Encoded messages have no such byte."""
LATE_US_MAX: Final = 2**32 - 1
"""The longest lateness that is taken out of messages: more than an hour."""


def late(late_us: int) -> Entry:
    """Return the message about a late event."""
    return Entry(2001, f"the event came {_ms(late_us)} ms late and was evaluated at the detector's time")


def too_late(late_us: int, limits: Limits) -> Refusal:
    """Return the Refusal for an event that is too late."""
    said = f"the event is {_ms(late_us)} ms late, at most {limits.late_ms_max} ms are accepted; "
    why = "the first event sets a detector's clock, so send recorded events to a new detector"
    hint = "; timestamp_ms counts milliseconds, not seconds" if late_us > _DECADES_US else ""
    return Refusal(Entry(1402, said + why + hint))


def too_far_ahead(ahead_us: int, limits: Limits) -> Refusal:
    """Return the Refusal for an event that is too far ahead of the server's clock."""
    said = f"the event is stamped {_ms(ahead_us)} ms ahead of the server's time; "
    return Refusal(Entry(1402, f"{said}at most {limits.ahead_ms_max} ms are accepted"))


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
