"""Evaluates events for indexed rules: each for the rules and memories whose triggers it meets."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from engine.evaluation.dispatch.combinations import Combinations
from engine.evaluation.dispatch.compilation.compiler import Stream
from engine.evaluation.dispatch.indexing.buckets import SliceTest, run
from engine.evaluation.dispatch.indexing.index import Index
from engine.evaluation.dispatch.indexing.sampling import SAMPLED_EVERY, Samples
from engine.evaluation.dispatch.indexing.table_finder import TableFinder, table_finders
from engine.evaluation.facts.lookups import Lookups
from engine.evaluation.facts.pattern_work import PatternWork
from engine.evaluation.facts.values import Event
from engine.evaluation.memory import NEVER
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.state.joining import Joins
from engine.evaluation.state.slices import SETTLE_EVERY, State
from engine.evaluation.state.storage.columns import ColumnTable
from engine.language.microseconds import microseconds

VISITED_ALL_MAX: Final = 8
"""Up to this many key tables, each event visits all of them; with more, those that it has a key for."""


_NOTHING: Final[Mapping[str, Any]] = {}


class IndexedStream:
    """Evaluates events for the rules of one detector, while they are indexed.

    `join_due` has memories join before an event: it is called with the time of the event, and the number of
    events before it. `slice_test_of` gives that of a table with filtered keys. `rules` are by priority.
    """

    def __init__(  # noqa: PLR0917 -- the parts of a rule set
        self,
        state: State,
        index: Index,
        joins: Joins,
        join_due: Callable[[int, int], None],
        slice_test_of: Callable[[ColumnTable], SliceTest],
        patterns: PatternWork,
        lookups: Lookups,
        relations: Collection[str],
        rules: Mapping[int, Rule],
        samples: Samples,
    ) -> None:
        self._state = state
        self._index = index
        self._joins, self._join_due = joins, join_due
        self._slice_test_of = slice_test_of
        self._patterns = patterns
        self._lookups, self._relations = lookups, relations
        self._combinations: Combinations[tuple[int, ...]] = Combinations(
            lambda priorities: tuple([rules[priority] for priority in priorities])
        )
        self._finders: tuple[TableFinder, TableFinder | None] | None = None
        self._samples = samples

    def rules_changed(self) -> None:
        """Forget what depends on the rules."""
        self._finders = None
        self._combinations.clear()

    def candidates(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> set[int]:
        """Return the priorities of all rules that may fire at an event. Changes nothing."""
        if self._patterns.bounded:
            self._patterns.begin(fields, sent)
        met = [*self._index.met_by(fields, sent), *self._state.globals.triggering.values()]
        for table in self._state.tables.values():
            met += table.would_meet(fields, sent)
        # The numbers of updates are below 0.
        return {member for bucket in met for member in bucket.members() if member > 0}

    def observe_many(self, events: Iterable[Event], detector: Stream, results: list[Fired]) -> None:
        """Evaluate events for the rules and memories whose triggers they meet; see `compiler.ObserveMany`."""
        state, joins, combinations = self._state, self._joins, self._combinations
        globals_, met_by, append = state.globals, self._index.met_by, results.append
        begin = self._patterns.begin if self._patterns.bounded else None
        relations_of = self._lookups.relations if self._relations else None
        relations: Any = None
        if self._finders is None:
            self._finders = table_finders(state.tables.values(), every=len(state.tables) <= VISITED_ALL_MAX)
        plain, late = self._finders
        clock = NEVER if detector.clock_us is None else detector.clock_us
        latest, tick, joins_us = detector.latest_us, detector.events_seen, joins.due_us
        try:
            for fields, timestamp_ms, sent in events:
                now = timestamp_ms * 1_000 if type(timestamp_ms) is int else microseconds(timestamp_ms, 1_000)
                if not clock <= now <= latest:
                    now = detector.time_of(now, clock)
                clock = now
                tick += 1
                sent = sent or _NOTHING  # noqa: PLW2901 -- None stands for no vars
                if begin is not None:
                    begin(fields, sent)
                if relations_of is not None:
                    relations = relations_of(sent)
                if joins_us < now:
                    self._join_due(now, tick - 1)
                    joins_us = joins.due_us
                met = met_by(fields, sent)
                for table in plain.switch_to(fields, sent) if plain.every is None else plain.every:
                    table.enter(fields, sent, now, tick)
                    if table.watched or table.triggering or table.begun:
                        met += table.meet()
                if globals_.triggering:
                    met += globals_.triggering.meet()
                tests: Sequence[SliceTest] = ()
                if late is not None:
                    tests = sorted(map(self._slice_test_of, late.switch_to(fields, sent)), key=_stage)
                fired: list[int] = []
                if met or tests:
                    if not tick % SAMPLED_EVERY:
                        met, tests = self._samples.timed(met, tests)
                    run(met, tests, fields, sent, now, tick, relations, fired.append)
                globals_.previous_us = now
                if state.due or not tick % SETTLE_EVERY:
                    # Messages belong to the event whose result comes next.
                    detector.settle(clock, tick)
                if len(fired) > 1:
                    fired.sort()
                append(combinations[*fired,] if fired else ())
        finally:
            if clock != NEVER:
                detector.clock_us, detector.events_seen = clock, tick


_stage: Final = attrgetter("stage")
