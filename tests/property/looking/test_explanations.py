"""Explanations agree with the executable specification, and change nothing."""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from engine import Detector, Refusal
from engine.evaluation.explanation.explaining import explain
from engine.evaluation.explanation.nodes import ExplainedRule
from tests.differential.comparison import Pair, evaluated
from tests.differential.explanations import judge
from tests.differential.modes import TRIED, in_mode
from tests.reference import Event
from tests.worlds.long_histories import LongHistoriesWorld
from tests.worlds.relations import RelationsWorld
from tests.worlds.scripts import Submit, World
from tests.worlds.shared_histories import NestedWorld, RunsWorld, SharedWorld
from tests.worlds.steady_facts import BecomingIndexedWorld, SteadyFactsWorld
from tests.worlds.term_histories import FlatTermsWorld, TermsWorld

WORLDS = {
    "deep conditions": (World, 20, {"depth": 4, "steps_max": 18}),
    "shallow conditions": (World, 20, {"depth": 2, "steps_max": 24}),
    "shared histories": (SharedWorld, 10, {}),
    "histories of histories": (NestedWorld, 10, {}),
    "long runs": (RunsWorld, 10, {}),
    "long histories": (LongHistoriesWorld, 10, {"steps_max": 40}),
    "steady facts": (SteadyFactsWorld, 5, {"steps_max": 30}),
    "terms": (TermsWorld, 20, {"depth": 3, "steps_max": 30}),
    "comparisons": (FlatTermsWorld, 20, {"depth": 2, "steps_max": 30}),
    "stored relations": (RelationsWorld, 15, {"depth": 3, "steps_max": 30}),
    "becoming indexed": (BecomingIndexedWorld, 5, {"steps_max": 18}),
}


def explained_and_judged(pair: Pair, step: Submit, drawn: random.Random) -> Counter[str]:
    """Explain an event, check every statement, and count the cases met."""
    engine, reference = pair.engine, pair.reference
    before, cached = engine.dump(), [*engine.rule_set.lookups.used]
    expected = evaluated(Detector.load(before, Detector.STATE_VERSION), step)
    try:
        explanation = explain(engine, step.fields, step.timestamp_ms, step.vars)
    except Refusal as refusal:
        if refusal.code != 1402:
            raise
        explanation = None
    assert engine.dump() == before
    assert engine.rule_set.lookups.used == cached == []
    assert (explanation is None) is (expected is None)
    if explanation is None or expected is None:
        return Counter(["refused"])
    assert [fired.rule.id for fired in explanation.rules if fired.verdict] == [
        action[1] for action in expected
    ]
    stamped_us = round(step.timestamp_ms * 1_000)
    assert explanation.time_us == max([stamped_us, *(event.time_us for event in reference.events)])
    assert (2001 in {entry.code for entry in explanation.messages}) is (explanation.time_us > stamped_us)
    assert [fired.rule.id for fired in explanation.rules] == [*reference.rules]
    event = Event(explanation.time_us, step.fields, step.vars or {}, dict(reference.relations))
    met = Counter(["events"])
    for one in explanation.rules:
        rule = reference.rules[one.rule.id]
        if rule.enabled:
            met += counted(one, [*reference.events[rule.birth :], event], drawn)
        else:
            assert (one.verdict, one.node.nodes, one.why_not) == (False, (), None)
            met["disabled"] += 1
    return met


def counted(one: ExplainedRule, history: list[Event], drawn: random.Random) -> Counter[str]:
    nodes = judge(one, history, drawn)
    now_us = history[-1].time_us
    return Counter(
        {
            "nodes": len(nodes),
            "true": sum(node.verdict for node in nodes),
            "until": sum(node.until_us is not None for node in nodes),
            "earlier witnesses": sum(node.witness_us not in {None, now_us} for node in nodes),
            "no slice": sum(node.note is not None and "slice" in node.note for node in nodes),
            "of other types": sum(node.note is not None and "compared" in node.note for node in nodes),
            "turned by one": one.why_not is not None and len(one.why_not) == 1,
            "turned by several": one.why_not is not None and len(one.why_not) > 1,
            "turned by none": one.why_not is None,
        }
    )


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("world", WORLDS)
def test_explanations_agree_with_the_reference(
    world: str,
    mode: str,
    examples: Callable[..., Iterator[random.Random]],
) -> None:
    make, count, shape = WORLDS[world]
    for drawn in examples(count, world, mode):
        script = make(drawn.choice).script(**shape)
        with in_mode(mode):
            pair = Pair()
            for step in script:
                if isinstance(step, Submit) and drawn.random() < 0.2:
                    try:
                        explained_and_judged(pair, step, drawn)
                    except AssertionError as error:
                        pytest.fail(f"at {step}: {error}")
                # The engine's answers from now on are compared, too.
                pair.apply(step)
                if drawn.random() < 0.1:
                    pair.reload()


@pytest.mark.slow
def test_explanations_say_all_that_they_can_say(seed: int) -> None:
    """If no verdict changed with time, or no event settled one, agreement would mean little."""
    met = Counter[str]()
    for number in range(150):
        drawn = random.Random(f"{seed} {number}")
        pair = Pair()
        for step in World(drawn.choice).script(depth=3):
            if isinstance(step, Submit):
                met += explained_and_judged(pair, step, drawn)
            pair.apply(step)
        if len(met) == 12 and min(met.values()) >= 5:
            return
    pytest.fail(f"{met}")
