"""Evaluates events for indexed rules: each for the rules and memories whose triggers it meets."""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from engine.evaluation.dispatch.combinations import Combinations
from engine.evaluation.dispatch.indexing.buckets import run
from engine.evaluation.dispatch.needs import Needs
from engine.evaluation.facts.values import Event
from engine.evaluation.kernel.indexing.members import Members
from engine.evaluation.paths import is_filtered
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.slices.histories import SETTLED_EVERY, Histories
from engine.evaluation.slices.slices import SEEN
from engine.evaluation.stamps import NEVER, NUMBER_BITS
from engine.language.microseconds import microseconds

_NOTHING: Final[Mapping[str, Any]] = {}


class IndexedStream:
    """Evaluates events for the rules of one detector, while they are indexed."""

    def __init__(
        self, histories: Histories, needs: Needs, members: Members, rules: Mapping[int, Rule]
    ) -> None:
        self._histories, self._needs, self._members = histories, needs, members
        self._combinations: Combinations[tuple[int, ...]] = Combinations(
            lambda priorities: tuple([rules[priority] for priority in priorities])
        )

    def rules_changed(self) -> None:
        """Forget what depends on the rules."""
        self._combinations.clear()

    def observe_many(self, events: Iterable[Event], detector: Any, results: list[Fired]) -> None:
        """Append the rules that fire at each event to the results."""
        needs, members = self._needs, self._members
        outcomes, met_by = members.outcomes, members.index.met_by
        begin = needs.patterns.begin if needs.patterns.bounded else None
        plain = [one for path, one in self._histories.slices.items() if path and not is_filtered(path)]
        late = [one for path, one in self._histories.slices.items() if is_filtered(path)]
        root = self._histories.slices.get(())
        clock = NEVER if detector.clock_us is None else detector.clock_us << NUMBER_BITS
        latest, tick = detector.latest_us << NUMBER_BITS, detector.events_seen
        relations: Any = None
        try:
            for fields, timestamp_ms, sent in events:
                base = microseconds(timestamp_ms, 1_000) << NUMBER_BITS
                if not clock <= base <= latest:
                    base = detector.time_of(base >> NUMBER_BITS, clock >> NUMBER_BITS) << NUMBER_BITS
                clock = base
                tick += 1
                sent = sent or _NOTHING  # noqa: PLW2901 -- None stands for no vars
                if begin is not None:
                    begin(fields, sent)
                if needs.relations:
                    relations = needs.lookups.relations(sent)
                met = met_by(fields, sent)
                for slices in plain:
                    slices.enter(fields, sent)
                    if slices.watched and slices.key is not None:
                        met += slices.meet()
                if root is not None and root.watched:
                    met += root.meet()
                tests = sorted([members.slice_test(one) for one in late], key=_stage)
                fired: list[int] = []
                if met or tests:
                    run(met, tests, fields, sent, base, tick, relations, fired.append)
                for remembered, outcome in outcomes.items():
                    remembered.commit(outcome, base, tick)
                for slices in self._histories.slices.values():
                    if slices.key is None:
                        continue
                    for remembered in slices.runs:
                        if remembered not in outcomes:
                            remembered.commit(True, base, tick)
                    slices.slice[SEEN] = tick
                    if self._histories.tracking:
                        slices.touched.append(slices.key)
                outcomes.clear()
                if self._histories.due or not tick % SETTLED_EVERY:
                    detector.settle(clock >> NUMBER_BITS, tick)
                if len(fired) > 1:
                    fired.sort()
                results.append(self._combinations[*fired,] if fired else ())
        finally:
            outcomes.clear()
            if clock != NEVER:
                detector.clock_us, detector.events_seen = clock >> NUMBER_BITS, tick


_stage: Final = attrgetter("stage")
