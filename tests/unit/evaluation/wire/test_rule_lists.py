"""Lists of rules: whole or in pages, bounded in number and in bytes."""

import json
from typing import Any

import msgspec
import pytest

from engine import Detector, Refusal
from engine.evaluation import rules
from engine.evaluation.inspecting import lists
from engine.evaluation.inspecting.lists import RulesAsked, rules_of
from engine.language.json.writer import condition_to_document

ONE = "1" * 32
CONTROLS = "a == " + json.dumps("\x01" * 10_000)
"""A condition of which each character takes six bytes in JSON."""


def asked(detector: Detector, after: int = 0, limit: int = 0) -> list[dict[str, Any]]:
    answer = rules_of(detector, ONE, msgspec.json.encode(RulesAsked(after, limit)))
    return json.loads(answer.result)["rules"]


def detector_with(*conditions: str) -> Detector:
    detector = Detector()
    for number, condition in enumerate(conditions):
        detector.add_rule(f"r{number}", condition)
    return detector


def priorities(page: list[dict[str, Any]]) -> list[int]:
    return [rule["priority"] for rule in page]


def test_pages_follow_each_other_by_priority() -> None:
    detector = detector_with(*["a == 1"] * 7)
    removed = detector.rules()[3]
    detector.remove_rule(removed.id)
    whole = asked(detector)
    assert priorities(whole) == [1, 2, 3, 5, 6, 7]
    assert asked(detector, limit=2) == whole[:2]
    assert asked(detector, 2, 3) == whole[2:5]
    # The rule with the priority need not be there any more.
    assert asked(detector, removed.priority, 100) == whole[3:]
    assert asked(detector, 7, 100) == asked(Detector(), limit=5) == []


def test_a_page_of_a_name_has_only_its_rules() -> None:
    detector = detector_with("a == 1", "a == 2", "a == 3")
    detector.add_rule("r1", "a == 4")
    payload = msgspec.json.encode(RulesAsked(limit=10, name="r1"))
    assert priorities(json.loads(rules_of(detector, ONE, payload).result)["rules"]) == [2, 4]
    payload = msgspec.json.encode(RulesAsked(2, 10, name="r1"))
    assert priorities(json.loads(rules_of(detector, ONE, payload).result)["rules"]) == [4]


def test_a_page_ends_at_its_bytes_and_has_one_rule_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = detector_with("a == 1", *[CONTROLS] * 4)
    monkeypatch.setattr(lists, "PAGE_BYTES_MAX", 100_000)
    assert priorities(asked(detector, limit=1_000)) == [1, 2, 3]
    assert priorities(asked(detector, 3, 1_000)) == [4, 5]
    monkeypatch.setattr(lists, "PAGE_BYTES_MAX", 1_000)
    assert priorities(asked(detector, 1, 1_000)) == [2]


def test_a_whole_list_past_its_bytes_is_refused_and_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built = 0

    def counted(condition: Any) -> Any:
        nonlocal built
        built += 1
        return condition_to_document(condition)

    detector = detector_with(*[CONTROLS] * 20)
    monkeypatch.setattr(rules, "condition_to_document", counted)
    size = len(rules_of(detector, ONE, msgspec.json.encode(RulesAsked())).result)
    assert size > 20 * 60_000
    for bytes_max, most in ((size, 20), (size - 20, 20), (20 * 60_000, 0), (1, 0)):
        built = 0
        monkeypatch.setattr(lists, "LIST_BYTES_MAX", bytes_max)
        if bytes_max == size:
            assert len(asked(detector)) == 20
        else:
            with pytest.raises(Refusal, match="use `limit` and `after`") as caught:
                asked(detector)
            assert caught.value.code == 1400
        assert built <= most
    # A page never is.
    assert len(asked(detector, limit=20)) > 1
