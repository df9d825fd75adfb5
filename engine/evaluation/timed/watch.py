"""One timed rule: its live slices, and when time may turn the verdict of each."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from engine.evaluation.paths import fact_of
from engine.evaluation.requirements import Births, keys_of
from engine.evaluation.rules import Rule
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import Slices
from engine.evaluation.stamps import EVENT, LATEST, LATEST_US, NUMBER_BITS, UNSET, stamp_of, time_of
from engine.evaluation.timed.changes import (
    Decide,
    Deciders,
    Movement,
    Part,
    parts_under,
)
from engine.evaluation.timed.next_turn import Looks, looks
from engine.evaluation.timed.queue import ALL, Bucket, Buckets, Queue
from engine.evaluation.timed.table import NO_SOONEST, Entry, Event, RuleKeys, Table, event_of
from engine.evaluation.times import FOREVER

_NOTHING: Final[Mapping[str, Any]] = {}
_MICROSECOND: Final = 1 << NUMBER_BITS

SOONEST_MAX_US: Final = 1 << 61
"""After any event, this time is before LATEST."""

ENTRY_BYTES: Final = 200
"""The size of a waiting slice: in the table, in the queue, and its numbers."""

_BETWEEN: Final = 256
"""The number of slices queued in about a millisecond."""

Waiting = tuple[int, dict[str, Any]]
"""A waiting slice: the number of its first event, and the values of its keys by name."""


class Watch:
    """A timed rule with the births of its histories. Its slices wait in the queue for their times."""

    def __init__(
        self,
        rule: Rule,
        births: Births,
        histories: Histories,
        deciders: Deciders,
        *,
        queue: Queue,
        now_us: int | None,
    ) -> None:
        self.rule, self.births = rule, births
        self.made = UNSET if now_us is None else stamp_of(now_us, EVENT)
        """A stamp after all those written before it was made."""
        self.names = keys_of(rule.condition)
        self.table = Table()
        self.long: dict[Hashable, tuple[Any, ...]] = {}
        """The values of keys with long texts, which the keys have only as digests."""
        self.rest = [LATEST]
        """The stamp of the time at which state that slices share may turn, so all are checked."""
        self._histories, self._deciders, self._queue = histories, deciders, queue
        self._buckets = Buckets(queue, rule.priority)
        self.parts = [*parts_under(self.names, rule.condition, births, histories)]
        self._movement = Movement(self.names, rule.condition, births, deciders)
        self._own, self._shared = self._grouped()
        self._groups = [*self._own, *self._shared]
        shares_keyed = any(slices.path for slices, _ in self._shared)
        is_one = len(self._own) == 1 and not shares_keyed
        self.begins_unchanged = shares_keyed or not self.names
        """Whether a slice waits from its first event, even if that changes nothing: without keys, and if
        slices of fewer keys may have state from before the first event with all keys."""
        self.is_late = False
        """Whether a slice waits from its first event because it may have state from before any slice of the
        rule waited: the rule has become timed, or has other keys but kept its history."""
        self.keys = RuleKeys(self.names, self._own[0][0] if is_one else None)
        self.path = self.keys.path
        """The path of the slices whose keys the table has; None if they are of several paths."""
        moving = self._movement.moving
        self._is_moved = bool(moving.stepping or moving.stepping_by_slice or moving.crossing)
        """Whether time changes verdicts other than by events leaving windows."""
        self.own_parts = [part for _, parts in self._own for part in parts]
        self.shared_parts = [part for _, parts in self._shared for part in parts]
        self.soonest = None if moving.crossing else _soonest(self.own_parts)
        """The minimum time after an event until time may turn a verdict, as a difference of stamps. If None,
        it is unknown, and each event of a slice is checked."""
        self.shared_soonest = None if moving.crosses_shared else _soonest(self.shared_parts)
        """The same for state that slices share."""
        self._rises = self._is_moved or any(part.matters for part in self.parts)
        """Whether time may make the verdict true."""
        self._around = self._entries()
        self._made_looks: Looks | None = None
        self._decide: Decide | None = None
        if self.path:
            self._own[0][0].dropped.append(self.dropped)

    def _grouped(self) -> tuple[list[tuple[Slices, list[Part]]], list[tuple[Slices, list[Part]]]]:
        """Return the parts by slices: those of all keys, and those that several keys share."""
        by_slices: dict[Slices, list[Part]] = {}
        for part in self.parts:
            by_slices.setdefault(part.slices, []).append(part)
        own = [one for one in by_slices.items() if {*map(fact_of, one[0].path)} == {*self.names}]
        return own, [one for one in by_slices.items() if one not in own]

    @property
    def is_idle(self) -> bool:
        """Whether no slice with its keys has state, so it never fires by time.

        Slices wait even if time turns nothing: a change may keep their state, and then time turns it.
        """
        if self.names:
            return not any(part.slices.path for part in self.parts)
        return not self.parts and not self._is_moved

    def rules_changed(self) -> None:
        """Discard generated functions, because patterns may be searched for together with others."""
        self._made_looks = self._decide = None
        self._movement.rules_changed()

    def end(self) -> None:
        """Drop all slices."""
        for slices, _ in self._own:
            if self.dropped in slices.dropped:
                slices.dropped.remove(self.dropped)
        for entry in [*self.table]:
            self.dropped(entry[3])
        self._buckets.clear()

    @property
    def shards(self) -> list[dict[Hashable, Entry]]:
        """The shards of the table, for generated code."""
        return self.table.shards

    # -- slices ---------------------------------------------------------------------------------------------

    def touch(
        self,
        key: Hashable,
        stamp: int,
        fields: Mapping[str, Any],
        sent: Mapping[str, Any] | None,
        *,
        is_changed: bool = False,
    ) -> None:
        """Update the slice of a key after an event. `is_changed` tells that its state has changed."""
        entry = self.table.get(key)
        if entry is not None and self.soonest is not None and entry[0] <= stamp + self.soonest:
            return
        if (
            entry is None
            and not (is_changed or self.begins_unchanged or self.is_late)
            and not self._is_changed(key, stamp, fields, sent or _NOTHING)
        ):
            return
        now_us = time_of(stamp)
        if entry is None and self.keys.is_long(key):
            self.long[key] = self.keys.long_at(fields, sent or _NOTHING)
        next_us, until_us = self._ahead(key, now_us)
        if until_us < now_us:
            self.dropped(key)
            return
        due = next_us << NUMBER_BITS if next_us <= LATEST_US else LATEST
        if entry is None:
            entry = (due, self.rule.priority, stamp & EVENT, key)
            self.table.put(entry)
            self._weigh(ENTRY_BYTES)
            self._wait(entry, stamp)
            if self.path is None:
                self._forget_dead(now_us)
        elif due < entry[0]:
            entry = (due, *entry[1:])
            self.table.put(entry)
            self._wait(entry, stamp)

    def _is_changed(
        self, key: Hashable, stamp: int, fields: Mapping[str, Any], sent: Mapping[str, Any]
    ) -> bool:
        """Return whether an event has changed the state for its keys. From then on, its slice waits."""
        for slices, parts in self._groups:
            is_of_key = self.path is not None and slices.path == self.path
            slice_ = slices.find(key) if is_of_key else slices.at(fields, sent)
            if slice_ and any(part.is_changed(slice_, stamp) for part in parts):
                return True
        return False

    def share(self, stamp: int, fields: Mapping[str, Any], sent: Mapping[str, Any] | None) -> None:
        """Update the time of shared state after an event."""
        if self.shared_soonest is not None and self.rest[0] <= stamp + self.shared_soonest:
            return
        now_us, rest_us = time_of(stamp), FOREVER
        for slices, parts in self._shared:
            key = slices.key_at(fields, sent or _NOTHING)
            slice_ = None if key is None else slices.find(key)
            if slice_ is not None:
                rest_us = min([rest_us, *(part.ahead(slice_, now_us)[0] for part in parts)])
        if self._movement.moving.crosses_shared:
            rest_us = self._movement.crossed_us(self.keys.event_at(fields, sent or _NOTHING), now_us, rest_us)
        if rest_us <= LATEST_US and rest_us << NUMBER_BITS < self.rest[0]:
            self.look_at_all_from(rest_us)

    def meet(self, stamp: int, fields: Mapping[str, Any], sent: Mapping[str, Any] | None) -> None:
        """Update the slices of an event, whatever their keys."""
        if self._shared:
            self.share(stamp, fields, sent)
        key = self.keys.key_at(fields, sent or _NOTHING)
        if key is not None:
            self.touch(key, stamp, fields, sent)

    @property
    def shares(self) -> bool:
        """Whether slices share state."""
        return bool(self._shared)

    def put(self, entry: Entry) -> None:
        """Add a slice that does not wait yet."""
        self.table.put(entry)
        self._weigh(ENTRY_BYTES)
        if entry[0] < LATEST:
            self._queue.push(entry)

    def dropped(self, key: Hashable) -> None:
        """Drop a slice, if it waits."""
        if self.long:
            self.long.pop(key, None)
        if self.table.remove(key):
            self._weigh(-ENTRY_BYTES)

    def _forget_dead(self, now_us: int) -> None:
        """Check two slices that nothing else checks, and drop them if they are no longer live.

        Nobody reports dropped slices of several paths. Two checks for each new slice suffice.
        """
        for entry in islice(self._around, 2):
            if entry[0] == LATEST and self._ahead(entry[3], now_us)[1] < now_us:
                self.dropped(entry[3])

    def _entries(self) -> Iterator[Entry]:
        """Yield the entries of the table in an endless cycle. The table must not be empty."""
        while True:
            for number in range(len(self.table.shards)):
                yield from [*self.table.shards[number].values()]

    def copy_from(self, other: "Watch", fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Event | None:
        """Copy from another watch of the rule what the slice of an event waits for, and the shared time.

        Return the event that has only its keys; None if it lacks one.
        """
        if other.rest[0] < self.rest[0]:
            self.look_at_all_from(time_of(other.rest[0]))
        key = self.keys.key_at(fields, sent)
        entry = other.table.get(key)
        if entry is not None and self.table.get(key) is None:
            if key in other.long:
                self.long[key] = other.long[key]
            self.put(entry)
        return None if key is None else self.keys.event_at(fields, sent)

    def _wait(self, entry: Entry, now: int) -> None:
        """Queue an entry of the table, given the stamp of the time."""
        if not self._is_moved:
            self._buckets.put(entry, now)
        elif entry[0] < LATEST:
            # Only time moves it, so no event postpones it.
            self._queue.push(entry)

    def _weigh(self, more_bytes: int) -> None:
        if self.path:
            self._own[0][0].weigh(more_bytes)
        else:
            self._histories.unkeyed_bytes += more_bytes

    # -- time -----------------------------------------------------------------------------------------------

    def sift(self, entries: list[Entry], bucket: Bucket, between: Callable[[], None]) -> None:
        """Check the slices of a bucket whose time begins.

        `between` is called about once a millisecond.
        """
        for start in range(0, len(entries), _BETWEEN):
            between()
            self._looks.sift(entries[start : start + _BETWEEN], bucket.start, bucket.end)

    def look(self, entry: Entry) -> tuple[bool, dict[str, Any] | None]:
        """Check a slice whose time has come. It waits for the next time if it is still live.

        Return whether it may have turned, and its keys if the rule fires.
        """
        due, priority, first, key = entry
        now_us, keys = time_of(due), None
        next_us, until_us = self._ahead(key, now_us - 1)
        # If an event has come since it was queued, it may turn later.
        turns = next_us == now_us or self._is_moved
        if turns:
            if self._rises and until_us >= now_us - 1:
                values = self.keys.values(key, self.long.get(key))
                if self._becomes_true(values, due):
                    keys = values
            next_us, until_us = self._ahead(key, now_us)
        if until_us < now_us:
            self.dropped(key)
        else:
            again = (next_us << NUMBER_BITS if next_us <= LATEST_US else LATEST, priority, first, key)
            self.table.put(again)
            self._wait(again, due)
        return turns, keys

    def _becomes_true(self, values: dict[str, Any], due: int) -> bool:
        if self._decide is None:
            self._decide = self._deciders.decider([(self.rule.condition, self.births)])
        event = event_of(values)
        return bool(self._decide(*event, due, 0) and not self._decide(*event, due - _MICROSECOND, 0))

    def skip(self, base: int) -> None:
        """Skip all checks up to the time of a stamp, so that nothing fires."""
        # From now on, the time of each slice includes that of shared state.
        rests = self.rest[0] <= base
        self.rest[0] = LATEST if rests else self.rest[0]
        for entry in [*self.table]:
            if rests or entry[0] <= base:
                self._look_again(entry, time_of(base))

    def look_at_all_from(self, time_us: int) -> None:
        """Schedule a check of all slices at a time."""
        self.rest[0] = time_us << NUMBER_BITS
        self._queue.push((self.rest[0], ALL, self.rule.priority, None))

    def look_at_all(self, due: int, between: Callable[[], None]) -> None:
        """Make all slices due at a time. `between` is called about once a millisecond."""
        self.rest[0] = LATEST
        for number, entry in enumerate([*self.table]):
            if not number % _BETWEEN:
                between()
            if entry[0] > due:
                again = (due, *entry[1:])
                self.table.put(again)
                self._queue.push(again)

    def _look_again(self, entry: Entry, now_us: int) -> None:
        """Compute anew when time may turn the verdict of a slice. Drop it if it is no longer live."""
        next_us, until_us = self._ahead(entry[3], now_us)
        if until_us < now_us:
            self.dropped(entry[3])
            return
        again = (next_us << NUMBER_BITS if next_us <= LATEST_US else LATEST, *entry[1:])
        self.table.put(again)
        self._wait(again, now_us << NUMBER_BITS)

    def waiting(self) -> list[Waiting]:
        """Return the waiting slices: the number of each one's first event, and its keys."""
        return [(first, self.keys.values(key, self.long.get(key))) for _, _, first, key in self.table]

    def adopt(self, waiting: Sequence[Waiting], now_us: int) -> None:
        """Add the waiting slices of another rule with the same keys, from a time on."""
        for first, values in waiting:
            key: Any = self.keys.key_at(*event_of(values))
            if self.keys.is_long(key):
                self.long[key] = tuple([values[name] for name in self.names])
            self.put((LATEST, self.rule.priority, first, key))
        for entry in [*self.table]:
            self._look_again(entry, now_us)

    def _ahead(self, key: Hashable, now_us: int) -> tuple[int, int]:
        """Return when time may turn a verdict next, after a time, and until when the slice is live."""
        next_us, live_us = (self._made_looks or self._looks).ahead(key, now_us)
        if self._is_moved and live_us >= now_us:
            next_us = self._movement.turns_us(self._event(key), now_us, next_us)
        return next_us, live_us

    def _event(self, key: Hashable) -> Event:
        """Return the event that has only this key."""
        return event_of(self.keys.values(key, self.long.get(key)))

    @property
    def _looks(self) -> Looks:
        if self._made_looks is None:
            self._made_looks = looks(
                *(self._groups, self.table, self._buckets),
                path=self.path,
                event=self._event,
                dropped=self.dropped,
            )
        return self._made_looks


def _soonest(parts: Sequence[Part]) -> int | None:
    known = [part.soonest_us for part in parts if part.soonest_us is not None]
    if 0 in known:
        return None
    return min([*known, SOONEST_MAX_US]) << NUMBER_BITS if known else NO_SOONEST
