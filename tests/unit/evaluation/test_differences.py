"""The differences of a rule and its draft are kept and explained while somebody looks."""

import json
import random

import pytest

from engine import Detector, Refusal, explain
from engine.evaluation.explanation import differences
from engine.evaluation.explanation.between_events.document import node_document
from engine.evaluation.explanation.differences import (
    DIFFERENCES_KEPT,
    EXPLAINED_EACH_SECOND,
    WATCHED_MAX,
    Differences,
    watched,
)
from engine.evaluation.explanation.timelines import LOOKED_AT_S
from engine.evaluation.wire.comparisons import comparison_of
from tests.differential.feeding import submitted
from tests.unit.evaluation.test_timelines import Clock, drawn

RULE, DRAFT = "1" * 32, "2" * 32
PAIRS = [
    ("once within 3s a == 1", "once within 1s a == 1"),
    ("per user count(a == 1) within 5s >= 2", "per user (a == 1 and count(a == 1) within 5s >= 3)"),
    ("per user (not a == 1) since within 4s b == 1", "per ip where b == 1 previous a == 1"),
    ("per user sum(a) within 4s > 2", "per user historically for 2s strong b == 1"),
    ("a == 1", "b == 1"),
]


def made(rule: str, draft: str) -> tuple[Detector, Clock, Differences]:
    detector, clock = Detector(), Clock()
    detector.add_rule("rule", rule, rule_id=RULE)
    detector.add_rule("draft", draft, rule_id=DRAFT, shadow=True, draft_of=RULE)
    return detector, clock, watched(detector, detector.comparison(RULE), clock)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
@pytest.mark.parametrize("many", [False, True], ids=["one by one", "in a batch"])
def test_each_difference_has_the_trees_that_an_explanation_had(pair: tuple[str, str], many: bool) -> None:
    detector, _, watching = made(*pair)
    other = Detector()
    for name, condition in zip((RULE, DRAFT), pair, strict=True):
        other.add_rule(name, condition, rule_id=name)
    events = [(fields, 500 * number, None) for number, fields in enumerate(drawn(7))]
    expected = []
    for number, (fields, at_ms, _) in enumerate(events, 1):
        rule, draft = explain(other, fields, at_ms).rules
        other.evaluate(fields, at_ms)
        if rule.verdict is not draft.verdict:
            kind = "only_rule" if rule.verdict else "only_draft"
            expected.append((kind, number, [node_document(rule.node), node_document(draft.node)]))
    if many:
        submitted(detector, events)
    else:
        for event in events:
            detector.submit(*event)
    told = []
    for one in watching.kept:
        assert one.nodes is not None
        told.append((one.kind, one.example.number, [*map(node_document, one.nodes)]))
    assert told == expected
    assert expected


def test_a_burst_is_kept_whole_up_to_a_bound_and_explained_in_part() -> None:
    detector, clock, watching = made("a == 1", "a == 2")
    submitted(detector, [({"a": 1}, number, None) for number in range(DIFFERENCES_KEPT + 20)])
    assert [one.example.number for one in watching.kept] == list(range(21, DIFFERENCES_KEPT + 21))
    explained = [one.example.number for one in watching.kept if one.nodes is not None]
    assert explained == list(range(21, EXPLAINED_EACH_SECOND + 1))
    clock.now_s += 1
    submitted(detector, [({"a": 2}, 1_000, None)] * (EXPLAINED_EACH_SECOND + 5))
    last = list(watching.kept)[-EXPLAINED_EACH_SECOND - 5 :]
    assert [one.nodes is not None for one in last] == [True] * EXPLAINED_EACH_SECOND + [False] * 5
    assert {one.kind for one in last} == {"only_draft"}


def test_nobody_pays_once_nobody_looks_or_the_pair_is_gone() -> None:
    detector, clock, watching = made("a == 1", "a == 2")
    comparison = detector.comparison(RULE)
    clock.now_s = LOOKED_AT_S
    assert watched(detector, comparison, clock) is watching
    clock.now_s += LOOKED_AT_S + 1
    detector.submit({"a": 1}, 1)
    assert (detector.observers, comparison.watcher, len(watching.kept)) == ([], None, 0)
    watched(detector, comparison, clock)
    detector.change_rule(DRAFT, condition="a == 3")
    detector.submit({"a": 1}, 2)
    assert detector.observers == []
    watched(detector, detector.comparison(RULE), clock)
    detector.promote(RULE)
    detector.submit({"a": 1}, 3)
    assert detector.observers == []


def test_large_conditions_and_events_that_were_not_observed_have_no_trees() -> None:
    large = " and ".join(f"a != {number}" for number in range(differences.EXPLAINED_NODES_MAX))
    detector, _, watching = made(large, "a == 1")
    detector.submit({"a": -1}, 1)
    assert [one.nodes for one in watching.kept] == [None]
    detector, _, watching = made("a == 1", "a == 2")
    detector.evaluate({"a": 1}, 1)
    with pytest.raises(Refusal):
        detector.submit({"a": 1}, -1e9)
    detector.submit({"a": 1}, 2)
    assert [one.nodes is None for one in watching.kept] == [True, False]


def test_few_comparisons_are_watched_at_a_time() -> None:
    detector, clock = Detector(), Clock()
    for number in range(WATCHED_MAX + 1):
        rule = detector.add_rule(f"rule {number}", "a == 1")
        detector.add_rule(f"draft {number}", "a == 2", shadow=True, draft_of=rule)
    *most, last = detector.shadows.comparisons.values()
    for comparison in most:
        watched(detector, comparison, clock)
    with pytest.raises(Refusal, match="8 comparisons") as refused:
        watched(detector, last, clock)
    assert refused.value.code == 1400


def test_the_answer_has_the_differences_behind_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    detector, clock, _ = made("once a == 1", "a == 2")
    monkeypatch.setattr("engine.evaluation.wire.comparisons.time.monotonic", clock)
    detector.submit({"a": 1}, 1)
    detector.submit({"a": 2}, 2)
    detector.submit({"a": random.Random(1).random()}, 3)
    assert "differences" not in json.loads(comparison_of(detector, RULE).result)
    told = json.loads(comparison_of(detector, RULE, 1).result)["differences"]
    assert [(one["number"], one["fired"], one["draft"]["verdict"]) for one in told] == [
        (3, "only_rule", False)
    ]
    assert told[0]["rule"]["witness_ms"] == 1
    monkeypatch.setattr("engine.evaluation.wire.comparisons.TREES_BYTES_MAX", 1)
    both = json.loads(comparison_of(detector, RULE, 0).result)["differences"]
    assert ["rule" in one for one in both] == [True, False]
