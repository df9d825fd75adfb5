"""The state of a detector over HTTP: in numbers, page by page, and the tree of a rule."""

import time

import pytest

from api.http.handling import state_view
from engine.evaluation.inspecting import holdings, states
from tests.api.caller import Caller

RULE = "ok == true and per user once within 10m ok == false"
UNKNOWN = "0" * 32


@pytest.fixture
async def path(caller: Caller) -> str:
    """Return the path of the state of a detector with a rule and three users."""
    detector = await caller.detector()
    await caller.rule(detector, RULE)
    events = [
        {"fields": {"user": user, "ok": False}, "timestamp_ms": 1_000 * number}
        for number, user in enumerate(["ada", "bob", "anna"])
    ]
    await caller("POST", f"/api/detectors/{detector}/evaluate/batch", {"events": events})
    return f"/api/detectors/{detector}/state"


async def test_the_whole_in_numbers(caller: Caller, path: str) -> None:
    told = (await caller("GET", path)).result
    assert (told["clock_ms"], told["events"], told["keys"]["live"]) == (2_000, 3, 3)
    assert told["journal"]["record"] >= 2
    assert told["journal"]["synced"] is True
    assert told["snapshot"].keys() == {"record", "saved_ms"}
    assert 0 <= time.time() - told["snapshot"]["saved_ms"] / 1_000 < 60
    assert told["worker"].keys() == {"node", "pid", "epoch", "resident_bytes"}


@pytest.mark.parametrize("at_once", [1, 1_000])
async def test_keys_come_in_pages(
    caller: Caller, path: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "SLICES_AT_ONCE", at_once)
    page = (await caller("GET", f"{path}?list=keys&sort=seen&limit=2")).result
    assert page == {
        "keys": [
            {"key": {"user": "anna"}, "last_event": 3, "memories": 1},
            {"key": {"user": "bob"}, "last_event": 2, "memories": 1},
        ],
        "after": "2-0",
    }
    rest = (await caller("GET", f"{path}?list=keys&sort=seen&limit=2&after={page['after']}")).result
    assert rest == {"keys": [{"key": {"user": "ada"}, "last_event": 1, "memories": 1}]}
    fitting = (await caller("GET", f"{path}?list=keys&sort=seen&prefix=a")).result["keys"]
    assert [one["key"]["user"] for one in fitting] == ["anna", "ada"]


@pytest.mark.parametrize("at_once", [1, 1_000])
async def test_keys_in_their_own_order_come_each_once(
    caller: Caller, path: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "SLICES_AT_ONCE", at_once)
    # With so few calls, pages end between the shards of slices.
    monkeypatch.setattr(state_view, "CALLS_MAX", 100)
    found, after = [], ""
    while True:
        page = (await caller("GET", f"{path}?list=keys&limit=2{after}")).result
        assert len(page["keys"]) <= 2
        found += page["keys"]
        if "after" not in page:
            break
        after = f"&after={page['after']}"
    assert sorted((one["key"]["user"], one["last_event"]) for one in found) == [
        ("ada", 1), ("anna", 3), ("bob", 2)
    ]  # fmt: skip
    fitting = (await caller("GET", f"{path}?list=keys&prefix=an")).result["keys"]
    assert [one["key"]["user"] for one in fitting] == ["anna"]


async def test_rules_and_nodes_come_in_pages(caller: Caller, path: str) -> None:
    rules = (await caller("GET", f"{path}?list=rules&limit=1")).result
    assert [rule["times_true"] for rule in rules["rules"]] == [0]
    assert (await caller("GET", f"{path}?list=rules&after={rules['after']}")).result == {"rules": []}
    by_cost = (await caller("GET", f"{path}?list=rules&sort=cost&limit=1")).result
    assert by_cost["rules"] == rules["rules"]
    again = await caller("GET", f"{path}?list=rules&sort=cost&after={by_cost['after']}")
    assert again.result == {"rules": []}
    (node,) = (await caller("GET", f"{path}?list=nodes")).result["nodes"]
    assert (node["text"], node["per"], node["entries"]) == ("once within 10m ok == false", ["user"], 3)
    assert node["bytes"] > 0


async def test_the_keys_for_which_a_rule_is_true(
    caller: Caller, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "NODES_AT_ONCE", 1)
    detector = path.split("/")[-2]
    rule = await caller.rule(detector, "per user (not once within 1s ok == false)")
    for user, at in (("ada", 2_000), ("bob", 2_000), ("ada", 3_500), ("anna", 3_500)):
        await caller.evaluate(detector, {"user": user, "ok": user != "anna"}, at)
    asked = f"{path}?rule={rule}&list=keys&true=true"
    found = (await caller("GET", asked)).result
    # Their order is that of the process.
    assert sorted(found["keys"], key=lambda one: str(one["key"]["user"])) == [
        {"key": {"user": "ada"}, "last_event": 6, "memories": 1},
        {"key": {"user": "bob"}, "last_event": 5, "memories": 1},
    ]
    first = (await caller("GET", f"{asked}&limit=1")).result
    assert first["keys"] == found["keys"][:1]
    rest = (await caller("GET", f"{asked}&limit=5&after={first['after']}")).result
    assert rest == {"keys": found["keys"][1:]}
    [fitting] = (await caller("GET", f"{asked}&prefix=b")).result["keys"]
    assert fitting["key"] == {"user": "bob"}
    monkeypatch.setattr(state_view, "CALLS_MAX", 1)
    # A part may have looked at slices for which the rule is not true only.
    parts = [(await caller("GET", asked)).result]
    while "after" in parts[-1]:
        parts.append((await caller("GET", f"{asked}&after={parts[-1]['after']}")).result)
    assert [key for part in parts for key in part["keys"]] == found["keys"]
    assert len(parts) > 1


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("list=users", 1006),
        ("list=rules&sort=name", 1006),
        ("list=keys&limit=0", 1006),
        ("list=keys&limit=101", 1006),
        ("list=keys&after=x", 1006),
        ("list=keys&after=-1", 1006),
        (f"rule={UNKNOWN}&key=1", 1006),
        (f"rule={UNKNOWN}", 1201),
        (f"rule={UNKNOWN}&list=keys&true=true", 1201),
        ("list=keys&true=true", 1006),
        (f"rule={UNKNOWN}&true=true", 1006),
        (f"rule={UNKNOWN}&list=keys&true=false", 1006),
    ],
)
async def test_what_is_refused(caller: Caller, path: str, query: str, code: int) -> None:
    assert (await caller("GET", f"{path}?{query}")).codes == [code]


async def test_an_unknown_detector_has_no_state(caller: Caller) -> None:
    assert (await caller("GET", f"/api/detectors/{UNKNOWN}/state")).codes == [1200]
