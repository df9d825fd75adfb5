"""Sampled events are evaluated like others, and each member has its share of the time of its loop."""

import itertools
from collections.abc import Iterator

import pytest

from engine import Detector
from engine.evaluation.kernel.indexing import indexed_stream, sampling
from tests.differential.modes import index_from

LOOP_NS = 1_000
RULES = (
    "a == 1",
    "a == 2",
    "a == 1 or b == 1",
    "a == 2 or b == 1",
    "per k where previous a == 1 once a == 2",
    "per k where previous a == 2 (once a == 1 or once b == 1)",
    "per k count(a == 1) >= 2",
)


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are indexed, and each loop over rows takes as long."""
    index_from(monkeypatch, 0)
    clock_ns = itertools.count(step=LOOP_NS)
    monkeypatch.setattr(sampling, "perf_counter_ns", lambda: next(clock_ns))


def fired(sampled_every: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the rules that fire at each event. Some rules are new at some events."""
    monkeypatch.setattr(indexed_stream, "SAMPLED_EVERY", sampled_every)
    detector = Detector()
    for number in range(60):
        if number % 5 == 0:
            for rule in RULES:
                detector.add_rule(f"{rule} {number}", rule)
        event = {"a": number % 3, "b": number % 7, "k": number % 2}
        yield [action["name"] for action in detector.evaluate(event, number)]


@pytest.mark.usefixtures("indexed")
def test_the_same_rules_fire_whether_an_event_is_sampled_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    sampled = [*fired(1, monkeypatch)]
    assert sampled == [*fired(10**9, monkeypatch)]
    assert len({name for names in sampled for name in names}) > 50


@pytest.mark.usefixtures("indexed")
def test_the_members_of_a_loop_share_its_time_until_they_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed_stream, "SAMPLED_EVERY", 3)
    detector = Detector()
    alone = detector.add_rule("alone", "c == 1")
    equal = [detector.add_rule(f"equal {number}", f"a == 1 and x != {number}") for number in range(2, 6)]
    several = [
        detector.add_rule(f"several {n}", f"b == 1 and y != {n} or b == 2 and z != {n}") for n in (2, 3)
    ]
    for number in range(12):
        detector.evaluate({"a": 1, "b": 1, "c": number // 6}, number)
    samples = detector.rule_set.samples
    priorities = {rule_id: detector.live[rule_id].rule.priority for rule_id in (alone, *equal, *several)}
    assert samples.events == 4
    assert [samples.ran[priorities[one]] for one in (alone, *equal, *several)] == [2, *[4] * 6]
    assert samples.time_ns[priorities[alone]] == 2 * LOOP_NS
    assert [samples.time_ns[priorities[one]] for one in equal] == [4 * LOOP_NS / 4] * 4
    assert [samples.time_ns[priorities[one]] for one in several] == [4 * LOOP_NS / 2] * 2
    for rule_id in (alone, equal[0]):
        detector.remove_rule(rule_id)
        assert priorities[rule_id] not in samples.ran
        assert priorities[rule_id] not in samples.time_ns
    assert len(samples.ran) == 5
