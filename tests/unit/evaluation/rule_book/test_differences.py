"""How changed rules differ, and what becomes of their histories."""

from typing import Any

import msgspec
import pytest

from engine import Detector
from engine.evaluation.rule_book.changes import differences as tested
from engine.evaluation.rule_book.changes.differences import differences
from engine.evaluation.rule_book.changes.many_rules import WantedRule

ONCE = "once within 5m a == 1"


def shown(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    detector = Detector()
    first = detector.rules_change([WantedRule(**one) for one in before])
    detector.change_rules(first.put, [])
    change = detector.rules_change([WantedRule(**one) for one in after])
    return [msgspec.to_builtins(one) for one in differences(change.changed, change.keeping)]


@pytest.mark.parametrize(
    ("before", "after", "members", "history"),
    [
        ({}, {"notify": True, "description": "x"}, ["notify", "description"], "kept"),
        ({"labels": {"a": 1}}, {"labels": {"a": True}}, ["labels"], "kept"),
        ({}, {"condition": f"{ONCE}  # why"}, ["text"], "kept"),
        ({}, {"condition": f"({ONCE})", "shadow": True}, ["shadow", "text"], "kept"),
        (
            {},
            {"timed": True, "every_secs": 5, "every_by": ["k"]},
            ["timed", "every_secs", "every_by"],
            "kept",
        ),
        ({}, {"enabled": False}, ["enabled"], "kept"),
        ({"enabled": False}, {}, ["enabled"], "begins anew"),
        ({}, {"condition": "a == 1"}, ["condition"], "begins anew"),
        ({}, {"condition": "once b == 1"}, ["condition"], "begins anew"),
        (
            {},
            {"condition": "a == 1", "notify": True, "timed": True},
            ["condition", "notify", "timed"],
            "begins anew",
        ),
        ({}, {"condition": "a == 1", "history": "keep"}, ["condition"], "partly kept"),
        (
            {"enabled": False},
            {"condition": "b == 1", "history": "keep"},
            ["condition", "enabled"],
            "begins anew",
        ),
    ],
)
def test_the_members_that_differ_and_what_becomes_of_the_history(
    before: dict[str, Any], after: dict[str, Any], members: list[str], history: str
) -> None:
    rule = {"name": "r", "condition": ONCE}
    [found] = shown([rule | before], [rule | after])
    assert (found["name"], found["members"], found["history"]) == ("r", members, history)
    assert ("before" in found) is ("after" in found) is ("condition" in members)
    assert "begins_anew" not in found


def test_a_draft_that_becomes_that_of_another_rule() -> None:
    rules = [{"name": name, "condition": f"{name} == 1"} for name in ("a", "b")]
    draft = {"name": "d", "condition": "c == 1", "shadow": True}
    assert shown([*rules, draft | {"draft_of": "a"}], [draft | {"draft_of": "b"}]) == [
        {"name": "d", "members": ["draftOf"], "history": "kept"}
    ]


def test_conditions_are_canonical_and_what_begins_anew_of_one_that_keeps_the_rest_is_named() -> None:
    after = {"condition": "(once b == 1) and once within 5m (a == 1)", "history": "keep"}
    assert shown([{"name": "r", "condition": ONCE}], [{"name": "r", **after}]) == [
        {
            "name": "r",
            "members": ["condition"],
            "history": "partly kept",
            "before": ONCE,
            "after": "once b == 1 and once within 5m a == 1",
            "begins_anew": ["once b == 1"],
        }
    ]


@pytest.mark.parametrize(("more", "shows"), [(0, 2), (1, 3)])
def test_past_a_bound_conditions_are_left_out(more: int, shows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"r{number}" for number in range(5)]
    assert tested.TEXTS_CHARS_MAX == 16 << 20, "as the OpenAPI document says"
    # Each shows three: the conditions before and after, and what begins anew.
    monkeypatch.setattr(tested, "TEXTS_CHARS_MAX", 2 * 3 * len("once a == 1") + more)
    found = shown(
        [{"name": name, "condition": "once a == 1"} for name in names],
        [{"name": name, "condition": "once a == 2", "history": "keep"} for name in names],
    )
    assert [one["name"] for one in found] == names
    assert ["before" in one for one in found] == [True] * shows + [False] * (5 - shows)
    assert [one.get("begins_anew") for one in found] == [["once a == 2"]] * shows + [None] * (5 - shows)
