"""Dry runs give the answers of the evaluations that follow, and change nothing. Explaining evaluations do."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import pytest

from engine import Detector, Refusal, explain
from engine.evaluation.events.intake import Intake
from engine.evaluation.events.outcomes import Outcome
from engine.evaluation.explanation.firings import dry_run, evaluate_explained
from tests.differential.comparison import Pair
from tests.differential.feeding import submitted
from tests.differential.modes import MODES, in_mode
from tests.property.looking.test_explanations import WORLDS
from tests.worlds.scripts import Step, Submit

BATCH = 6


def twin(detector: Detector) -> Detector:
    return Detector.load(detector.dump(), Detector.STATE_VERSION)


def clean(step: Submit) -> tuple:
    return Intake(Detector().limits).event(step.fields, step.timestamp_ms, step.vars)


def told(outcome: Outcome | Refusal) -> tuple:
    if isinstance(outcome, Refusal):
        return ("refused", *outcome.entries)
    return tuple(rule.id for rule in outcome.fired), tuple(outcome.messages)


def batch_told_as_evaluated(engine: Detector, steps: Sequence[Step]) -> int:
    """Fork the detector for the next events, and give how many of them fired rules."""
    events = [clean(step) for step in steps[:BATCH] if isinstance(step, Submit)]
    before, whole = engine.dump(), twin(engine)
    expected = list(map(told, submitted(engine.fork(events), events)))
    assert engine.dump() == before
    assert expected == list(map(told, submitted(whole, events)))
    whole.forget_lookups()
    return sum(one[0] not in {(), "refused"} for one in expected)


def event_told_as_evaluated(engine: Detector, step: Submit) -> int:
    """Try an event, evaluate it in two copies, one of which explains, and give how many rules fired."""
    event = clean(step)
    before, plain, explaining = engine.dump(), twin(engine), twin(engine)
    (outcome,) = submitted(plain, [event])
    if isinstance(outcome, Refusal):
        with pytest.raises(Refusal) as refused:
            dry_run(engine, *event)
        assert refused.value.entries == outcome.entries
        assert engine.dump() == before
        return 0
    expected = dry_run(engine, *event)
    explanations = explain(engine, *event).rules
    assert engine.dump() == before
    fired = evaluate_explained(explaining, *event)
    assert told(outcome) == (tuple(rule.id for rule in fired.rules), fired.messages)
    assert expected == fired
    assert fired.nodes == tuple(one.node for one in explanations if one.verdict)
    assert explaining.dump() == plain.dump()
    return len(fired.rules)


def told_as_evaluated(script: Sequence[Step], drawn: random.Random) -> Counter[str]:
    """Play a script with dry runs in between, and count the events of those that fired rules."""
    pair, met = Pair(), Counter[str]()
    for place, step in enumerate(script):
        if isinstance(step, Submit) and drawn.random() < 0.15:
            met["alone"] += event_told_as_evaluated(pair.engine, step)
        if drawn.random() < 0.06:
            met["in batches"] += batch_told_as_evaluated(pair.engine, script[place:])
        # The reference never sees a dry run.
        pair.apply(step)
    return met


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", WORLDS)
def test_dry_runs_agree_with_evaluations(
    world: str,
    mode: str,
    examples: Callable[..., Iterator[random.Random]],
) -> None:
    make, count, shape = WORLDS[world]
    for drawn in examples(max(3, count // 4), world, mode):
        script = make(drawn.choice).script(**shape)
        with in_mode(mode):
            told_as_evaluated(script, drawn)


def test_dry_runs_meet_rules_that_fire(seed: int) -> None:
    """If nothing ever fired, agreement would mean little."""
    make, _, shape = WORLDS["deep conditions"]
    met = Counter[str]()
    for number in range(40):
        drawn = random.Random(f"{seed} {number}")
        met += told_as_evaluated(make(drawn.choice).script(**shape), drawn)
        if min(met["alone"], met["in batches"]) > 5:
            return
    pytest.fail(f"{met}")
