"""The timed rules of a detector, and the queue of the times at which their verdicts may turn."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop
from typing import Any, Final, NamedTuple

from engine.evaluation.facts.values import Event
from engine.evaluation.requirements import Births
from engine.evaluation.rules import LiveRule, Rule
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import Remembered, Slices
from engine.evaluation.stamps import LATEST, time_of
from engine.evaluation.timed.changes import Deciders
from engine.evaluation.timed.queue import ALL, BUCKET, Queue
from engine.evaluation.timed.table import NOT_WAITING
from engine.evaluation.timed.watch import Waiting, Watch

_log = logging.getLogger(__name__)

LOOKS_MAX: Final = 20_000
"""The maximum number of checks of slices between two events, besides two for each slice: some seconds. A rule
about the time of day turns thousands of times if a detector has had no events for years."""

_BETWEEN: Final = 64
"""The number of slices checked in about a millisecond."""


class FiredByTime(NamedTuple):
    """A firing because time has passed."""

    rule: Rule
    keys: dict[str, Any]
    """The values of the rule's keys, by name."""
    time_us: int


class Timing:
    """The enabled timed rules of one detector, by priority."""

    not_waiting = NOT_WAITING

    def __init__(self, histories: Histories, deciders: Deciders) -> None:
        self._histories, self._deciders = histories, deciders
        self.watches: dict[int, Watch] = {}
        self.queue = Queue(self._waits, lambda: sum(len(watch.table) for watch in self.watches.values()))
        self.between: Callable[[], None] = lambda: None
        """Called about once a millisecond while much fires. It must not change the detector."""
        self.fired: Callable[[FiredByTime, int], None] = lambda *_: None
        """Called with each firing, and the number of the event before it."""
        self._of_memory: dict[Remembered, list[Watch]] | None = None
        """The rules that read each memory, while rules are indexed. None until needed."""
        self._of_slices: dict[Slices, list[Watch]] = {}
        """The rules concerned by every event of some slices."""
        self._of_all: list[Watch] = []
        """The rules concerned by every event."""

    @property
    def next_due_us(self) -> int | None:
        """When a rule may fire by time next; None if none will unless an event comes."""
        due = self.queue.first_due()
        return None if due == LATEST else time_of(due)

    # -- rules ----------------------------------------------------------------------------------------------

    def put(self, live: LiveRule, now_us: int | None, *, is_older: bool) -> None:
        """Add or update a rule. Slices whose histories a change keeps continue to wait.

        `is_older` tells whether its histories began before now.
        """
        rule, births = live.rule, live.births
        before = self.watches.get(rule.priority)
        if not (rule.enabled and rule.timed):
            self.remove(rule.priority)
            return
        if before is not None and before.births == births and before.rule.condition == rule.condition:
            before.rule = rule
            return
        watch = self._watch(rule, births, now_us)
        waiting: list[Waiting] = []
        watch.is_late = is_older
        if before is not None:
            if births.kept and {*before.names} == {*watch.names}:
                waiting, watch.is_late = before.waiting(), before.is_late
            before.end()
            if waiting and (before.path, before.names) != (watch.path, watch.names):
                self.queue.purge()
        self._place(watch, waiting, now_us)

    def exchange(self, one: LiveRule, other: LiveRule, now_us: int | None) -> None:
        """Update two rules that have exchanged their conditions and histories.

        Waiting slices go with their condition. If only one rule is timed, and has the same keys as before,
        its own slices continue to wait instead. Other slices with state wait from their next event on.
        """
        before = [self.watches.pop(each.rule.priority, None) for each in (one, other)]
        waiting = [[] if old is None else old.waiting() for old in before]
        for old in before:
            if old is not None:
                old.end()
        self.queue.purge()
        for place, live in enumerate((one, other)):
            if live.rule.enabled and live.rule.timed:
                watch = self._watch(live.rule, live.births, now_us)
                own, came = before[place], before[1 - place]
                goes_on = came is None and own is not None and {*own.names} == {*watch.names}
                watch.is_late = came is None or came.is_late
                self._place(watch, waiting[place if goes_on else 1 - place], now_us)

    def remove(self, priority: int) -> None:
        """Remove a rule, if it is timed."""
        watch = self.watches.pop(priority, None)
        if watch is not None:
            watch.end()
            self._changed()

    def rules_changed(self) -> None:
        """Discard generated functions after a change of any rules."""
        self._of_memory = None
        for watch in self.watches.values():
            watch.rules_changed()

    def _changed(self) -> None:
        self._of_memory = None
        if not self.watches:
            self.queue.clear()

    def _watch(self, rule: Rule, births: Births, now_us: int | None) -> Watch:
        return Watch(rule, births, self._histories, self._deciders, queue=self.queue, now_us=now_us)

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
        """Update the slices that an event has entered, given the memories that it concerned."""
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
            if watch.begins_unchanged or watch.is_late:
                self._of_all.append(watch)
                continue
            for part in watch.parts:
                if part.is_met_by_all:
                    self._of_slices.setdefault(part.slices, []).append(watch)
                else:
                    of_memory.setdefault(part.remembered, []).append(watch)
        return of_memory

    def copy_from(self, other: "Timing", events: Iterable[Event]) -> list[Event]:
        """Copy from another Timing with the same rules what the slices of some events wait for.

        Return events that have only the keys of these, at which rules fire by time.
        """
        of_keys: list[Event] = []
        for priority, watch in self.watches.items():
            watch.is_late = other.watches[priority].is_late
            for fields, timestamp_ms, sent in events:
                one = watch.copy_from(other.watches[priority], fields, sent or {})
                if one is not None:
                    of_keys.append((one.fields, timestamp_ms, one.sent))
        return of_keys

    # -- time -----------------------------------------------------------------------------------------------

    def pass_time(self, base: int, tick: int) -> None:
        """Fire all rules that are due up to the time of a stamp, in order, after event `tick`.

        After `LOOKS_MAX` checks and two for each slice, skip the rest, which is far in the past.
        """
        queue, looks, looks_max = self.queue, 0, LOOKS_MAX
        while queue.heap and queue.heap[0][0] <= base:
            if looks == looks_max:
                looks_max = LOOKS_MAX + 2 * sum(len(watch.table) for watch in self.watches.values())
                if looks >= looks_max:
                    self._skip(base)
                    break
            entry = due, priority, number, which = heappop(queue.heap)
            if priority == BUCKET:
                if entries := which.of.take(which):
                    self.watches[which.of.priority].sift(entries, which, self.between)
                continue
            if priority == ALL:
                if self._waits(entry):
                    looks += 1
                    self.watches[number].look_at_all(due, self.between)
                continue
            watch = self.watches.get(priority)
            if watch is None or watch.table.get(which) is not entry:
                continue
            turns, keys = watch.look(entry)
            # Entries that are too early are not saved as such, so they do not count.
            looks += turns
            if turns and not looks % _BETWEEN:
                self.between()
            if keys is not None:
                self.fired(FiredByTime(watch.rule, keys, time_of(due)), tick)
        queue.settle()

    def _skip(self, base: int) -> None:
        """Drop all times up to that of a stamp."""
        _log.warning(
            "too many slices are due by time at once: skipped from %d us on",
            time_of(self.queue.heap[0][0]),
        )
        for watch in self.watches.values():
            watch.skip(base)
        self.queue.purge()

    def _waits(self, entry: tuple[int, int, int, Any]) -> bool:
        due, priority, number, key = entry
        if priority == ALL:
            return number in self.watches and self.watches[number].rest[0] == due
        return priority in self.watches and self.watches[priority].table.get(key) is entry
