"""The tree of a rule between two events agrees with the explanation of an event that changes nothing."""

import random
from collections import Counter
from typing import Any

import pytest

from engine import Detector, Refusal, explain
from engine.evaluation.dispatch.indexing import indexed_stream
from engine.evaluation.explanation.between_events.document import node_document
from engine.evaluation.explanation.between_events.standing import standing
from engine.language.condition import Condition
from engine.language.text.parser import parse
from tests.differential.comparison import Pair
from tests.differential.modes import MODES, in_mode
from tests.worlds.long_histories import LongHistoriesWorld
from tests.worlds.scripts import World

TEMPORAL = (
    "once p",
    "once within 3s p",
    "historically q",
    "historically for 3s q",
    "historically for 3s strong q",
    "q since p",
    "q since within 3s p",
    "previous p",
    "earlier p",
    "earlier within 3s p",
    "count(p) within 3s >= 2",
    "distinct(x where p) within 3s > 1",
    "sum(x where p) within 3s > 4",
    "avg(x where p) >= 2",
)
"""An event at which `q` is true and `p` is not leaves the memories of all these unchanged."""


def events(drawn: random.Random) -> list[tuple[dict[str, Any], int]]:
    now, found = 0, []
    for _ in range(drawn.choice((0, 1, 3, 12))):
        now += drawn.choice((0, 1, 999, 1_000, 3_000))
        fields = {name: True for name in "pq" if drawn.random() < 0.6}
        found.append(({"user": drawn.choice("ab"), "x": drawn.choice((1, 2, 5)), **fields}, now))
    return found


def leaves(node: dict[str, Any]) -> dict[str, Any]:
    """Give what is compared of a node; what settles it may be the event itself where there is one."""
    return {name: node.get(name) for name in ("verdict", "until_ms", "found", "key")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("keyed", [True, False])
def test_it_agrees_with_an_event_that_changes_nothing(mode: str, keyed: bool, seed: int) -> None:
    met: Counter[bool] = Counter()
    conditions = {}
    for text in TEMPORAL:
        told = text.replace(" p", " p == true").replace("(p", "(p == true").replace(" q", " q == true")
        told = "q == true" + told[1:] if told.startswith("q ") else told
        conditions[text] = parse(f"per user ({told})" if keyed else told)
    with in_mode(mode):
        for number in range(20):
            drawn = random.Random(f"{seed} {mode} {number}")
            if number % 5 == 0:
                detector, now_ms = Detector(), 0
                for text, condition in conditions.items():
                    detector.add_rule(text, condition)
            # What happened last time goes on, after a pause that outlasts some windows or all of them.
            for fields, timestamp_ms in events(drawn):
                detector.evaluate(fields, now_ms + timestamp_ms)
            if detector.clock_us is None:
                continue
            now_ms = detector.clock_us // 1_000 + drawn.choice((0, 1_000, 4_000))
            before = detector.dump()
            probe = {"user": "a", "q": True}
            for explained in explain(detector, probe, detector.clock_us / 1_000).rules:
                tree = standing(detector, explained.rule.id, {"user": "a"})["node"]
                node = node_document(explained.node)
                inner = tree["nodes"][0] if keyed else tree
                if explained.rule.name == "historically for 3s strong q" and "witness_ms" not in inner:
                    # Without a run under way, the event would begin one.
                    assert tree["verdict"] is inner["verdict"] is False
                    continue
                if keyed:
                    assert leaves(tree) == leaves(node)
                    tree, (node,) = inner, node["nodes"]
                assert leaves(tree) == leaves(node), explained.rule.name
                if node.get("witness_ms") != detector.clock_us / 1_000:
                    assert tree.get("witness_ms") == node.get("witness_ms")
                met[explained.verdict] += 1
                assert all("verdict" not in each for each in tree.get("nodes", ()))
            assert detector.dump() == before
    assert min(met[True], met[False]) > 30


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


def test_an_unknown_rule_has_no_tree() -> None:
    with pytest.raises(Refusal) as refused:
        standing(Detector(), "0" * 32, {})
    assert refused.value.code == 1201


COUNTING = (
    "count(p == true) within 3s >= 2",
    "distinct(x where p == true) within 3s < 2",
    "count(p == true) >= 2",
    "sum(x where p == true) within 3s > 4",
    "avg(x where p == true) within 3s > 2",
)


@pytest.mark.parametrize("condition", COUNTING)
def test_since_when_a_verdict_is_what_it_is(condition: str, seed: int) -> None:
    told: Counter[bool] = Counter()
    parsed = parse(condition)
    for number in range(20):
        drawn = random.Random(f"{seed} {number}")
        happened = [*events(drawn), *events(drawn)]
        happened.sort(key=lambda one: one[1])
        end_ms = max((at_ms for _, at_ms in happened), default=0) + drawn.choice((0, 1_000, 2_999, 4_000))
        now = _standing_at(parsed, happened, end_ms)
        if "since_ms" not in now:
            assert not now.get("found") or " within " not in condition, now
            continue
        since_ms = now["since_ms"]
        told[now["verdict"]] += since_ms < end_ms
        for at_ms in {since_ms, *(at_ms for at_ms in range(0, end_ms, 250) if at_ms >= since_ms)}:
            assert _standing_at(parsed, happened, at_ms)["verdict"] is now["verdict"], (at_ms, now)
    assert sum(told.values()) > 3


def _standing_at(
    condition: Condition, happened: list[tuple[dict[str, Any], int]], at_ms: float
) -> dict[str, Any]:
    """Give the tree at a time, after all that happened up to then."""
    detector = Detector()
    rule = detector.add_rule("r", condition)
    for fields, timestamp_ms in happened:
        if timestamp_ms <= at_ms:
            detector.evaluate(fields, timestamp_ms)
    detector.evaluate({}, at_ms)
    node: dict[str, Any] = standing(detector, rule, {})["node"]
    return node
