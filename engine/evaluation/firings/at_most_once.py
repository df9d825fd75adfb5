"""Rules with `every_secs` act at most once in that time, for each combination of values of some names.

A combination for which a rule has acted has an entry. It expires when the rule may act again, unless actions
were suppressed: the next action reports how many, so the entry stays until then. Entries count towards the
bounds on keys and bytes, like slices; beyond a bound, the entry whose rule has not fired for longest is
evicted.

An entry is a list like a slice: the rank of its last firing among all, nothing, the number for `bounds`, the
time from which the rule may act again, and the number of suppressed actions.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

from engine.evaluation.facts.look_up import Name, split_name
from engine.evaluation.facts.values import (
    KEY_CHARS_MAX,
    LONG_TEXT,
    Event,
    canonical,
    part_of_key,
    slice_key_of,
)
from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import (
    FIRST,
    PLACE_BYTES,
    SEEN,
    SHARDS,
    SLICE_BYTES,
    Slice,
)
from engine.evaluation.stamps import EVENT, NUMBER_BITS, WITHIN_BITS
from engine.evaluation.times import FOREVER, NEVER

FREE_US: Final = FIRST
HELD_BACK: Final = FIRST + 1
"""The places of these two in an entry."""

ENTRY_BYTES: Final = SLICE_BYTES + 2 * PLACE_BYTES
"""The size of an entry without its key."""

_NO_TEXT: Final = "\ud800"
"""Distinguishes the digest of an array or object from that of a text. No text has a lone surrogate."""


_EMPTY: Final[dict[Hashable, Slice]] = {}
"""A shared empty shard, which is never written: most detectors never have entries."""


class _Plan(NamedTuple):
    """The data that are computed once per rule."""

    every_us: int
    names: tuple[Name, ...]
    part: Any
    """The first part of its keys."""


class AtMostOnce:
    """The entries of a detector's rules that act at most once in some time."""

    path: Final = ("",)
    """The name of these entries among the paths of slices; it is not a fact."""
    memories: Final[Mapping[int, Any]] = {}

    def __init__(self, histories: Histories, compared: Collection[str]) -> None:
        """`compared` has the ids of the rules that are compared with drafts."""
        self._histories, self._compared = histories, compared
        self.shards: list[MutableMapping[Hashable, Slice]] = [_EMPTY] * SHARDS
        self.touched: list[Hashable] = []
        """The keys of the latest events, while a bound is near."""
        self.held_back: Counter[int] = Counter()
        """The total number of suppressed actions of each rule, by priority."""
        self.held_at: dict[int, list[Rule]] = {}
        """The suppressed rules that are compared, by the number of the event. The detector removes them."""
        self._plans: dict[int, _Plan] = {}
        """The rules that act at most once, by priority."""
        self._entries: Counter[int] = Counter()
        """The number of entries of each rule."""
        self.last = 0
        """The rank of the last firing."""
        self.changed: set[int] = set()
        """The rules whose entries `settle` drops."""
        histories.bound(self)

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    # -- rules ----------------------------------------------------------------------------------------------

    def put(self, before: Rule | None, rule: Rule) -> None:
        """Add or update a rule. Its entries are dropped if what its actions depend on has changed."""
        if before is not None and _asked(before) != _asked(rule):
            self._forget(rule.priority)
        if rule.acts_at_most_once:
            names = tuple(map(split_name, rule.every_names))
            self._plans[rule.priority] = _Plan(rule.every_us, names, part_of_key(rule.priority))

    def remove(self, priority: int) -> None:
        """Drop a removed rule."""
        self._forget(priority)
        del self.held_back[priority]

    def _forget(self, priority: int) -> None:
        self._plans.pop(priority, None)
        if self._entries[priority]:
            self.changed.add(priority)

    def settle(self) -> None:
        """Drop the entries of changed rules. Call this before the next event."""
        self._histories.renew()
        for shard in self.shards:
            for key in [key for key in shard if _priority_in(key) in self.changed]:
                self.drop(key)
        self.changed.clear()

    # -- events ---------------------------------------------------------------------------------------------

    def note(self, fired: Fired, fields: Mapping[str, Any], sent: Mapping[str, Any], stamp: int) -> Fired:
        """Return the rules that act at an event; store suppressed ones that are compared in `held_at`."""
        acting = self.acting(fired, fields, sent, stamp)
        if acting is not fired and self._compared:
            ids = {rule.id for rule in acting}
            held = [rule for rule in fired if rule.id in self._compared and rule.id not in ids]
            if held:
                self.held_at[stamp & EVENT] = held
        return acting

    def acting(
        self,
        fired: Fired,
        fields: Mapping[str, Any],
        sent: Mapping[str, Any],
        stamp: int,
        *,
        dry: bool = False,
    ) -> Fired:
        """Return which of the rules that fire at an event act, with the numbers of suppressed actions.

        With `dry`, nothing changes.
        """
        plans = self._plans
        if not plans:
            return fired
        given: list[Rule] = []
        as_before = True
        for rule in fired:
            plan = plans.get(rule.priority)
            acts = rule if plan is None else self._acts(rule, plan, _key(plan, fields, sent), stamp, dry=dry)
            if acts is not None:
                given.append(acts)
            as_before = as_before and acts is rule
        # Return the same tuple for the same rules, for which results may be cached.
        return fired if as_before else tuple(given)

    def _acts(self, rule: Rule, plan: _Plan, key: Hashable, stamp: int, *, dry: bool) -> Rule | None:
        entry, now_us = self.shards[hash(key) % SHARDS].get(key), stamp >> NUMBER_BITS
        is_free = entry is None or now_us >= entry[FREE_US]
        held_back = entry[HELD_BACK] if entry is not None else 0
        if not dry:
            # Firings between two events are ranked one after another, after the slices of the first event.
            order = max((stamp & EVENT) << WITHIN_BITS, self.last) + 1
            if entry is None:
                self.restore(key, order, now_us + plan.every_us, 0)
            elif is_free:
                entry[SEEN], entry[FREE_US], entry[HELD_BACK] = order, now_us + plan.every_us, 0
            else:
                entry[SEEN], entry[HELD_BACK] = order, held_back + 1
                self.held_back[rule.priority] += 1
            self.last = order
            if self._histories.tracking:
                self.touched.append(key)
        if not is_free:
            return None
        return replace(rule, suppressed=held_back) if held_back else rule

    def free_us(self, rule: Rule, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> int:
        """Return the time from which a rule with a bound may act again for the values of an event."""
        entry = self.find(_key(self._plans[rule.priority], fields, sent))
        return NEVER if entry is None else entry[FREE_US]

    def copy_from(self, other: "AtMostOnce", events: Sequence[Event]) -> None:
        """Copy the entries for some events from another detector with these rules."""
        for plan in self._plans.values() if len(other) else ():
            for key in {_key(plan, fields, sent or {}) for fields, _, sent in events}:
                entry = other.find(key)
                if entry is not None:
                    self.restore(key, entry[SEEN], entry[FREE_US], entry[HELD_BACK])

    # -- bounds: as slices have them ------------------------------------------------------------------------

    def restore(self, key: Hashable, order: int, free_us: int, held_back: int) -> None:
        """Add an entry."""
        number = hash(key) % SHARDS
        if self.shards[number] is _EMPTY:
            self.shards[number] = {}
        self.shards[number][key] = [order, None, -1, free_us, held_back]
        self._entries[_priority_in(key)] += 1
        self._histories.weigh(ENTRY_BYTES + key_bytes(key), 1)

    def find(self, key: Hashable) -> Slice | None:
        """Return the entry of a key, or None."""
        return self.shards[hash(key) % SHARDS].get(key)

    def drop(self, key: Hashable) -> None:
        """Drop an entry. Then the rule acts when it next fires for these values."""
        del self.shards[hash(key) % SHARDS][key]
        self._entries[_priority_in(key)] -= 1
        self._histories.weigh(-ENTRY_BYTES - key_bytes(key), -1)

    def last_seen(self, entry: Slice) -> int:
        """Return the rank of an entry's last firing among all firings and events of slices."""
        return entry[SEEN]  # type: ignore[no-any-return]

    def first_until_us(self, entry: Slice) -> int:
        """Return the last time at which an entry can matter."""
        return FOREVER if entry[HELD_BACK] else entry[FREE_US] - 1

    def drop_expired(self, entry: Slice, now_us: int) -> tuple[bool, bool]:
        """Return whether an entry can no longer matter, and whether it remains."""
        remains = self.first_until_us(entry) >= now_us
        return not remains, remains


def _asked(rule: Rule) -> tuple[Any, ...]:
    """Return what the actions of a rule depend on. If it changes, entries are dropped."""
    return rule.enabled, rule.shadow, rule.condition, rule.every_secs, rule.every_by


def _key(plan: _Plan, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Hashable:
    parts = [plan.part]
    for name in plan.names:
        value = name.look(sent if name.of_vars else fields)
        is_short = type(value) is str and len(value) <= KEY_CHARS_MAX
        parts.append(value if is_short else part_of_key(_part(value)))
    return tuple(parts)


def _part(value: Any) -> Any:
    """Return the form of a value in a key; None if it is missing."""
    if type(value) is list or type(value) is dict:
        text = _NO_TEXT + canonical(value)
        return LONG_TEXT, sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return slice_key_of(value)


def _priority_in(key: Any) -> int:
    return int(key[0])
