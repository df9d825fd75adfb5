"""The keys of a timed rule: their values, and the key in its table that stands for them."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from engine.evaluation.facts.look_up import split_name, value_of
from engine.evaluation.facts.values import LONG_TEXT, part_of_key, scalar_of, slice_key_of
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.slices.slices import Slices

Long = tuple[Any, ...] | None
"""The values of a key of which a digest is kept, because it is long."""


class Event(NamedTuple):
    """An event that has only the keys of a rule."""

    fields: dict[str, Any]
    sent: dict[str, Any]


class RuleKeys:
    """The keys of one rule, by name. If all its slices are of one path, they are in `slices`."""

    def __init__(self, names: Sequence[str], slices: Slices | None) -> None:
        self.names = names
        self.path: Path | None = None if slices is None else slices.path
        """That of the slices whose keys are used; None if there are those of several paths together."""
        self.is_single = self.path is not None and len(self.path) == 1
        self._slices = slices
        self._in_key = names if self.path is None else [fact_of(step) for step in self.path]
        self._split = [split_name(name) for name in names]
        self._has_variables = any(name.startswith("$") for name in names)

    def key_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Hashable | None:
        """Return the key of an event, if it has all keys of the rule."""
        if self._slices is not None:
            return self._slices.key_at(fields, sent) if self.path else ()
        parts = [slice_key_of(value_of(split, fields, sent)) for split in self._split]
        return None if None in parts else tuple(map(part_of_key, parts))

    def long_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the values of an event's keys."""
        return tuple([value_of(split, fields, sent) for split in self._split])

    def values(self, key: Any, long: Long) -> dict[str, Any]:
        """Return the values of a key by name."""
        if long is not None:
            return dict(zip(self.names, long, strict=True))
        if self.is_single:
            return {self._in_key[0]: scalar_of(key)}
        return dict(zip(self._in_key, map(scalar_of, self._parts_of(key)), strict=True))

    def event(self, key: Any, long: Long) -> Event:
        """Return the event that has only a key."""
        values = self.values(key, long)
        return event_of(values) if self._has_variables else Event(values, {})

    def event_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Event:
        """Return the event that has only the keys of an event."""
        return event_of(dict(zip(self.names, self.long_at(fields, sent), strict=True)))

    def is_long(self, key: Any) -> bool:
        """Return whether a key is, or has, the digest of a long text."""
        return any(type(part) is tuple and part[0] == LONG_TEXT for part in self._parts_of(key))

    def _parts_of(self, key: Any) -> tuple[Any, ...]:
        return (key,) if self.is_single else key


def event_of(values: Mapping[str, Any]) -> Event:
    """Return the event that has only some keys, given their values by name."""
    fields, sent = dict[str, Any](), dict[str, Any]()
    for name, value in values.items():
        if name.startswith("$"):
            sent[name[1:]] = value
        else:
            fields[name] = value
    return Event(fields, sent)
