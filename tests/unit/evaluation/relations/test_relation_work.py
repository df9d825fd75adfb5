"""What events pay for stored relations, in calls: nothing for their size, nor for rules of others."""

import gc
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.kernel import rule_set

EVENTS = 50


def work(detector: Detector, value: str, sent: Any = None) -> int:
    """Count the calls of functions, Python's and C's, that events with this value make after the first."""
    made = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    events = [({"user": value, "ip": "10.9.9.9"}, number, sent or {}) for number in range(EVENTS)]
    detector.submit_clean(events)
    # A collection calls what others have it call.
    gc.disable()
    sys.setprofile(count)
    try:
        detector.submit_clean(events)
    finally:
        sys.setprofile(None)
        gc.enable()
    return made


def with_relations(rules: Iterable[str], relations: dict[str, list[str]]) -> Detector:
    detector = Detector()
    for rule in rules:
        detector.add_rule("r", rule)
    for name, tuples in relations.items():
        detector.put_relation(name, tuples, 0)
    return detector


@pytest.mark.slow
@pytest.mark.parametrize("indexed_from", [1, 1 << 62])
def test_a_large_relation_costs_an_event_what_a_small_one_does(
    indexed_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "INDEXED_FROM", indexed_from)
    rules = ["known(user)", "ip in network offices"]

    def paid(count: int) -> int:
        texts = [f"user-{number}" for number in range(count)]
        networks = [f"10.{number >> 8}.{number & 255}.0/24" for number in range(count)]
        return work(with_relations(rules, {"known": texts, "offices": networks}), "user-3")

    # A large relation is one more call away, at each look-up of a rule and of the index.
    assert paid(5_000) <= paid(10) + 10 * EVENTS
    assert paid(8_000) == paid(5_000)


def test_rules_of_relations_that_do_not_have_the_value_cost_nothing() -> None:
    rules = [f"list{number}(user) and exists amount" for number in range(400)]
    relations = {f"list{number}": [f"u{number}-{each}" for each in range(3)] for number in range(400)}
    detector = with_relations(rules, relations)
    others = work(detector, "nobody")
    assert others < 40 * EVENTS
    assert work(detector, "u7-1") < others + 40 * EVENTS
    # What is sent may hold anything, so its rules are evaluated.
    assert work(detector, "nobody", {"list7": ["nobody"]}) < others + 60 * EVENTS


@pytest.mark.slow
def test_a_change_of_a_relation_that_many_rules_ask_lists_its_tuples_once() -> None:
    def paid(rules: int) -> int:
        detector = with_relations((f"listed(user) and tier == {n}" for n in range(rules)), {"listed": ["a"]})
        made = 0

        def count(_: object, event: str, __: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            detector.change_relation("listed", add=["b"], time_ms=0)
        finally:
            sys.setprofile(None)
        return made

    assert paid(400) < paid(200) + 100
