"""Dry runs give the answers of the evaluations that follow, and change nothing. Explaining evaluations do."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from engine.evaluation.explanation.past.remembered import KEPT_BYTES, Remembered
from engine.evaluation.state import joining
from engine.evaluation.state.node_names import NodeName

from engine import Detector, Refusal, explain
from engine.evaluation.events.intake import Intake
from engine.evaluation.events.outcomes import Outcome
from engine.evaluation.explanation import firings
from engine.evaluation.explanation.firings import dry_run, evaluate_explained
from tests.differential.comparison import Pair
from tests.differential.feeding import submitted
from tests.differential.modes import MODES, in_mode
from tests.property.looking.test_explanations import WORLDS
from tests.worlds.scripts import Step, Submit
from tests.worlds.shared_histories import EndlessWorld, NestedWorld, RunsWorld, SharedWorld

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


def with_many_keys(script: Sequence[Step], drawn: random.Random) -> list[Step]:
    """Give each event one of more keys than a batch has."""
    return [
        replace(step, fields={**step.fields, "k": drawn.randrange(12)}) if isinstance(step, Submit) else step
        for step in script
    ]


@pytest.mark.parametrize("world", [SharedWorld, NestedWorld, RunsWorld, EndlessWorld])
def test_the_dry_run_of_a_batch_has_few_of_the_keys_and_knows_what_they_share(
    world: type[SharedWorld],
    examples: Callable[..., Iterator[random.Random]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memories of different births that are compared slot by slot are compared in the slots of the copy."""
    for drawn in examples(20, world.__name__):
        monkeypatch.setattr(joining, "COMPARED_EVERY_US", drawn.choice((0, 300_000)))
        monkeypatch.setattr(joining, "COMPARED_AT_ONCE", drawn.choice((1, 64)))
        script = with_many_keys(world(drawn.choice).script(steps_max=60), drawn)
        with in_mode("indexed"):
            pair = Pair()
            for place, step in enumerate(script):
                if drawn.random() < 0.4:
                    batch_told_as_evaluated(pair.engine, script[place:])
                pair.apply(step)


def test_the_dry_run_of_a_batch_fires_what_the_batch_does_among_more_than_a_thousand_nodes() -> None:
    detector = Detector()
    detector.add_rule("many nodes", " or ".join(f"x == {number}" for number in range(1_100)))
    detector.add_rule("old", "per k once p == 1")
    detector.submit_clean([({"k": key, "p": 1}, 1_000, None) for key in range(100)])
    young = detector.add_rule("young", "per k once p == 1")
    detector.submit_clean([({"k": key, "p": 1}, 1_000, None) for key in range(100) if key != 90])
    for seconds in (12, 23, 34):
        detector.evaluate({"k": 1}, 1_000 * seconds)
    [waiting] = detector.rule_set.joins.waiting
    assert waiting.same == 90, "both are known to be the same for the keys before"
    events = [({"k": 90}, 50_000, None)] * 2
    foretold = detector.fork(events).submit_clean(events).fired
    fired = detector.submit_clean(events).fired
    assert [[rule.id for rule in rules] for rules in foretold] == [
        [rule.id for rule in rules] for rules in fired
    ]
    assert young not in {rule.id for rules in fired for rule in rules}


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


def test_an_explained_evaluation_reads_what_the_rules_that_may_fire_remember_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detector = Detector()
    for number in range(1_500):
        action = f"per user (count(a == {number}) within 1m >= 2)"
        detector.add_rule("rule", f'user == "u{number}" and {action}')
    for _ in range(2):
        detector.submit_clean([({"user": f"u{number}", "a": number}, 0, None) for number in range(20)])
    read = 0
    keep_one = Remembered.keep_one

    def counted(remembered: Remembered, name: NodeName) -> int:
        nonlocal read
        read += 1
        return keep_one(remembered, name)

    monkeypatch.setattr(Remembered, "keep_one", counted)
    fired = evaluate_explained(detector, {"user": "u7", "a": 7}, 1, {})
    assert (len(fired.rules), len(fired.nodes), read) == (1, 1, 1)
    assert fired.nodes[0].nodes[1].nodes[0].found == 2


def test_a_rule_that_remembers_too_much_has_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector()
    for number in range(3):
        detector.add_rule("rule", f"count(a == {number}) >= 0")
    monkeypatch.setattr(firings, "KEPT_BYTES_MAX", 2 * KEPT_BYTES)
    fired = evaluate_explained(detector, {"a": 1}, 1, {})
    assert (len(fired.rules), len(fired.nodes)) == (3, 2)
