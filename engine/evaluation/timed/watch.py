"""One timed rule: which of its slices are live, and when time may turn the verdict of each."""

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
"""After any event, this is before LATEST."""

ENTRY_BYTES: Final = 200
"""What a slice that waits takes: in the table, in the queue, and its numbers."""

_BETWEEN: Final = 256
"""How many slices are queued in about a millisecond."""

Waiting = tuple[int, dict[str, Any]]
"""A slice that waits: the number of its first event, and the values of its keys by name."""


class Watch:
    """A timed rule, whose histories have some births. Its slices wait in the queue for their time."""

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
        """After all stamps that were written before it was made."""
        self.names = keys_of(rule.condition)
        self.table = Table()
        self.long: dict[Hashable, tuple[Any, ...]] = {}
        """The values of keys of which a digest is kept, because they are long."""
        self.rest = [LATEST]
        """The stamp of the time at which something may turn that slices share: then all are looked at."""
        self._histories, self._deciders, self._queue = histories, deciders, queue
        self._buckets = Buckets(queue, rule.priority)
        self.parts = [*parts_under(self.names, rule.condition, births, histories)]
        self._movement = Movement(self.names, rule.condition, births, deciders)
        self._own, self._shared = self._grouped()
        self._groups = [*self._own, *self._shared]
        shares_keyed = any(slices.path for slices, _ in self._shared)
        is_one = len(self._own) == 1 and not shares_keyed
        self.begins_unchanged = shares_keyed or not self.names
        """Whether a slice waits from its first event, even one that changes nothing: without keys, and where
        slices of fewer keys remember something before the first event with all of them."""
        self.is_late = False
        """Whether it waits so, too, as slices may remember something from before the rule waited for any: the
        rule has become timed, or has got other keys and kept its history."""
        self.keys = RuleKeys(self.names, self._own[0][0] if is_one else None)
        self.path = self.keys.path
        """That of the slices whose keys the table has; None if it has those of several paths together."""
        moving = self._movement.moving
        self._is_moved = bool(moving.stepping or moving.stepping_by_slice or moving.crossing)
        """Whether time changes it besides by what leaves a window."""
        self.own_parts = [part for _, parts in self._own for part in parts]
        self.shared_parts = [part for _, parts in self._shared for part in parts]
        self.soonest = None if moving.crossing else _soonest(self.own_parts)
        """No event makes time turn a verdict sooner after it, as a difference of stamps; None if that is not
        known: then each event of a slice is looked at."""
        self.shared_soonest = None if moving.crosses_shared else _soonest(self.shared_parts)
        """The same of what an event changes that slices share."""
        self._rises = self._is_moved or any(part.matters for part in self.parts)
        """Whether time may make its verdict true."""
        self._around = self._entries()
        self._made_looks: Looks | None = None
        self._decide: Decide | None = None
        if self.path:
            self._own[0][0].dropped.append(self.dropped)

    def _grouped(self) -> tuple[list[tuple[Slices, list[Part]]], list[tuple[Slices, list[Part]]]]:
        """Return the parts by their slices: those of all keys, and those that several keys share."""
        by_slices: dict[Slices, list[Part]] = {}
        for part in self.parts:
            by_slices.setdefault(part.slices, []).append(part)
        own = [one for one in by_slices.items() if {*map(fact_of, one[0].path)} == {*self.names}]
        return own, [one for one in by_slices.items() if one not in own]

    @property
    def is_idle(self) -> bool:
        """Whether no slice of its keys remembers anything, so that it never fires by time.

        Where time turns nothing, slices wait all the same: a change may keep what they remember, and turn it.
        """
        if self.names:
            return not any(part.slices.path for part in self.parts)
        return not self.parts and not self._is_moved

    def rules_changed(self) -> None:
        """Make functions anew when they are needed: patterns may be searched for together with others."""
        self._made_looks = self._decide = None
        self._movement.rules_changed()

    def end(self) -> None:
        """Forget all slices."""
        for slices, _ in self._own:
            if self.dropped in slices.dropped:
                slices.dropped.remove(self.dropped)
        for entry in [*self.table]:
            self.dropped(entry[3])
        self._buckets.clear()

    @property
    def shards(self) -> list[dict[Hashable, Entry]]:
        """The table's, for generated code."""
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
        """See what an event has made of the slice of a key, and perhaps, as is known, changed in it."""
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
        """Return whether an event has changed what is remembered of its keys. From then on, a slice waits."""
        for slices, parts in self._groups:
            is_of_key = self.path is not None and slices.path == self.path
            slice_ = slices.find(key) if is_of_key else slices.at(fields, sent)
            if slice_ and any(part.is_changed(slice_, stamp) for part in parts):
                return True
        return False

    def share(self, stamp: int, fields: Mapping[str, Any], sent: Mapping[str, Any] | None) -> None:
        """See what an event has made of what slices share."""
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
        """See what an event has made of its slices, whatever their keys."""
        if self._shared:
            self.share(stamp, fields, sent)
        key = self.keys.key_at(fields, sent or _NOTHING)
        if key is not None:
            self.touch(key, stamp, fields, sent)

    @property
    def shares(self) -> bool:
        """Whether there is something that slices share."""
        return bool(self._shared)

    def put(self, entry: Entry) -> None:
        """Have a slice wait that does not wait yet."""
        self.table.put(entry)
        self._weigh(ENTRY_BYTES)
        if entry[0] < LATEST:
            self._queue.push(entry)

    def dropped(self, key: Hashable) -> None:
        """Forget a slice, if it waits."""
        if self.long:
            self.long.pop(key, None)
        if self.table.remove(key):
            self._weigh(-ENTRY_BYTES)

    def _forget_dead(self, now_us: int) -> None:
        """Have two slices that nothing else looks at forgotten if they are live no more.

        They are of several paths, and are told of no slice that is dropped. Two for each new one will do.
        """
        for entry in islice(self._around, 2):
            if entry[0] == LATEST and self._ahead(entry[3], now_us)[1] < now_us:
                self.dropped(entry[3])

    def _entries(self) -> Iterator[Entry]:
        """Yield the entries of the table again and again. It must not be empty."""
        while True:
            for number in range(len(self.table.shards)):
                yield from [*self.table.shards[number].values()]

    def copy_from(self, other: "Watch", fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Event | None:
        """Have the slice of an event wait as it does in another watch of the rule, for what it shares, too.

        Return the event that has only its keys; None if it does not have them all.
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
        """Have an entry of the table wait, given the stamp of the time."""
        if not self._is_moved:
            self._buckets.put(entry, now)
        elif entry[0] < LATEST:
            # Time alone moves it, so that no event puts it off.
            self._queue.push(entry)

    def _weigh(self, more_bytes: int) -> None:
        if self.path:
            self._own[0][0].weigh(more_bytes)
        else:
            self._histories.unkeyed_bytes += more_bytes

    # -- time -----------------------------------------------------------------------------------------------

    def sift(self, entries: list[Entry], bucket: Bucket, between: Callable[[], None]) -> None:
        """Find when time may turn the verdicts of the slices of a bucket, whose time begins.

        `between` is called about once in a millisecond.
        """
        for start in range(0, len(entries), _BETWEEN):
            between()
            self._looks.sift(entries[start : start + _BETWEEN], bucket.start, bucket.end)

    def look(self, entry: Entry) -> tuple[bool, dict[str, Any] | None]:
        """Look at a slice when its time has come, and have it wait for the next if it is still live.

        Return whether it may have turned, and its keys if the rule fires.
        """
        due, priority, first, key = entry
        now_us, keys = time_of(due), None
        next_us, until_us = self._ahead(key, now_us - 1)
        # Perhaps an event has come since it was queued, and it turns later.
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
        """Have no slice be looked at up to the time of a stamp: none fires."""
        # What slices share is among what each is looked at for from now on.
        rests = self.rest[0] <= base
        self.rest[0] = LATEST if rests else self.rest[0]
        for entry in [*self.table]:
            if rests or entry[0] <= base:
                self._look_again(entry, time_of(base))

    def look_at_all_from(self, time_us: int) -> None:
        """Have all slices looked at once a time has come."""
        self.rest[0] = time_us << NUMBER_BITS
        self._queue.push((self.rest[0], ALL, self.rule.priority, None))

    def look_at_all(self, due: int, between: Callable[[], None]) -> None:
        """Have all slices looked at at a time. `between` is called about once in a millisecond."""
        self.rest[0] = LATEST
        for number, entry in enumerate([*self.table]):
            if not number % _BETWEEN:
                between()
            if entry[0] > due:
                again = (due, *entry[1:])
                self.table.put(again)
                self._queue.push(again)

    def _look_again(self, entry: Entry, now_us: int) -> None:
        """Find anew when time may turn the verdict of a slice; forget it if it is live no more."""
        next_us, until_us = self._ahead(entry[3], now_us)
        if until_us < now_us:
            self.dropped(entry[3])
            return
        again = (next_us << NUMBER_BITS if next_us <= LATEST_US else LATEST, *entry[1:])
        self.table.put(again)
        self._wait(again, now_us << NUMBER_BITS)

    def waiting(self) -> list[Waiting]:
        """Return the slices that wait: for each the number of its first event, and its keys."""
        return [(first, self.keys.values(key, self.long.get(key))) for _, _, first, key in self.table]

    def adopt(self, waiting: Sequence[Waiting], now_us: int) -> None:
        """Wait for slices that another rule of the same keys has waited for, from a time on."""
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
        """Return the event that has only a key."""
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
