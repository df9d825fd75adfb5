"""The list of a detector's rules over HTTP: whole, in pages, and bounded."""

import pytest

from tests.api.caller import Caller

pytestmark = pytest.mark.parametrize("service", ["here"], indirect=True)


async def path_with(caller: Caller, *conditions: str) -> str:
    """Create a detector with these rules, and return the path of their list."""
    path = f"/api/detectors/{await caller.detector()}/rules"
    for condition in conditions:
        reply = await caller("POST", path, {"name": "r", "condition": condition})
        assert reply.status == 200, reply
    return path


async def test_pages_follow_each_other_until_one_is_empty(caller: Caller) -> None:
    path = await path_with(caller, "a == 1", "a == 2", "a == 3")
    whole = (await caller("GET", path)).result["rules"]
    assert [rule["priority"] for rule in whole] == [1, 2, 3]
    assert (await caller("GET", f"{path}?limit=2")).result == {"rules": whole[:2]}
    assert (await caller("GET", f"{path}?limit=2&after=2")).result == {"rules": whole[2:]}
    assert (await caller("GET", f"{path}?after=1")).result == {"rules": whole[1:]}
    assert (await caller("GET", f"{path}?after=3")).result == {"rules": []}


async def test_pages_have_the_texts_of_conditions_if_they_are_asked_for(caller: Caller) -> None:
    path = await path_with(caller, "a == 1  # one", "a  ==  2", "a == 3")
    plain = (await caller("GET", f"{path}?source=false")).result["rules"]
    shown = [(await caller("GET", f"{path}/{rule['id']}")).result for rule in plain]
    assert [rule["source"] for rule in shown] == ["a == 1  # one", "a  ==  2", "a == 3"]
    assert not any("source" in rule or "text" in rule for rule in plain)
    assert (await caller("GET", f"{path}?source=true")).result == {"rules": shown}
    assert (await caller("GET", f"{path}?source=true&limit=1&after=1")).result == {"rules": shown[1:2]}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("limit=0", "limit: expected a whole number from 1 to 1000, got `0`"),
        ("limit=1001", "limit: expected a whole number from 1 to 1000, got `1001`"),
        ("after=-1", "after: expected a priority, got `-1`"),
        ("source=1", "source: expected `true` or `false`, got `1`"),
        ("name=", "name: expected a name, got ``"),
        ("after=x", "after: expected a priority, got `x`"),
        (f"after={2**63}", f"after: expected a priority, got `{2**63}`"),
    ],
)
async def test_a_page_that_is_none_is_refused(caller: Caller, query: str, said: str) -> None:
    reply = await caller("GET", f"{await path_with(caller)}?{query}")
    assert (reply.status, reply.texts) == (400, [said])


async def test_what_is_wrong_with_how_a_rule_acts_is_listed_with_its_place(caller: Caller) -> None:
    path = await path_with(caller, "a == 0")
    [rule] = (await caller("GET", path)).result["rules"]
    new, one = {"name": "r", "condition": "a == 1"}, f"{path}/{rule['id']}"
    bad = {"timed": 1, "every_secs": -1, "every_by": ["", "x" * 1_025, 1]}
    texts = [
        "timed: expected a boolean, got a number",
        "every_secs: expected a number from 0 to 1000000000, got -1",
        "every_by[0]: expected 1 to 1024 characters, got an empty string",
        "every_by[1]: expected 1 to 1024 characters, got 1025 characters",
        "every_by[2]: expected a string, got a number",
    ]
    for method, where, given in (("POST", path, new), ("PATCH", one, {})):
        reply = await caller(method, where, {**given, **bad})
        assert (reply.status, reply.texts) == (400, texts)
        nothing = await caller(method, where, {**given, "timed": None, "every_secs": None, "every_by": None})
        assert nothing.codes == [1001] * 3
        alone = await caller(method, where, {**given, "every_by": ["a"]})
        assert alone.texts == ["every_by: only a rule with `every_secs` has it"]
        dollar = await caller(method, where, {**given, "every_secs": 1, "every_by": ["$"]})
        assert (dollar.status, dollar.codes) == (400, [1001])
    put = await caller("PUT", path, {"rules": [{**new, "every_secs": 1e10}, {**new, "every_by": ["a"] * 65}]})
    assert put.texts == [
        "rules[0].every_secs: expected a number from 0 to 1000000000, got 10000000000.0",
        "rules[1].every_by: expected at most 64 elements, got 65",
    ]
    many = await caller("PUT", path, {"rules": [{**new, "every_by": []}]})
    assert many.texts == ["rules[0].every_by: only a rule with `every_secs` has it"]
    assert (await caller("GET", path)).result["rules"] == [rule]


async def test_what_is_wrong_with_labels_is_listed_with_its_place(caller: Caller) -> None:
    path = await path_with(caller)
    labels = {"": 1, "x" * 65: 1, "a": None, "b": "x" * 1_025, "c": [1], "d": True}
    body = {"name": "r", "condition": "a == 1", "description": "x" * 4_097, "labels": labels}
    reply = await caller("POST", path, body)
    assert (reply.status, reply.codes) == (400, [1001] * 6)
    assert reply.texts == [
        "description: expected at most 4096 characters, got 4097 characters",
        "labels: the name ``: expected 1 to 64 characters, got an empty string",
        f"labels: the name `{'x' * 59}…`: expected 1 to 64 characters, got 65 characters",
        "labels.a: expected a boolean or a number or a string, got null",
        "labels.b: expected at most 1024 characters, got 1025 characters",
        "labels.c: expected a boolean or a number or a string, got an array",
    ]
    many = {f"n{number}": 1 for number in range(65)}
    reply = await caller("POST", path, {"name": "r", "condition": "a == 1", "labels": many})
    assert reply.texts == ["labels: expected at most 64 members, got 65"]
