"""The versions of rules are numbered, bounded and saved."""

from typing import Any

from engine import Detector
from engine.evaluation.rule_book.changes import versions
from engine.evaluation.rule_book.changes.versions import KEPT_MAX, Change
from engine.language.limits import Limits

ID = "1" * 32


def of(detector: Detector, rule_id: str) -> list[dict[str, Any]]:
    return [*detector.versions.of(detector.rule(rule_id), ID)]


def numbers(detector: Detector, rule_id: str) -> list[int]:
    return [each["version"] for each in of(detector, rule_id)]


def changed(times: int, **limits: int) -> tuple[Detector, str]:
    detector = Detector(limits=Limits(**limits))
    rule_id = detector.add_rule("r", "a == 0")
    for number in range(1, times):
        detector.change_rule(rule_id, condition=f"a == {number}")
    return detector, rule_id


def test_a_version_says_what_the_rule_was_since_when_and_whose_token_made_it() -> None:
    detector = Detector()
    detector.change = Change(1_000_000, f"{ID} ada and bob")
    rule_id = detector.add_rule("r", "a==1  # one", description="why", labels={"level": 10**30})
    detector.change = Change(2_500_000, " bootstrap")
    detector.change_rule(rule_id, condition="a == 2", notify=True, labels={})
    second, first = of(detector, rule_id)
    assert (second["version"], second["time_ms"], second["token"]) == (
        2,
        2_500,
        {"id": "", "name": "bootstrap"},
    )
    assert (first["version"], first["time_ms"], first["token"]) == (
        1,
        1_000,
        {"id": ID, "name": "ada and bob"},
    )
    assert first["rule"] == {
        "id": rule_id,
        "condition": {"leaf": {"fact": "a", "op": "eq", "value": 1}},
        "detectorId": ID,
        "enabled": True,
        "name": "r",
        "notify": False,
        "priority": 1,
        "description": "why",
        "labels": {"level": 10**30},
        "source": "a==1  # one",
    }
    assert (second["rule"]["source"], second["rule"]["notify"]) == ("a == 2", True)
    assert "labels" not in second["rule"]


def test_what_changes_nothing_makes_no_version_and_a_promotion_makes_two() -> None:
    detector, rule_id = changed(1)
    detector.change_rule(rule_id, enabled=True, name="r")
    assert numbers(detector, rule_id) == [1]
    draft_id = detector.add_rule("d", "a == 9", shadow=True, draft_of=rule_id)
    detector.promote(rule_id)
    assert (numbers(detector, rule_id), numbers(detector, draft_id)) == ([2, 1], [2, 1])


def test_the_last_hundred_are_kept_and_those_of_removed_rules_are_dropped() -> None:
    detector, rule_id = changed(KEPT_MAX + 20)
    assert numbers(detector, rule_id) == [*range(KEPT_MAX + 20, 20, -1)]
    assert len(detector.versions.earlier) == KEPT_MAX - 1
    detector.remove_rule(rule_id)
    assert (detector.versions.bytes, detector.versions.earlier, detector.versions.present) == (0, {}, {})


def test_past_the_bound_on_bytes_the_earliest_of_all_are_dropped() -> None:
    one, _ = changed(2)
    bytes_max = one.versions.bytes * 5 + 50
    detector, first = changed(5, rules_bytes_max=bytes_max)
    second = detector.add_rule("s", "a == 0")
    for number in range(1, 5):
        detector.change_rule(second, condition=f"a == {number}")
    assert 0 < detector.versions.bytes <= bytes_max
    assert (numbers(detector, second), numbers(detector, first)) == ([5, 4, 3, 2, 1], [5, 4])
    for number in range(50):
        detector.change_rule(second, condition=f"a == {number}")
    assert numbers(detector, first) == [5]


def test_they_are_saved_and_counted_anew() -> None:
    detector, rule_id = changed(versions.KEPT_MAX + 1)
    restored = Detector.load(detector.dump(), Detector.STATE_VERSION)
    assert of(restored, rule_id) == of(detector, rule_id)
    assert restored.versions.bytes == detector.versions.bytes
    assert restored.dump() == detector.dump()
