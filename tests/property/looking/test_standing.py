"""The standing verdict of a rule is the reference's verdict at an event with only the rule's keys."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine import Detector, Refusal
from engine.evaluation.inspecting import holdings
from engine.evaluation.inspecting import states as standing_module
from engine.evaluation.inspecting.holdings import KeyPlace
from engine.evaluation.inspecting.states import standing, standing_node, true_keys
from engine.evaluation.kernel.indexing import indexed_stream
from engine.evaluation.paths import fact_of
from engine.evaluation.requirements import requirements_of
from engine.language import condition as terms
from engine.language.condition import Condition
from tests.differential.comparison import Pair
from tests.differential.explanations import judge_node
from tests.differential.modes import TRIED, in_mode
from tests.reference import Event, verdict
from tests.reference_values import equal, scalar
from tests.worlds.long_histories import LongHistoriesWorld
from tests.worlds.scripts import Add, Submit, World
from tests.worlds.shared_histories import NestedWorld, RunsWorld, SharedWorld

WORLDS = {
    "deep conditions": (World, 20, {"depth": 4, "steps_max": 18}),
    "shallow conditions": (World, 20, {"depth": 2, "steps_max": 24}),
    "shared histories": (SharedWorld, 10, {}),
    "histories of histories": (NestedWorld, 10, {}),
    "long runs": (RunsWorld, 10, {}),
    "long histories": (LongHistoriesWorld, 10, {"steps_max": 40}),
}

BOOLEAN = terms.All | terms.Any | terms.Not | terms.Keyed


def keys_of(condition: Condition) -> set[str]:
    """Return the keys of a rule: those of each `per` that has only boolean members around it."""
    own = {condition.key} if isinstance(condition, terms.Keyed) else set()
    inside = terms.children(condition) if isinstance(condition, BOOLEAN) else ()
    return own.union(*map(keys_of, inside))


def judged(pair: Pair, drawn: random.Random) -> Counter[str]:
    """Check the standing verdicts of all rules for keys that events had or lacked. Count the cases met."""
    engine, reference = pair.engine, pair.reference
    if not reference.events:
        return Counter()
    before, met = engine.dump(), Counter[str]()
    for rule_id, rule in reference.rules.items():
        last = drawn.choice(reference.events[-6:])
        # Values of another rule's keys are given, too.
        key = {name: last[name] for name in ("a", "b", "user.id", "$v", "list") if scalar(last[name])}
        node = standing_node(engine, engine.live[rule_id], key)
        told = standing(engine, rule_id, key)["node"]
        assert (told["verdict"], told["text"]) == (node.verdict, node.text)
        if not rule.enabled:
            assert (node.verdict, node.nodes) == (False, ())
            continue
        names = keys_of(rule.condition) & key.keys()
        fields = {name: key[name] for name in names if not name.startswith("$")}
        added = Event(
            reference.events[-1].time_us, fields, {name[1:]: key[name] for name in names if name[0] == "$"}
        )
        history = [*reference.events[rule.birth :], added]
        for each in judge_node(node, rule.condition, history, drawn):
            met[f"{each.verdict}"] += 1
            met["keyed"] += each.key is not None
            met["variables"] += any(name.startswith("$") for name in each.key or ())
            earlier = each.since_us is not None and each.since_us < added.time_us
            met["since"] += earlier
            kind = type(each.condition)
            met["run"] += earlier and each.verdict and kind is terms.HistoricallyFor
            met["counted"] += earlier and kind in {terms.Count, terms.Distinct, terms.Sum, terms.Avg}
    assert engine.dump() == before
    assert engine.rule_set.lookups.used == []
    return met


def listed(engine: Detector, rule_id: str, drawn: random.Random) -> list[dict[str, Any]]:
    """Return the keys for which a rule is true, page by page."""
    found: list[dict[str, Any]] = []
    place: KeyPlace | None = KeyPlace()
    while place is not None:
        limit = drawn.choice((1, 2, 100))
        keys, place = true_keys(engine, rule_id, "", limit, place)
        assert len(keys) <= limit
        found += [one.key for one in keys]
    return found


def judged_keys(pair: Pair, drawn: random.Random) -> Counter[str]:
    """Check the keys for which rules are true: those among the events' keys that are still live."""
    engine, reference, met = pair.engine, pair.reference, Counter[str]()
    if not reference.events:
        return met
    for rule_id, rule in reference.rules.items():
        if not rule.enabled:
            assert listed(engine, rule_id, drawn) == []
            continue
        names = sorted(keys_of(rule.condition))
        try:
            found = listed(engine, rule_id, drawn)
        except Refusal as refusal:
            if refusal.code != 1400 or not names:
                raise
            met["refused"] += 1
            continue
        same = {repr(sorted(key.items())) for key in found}
        assert len(same) == len(found)
        expected = []
        candidates = [[event[name] for name in names] for event in reference.events]
        for values in candidates:
            key = dict(zip(names, values, strict=True))
            if not all(map(scalar, values)) or any(equal(key, other) for other in expected):
                continue
            fields = {name: value for name, value in key.items() if name[0] != "$"}
            sent = {name[1:]: value for name, value in key.items() if name[0] == "$"}
            added = Event(reference.events[-1].time_us, fields, sent)
            if verdict(rule.condition, [*reference.events[rule.birth :], added]):
                expected.append(key)
        for key in found:
            assert any(equal(key, other) for other in expected), (rule.condition, key)
        live = [key for key in expected if is_live(engine, rule_id, key)]
        for key in live:
            assert any(equal(key, other) for other in found), (rule.condition, key)
        met["keys"] += len(found) if names else 0
        met["several"] += len(found) > 1
    return met


def is_live(engine: Detector, rule_id: str, key: dict[str, Any]) -> bool:
    """Whether a store of the rule has the key."""
    live = engine.live[rule_id]
    sent = {name[1:]: value for name, value in key.items() if name[0] == "$"}
    paths = {use.path for use in requirements_of(live.rule.condition, live.births).memories}
    return not key or any(
        engine.histories.slices[path].find(engine.histories.slices[path].key_at(key, sent)) is not None
        for path in paths
        if {*map(fact_of, path)} == {*key}
    )


@pytest.mark.slow
@pytest.mark.parametrize("mode", TRIED)
def test_the_keys_for_which_a_rule_is_true_are_those_of_the_reference(
    mode: str,
    examples: Callable[..., Iterator[random.Random]],
    scaled: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holdings, "SLICES_AT_ONCE", 3)
    monkeypatch.setattr(standing_module, "NODES_AT_ONCE", 4)
    met = Counter[str]()
    for drawn in examples(10, mode, until=lambda: met["keys"] > scaled(200) < met["several"]):
        world = drawn.choice((World, RunsWorld, LongHistoriesWorld))
        with in_mode(mode):
            pair = Pair()
            for step in world(drawn.choice).script(depth=3):
                if isinstance(step, Add) and drawn.random() < 0.5:
                    key = "k" if world is RunsWorld else "a"
                    step = replace(step, condition=terms.Keyed(step.condition, key))  # noqa: PLW2901
                pair.apply(step)
            met += judged_keys(pair, drawn)


@pytest.mark.parametrize("nodes_at_once", [2, 30, 200])
def test_pages_have_each_key_once_though_others_come_and_go(
    nodes_at_once: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing_module, "NODES_AT_ONCE", nodes_at_once)
    drawn, detector = random.Random(seed), Detector()
    rule_id = detector.add_rule("rule", "per u once a == 1 or per u where b == 1 once c == 1")
    true, changing = set(range(-900, 0, 3)), [str(number) for number in range(200)]
    for key in range(-900, 0):
        detector.evaluate({"u": key, "a": int(key in true), "b": 1, "c": int(key in true)}, 0)
    for prefix, expected in (("", true), ("-1", {key for key in true if str(key).startswith("-1")})):
        found: list[int | str] = []
        place: KeyPlace | None = KeyPlace()
        while place is not None:
            limit = drawn.choice((1, 7, 100))
            keys, place = true_keys(detector, rule_id, prefix, limit, place)
            assert len(keys) <= limit
            found += [one.key["u"] for one in keys]
            detector.evaluate({"u": drawn.choice(changing), "a": 1}, 0)
            for slices in detector.histories.slices.values():
                key = drawn.choice(changing)
                if slices.find(key) is not None:
                    slices.drop(key)
        assert sorted(key for key in found if isinstance(key, int)) == sorted(expected)


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("world", WORLDS)
def test_a_standing_verdict_is_that_of_an_event_with_only_the_keys(
    world: str, mode: str, examples: Callable[..., Iterator[random.Random]]
) -> None:
    make, count, shape = WORLDS[world]
    for drawn in examples(count, world, mode):
        script = make(drawn.choice).script(**shape)
        with in_mode(mode):
            pair = Pair()
            for step in script:
                pair.apply(step)
                if isinstance(step, Submit) and drawn.random() < 0.2:
                    judged(pair, drawn)
                if drawn.random() < 0.1:
                    pair.reload()


@pytest.mark.slow
def test_standing_verdicts_say_all_that_they_can_say(seed: int) -> None:
    """If nothing was true, keyed or long so, agreement would mean little."""
    met = Counter[str]()
    for number in range(400):
        drawn = random.Random(f"{seed} {number}")
        pair = Pair()
        world = RunsWorld if number % 3 == 0 else World
        for step in world(drawn.choice).script(depth=3):
            # Few conditions that are drawn have a variable for a key.
            if isinstance(step, Add) and drawn.random() < 0.3:
                step = replace(step, condition=terms.Keyed(step.condition, "$v"))  # noqa: PLW2901
            pair.apply(step)
            met += judged(pair, drawn)
        if len(met) == 7 and min(met.values()) >= 5:
            return
    pytest.fail(f"{met}")


@pytest.mark.parametrize("mode", ["indexed", "in turns"])
@pytest.mark.parametrize("world", [World, LongHistoriesWorld])
def test_events_whose_cost_is_sampled_are_evaluated_alike(
    world: Any, mode: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_stream, "SAMPLED_EVERY", 1)
    sampled = number = 0
    while number < 12 or sampled <= 3:
        assert number < 100
        drawn = random.Random(f"{seed} {mode} {number}")
        with in_mode(mode):
            pair = Pair()
            for step in world(drawn.choice).script():
                pair.apply(step)
            sampled += sum(pair.engine.rule_set.samples.ran.values())
            priorities = {rule.priority for rule in pair.engine.rules()}
            assert {each for each in pair.engine.rule_set.samples.ran if each > 0} <= priorities
        number += 1


def test_a_member_that_is_met_before_and_after_a_filter_runs_once_at_a_sampled_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexed_stream, "SAMPLED_EVERY", 1)
    with in_mode("indexed"):
        detector = Detector()
        detector.add_rule("r", "per k where not p == 1 once within 1s q == 1")
        detector.evaluate({"q": 1, "k": 1, "p": 1}, 0)
        assert [len(detector.evaluate({"q": 1, "k": 1}, 1)) for _ in range(3)] == [1, 1, 1]


def test_an_unknown_rule_has_no_tree_and_no_keys() -> None:
    with pytest.raises(Refusal) as refused:
        standing(Detector(), "0" * 32, {})
    assert refused.value.code == 1201
    with pytest.raises(Refusal) as refused:
        true_keys(Detector(), "0" * 32, "", 1, KeyPlace())
    assert refused.value.code == 1201


def test_what_no_event_could_find_true_is_not_shown_as_true() -> None:
    detector = Detector()
    rule = detector.add_rule("r", "historically (not earlier a == 1)")
    detector.evaluate({"a": 1}, 0)
    node = standing(detector, rule, {})["node"]
    assert node == {
        "text": "historically not earlier a == 1",
        "verdict": False,
        "nodes": [
            {
                "text": "not earlier a == 1",
                "verdict": False,
                "nodes": [
                    {
                        "text": "earlier a == 1",
                        "verdict": True,
                        "nodes": [{"text": "a == 1", "verdict": False}],
                        "witness_ms": 0,
                        "since_ms": 0,
                    }
                ],
            }
        ],
        "witness_ms": 0,
        "since_ms": 0,
    }


def test_before_the_first_event_there_are_no_times() -> None:
    detector = Detector()
    rule = detector.add_rule("r", "historically for 5m strong not a == 1")
    assert standing(detector, rule, {})["node"] == {
        "text": "historically for 5m strong not a == 1",
        "verdict": False,
        "nodes": [
            {"text": "not a == 1", "verdict": True, "nodes": [{"text": "a == 1", "verdict": False}]},
        ],
    }
    quiet = detector.add_rule("quiet", "not once within 5m not a == 1")
    assert {"witness_ms", "until_ms", "since_ms"}.isdisjoint(standing(detector, quiet, {})["node"])


def test_a_run_is_shown_true_only_since_it_has_lasted() -> None:
    detector = Detector()
    rule = detector.add_rule("r", "per host (historically for 5s strong not error == true)")
    for time_ms in (1_000, 3_000, 8_000):
        detector.evaluate({"host": "a"}, time_ms)
    [node] = standing(detector, rule, {"host": "a"})["node"]["nodes"]
    assert (node["verdict"], node["witness_ms"], node["since_ms"]) == (True, 1_000, 6_000)
