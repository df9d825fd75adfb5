"""The ten operations exactly as specified, and the additions to them."""

import json

import pytest

from engine.evaluation.kernel.costs import estimate_of
from engine.language.limits import DEFAULT_LIMITS
from engine.language.text.parser import parse
from tests.api.caller import Caller

LEAF = {"leaf": {"fact": "a", "op": "eq", "value": 1}}


def is_id(value: object) -> bool:
    return isinstance(value, str) and len(value) == 32 and set(value) <= set("0123456789abcdef")


async def test_detectors_are_created_listed_in_order_and_deleted(caller: Caller) -> None:
    assert (await caller("GET", "/api/detectors")).result == []
    created = [await caller("POST", "/api/detectors", {"name": name}) for name in ("b", "a", "b")]
    ids = [reply.result["id"] for reply in created]
    assert all(reply.result == {"id": id_} and is_id(id_) for reply, id_ in zip(created, ids, strict=True))
    listed = (await caller("GET", "/api/detectors")).result
    assert listed == [{"id": id_, "name": name} for id_, name in zip(ids, ("b", "a", "b"), strict=True)]
    assert (await caller("DELETE", f"/api/detectors/{ids[1]}")).result == {"id": ids[1]}
    assert [entry["id"] for entry in (await caller("GET", "/api/detectors")).result] == [ids[0], ids[2]]
    assert (await caller("DELETE", f"/api/detectors/{ids[1]}")).codes == [1200]


async def test_a_condition_comes_back_as_it_was_given(caller: Caller) -> None:
    detector = await caller.detector()
    given = {
        "historically_for": {
            "inner": {"leaf": {"fact": "a", "op": "in", "value": [1.0, 2**70, -1e-7]}},
            "window_secs": 5.0,
        }
    }
    rule = await caller.rule(detector, json.dumps(given))
    found = (await caller("GET", f"/api/detectors/{detector}/rules/{rule}")).result["condition"]
    assert json.dumps(found) == json.dumps(given)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({}, {}),
        ({"name": "new"}, {"name": "new"}),
        ({"enabled": False}, {"enabled": False}),
        ({"notify": True}, {"notify": True}),
        ({"condition": "b == 2"}, {"condition": {"leaf": {"fact": "b", "op": "eq", "value": 2}}}),
        (
            {"condition": json.dumps({"once": LEAF}), "enabled": False, "name": "n", "notify": True},
            {"condition": {"once": LEAF}, "enabled": False, "name": "n", "notify": True},
        ),
    ],
)
async def test_a_change_gives_the_whole_rule(
    caller: Caller, change: dict[str, object], shown: dict[str, object]
) -> None:
    detector = await caller.detector()
    rule = await caller.rule(detector, "a == 1")
    path = f"/api/detectors/{detector}/rules/{rule}"
    before = without_text((await caller("GET", path)).result)
    changed = (await caller("PATCH", path, change)).result
    assert changed == {**before, **shown}
    assert list(changed) == ["id", "condition", "detectorId", "enabled", "name", "notify", "priority"]
    assert without_text((await caller("GET", path)).result) == changed


def without_text(rule: dict[str, object]) -> dict[str, object]:
    """The members that the interface gives a rule, of one that is shown alone."""
    assert list(rule)[-2:] == ["text", "source"]
    return {name: value for name, value in rule.items() if name not in ("text", "source")}


async def test_a_deleted_rule_is_gone_and_its_priority_is_not_given_again(caller: Caller) -> None:
    detector = await caller.detector()
    path = f"/api/detectors/{detector}/rules"
    first, second = await caller.rule(detector, "a == 1"), await caller.rule(detector, "a == 1")
    assert (await caller("DELETE", f"{path}/{second}")).result == {"id": second}
    third = await caller.rule(detector, "a == 1")
    rules = (await caller("GET", path)).result["rules"]
    assert [(rule["id"], rule["priority"]) for rule in rules] == [(first, 1), (third, 3)]
    for method in ("GET", "PATCH", "DELETE"):
        reply = await caller(method, f"{path}/{second}", {} if method == "PATCH" else None)
        assert (reply.status, reply.codes) == (404, [1201])


async def test_a_parse_estimates_what_a_rule_costs(caller: Caller) -> None:
    text = (
        "per user (count(a == 1) within 1m >= 5 and once b == 1) and previous c == 1 and sum(x) within 1m > 3"
    )
    estimate = (await caller("POST", "/api/conditions/parse", {"condition": text})).result["estimate"]
    assert estimate["event_ns"] == estimate_of(parse(text, DEFAULT_LIMITS)).event_ns > 100
    memories = {tuple(one["per"]): one["entries_max"] for one in estimate["memories"]}
    assert memories == {("user",): 6, (): 259}


async def test_an_id_may_be_percent_encoded(caller: Caller) -> None:
    detector = await caller.detector()
    encoded = "".join(f"%{ord(character):02x}" for character in detector)
    assert (await caller("GET", f"/api/detectors/{encoded}/rules")).result == {"rules": []}
    body = {"event": {"fields": {}, "timestamp_ms": 0}}
    assert (await caller("POST", f"/api/detectors/{encoded}/evaluate", body)).result == {"actions": []}
