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
    """What is told at a step: what fires by time before it, and the answer to an event."""

    by_time: list[object]
    answer: list[Action] | None


def told_by_reference(reference: ReferenceDetector, step: TimedStep, new_id: str, kept: set[str]) -> Told:
    """Let one thing happen to the reference; a new rule has this id. `kept` has rules that kept a history."""
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
    """Let one thing happen to the engine. A reload is for those who have the detector."""
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
    """Yield what the reference tells at each step."""
    reference, kept = ReferenceDetector(), set[str]()
    for step in script:
        yield told_by_reference(reference, step, rule_id(reference.highest), kept)


def played(script: Sequence[TimedStep]) -> Iterator[Told]:
    """Yield what the engine tells at each step."""
    numbers = itertools.count()

    def new_id() -> str:
        return rule_id(next(numbers))

    engine, kept = Detector(new_id=new_id), set[str]()
    for step in script:
        if isinstance(step, Reload):
            engine = Detector.load(engine.dump(), Detector.STATE_VERSION, new_id=new_id)
        yield told_by_engine(engine, step, kept)


class Outcome(NamedTuple):
    """All that a detector tells, and its state at the end."""

    by_time: list[ByTime]
    answers: list[list[Action] | None]
    state: bytes


def played_to_the_end(script: Sequence[TimedStep], feed: Feed) -> Outcome:
    """Give what the engine tells, and its state at the end. Events between other steps are fed together."""
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
        """What has fired by time."""

    def play(self, step: TimedStep) -> None:
        """Let one thing happen to both; what they tell must be the same."""
        if isinstance(step, Reload):
            self.reload()
        kept = {key for key, rule in self.reference.rules.items() if rule.kept}
        given = told_by_engine(self.engine, step, kept)
        newest = next((rule.id for rule in reversed(self.engine.rules())), "")
        expected = told_by_reference(self.reference, step, newest, kept)
        assert given == expected, f"{step}: the engine tells {given}, the reference {expected}"
        self.fired += given.by_time


def _may_end(part: object) -> bool:
    # An event may leave nothing remembered. The engine goes on with the slice if another one comes in time.
    ends = terms.Since | terms.SinceWithin | terms.CountSince | terms.Previous | values.Prev
    return isinstance(part, ends) or getattr(part, "boundary", None) == "strong"


def _note_kept(kept: set[str], rule: str, change: Change) -> None:
    # Under the new condition alone, a slice might have ended before. The engine goes on with it, so its first
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
    """Tell where engine and reference differ, or None."""
    try:
        for step, expected, given in zip(script, specified(script), played(script), strict=True):
            assert given == expected, f"{step}: the engine tells {given}, the reference {expected}"
    except AssertionError as error:
        return str(error)
    return None


shortened = partial(shortest, differs=disagreement)
"""Gives a script on which the two still differ, though none of its steps can be left out."""
