"""A firing as the feed keeps it: which rule fired, when, for which keys, and why."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from engine.evaluation.rules import Labels
from engine.language.json.writer import json_bytes

_WIRE_NAMES: Final = {"rule_id": "ruleId"}


class Why(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """In short, why a rule fired."""

    version: int
    """The version that the rule had."""
    condition: str
    """The text of its condition, cut where it is long."""
    witnesses_ms: Mapping[str, float] = {}
    """The times of the events that made what looks back true, by its texts."""


class Firing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_WIRE_NAMES):
    """An entry of a feed; its rule's name, priority and labels are those that the rule had then."""

    seq: int
    time_ms: float
    """The detector's time of the event, or when time alone made the rule true."""
    rule_id: str
    name: str
    priority: int
    keys: Mapping[str, Any]
    """The values of the rule's keys, cut where they are long. A key that the event lacks is absent."""
    found: Mapping[str, Any] = {}
    """What its counting members and terms found, by their texts."""
    labels: Labels = {}
    suppressed: int = 0
    """How many firings for the same keys were held back since the one before."""
    timed: bool = False
    """Whether time alone made the rule true."""
    why: Why

    def in_short(self) -> "Firing":
        """Return the firing without what its rule found, and without witnesses."""
        why = Why(version=self.why.version, condition=self.why.condition)
        return msgspec.structs.replace(self, found={}, why=why)

    def as_json(self) -> bytes:
        """Return the firing as callers get it."""
        try:
            return _encode(self)
        except OverflowError:
            # msgspec encodes no integers past 64 bits.
            return json_bytes(msgspec.to_builtins(self, builtin_types=(int,)))


_encode: Final = msgspec.json.Encoder().encode
