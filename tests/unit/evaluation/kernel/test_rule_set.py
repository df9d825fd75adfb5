"""The enabled rules: what their changes leave, and what is told of their cost."""

import pytest

from engine import Detector
from engine.evaluation.kernel.costs import estimate_of
from engine.evaluation.kernel.indexing import indexed_stream
from engine.evaluation.kernel.needs import RELATIONS_NAMED_MAX, WARNING_BYTES_MAX
from tests.differential.modes import in_mode

MODES = pytest.mark.parametrize("mode", ["fused", "indexed"])


def names(detector: Detector, time_ms: int, **fields: object) -> list[str]:
    return [action["name"] for action in detector.evaluate(fields, time_ms)]


@MODES
def test_a_key_counts_though_the_rule_has_gone_that_remembered_something_under_it(mode: str) -> None:
    with in_mode(mode):
        detector = Detector()
        other = detector.add_rule("under k", "per k distinct(j) < 2")
        for rule in ("per k a == 1", "per k per j once a == 1", "once (per k a == 1)"):
            detector.add_rule(rule, rule)
        assert len(names(detector, 0, k=1, j=1, a=1)) == 4
        detector.remove_rule(other)
        assert len(names(detector, 0, k=2, j=1, a=1)) == 3
        assert names(detector, 0, j=1, a=1) == ["once (per k a == 1)"]


def test_the_room_for_messages_is_that_of_every_relation_that_is_named_and_every_text() -> None:
    detector = Detector()
    for relations in range(RELATIONS_NAMED_MAX + 4):
        for texts in range(3):
            named = min(relations, RELATIONS_NAMED_MAX + 1)
            assert detector.rule_set.answer_bytes_worst == (named + texts) * WARNING_BYTES_MAX
            detector.add_rule("rule", f"t{texts} matches 'a'", shadow=True)
        for rule in detector.rules()[relations:]:
            detector.remove_rule(rule.id)
        detector.add_rule("rule", f"r{relations}()", shadow=True)


def test_the_time_of_an_indexed_rule_is_what_was_measured_with_its_part_of_what_it_shares() -> None:
    with in_mode("indexed"):
        detector = Detector()
        rules = detector.rule_set
        for number in range(2):
            detector.add_rule("rule", f"a == {number} and per k once b == 1 and once c == {number}")
        assert rules.time_ns(1) == 0
        for remembered, number in rules._members.memories.items():
            rules.samples.time_ns[number] = 10 if remembered.slices.path else 100
        rules.samples.time_ns[1] = 1
        assert [rules.time_ns(priority) for priority in (1, 2)] == [1 + 10 / 2 + 100, 10 / 2 + 100]


def test_what_was_measured_is_forgotten_once_rules_are_no_longer_indexed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexed_stream, "SAMPLED_EVERY", 1)
    with in_mode("indexed"):
        detector = Detector()
        detector.add_rule("rule", "per k once a == 1")
        detector.evaluate({"k": 1, "a": 1}, 0)
    samples = detector.rule_set.samples
    assert (samples.events, len(samples.ran)) == (1, 2)
    with in_mode("fused"):
        detector.add_rule("other", "b == 1")
    samples = detector.rule_set.samples
    assert (samples.events, samples.ran, samples.time_ns) == (0, {}, {})


def test_the_time_of_a_rule_among_few_is_an_estimate() -> None:
    with in_mode("fused"):
        detector = Detector()
        for condition in ("a == 1", "some a (it == 1)", "a > 2 * b", "per k once a == 1 and a == 2"):
            detector.add_rule("rule", condition)
        rules = detector.rule_set
        expected = [estimate_of(rule.condition).event_ns for rule in detector.rules()]
        assert [rules.time_ns(priority) for priority in rules.enabled] == expected
        assert 0 < expected[0] < min(expected[1:])


@MODES
def test_what_rules_search_for_is_compiled_before_an_event_comes(mode: str) -> None:
    with in_mode(mode):
        detector = Detector()
        rules = detector.rule_set
        for number in range(20):
            detector.add_rule("rule", f"t matches 'a{number}' and t contains 'b{number}'")
            assert not rules.patterns.changed
            assert not rules.lookups.changed
        for rule in detector.rules():
            detector.remove_rule(rule.id)
        assert (rules.patterns._facts, rules.lookups._with_literals) == ({}, {})


def test_rules_are_evaluated_as_they_were_when_they_were_saved() -> None:
    for saved_in, loaded_in in (("fused", "indexed"), ("indexed", "fused")):
        with in_mode(saved_in):
            detector = Detector()
            for number in range(3):
                detector.add_rule("rule", f"t matches 'a{number}' and per k once t contains 'b'")
        with in_mode(loaded_in):
            loaded = Detector.load(detector.dump(), Detector.STATE_VERSION)
            assert loaded.rule_set.indexed is detector.rule_set.indexed is (saved_in == "indexed")
            assert not loaded.rule_set.patterns.changed
            assert not loaded.rule_set.lookups.changed
            loaded.add_rule("rule", "a == 1")
            assert loaded.rule_set.indexed is (loaded_in == "indexed")
