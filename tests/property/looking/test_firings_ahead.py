"""Predictions of firings by time come true, and so do predictions of what they hold back."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from engine import Detector, Refusal, explain
from engine.evaluation.explanation.firings import dry_run, evaluate_explained
from engine.evaluation.firings.at_most_once import AtMostOnce
from engine.evaluation.inspecting.states import standing
from engine.evaluation.requirements import keys_of
from engine.evaluation.timed.timing import Timing
from engine.evaluation.times import milliseconds
from tests.differential.modes import TRIED, in_mode
from tests.property.looking.test_dry_runs import clean, twin
from tests.worlds.scripts import Add, Change, Remove, Submit
from tests.worlds.timed import AddTimed, BusyWorld, Reload, Tick, TimedStep, TimedWorld

TICKS_MAX = 100
"""How many times time passes until something may fire."""

Examples = Callable[..., Iterator[random.Random]]
Fires = dict[tuple[Any, ...], int]
"""When rules fire by time first: by the rule's id and its keys."""


def of_rule(rule_id: str, keys: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a rule for values of its keys. The number 1 and true are two keys."""
    return rule_id, *((name, type(value) is bool, value) for name, value in sorted(keys.items()))


def passed(detector: Detector) -> tuple[Fires, bool]:
    """Let time pass; return when rules first fire, and whether all of them have fired."""
    found: Fires = {}
    for _ in range(TICKS_MAX):
        if (due_us := detector.next_due_us) is None:
            return found, True
        for one in detector.tick(due_us):
            found.setdefault(of_rule(one.rule.id, one.keys), one.time_us)
    return found, False


def keys_in(detector: Detector, step: Submit) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each rule with those of its keys that an event has."""
    known = dict(step.fields) | {f"${name}": value for name, value in (step.vars or {}).items()}
    for rule in detector.rules():
        yield rule.id, {name: known[name] for name in keys_of(rule.condition) if name in known}


def judged(detector: Detector, step: Submit) -> Counter[str]:
    """Compare the prediction for an event with what a copy does at that event, without any later event."""
    event, before, met = clean(step), detector.dump(), Counter[str]()
    plain, explaining = twin(detector), twin(detector)
    try:
        fired = [rule.id for rule in plain.submit_clean_one(*event).fired]
    except Refusal:
        return met
    for firings in (dry_run(detector, *event), evaluate_explained(explaining, *event)):
        assert [rule.id for rule in firings.rules] == fired
    assert [rule.id for rule in detector.fork([event]).submit_clean_one(*event).fired] == fired
    assert explaining.dump() == plain.dump()
    said = {one.rule.id: one.fires_us for one in explain(detector, *event).rules}
    assert detector.dump() == before
    stands = {rule_id: standing(plain, rule_id, keys) for rule_id, keys in keys_in(plain, step)}
    found, is_all = passed(plain)
    for rule_id, keys in keys_in(plain, step):
        fires_us = found.get(of_rule(rule_id, keys))
        if is_all or fires_us is not None:
            assert said[rule_id] == fires_us
            assert stands[rule_id].get("fires_ms") == (None if fires_us is None else milliseconds(fires_us))
            met["fires"] += fires_us is not None
    return met


def played(script: list[TimedStep], drawn: random.Random) -> Counter[str]:
    """Play a script on the engine alone, and check the predictions for some of its events."""
    detector, met = Detector(), Counter[str]()
    for step in script:
        match step:
            case AddTimed(name, condition) | Add(name, condition):
                # Firings of other keys are not predicted, so they must hold nothing back here.
                by = [*dict.fromkeys(keys_of(condition)), "b"]
                every = drawn.choice(
                    ({}, *({"every_secs": secs} for secs in (1.5, 60)), {"every_secs": 60, "every_by": by})
                )
                detector.add_rule(name, condition, timed=isinstance(step, AddTimed), **every)
            case Tick(time_us):
                detector.tick(time_us)
            case Reload():
                detector = twin(detector)
            case Change(place, changes):
                if "condition" not in changes:
                    detector.change_rule(detector.rules()[place].id, **changes)
            case Remove(place):
                detector.remove_rule(detector.rules()[place].id)
            case Submit():
                if drawn.random() < 0.3:
                    met += judged(detector, step)
                if not isinstance(clean_or_refused(detector, step), Refusal):
                    met["events"] += 1
    return met


def clean_or_refused(detector: Detector, step: Submit) -> object:
    """Submit an event, and return the outcome or the refusal."""
    try:
        return detector.submit_clean_one(*clean(step))
    except Refusal as refusal:
        return refusal


@pytest.mark.slow
@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("world", [TimedWorld, BusyWorld])
def test_firings_by_time_are_said_ahead(world: type[TimedWorld], mode: str, examples: Examples) -> None:
    met = Counter[str]()
    for drawn in examples(30, mode, until=lambda: met["fires"] > 1):
        with in_mode(mode):
            met += played(world(drawn.choice).script(), drawn)


# -- defects ------------------------------------------------------------------------------------------------

DEFECTS: dict[str, tuple[type, str, Any]] = {
    "what waits is not copied": (Timing, "copy_from", lambda *_: []),
    "what was given is not copied": (AtMostOnce, "copy_from", lambda *_: None),
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(defect: str, examples: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    for number, drawn in enumerate(examples(1, until=lambda: False)):
        try:
            played(BusyWorld(drawn.choice).script(), drawn)
        except AssertionError:
            return
        assert number < 1_000
