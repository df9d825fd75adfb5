"""`details`: an action says for whom its rule fires and what it found, as the explanation does."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from engine import Detector, Refusal
from engine.evaluation.inspecting.explanations import (
    dry_run_body,
    evaluate_explained_body,
    explain_body,
)
from engine.evaluation.requirements import keys_of
from engine.evaluation.wire import events as results
from engine.evaluation.wire.events import Done, evaluate_batch_body, evaluate_body
from engine.language.limits import Limits
from engine.language.nodes import Node
from engine.language.text.parser import parse
from tests.differential.modes import TRIED, in_mode

RULES = (
    "a == 1",
    "per k (count(a == 1) within 1s >= 2)",
    "per k where a == 1 (sum(b) within 1s > 0.5 * b)",
    "per k per m (a == 1 and once within 1s a == 1) and a == 1",
    "b > 0.1 * earlier avg(b) within 1s and not b == prev(b)",
    "once within 1s per m (count(a == 1) >= 1)",
    "per k (count(a == 1) >= 1) and per m (count(a == 1) >= 1)",
    "distinct(k) > 1 or count(a == 1) since b == 2 >= 2 or avg(b) > 1",
)
EVENTS = [
    {"fields": {"a": n % 3 and 1, "b": n % 4, "k": "xy"[n % 2], "m": n % 2 or [1]}, "timestamp_ms": 10 * n}
    for n in range(40)
]


def made() -> Detector:
    detector = Detector()
    for number, condition in enumerate(RULES):
        detector.add_rule(f"r{number}", condition, rule_id=f"{number:032}", labels={"n": number})
    return detector


def result(answer: Any) -> Any:
    assert isinstance(answer, Done), answer
    return json.loads(answer.result)


def body(event: dict[str, Any]) -> bytes:
    return json.dumps({"event": event}).encode()


def without_details(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: each[name] for name in each if name not in {"keys", "found"}} for each in actions]


def found_in(node: dict[str, Any]) -> Iterator[Any]:
    if "found" in node:
        yield from node["found"].values() if isinstance(node["found"], dict) else [node["found"]]
    for inner in node.get("nodes", ()):
        yield from found_in(inner)


@pytest.mark.slow
@pytest.mark.parametrize("mode", TRIED)
def test_details_are_what_the_explanation_shows_and_change_nothing(mode: str) -> None:
    with in_mode(mode):
        plain, detailed = made(), made()
        fired = 0
        for event in EVENTS:
            explained = result(explain_body(detailed, body(event)))["rules"]
            dry = result(dry_run_body(detailed, body(event), explained=False, detailed=True))
            actions = result(evaluate_explained_body(detailed, body(event), explained=False, detailed=True))
            assert dry == actions
            assert without_details(actions["actions"]) == result(evaluate_body(plain, body(event)))["actions"]
            nodes = {each["ruleId"]: each["node"] for each in explained}
            for action in actions["actions"]:
                fired += 1
                assert sorted(action["found"].values()) == sorted(found_in(nodes[action["ruleId"]]))
                fields = event["fields"]
                names = keys_of(parse(RULES[int(action["ruleId"])]))
                assert action["keys"] == {n: fields[n] for n in names if not isinstance(fields[n], list)}
        assert fired > 100
        assert plain.dump() == detailed.dump()


def test_a_refused_event_has_an_error_and_those_beside_it_have_details() -> None:
    late = {"fields": {}, "timestamp_ms": -(10**6)}
    sent = json.dumps({"events": [EVENTS[1], late, EVENTS[4]]}).encode()
    detector = made()
    answer, refused = evaluate_batch_body(detector, sent, detailed=True)
    first, error, last = result(answer)["results"]
    assert refused == (1,)
    assert (error["actions"], error["errors"][0]["code"]) == ([], 1402)
    assert all("keys" in action for each in (first, last) for action in each["actions"])
    with pytest.raises(Refusal, match="at most 300000 ms are accepted"):
        evaluate_explained_body(detector, body(late))


def test_what_no_json_number_can_say_is_left_out() -> None:
    detector = Detector()
    detector.add_rule("r", "sum(x) > 1")
    event = {"fields": {"x": 1.7e308}, "timestamp_ms": 0}
    for found in ({"sum(x)": 1.7e308}, {}):
        [action] = result(evaluate_explained_body(detector, body(event), detailed=True))["actions"]
        assert action["found"] == found


def test_texts_stand_before_the_comparison_and_name_their_keys_where_they_are_the_same() -> None:
    detector = made()
    for event in EVENTS[:6]:
        actions = result(evaluate_explained_body(detector, body(event), detailed=True))["actions"]
    found = {action["name"]: action["found"] for action in actions}
    assert found == {
        "r0": {},
        "r1": {"count(a == 1) within 1s": 2},
        "r2": {"sum(b) within 1s": 2},
        "r3": {},
        "r4": {"0.1 * earlier avg(b) within 1s": 0.12, "earlier avg(b) within 1s": 1.2, "prev(b)": 0},
        "r5": {"count(a == 1)": 1},
        "r6": {"count(a == 1)": 1, "per m count(a == 1)": 1},
        "r7": {"distinct(k)": 2, "count(a == 1) since b == 2": 2, "avg(b)": 7 / 6},
    }


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a == 1", ()),
        ("per b (per a once c == 1) and not per d (count(c == 1) > 1)", ("b", "a", "d")),
        ("once within 1s per a b == 1 or per b where per c a == 1 previous a == 1", ("b", "c")),
        ("per a (b == 1) or per a once b == 1", ("a",)),
    ],
)
def test_the_keys_are_the_names_of_per_under_no_temporal_member(text: str, keys: tuple[str, ...]) -> None:
    assert keys_of(parse(text)) == keys


def test_long_keys_are_cut_and_details_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "DETAILS_BYTES_MAX", 2_500)
    detector = Detector(limits=Limits(answer_bytes_max=20_000))
    for _ in range(4):
        detector.add_rule("r", "per k once a == 1")
    event = {"fields": {"a": 1, "k": "x" * 5_000}, "timestamp_ms": 1}
    actions = result(evaluate_explained_body(detector, body(event), explained=False, detailed=True))[
        "actions"
    ]
    assert ["keys" in action for action in actions] == [True, True, False, False]
    assert len(actions[0]["keys"]["k"]) < 1_100
    sent = json.dumps({"events": [event] * 30}).encode()
    answer, refused = evaluate_batch_body(detector, sent, detailed=True)
    assert refused
    assert isinstance(answer, Done)
    assert len(answer.result) < 20_000 + 200 * len(refused)


def test_details_of_rules_that_have_fired_compare_no_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing them took most of the time of an event."""
    detector = Detector()
    for number in range(4):
        condition = f"per k (count(a == 1 and b == {number}) within 1s >= {number}) and b < prev(c) + 9"
        detector.add_rule(f"r{number}", condition)
    events = [{"fields": {"a": 1, "b": n % 4, "c": 1, "k": "x"}, "timestamp_ms": n} for n in range(40)]

    def found(some: list[dict[str, Any]]) -> int:
        answer = evaluate_batch_body(detector, json.dumps({"events": some}).encode(), "json", detailed=True)[
            0
        ]
        return sum(len(each["found"]) for one in result(answer)["results"] for each in one["actions"])

    assert found(events[:20])
    compared = 0
    is_equal = Node.__eq__

    def counted(one: Node, other: object) -> bool:
        nonlocal compared
        compared += one is not other
        return is_equal(one, other)

    monkeypatch.setattr(Node, "__eq__", counted)
    assert found(events[20:]) > 100
    assert compared == 0


def test_what_a_rule_finds_follows_its_condition() -> None:
    detector = Detector()
    first = detector.add_rule("r", "count(a == 1) within 1s >= 0")
    draft = detector.add_rule("d", "count(a == 2) within 1s >= 0", shadow=True, draft_of=first)

    def found() -> Any:
        [action] = result(evaluate_explained_body(detector, body(EVENTS[0]), explained=False, detailed=True))[
            "actions"
        ]
        return list(action["found"])

    assert found() == found() == ["count(a == 1) within 1s"]
    detector.promote(first)
    assert found() == ["count(a == 2) within 1s"]
    detector.remove_rule(draft)
    detector.change_rule(first, condition="count(a == 3) within 1s >= 0")
    assert found() == ["count(a == 3) within 1s"]
    detector.change_rule(first, name="other")
    assert found() == ["count(a == 3) within 1s"]
