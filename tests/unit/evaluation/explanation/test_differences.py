"""The differences of a rule and its draft are kept and explained while somebody looks."""

import json
import random
from typing import Any

import pytest

from engine import Detector, Refusal, explain
from engine.evaluation.explanation.nodes import node_document
from engine.evaluation.facts.values import Event
from engine.evaluation.inspecting import comparisons
from engine.evaluation.inspecting.comparisons import (
    DIFFERENCES_KEPT,
    EXPLAINED_EACH_SECOND,
    SAMPLED_EACH_SECOND,
    WATCHED_MAX,
    Differences,
    Samples,
    comparison_of,
    watch,
)
from engine.evaluation.inspecting.timelines import LOOKED_AT_S
from engine.evaluation.rule_book.shadows import EXAMPLES_EACH, EXAMPLES_MAX, EXPLAINED_MAX
from tests.differential.feeding import submitted
from tests.unit.evaluation.explanation.test_timelines import Clock, drawn

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
    return detector, clock, watch(detector, detector.comparison(RULE), clock)


def sampled(rule: str, draft: str) -> tuple[Detector, Clock]:
    """Return a detector whose comparison nobody watches."""
    detector, clock, watching = made(rule, draft)
    watching._end()
    detector.sampler = Samples(detector, clock)
    return detector, clock


def told_of(detector: Detector, kind: str, rule_id: str = RULE) -> list[tuple[int, bool]]:
    """Return the number of each example, the last one first, and whether it has trees."""
    examples = json.loads(comparison_of(detector, rule_id).result)["examples"][kind]
    assert all(("rule" in one) is ("draft" in one) for one in examples)
    return [(one["number"], "rule" in one) for one in examples]


def explained(pair: tuple[str, str], events: list[Event]) -> list[tuple[str, int, list[Any]]]:
    """Return the differences and their trees as explanations find them."""
    detector = Detector()
    for name, condition in zip((RULE, DRAFT), pair, strict=True):
        detector.add_rule(name, condition, rule_id=name)
    expected = []
    for number, (fields, at_ms, _) in enumerate(events, 1):
        rule, draft = explain(detector, fields, at_ms).rules
        detector.evaluate(fields, at_ms)
        if rule.verdict is not draft.verdict:
            kind = "only_rule" if rule.verdict else "only_draft"
            expected.append((kind, number, [node_document(rule.node), node_document(draft.node)]))
    return expected


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
@pytest.mark.parametrize("many", [False, True], ids=["one by one", "in a batch"])
def test_each_difference_has_the_trees_that_an_explanation_had(pair: tuple[str, str], many: bool) -> None:
    detector, _, watching = made(*pair)
    events: list[Event] = [(fields, 500 * number, None) for number, fields in enumerate(drawn(7))]
    expected = explained(pair, events)
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


def test_rules_that_were_born_later_have_trees_of_their_own_slices() -> None:
    detector = Detector()
    for number in range(3):
        detector.submit({"a": 1, "user": "u"}, number)
    slices = "per user where once a == 1"
    detector.add_rule("rule", f"{slices} previous b == 1", rule_id=RULE)
    detector.add_rule("draft", f"{slices} once b == 1", rule_id=DRAFT, shadow=True, draft_of=RULE)
    watching = watch(detector, detector.comparison(RULE), Clock())
    expected = []
    for number, fields in enumerate([{"a": 1}, {"b": 1}, {"b": 2}, {}, {}], 3):
        at = {**fields, "user": "u"}, number
        rule, draft = explain(detector, *at).rules
        detector.submit(*at)
        if rule.verdict is not draft.verdict:
            expected.append((rule.node, draft.node))
    assert [one.nodes for one in watching.kept] == expected
    assert len(expected) == 3


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
    assert watch(detector, comparison, clock) is watching
    clock.now_s += LOOKED_AT_S + 1
    detector.submit({"a": 1}, 1)
    assert (detector.observers, comparison.watcher, len(watching.kept)) == ([], None, 0)
    watch(detector, comparison, clock)
    detector.change_rule(DRAFT, condition="a == 3")
    detector.submit({"a": 1}, 2)
    assert detector.observers == []
    watch(detector, detector.comparison(RULE), clock)
    detector.promote(RULE)
    detector.submit({"a": 1}, 3)
    assert detector.observers == []


def test_large_conditions_and_events_that_were_not_observed_have_no_trees() -> None:
    large = " and ".join(f"a != {number}" for number in range(comparisons.EXPLAINED_NODES_MAX))
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
        watch(detector, comparison, clock)
    with pytest.raises(Refusal, match="8 comparisons") as refused:
        watch(detector, last, clock)
    assert refused.value.code == 1400


def test_the_answer_has_the_differences_behind_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    detector, clock, _ = made("once a == 1", "a == 2")
    monkeypatch.setattr("engine.evaluation.inspecting.comparisons.time.monotonic", clock)
    detector.submit({"a": 1}, 1)
    detector.submit({"a": 2}, 2)
    detector.submit({"a": random.Random(1).random()}, 3)
    assert "differences" not in json.loads(comparison_of(detector, RULE).result)
    told = json.loads(comparison_of(detector, RULE, 1).result)["differences"]
    assert [(one["number"], one["fired"], one["draft"]["verdict"]) for one in told] == [
        (3, "only_rule", False)
    ]
    assert told[0]["rule"]["witness_ms"] == 1
    monkeypatch.setattr("engine.evaluation.inspecting.comparisons.TREES_BYTES_MAX", 1)
    both = json.loads(comparison_of(detector, RULE, 0).result)["differences"]
    assert ["rule" in one for one in both] == [True, False]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_examples_have_the_trees_that_an_explanation_had_though_nobody_looked(pair: tuple[str, str]) -> None:
    detector, _ = sampled(*pair)
    events: list[Event] = [(fields, 500 * number, None) for number, fields in enumerate(drawn(7))]
    for event in events:
        detector.submit(*event)
    told = json.loads(comparison_of(detector, RULE).result)["examples"]
    for kind in ("only_rule", "only_draft"):
        expected = [(number, trees) for each, number, trees in explained(pair, events) if each == kind]
        found = [(one["number"], [one["rule"], one["draft"]]) for one in told[kind] if "rule" in one]
        assert found == expected[: -EXPLAINED_MAX - 1 : -1]
    assert not any("rule" in one for one in told["both"])


def test_of_a_batch_the_first_events_are_explained() -> None:
    detector, _ = sampled("once a == 1", "a == 2")
    submitted(detector, [({"a": 1}, number, None) for number in range(20)])
    assert told_of(detector, "only_rule") == [
        *((number, False) for number in range(20, 15, -1)),
        *((number, True) for number in range(8, 3, -1)),
    ]
    refused = [({"a": 1}, -1e9, None), ({"a": 1}, 30, None)]
    submitted(detector, refused)
    assert told_of(detector, "only_rule")[0] == (21, True)


def test_a_refused_event_leaves_nothing_for_the_next() -> None:
    detector, _ = sampled("once a == 1", "a == 2")
    detector.submit({"a": 1}, 1)
    with pytest.raises(Refusal):
        detector.submit({"a": 1}, -1e9)
    detector.evaluate({"a": 1}, 2)
    assert told_of(detector, "only_rule") == [(2, False), (1, True)]


def test_a_burst_is_explained_in_part_though_nobody_looks() -> None:
    detector, clock = sampled("a == 1 or a == 3", "a == 2")
    for number in range(SAMPLED_EACH_SECOND):
        detector.submit({}, number)
    detector.submit({"a": 1}, number)
    assert told_of(detector, "only_rule") == [(SAMPLED_EACH_SECOND + 1, False)]
    clock.now_s += 1
    for number in range(2 * EXAMPLES_EACH):
        detector.submit({"a": 1}, 1_000 + number)
    numbers = [number for number, has_trees in told_of(detector, "only_rule") if has_trees]
    first = SAMPLED_EACH_SECOND + 1
    assert numbers == [first + 2 * EXAMPLES_EACH, *(first + EXAMPLES_EACH - back for back in range(4))]
    detector.submit({"a": 2}, 9_999)
    assert told_of(detector, "only_draft") == [(first + 2 * EXAMPLES_EACH + 1, True)]
    assert len(told_of(detector, "only_rule")) == EXAMPLES_MAX


def test_pairs_take_turns() -> None:
    detector, _ = sampled("a == 1", "a == 2")
    other = detector.add_rule("other", "a == 1")
    detector.add_rule("other, draft", "a == 2", shadow=True, draft_of=other)
    for number in range(4):
        detector.submit({"a": 1}, number)
    assert told_of(detector, "only_rule") == [(4, False), (3, True), (2, False), (1, True)]
    assert told_of(detector, "only_rule", other) == [(4, True), (3, False), (2, True), (1, False)]


def test_trees_change_sides_when_the_draft_is_promoted() -> None:
    detector, _ = sampled("a == 1", "a == 2")
    detector.submit({"a": 1}, 1)
    detector.promote(RULE)
    detector.submit({"a": 1}, 2)
    last, first = json.loads(comparison_of(detector, RULE).result)["examples"]["only_draft"]
    for one in (last, first):
        assert (one["rule"]["text"], one["draft"]["text"]) == ("a == 2", "a == 1")
        assert (one["rule"]["verdict"], one["draft"]["verdict"]) == (False, True)


def test_large_conditions_have_examples_without_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    large = " and ".join(f"a != {number}" for number in range(comparisons.EXPLAINED_NODES_MAX))
    detector, _ = sampled(large, "a == 1")
    detector.submit({"a": -1}, 1)
    assert told_of(detector, "only_rule") == [(1, False)]
    monkeypatch.setattr(comparisons, "EXPLAINED_BYTES_MAX", 10)
    detector, _ = sampled("a == 1", "a == 2")
    detector.submit({"a": 1}, 1)
    assert told_of(detector, "only_rule") == [(1, False)]


def test_the_trees_of_an_answer_are_bounded_and_later_differences_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "engine.evaluation.inspecting.comparisons"
    assert comparisons.TREES_BYTES_MAX == 4 * 2**20, "as api/SHADOWS.md says"
    detector, clock, _ = made("a == 1", "a == 2")
    monkeypatch.setattr(f"{module}.time.monotonic", clock)
    detector.submit({"a": 1}, 1)
    detector.submit({"a": 1}, 2)

    def have_trees() -> list[bool]:
        told = json.loads(comparison_of(detector, RULE, 0).result)["differences"]
        return ["rule" in one for one in told]

    first, _ = json.loads(comparison_of(detector, RULE, 0).result)["differences"]
    size = len(json.dumps([first["rule"], first["draft"]]))
    monkeypatch.setattr(f"{module}.TREES_BYTES_MAX", size)
    assert have_trees() == [True, False]
    monkeypatch.setattr(f"{module}.TREES_BYTES_MAX", size + 1)
    assert have_trees() == [True, True]
