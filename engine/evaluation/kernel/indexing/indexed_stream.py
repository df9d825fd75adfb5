"""Evaluates events for indexed rules: only the rules and memories whose triggers an event meets."""

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from engine.evaluation.facts.names import FactNames
from engine.evaluation.facts.values import Event
from engine.evaluation.kernel.buckets.running import run
from engine.evaluation.kernel.indexing.members import Members
from engine.evaluation.kernel.indexing.sampling import SAMPLED_EVERY
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.kernel.stream import Combinations, Note
from engine.evaluation.paths import fact_of, is_filtered
from engine.evaluation.rules import Fired
from engine.evaluation.slices.bounds.eviction import SETTLED_EVERY
from engine.evaluation.slices.slices import SEEN, Slices
from engine.evaluation.stamps import MILLISECOND, NEVER, NUMBER_BITS
from engine.evaluation.timed.timing import Timing
from engine.language.durations import microseconds

VISITED_ALL_MAX: Final = 8
"""With up to this many paths, an event visits the slices of all; with more, those of paths whose last key it
has."""


class SlicesFinder:
    """Finds which of the slices with keys an event visits."""

    def __init__(self, slices: Collection[Slices]) -> None:
        self._every = slices if len(slices) <= VISITED_ALL_MAX else None
        self._names: FactNames[list[Slices]] = FactNames()
        self._given: Collection[Slices] = slices
        by_key: dict[str, list[Slices]] = {}
        for each in slices:
            by_key.setdefault(fact_of(each.path[-1]), []).append(each)
        for fact, of_key in by_key.items():
            self._names.add(fact, of_key)

    def switch_to(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Collection[Slices]:
        """Return the slices that an event may enter. Clear the keys of all others."""
        if self._every is not None:
            return self._every
        for each in self._given:
            each.leave()
        self._given = [each for found, _ in self._names.found_in(fields, sent) for each in found]
        return self._given


_NOTHING: Final[Mapping[str, Any]] = {}


class IndexedStream:
    """Evaluates events for the rules of one detector while they are indexed. Any change invalidates it."""

    def __init__(
        self,
        members: Members,
        needs: Needs,
        timing: Timing,
        combinations: Combinations[tuple[int, ...]],
        note: Note | None,
    ) -> None:
        """`combinations` has the rules by priorities. `note` is called with firing rules before a commit."""
        self._members, self._needs, self._timing = members, needs, timing
        self._combinations, self._note = combinations, note
        self._histories, self._samples = needs.histories, members.samples
        keyed = [one for path, one in needs.histories.slices.items() if path]
        self._plain = SlicesFinder([one for one in keyed if not is_filtered(one.path)])
        self._filtered = SlicesFinder([one for one in keyed if is_filtered(one.path)])
        self._entered: list[Slices] = []
        """The slices that the current event may have entered."""

    def decide(self, fields: Mapping[str, Any], sent: Mapping[str, Any], base: int, tick: int) -> Fired:
        """Return the rules that would fire at an event. Commit nothing."""
        try:
            return self._decide(fields, sent, base, tick, sampled=False)
        finally:
            self._members.outcomes.clear()

    def observe_many(self, events: Iterable[Event], detector: Any, results: list[Fired]) -> None:
        """Append the rules that fire at each event to the results."""
        histories, outcomes = self._histories, self._members.outcomes
        clock = NEVER if detector.clock_us is None else detector.clock_us << NUMBER_BITS
        latest, tick = detector.latest_us << NUMBER_BITS, detector.events_seen
        timing = self._timing if self._timing.watches else None
        note = self._note
        try:
            for fields, timestamp_ms, sent in events:
                if type(timestamp_ms) is int:
                    base = timestamp_ms * MILLISECOND
                else:
                    base = microseconds(timestamp_ms, 1_000) << NUMBER_BITS
                if not clock <= base <= latest:
                    base = detector.time_of(base >> NUMBER_BITS, clock >> NUMBER_BITS) << NUMBER_BITS
                if timing is not None and base >= timing.queue.due:
                    timing.pass_time(base, tick)
                clock = base
                tick += 1
                fired = self._decide(fields, sent or _NOTHING, base, tick, sampled=not tick % SAMPLED_EVERY)
                if fired and note is not None:
                    fired = note(fired, fields, sent, base, tick)
                if outcomes or self._entered:
                    self._commit(base, tick)
                if timing is not None:
                    timing.touch(outcomes, self._entered, base + tick, fields, sent or _NOTHING)
                outcomes.clear()
                if histories.due or not tick % SETTLED_EVERY:
                    # Messages belong to the event whose result is appended next.
                    detector.settle(clock >> NUMBER_BITS, tick)
                results.append(fired)
        finally:
            outcomes.clear()
            if clock != NEVER:
                detector.clock_us, detector.events_seen = clock >> NUMBER_BITS, tick

    def _decide(
        self, fields: Mapping[str, Any], sent: Mapping[str, Any], base: int, tick: int, *, sampled: bool
    ) -> Fired:
        """Return the rules that fire, and store the event's outcomes in the members."""
        needs, members = self._needs, self._members
        if needs.patterns.bounded:
            needs.patterns.begin(fields, sent)
        relations = needs.lookups.relations(sent) if needs.relations else None
        met: list[Any] = members.index.met_by(fields, sent)
        entered = self._entered = list(self._plain.switch_to(fields, sent))
        for slices in entered:
            slices.enter(fields, sent)
            if slices.watched and slices.key is not None:
                met += slices.meet()
        root = self._histories.slices.get(())
        if root is not None:
            entered.append(root)
            if root.watched:
                met += root.meet()
        late = self._filtered.switch_to(fields, sent)
        tests = sorted([members.slice_test(one) for one in late], key=_stage) if late else []
        entered += late
        if not met and not tests:
            return ()
        self._samples.events += sampled
        fired: list[int] = []
        timed = self._samples.timed if sampled else None
        run(met, tests, fields, sent, base, tick, relations, fired.append, timed)
        if not fired:
            return ()
        if len(fired) > 1:
            fired.sort()
        return self._combinations[*fired,]

    def _commit(self, base: int, tick: int) -> None:
        """Commit the outcomes of the event."""
        outcomes, tracking, stamp = self._members.outcomes, self._histories.tracking, base + tick
        for remembered, outcome in outcomes.items():
            remembered.commit(outcome, stamp)
        for slices in self._entered:
            if slices.key is None:
                continue
            if slices.by_exception:
                slices.end_exceptions(outcomes)
            if slices.runs:
                for remembered in slices.not_running():
                    if remembered not in outcomes:
                        remembered.commit(True, stamp)
            slices.slice[SEEN] = stamp
            if tracking and slices.path:
                slices.touched.append(slices.key)


_stage: Final = attrgetter("stage")
