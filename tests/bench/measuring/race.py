"""Contestants that must give the same verdicts, and are then timed on the same events, in turns."""

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine import Detector
from tests.bench.measuring.effort import PROBE_EVENTS, Effort
from tests.bench.measuring.rows import Row

Event = tuple[dict[str, Any], float, None]
"""Fields, timestamp in milliseconds, vars: as `evaluate_many` takes them."""

Condition = str | dict[str, Any]
"""A condition as text or as its JSON, which is quicker to load."""

BATCH_EVENTS = 1_000
"""Events that the engine is given in one call."""


Verdict = tuple[int, ...]
"""The numbers of the rules that fire at an event, in order."""


def numbers(answers: Sequence[Any]) -> list[Verdict]:
    """Return the verdicts, where an answer is the numbers of the rules that fire."""
    return [tuple(sorted(answer)) for answer in answers]


@dataclass(slots=True)
class Contestant:
    """One way to judge events: `run` gives an answer for each, and `verdicts` says which rules each fires.

    Only `run` is timed. Both see the events of all passes in order, so either may remember. A pass has at
    most `pass_events_max` events where that is given.
    """

    name: str
    run: Callable[[list[Event]], Sequence[Any]]
    verdicts: Callable[[Sequence[Any]], list[Verdict]] = numbers
    pass_events_max: int | None = None


@dataclass(frozen=True, slots=True)
class World:
    """Rules, events, and the same judged by hand."""

    conditions: list[Condition]
    events: list[Event]
    floor: Contestant


class Disagreement(Exception):
    """Two contestants judge an event differently, so they do not do the same work."""


@dataclass(frozen=True, slots=True)
class Raced:
    """The results of a race, by contestant: an event's cost in each pass, events judged, rules fired."""

    passes_s: dict[str, list[float]]
    events: dict[str, int]
    fired: dict[str, int]

    @property
    def cost_s(self) -> dict[str, float]:
        """The median cost of an event."""
        return {name: statistics.median(each) for name, each in self.passes_s.items()}

    @property
    def worst_s(self) -> float:
        """The engine's cost of an event in its slowest pass."""
        return max(self.passes_s["ours"])

    @property
    def ratio(self) -> float:
        """What ours costs over what the floor costs: the median over the rounds.

        The passes of a round are neighbours in time, so what slows the machine for a while slows both.
        """
        pairs = zip(self.passes_s["ours"], self.passes_s["floor"], strict=True)
        return statistics.median(ours_s / floor_s for ours_s, floor_s in pairs)

    def row(self, case: str, name: str, unit: str = "µs per event", *, each: int = 1, **more: Any) -> Row:
        """Return the row of what an event costs; of `each` of so many rules, where that is given."""
        return Row(
            case=case,
            name=name,
            unit=unit,
            ours=self.cost_s["ours"] * 1e6 / each,
            worst=self.worst_s * 1e6 / each,
            floor=self.cost_s["floor"] * 1e6 / each,
            ratio=self.ratio,
            **more,
        )


@dataclass(slots=True)
class _Runner:
    """A contestant's progress through the events."""

    contestant: Contestant
    events: list[Event]
    place: int = 0
    fired: list[Verdict] = field(default_factory=list)
    passes_s: list[float] = field(default_factory=list)

    def advance(self, count: int) -> float:
        """Judge the next events and return the seconds for each of them."""
        portion = self.events[self.place : self.place + count]
        gc.collect()
        # The time of this process alone: other work on the machine disturbs it less than elapsed time.
        started_s = time.process_time()
        answers = self.contestant.run(portion)
        took_s = time.process_time() - started_s
        self.place += len(portion)
        self.fired += self.contestant.verdicts(answers)
        return took_s / len(portion)


def race(contestants: Sequence[Contestant], events: list[Event], effort: Effort) -> Raced:
    """Time the contestants, each in passes of about `pass_s`, one after another in every round.

    Raises Disagreement where two judge an event differently: in most cases before anything is timed, as what
    warms them up is compared first.
    """
    [raced] = races([(contestants, events)], effort)
    return raced


def races(worlds: Sequence[tuple[Sequence[Contestant], list[Event]]], effort: Effort) -> list[Raced]:
    """Race in several worlds, each with events of its own: a round is a pass of every contestant in each."""
    # The events are ours, not the contestants': the collector must not charge those who allocate for them.
    gc.collect()
    gc.freeze()
    try:
        runners = [[_Runner(each, events) for each in contestants] for contestants, events in worlds]
        sized = [(runner, _portion(runner, effort)) for runner in itertools.chain(*runners)]
        for of_world in runners:
            _agree(of_world)
        for runner, size in sized:
            runner.advance(size)
        for _ in range(effort.passes):
            for runner, size in sized:
                runner.passes_s.append(runner.advance(size))
    finally:
        gc.unfreeze()
    for of_world in runners:
        _agree(of_world)
    return [
        Raced(
            {runner.contestant.name: runner.passes_s for runner in of_world},
            {runner.contestant.name: runner.place for runner in of_world},
            {runner.contestant.name: sum(map(len, runner.fired)) for runner in of_world},
        )
        for of_world in runners
    ]


def _portion(runner: _Runner, effort: Effort) -> int:
    """Return how many events a pass of this contestant has, after a warm-up of what is built lazily."""
    most = len(runner.events) // 4
    cost_s = runner.advance(min(PROBE_EVENTS, most))
    # Everyone warms up alike.
    runner.advance(max(1, min(effort.warm_events, most, int(effort.warm_s / max(cost_s, 1e-9)))))
    cost_s = runner.advance(min(10 * PROBE_EVENTS, most))
    fair = int(effort.pass_s / max(cost_s, 1e-9))
    left = len(runner.events) - runner.place
    own_max = runner.contestant.pass_events_max or effort.pass_events_max
    return max(1, min(fair, own_max, effort.pass_events_max, left // (1 + effort.passes)))


def _agree(runners: Sequence[_Runner]) -> None:
    first = max(runners, key=lambda runner: runner.place)
    for runner in runners:
        for place, (expected, given) in enumerate(zip(first.fired, runner.fired, strict=False)):
            if expected != given:
                raise Disagreement(
                    f"event {place}, {runner.events[place]}: rules {expected} fire for "
                    f"{first.contestant.name}, {given} for {runner.contestant.name}"
                )


def leaf(fact: str, operator: str, value: object) -> dict[str, Any]:
    """Return a condition on one fact, as JSON."""
    return {"leaf": {"fact": fact, "op": operator, "value": value}}


def ours(conditions: Sequence[Condition]) -> Contestant:
    """Return the engine with these rules, fed in batches."""
    detector = Detector()
    for number, condition in enumerate(conditions):
        detector.add_rule(f"rule {number}", condition)
    return fed(detector)


def fed(detector: Detector) -> Contestant:
    """Return a detector whose rules are named `rule 0`, `rule 1` and so on, fed in batches."""

    def run(events: list[Event]) -> list[Any]:
        answers: list[Any] = []
        for batch in batches(events):
            answers += detector.evaluate_many(batch)
        return answers

    def verdicts(answers: Sequence[Any]) -> list[Verdict]:
        return [tuple(sorted(int(rule.name[5:]) for rule in answer)) for answer in answers]

    return Contestant("ours", run, verdicts)


def submitted(conditions: Sequence[Condition], *, name: str = "ours", **members: Any) -> Contestant:
    """Return the engine with these rules, fed as the service feeds it: with events decoded from JSON."""
    detector = Detector()
    for number, condition in enumerate(conditions):
        detector.add_rule(f"rule {number}", condition, **members)

    def run(events: list[Event]) -> list[Any]:
        answers: list[Any] = []
        for batch in batches(events):
            answers += detector.submit_clean(batch).fired
            detector.forget_lookups()
        return answers

    return replace(fed(detector), name=name, run=run)


def batches(events: list[Event]) -> Iterator[list[Event]]:
    """Yield the events in portions for one call each."""
    for start in range(0, len(events), BATCH_EVENTS):
        yield events[start : start + BATCH_EVENTS]
