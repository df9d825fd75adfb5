"""Plays scripts with timed rules and ticks on the engine and on the reference, and compares the firings."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, cast

from engine import Detector
from engine.evaluation.timed.timing import FiredByTime
from engine.language import condition as terms
from engine.language import terms as values
from tests.differential.comparison import Action, Pair, evaluated
from tests.differential.comparison import shortened as shortest
from tests.differential.feeding import Feed, change, rule_id
from tests.reference import ReferenceDetector
from tests.reference_timed import ByTime, firings, members_of
from tests.worlds.scripts import Add, Change, Remove, Submit
from tests.worlds.timed import AddTimed, Reload, Tick, TimedStep


class Told(NamedTuple):
    """The output of a step: the firings by time before it, and the answer to an event."""

    by_time: list[object]
    answer: list[Action] | None


def told_by_reference(reference: ReferenceDetector, step: TimedStep, new_id: str, kept: set[str]) -> Told:
    """Execute a step on the reference. A new rule has this id. `kept` has rules that kept a history."""
    before, rules, events = reference.clock_us, dict(reference.rules), [*reference.events]
    ids, until_us, answer = list(rules), None, None
    match step:
        case AddTimed(name, condition) | Add(name, condition):
            timed = isinstance(step, AddTimed)
            reference.add_rule(new_id, name, condition, notify=False, timed=timed)
        case Change(place, changes):
            reference.change_rule(ids[place], **changes)
            _note_kept(kept, ids[place], step)
        case Remove(place):
            del reference.rules[ids[place]]
        case Tick(time_us):
            until_us = time_us
            reference.ticked_us = max([time_us, *before])
        case Submit(fields, timestamp_ms, sent):
            answer = reference.evaluate(fields, timestamp_ms, sent)
            until_us = reference.events[-1].time_us if answer is not None else None
    given = list[ByTime]()
    if before and until_us is not None:
        given = firings(rules, events, reference.relations, max(before), until_us)
    return Told(_plain(given, {key: rule.condition for key, rule in rules.items()}, kept), answer)


def told_by_engine(engine: Detector, step: TimedStep, kept: set[str]) -> Told:
    """Execute a step on the engine, except for a reload, which the owner of the detector must do."""
    given, answer = list[FiredByTime](), None
    rules = {rule.id: rule.condition for rule in engine.rules()}
    match step:
        case AddTimed(name, condition):
            engine.add_rule(name=name, condition=condition, timed=True)
        case Tick(time_us):
            given = engine.tick(time_us)
        case Submit():
            engine.fired_by_time = given
            answer = evaluated(engine, step)
            engine.fired_by_time = None
        case Add() | Change() | Remove():
            change(engine, step)
            if isinstance(step, Change):
                _note_kept(kept, [*rules][step.place], step)
    told = [ByTime(one.time_us, one.rule.id, tuple(one.keys.items())) for one in given]
    due_us, clock_us = engine.next_due_us, engine.clock_us
    is_ahead = due_us is None or clock_us is None or due_us > clock_us
    assert is_ahead, f"{step}: due at {due_us}, clock {clock_us}"
    return Told(_plain(told, rules, kept), answer)


def specified(script: Sequence[TimedStep]) -> Iterator[Told]:
    """Yield the output of the reference at each step."""
    reference, kept = ReferenceDetector(), set[str]()
    for step in script:
        yield told_by_reference(reference, step, rule_id(reference.highest), kept)


def played(script: Sequence[TimedStep]) -> Iterator[Told]:
    """Yield the output of the engine at each step."""
    numbers = itertools.count()

    def new_id() -> str:
        return rule_id(next(numbers))

    engine, kept = Detector(new_id=new_id), set[str]()
    for step in script:
        if isinstance(step, Reload):
            engine = Detector.load(engine.dump(), Detector.STATE_VERSION, new_id=new_id)
        yield told_by_engine(engine, step, kept)


class Outcome(NamedTuple):
    """All output of a detector, and its state at the end."""

    by_time: list[ByTime]
    answers: list[list[Action] | None]
    state: bytes


def played_to_the_end(script: Sequence[TimedStep], feed: Feed) -> Outcome:
    """Return the engine's output and its state at the end. Events between other steps are fed together."""
    numbers = itertools.count()
    engine = Detector(new_id=lambda: rule_id(next(numbers)))
    given, answers = list[FiredByTime](), list[list[Action] | None]()
    engine.fired_by_time = given
    for submissions, steps in groupby(script, key=lambda step: isinstance(step, Submit)):
        if submissions:
            answers += feed(engine, cast("list[Submit]", [*steps]))
            continue
        for step in steps:
            match step:
                case AddTimed(name, condition):
                    engine.add_rule(name=name, condition=condition, timed=True)
                case Tick(time_us):
                    given += engine.tick(time_us)
                case Add() | Change() | Remove():
                    change(engine, step)
    told = [ByTime(one.time_us, one.rule.id, tuple(one.keys.items())) for one in given]
    return Outcome(told, answers, engine.dump())


class TimedPair(Pair):
    """A detector of the engine and one of the reference, whose timed rules fire at the same times."""

    def __init__(self) -> None:
        super().__init__()
        self.fired: list[object] = []
        """The firings by time."""

    def play(self, step: TimedStep) -> None:
        """Execute a step on both. Their output must be equal."""
        if isinstance(step, Reload):
            self.reload()
        kept = {key for key, rule in self.reference.rules.items() if rule.kept}
        given = told_by_engine(self.engine, step, kept)
        newest = next((rule.id for rule in reversed(self.engine.rules())), "")
        expected = told_by_reference(self.reference, step, newest, kept)
        assert given == expected, f"{step}: the engine tells {given}, the reference {expected}"
        self.fired += given.by_time


def _may_end(part: object) -> bool:
    # An event may leave no state. The engine continues with the slice if another one comes in time.
    ends = terms.Since | terms.SinceWithin | terms.CountSince | terms.Previous | values.Prev
    return isinstance(part, ends) or getattr(part, "boundary", None) == "strong"


def _note_kept(kept: set[str], rule: str, change: Change) -> None:
    # Under the new condition alone, a slice might have ended before. The engine continues with it, so its
    # first event may be an earlier one.
    # event may be an earlier one.
    if change.changes.get("history") == "keep":
        kept.add(rule)


def _plain(
    fired: Sequence[ByTime], rules: Mapping[str, terms.Condition], kept: Collection[str]
) -> list[object]:
    ends = {key for key, condition in rules.items() if any(map(_may_end, members_of(condition)))}
    ends.update(kept)
    # The number 1 and true are two keys.
    rows = [(us, rule, [(n, type(v) is bool, v) for n, v in sorted(keys)]) for us, rule, keys in fired]
    for (_, rule), tied in groupby([*enumerate(rows)], key=lambda row: row[1][:2]):
        places = [place for place, _ in tied]
        if rule in ends:
            first, last = places[0], places[-1] + 1
            rows[first:last] = sorted(rows[first:last], key=repr)
    return [*rows]


def disagreement(script: Sequence[TimedStep]) -> str | None:
    """Describe where engine and reference differ; None if they agree."""
    try:
        for step, expected, given in zip(script, specified(script), played(script), strict=True):
            assert given == expected, f"{step}: the engine tells {given}, the reference {expected}"
    except AssertionError as error:
        return str(error)
    return None


shortened = partial(shortest, differs=disagreement)
"""Return a minimal script on which the two still differ."""
