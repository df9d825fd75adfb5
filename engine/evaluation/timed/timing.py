"""The timed rules of a detector, and the queue of the times at which their verdicts may turn."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, NamedTuple

from engine.evaluation.facts.values import Event
from engine.evaluation.requirements import Births
from engine.evaluation.rules import LiveRule, Rule
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import Remembered, Slices
from engine.evaluation.stamps import LATEST, time_of
from engine.evaluation.timed.watch import Deciders, Waiting, Watch

_log = logging.getLogger(__name__)

LOOKS_MAX: Final = 20_000
"""How often slices are looked at between two events, besides twice for each of them: for some seconds. A rule
about the time of day turns thousands of times while a detector has seen nothing for years."""

_BETWEEN: Final = 64
"""How many slices are looked at in about a millisecond."""

_SPARE: Final = 4_096
"""How many entries more than twice those that wait the queue may have: of slices that wait no more."""


class FiredByTime(NamedTuple):
    """A rule fires because time has passed."""

    rule: Rule
    keys: dict[str, Any]
    """The values of the rule's keys, by name."""
    time_us: int


class Timing:
    """The enabled timed rules of one detector, by priority."""

    def __init__(self, histories: Histories, deciders: Deciders) -> None:
        self._histories, self._deciders = histories, deciders
        self.watches: dict[int, Watch] = {}
        self.due = LATEST
        """The stamp before all events of the time at which a rule may fire next."""
        self.fired: Callable[[FiredByTime, int], None] = lambda *_: None
        """Takes what fires, and the number of the event before it."""
        self._queue: list[tuple[int, int, int, Any]] = []
        self._of_memory: dict[Remembered, list[Watch]] | None = None
        """The rules that an outcome of a memory concerns, while rules are indexed. None until it is known."""
        self._of_slices: dict[Slices, list[Watch]] = {}
        """Those that each event of some slices concerns."""
        self._of_all: list[Watch] = []
        """Those that each event concerns."""

    @property
    def next_due_us(self) -> int | None:
        """When a rule may fire by time next; None if none will unless an event comes."""
        return None if self.due == LATEST else time_of(self.due)

    # -- rules ----------------------------------------------------------------------------------------------

    def put(self, live: LiveRule, now_us: int | None) -> None:
        """Take a rule as it is from now on. What a change keeps of its histories, it goes on to wait for."""
        rule, births = live.rule, live.births
        before = self.watches.get(rule.priority)
        if not (rule.enabled and rule.timed):
            self.remove(rule.priority)
            return
        if before is not None and before.births == births and before.rule.condition == rule.condition:
            before.rule = rule
            return
        watch = self._watch(rule, births)
        waiting: list[Waiting] = []
        if before is not None:
            if births.kept and {*before.names} == {*watch.names}:
                waiting = before.waiting()
            before.end()
            if waiting and (before.path, before.names) != (watch.path, watch.names):
                self._purge()
        self._place(watch, waiting, now_us)

    def exchange(self, one: LiveRule, other: LiveRule, now_us: int | None) -> None:
        """Take two rules that have exchanged their conditions and histories."""
        before = [self.watches.pop(each.rule.priority, None) for each in (one, other)]
        waiting = [[] if old is None else old.waiting() for old in reversed(before)]
        for old in before:
            if old is not None:
                old.end()
        self._purge()
        for live, entries in zip((one, other), waiting, strict=True):
            if live.rule.enabled and live.rule.timed:
                self._place(self._watch(live.rule, live.births), entries, now_us)

    def remove(self, priority: int) -> None:
        """Forget a rule, if it is one of these."""
        watch = self.watches.pop(priority, None)
        if watch is not None:
            watch.end()
        self._changed()

    def rules_changed(self) -> None:
        """See that rules have changed, perhaps others than these."""
        self._of_memory = None
        for watch in self.watches.values():
            watch.rules_changed()

    def _changed(self) -> None:
        self._of_memory = None
        if not self.watches:
            self._queue.clear()
            self.due = LATEST

    def _watch(self, rule: Rule, births: Births) -> Watch:
        return Watch(rule, births, self._histories, self._deciders, self._add)

    def _place(self, watch: Watch, waiting: Sequence[Waiting], now_us: int | None) -> None:
        self.watches.pop(watch.rule.priority, None)
        if watch.is_idle:
            watch.end()
        else:
            self.watches[watch.rule.priority] = watch
            watch.adopt(waiting, now_us or 0)
        self._changed()

    # -- events, while rules are indexed --------------------------------------------------------------------

    def touch(
        self,
        outcomes: Iterable[Remembered],
        entered: Iterable[Slices],
        stamp: int,
        fields: Mapping[str, Any],
        sent: Mapping[str, Any],
    ) -> None:
        """See what an event has made of the slices that it has entered, by the memories that it concerned."""
        of_memory = self._of_memory
        if of_memory is None:
            of_memory = self._index()
        met = [*self._of_all]
        for remembered in outcomes:
            met += of_memory.get(remembered, ())
        if self._of_slices:
            for slices in entered:
                if slices.key is not None:
                    met += self._of_slices.get(slices, ())
        for watch in met:
            watch.meet(stamp, fields, sent)

    def _index(self) -> dict[Remembered, list[Watch]]:
        of_memory = self._of_memory = {}
        self._of_slices, self._of_all = {}, []
        for watch in self.watches.values():
            if watch.begins_unchanged:
                self._of_all.append(watch)
                continue
            for part in watch.parts:
                if part.is_met_by_all:
                    self._of_slices.setdefault(part.slices, []).append(watch)
                else:
                    of_memory.setdefault(part.remembered, []).append(watch)
        return of_memory

    def copy_from(self, other: "Timing", events: Iterable[Event]) -> list[Event]:
        """Wait for what another one, which has these rules, waits for in the slices of some events.

        Return events that have only the keys of these: at such a one a rule fires by time.
        """
        of_keys: list[Event] = []
        for priority, watch in self.watches.items():
            for fields, timestamp_ms, sent in events:
                one = watch.copy_from(other.watches[priority], fields, sent or {})
                if one is not None:
                    of_keys.append((one.fields, timestamp_ms, one.sent))
        return of_keys

    # -- time -----------------------------------------------------------------------------------------------

    def pass_time(self, base: int, tick: int, between: Callable[[], None] | None = None) -> None:
        """Have all rules fire that are due up to the time of a stamp, in order, after event `tick`.

        `between` is called about once in a millisecond. It must not change the detector.

        Past `LOOKS_MAX` and two looks for each slice, what else is due is skipped: it is far in the past.
        """
        queue, looks, looks_max = self._queue, 0, LOOKS_MAX
        while queue and queue[0][0] <= base:
            if looks == looks_max:
                looks_max = LOOKS_MAX + 2 * sum(len(watch.table) for watch in self.watches.values())
                if looks >= looks_max:
                    self._skip(base)
                    break
            entry = queue[0]
            if not self._waits(entry):
                # A detector that was loaded has no such entries, so they must not count.
                heappop(queue)
                continue
            looks += 1
            if between is not None and not looks % _BETWEEN:
                between()
            due, priority, number, _ = entry
            if priority < 0:
                heappop(queue)
                self.watches[number].look_at_all(due, between)
                continue
            watch = self.watches[priority]
            again, keys = watch.look(entry)
            if again is None or again[0] == LATEST:
                heappop(queue)
            else:
                heapreplace(queue, again)
            if keys is not None:
                self.fired(FiredByTime(watch.rule, keys, time_of(due)), tick)
        self.due = queue[0][0] if queue else LATEST

    def _skip(self, base: int) -> None:
        """Have no slice wait for a time up to that of a stamp any more."""
        _log.warning(
            "more fired by time than is looked at at once: skipped from %d us on", time_of(self._queue[0][0])
        )
        for watch in self.watches.values():
            watch.skip(base)
        self._purge()

    def _add(self, entry: tuple[int, int, int, Any]) -> None:
        """Have an entry wait for its time."""
        queue = self._queue
        heappush(queue, entry)
        self.due = min(self.due, entry[0])
        if len(queue) > 2 * self._waiting + _SPARE:
            self._waiting = sum(len(watch.table) for watch in self.watches.values())
            if len(queue) > 2 * self._waiting + _SPARE:
                self._purge()

    def _purge(self) -> None:
        """Drop the entries that wait no more.

        The queue compares keys where all else is equal. Those of another condition may be of another type, so
        what one has left goes before its slices are adopted.
        """
        self._queue[:] = [one for one in self._queue if self._waits(one)]
        heapify(self._queue)

    _waiting = 0
    """At least about how many slices wait."""

    def _waits(self, entry: tuple[int, int, int, Any]) -> bool:
        due, priority, number, key = entry
        if priority < 0:
            return number in self.watches and self.watches[number].rest[0] == due
        return priority in self.watches and self.watches[priority].table.get(key) is entry
