"""The feed of a detector: a ring of its latest firings, numbered from 1. Numbers are never reused."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from engine.evaluation.rules import Labels
from engine.language.json.writer import json_bytes
from engine.language.limits import Limits

_WIRE_NAMES: Final = {"rule_id": "ruleId"}


class Why(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A short reason for a firing."""

    version: int
    """The version of the rule at that time."""
    condition: str
    """The text of its condition, cut if long."""
    witnesses_ms: Mapping[str, float] = {}
    """The times of the events that made its members true, by their texts."""


class Firing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_WIRE_NAMES):
    """An entry of a feed, with the rule's name, priority and labels at that time."""

    seq: int
    time_ms: float
    """The time of the event by the detector's clock, or the time at which time alone made the rule true."""
    rule_id: str
    name: str
    priority: int
    keys: Mapping[str, Any]
    """The values of the rule's keys; long ones are cut. Keys that the event lacks are absent."""
    found: Mapping[str, Any] = {}
    """The values of its counting members and terms, by their texts."""
    labels: Labels = {}
    suppressed: int = 0
    """How many firings for the same keys were suppressed since the previous one."""
    timed: bool = False
    """Whether time alone made the rule true."""
    why: Why

    def in_short(self) -> "Firing":
        """Return the firing without the values found and witnesses."""
        why = Why(version=self.why.version, condition=self.why.condition)
        return msgspec.structs.replace(self, found={}, why=why)

    def as_json(self) -> bytes:
        """Return the firing as JSON for callers."""
        try:
            return _encode(self)
        except OverflowError:
            # msgspec does not encode integers beyond 64 bits.
            return json_bytes(msgspec.to_builtins(self, builtin_types=(int,)))


_encode: Final = msgspec.json.Encoder().encode


FEED_BYTES_MAX: Final = 32 * 1024 * 1024
"""The maximum size of the firings of a detector, as JSON."""

PAGE_BYTES_MAX: Final = 1024 * 1024
"""A page ends once its firings have this size."""


class Page(NamedTuple):
    """Some firings, in order."""

    gap: tuple[int, int] | None
    """The first and the last of the requested numbers that are no longer stored."""
    firings: list[bytes]
    """As JSON."""
    next: int
    """The number after which the next page begins."""


class Feed:
    """The latest firings of a detector as JSON, bounded in number and size."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._firings: dict[int, bytes] = {}
        self.last = 0
        """The number of the newest firing; 0 before the first."""
        self.bytes = 0
        self.durable = 0
        """The number of the newest readable firing, which survives crashes. By default, all are readable."""
        self._settles = False

    def settle(self, durable: int) -> None:
        """Make firings readable up to this one, which is durable; later ones are not yet."""
        self.durable, self._settles = durable, True

    def __len__(self) -> int:
        return len(self._firings)

    @property
    def first(self) -> int:
        """The number of the oldest stored firing; one more than `last` if there is none."""
        return self.last - len(self._firings) + 1

    def append(self, firing: bytes) -> None:
        """Add a firing with the next number, and drop the oldest ones beyond the bounds."""
        self.last += 1
        self._firings[self.last] = firing
        self.bytes += len(firing)
        if not self._settles:
            self.durable = self.last
        self._drop()

    def forget(self) -> None:
        """Drop all firings."""
        self._firings.clear()
        self.bytes = 0

    def page(self, after: int, limit: int) -> Page:
        """Return at most `limit` firings after a number, up to `durable`."""
        first = max(after + 1, min(self.first, self.durable + 1))
        firings: list[bytes] = []
        left = PAGE_BYTES_MAX
        for seq in range(first, min(first + limit, self.durable + 1)):
            firings.append(self._firings[seq])
            left -= len(firings[-1])
            if left <= 0:
                break
        gap = (after + 1, first - 1) if first > after + 1 else None
        return Page(gap, firings, first + len(firings) - 1)

    def dump(self) -> tuple[int, list[bytes]]:
        """Return the arguments of `restore`."""
        return self.last, [*self._firings.values()]

    def restore(self, last: int, firings: Iterable[bytes]) -> None:
        """Continue from the result of `dump`, within the bounds."""
        kept = [*firings]
        self._firings = dict(enumerate(kept, last - len(kept) + 1))
        self.last, self.bytes = last, sum(map(len, kept))
        if not self._settles:
            self.durable = last
        self._drop()

    def _drop(self) -> None:
        while self._firings and (
            len(self._firings) > self._limits.firings_max or self.bytes > FEED_BYTES_MAX
        ):
            self.bytes -= len(self._firings.pop(self.first))
