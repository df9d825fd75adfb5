"""The changes log: every change is in it, once, in order, with who made it, and nothing else is."""

import asyncio
from typing import Any

import pytest

from api.http.app import Application
from api.http.routes import OPERATIONS
from api.settings import Settings
from engine.runtime.contract.errors import DetectorUnavailable
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP, NODE
from tests.api.http.scopes.tokens import with_token
from tests.local_runtime.service import LocalService

UNKNOWN = "0" * 32
NO_CHANGE = {
    *("evaluate", "evaluate_batch", "ingest", "export_logs", "tick", "explain", "parse_condition"),
    *("list_tokens", "show_own_token", "list_detectors", "get_detector", "firings", "state", "list_changes"),
    *("list_rules", "get_rule", "versions", "timeline", "comparison", "list_relations", "get_relation"),
    *("show_cluster", "health", "readiness"),
}
"""The operations that change nothing that the log is about."""


async def log(caller: Caller, query: str = "") -> list[dict[str, Any]]:
    return (await caller("GET", f"/api/changes{query}")).result["changes"]


async def made(caller: Caller, method: str, path: str, body: object = None, **headers: str) -> Any:
    """Make a change; return the result and the log entries that it added."""
    before = (await log(caller))[-1:]
    after = before[0]["seq"] if before else 0
    reply = await caller(method, path, body, headers=headers)
    return reply.result, await log(caller, f"?after={after}")


def short(entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(name) for name in ("kind", "action", "id", "name", "old", "new"))


async def test_every_operation_that_changes_something_is_in_the_log(caller: Caller) -> None:
    noted: set[str] = set()

    async def change(operation: str, path: str, body: object = None) -> tuple[Any, list[dict[str, Any]]]:
        method = next(one.method for one in OPERATIONS if one.name == operation)
        noted.add(operation)
        result, entries = await made(caller, method, path, body)
        for entry in entries:
            assert entry["token"] == {"id": None, "name": "bootstrap token"}
        return result, entries

    token, [entry] = await change("mint_token", "/api/token")
    assert short(entry) == ("token", "create", token["id"], "", None, {"name": "", "hint": token["hint"]})
    named, [entry] = await change("create_named_token", "/api/tokens", {"name": "n", "scopes": ["read"]})
    assert short(entry)[4:] == (None, {"name": "n", "hint": named["hint"], "scopes": ["read"]})
    _, [entry] = await change("revoke_token", f"/api/token/{named['id']}")
    assert short(entry)[:4] == ("token", "delete", named["id"], "n")
    assert entry["old"]["scopes"] == ["read"]
    created, [entry] = await change("create_detector", "/api/detectors", {"name": "logins"})
    detector = created["id"]
    path = f"/api/detectors/{detector}"
    assert short(entry) == ("detector", "create", detector, "logins", None, {"name": "logins"})
    fork, [entry] = await change("fork_detector", f"{path}/fork", {"name": "fork"})
    copied = {"name": "fork", "copy_of": detector}
    assert short(entry) == ("detector", "create", fork["id"], "fork", None, copied)
    _, [entry] = await change("delete_detector", f"/api/detectors/{fork['id']}")
    assert short(entry) == ("detector", "delete", fork["id"], "fork", {"name": "fork"}, None)
    _, [entry] = await change("move_detector", f"{path}/move", {"node": NODE})
    assert short(entry) == ("detector", "move", detector, "logins", None, {"node": NODE})

    rule, [entry] = await change("create_rule", f"{path}/rules", {"name": "r", "condition": "a==1"})
    rule = rule["id"]
    assert short(entry)[:5] == ("rule", "create", rule, "r", None)
    assert (entry["detectorId"], entry["new"]["condition"]) == (detector, "a==1")
    _, [entry] = await change(
        "change_rule", f"{path}/rules/{rule}", {"condition": "a == 2", "enabled": False}
    )
    assert entry["old"] == {"condition": "a==1", "enabled": True}
    assert entry["new"] == {"condition": "a == 2", "enabled": False}
    assert await change("change_rule", f"{path}/rules/{rule}", {"enabled": False}) == (
        (await caller("PATCH", f"{path}/rules/{rule}", {})).result,
        [],
    )
    listed = [{"name": "r", "condition": "a == 2", "notify": True}, {"name": "s", "condition": "b == 1"}]
    _, entries = await change("put_rules", f"{path}/rules", {"rules": listed, "prune": True})
    assert [short(one)[:4] for one in entries] == [
        ("rule", "change", rule, "r"),
        ("rule", "create", entries[1]["id"], "s"),
    ]
    assert entries[0]["new"] == {"enabled": True, "notify": True}
    _, entries = await made(caller, "PUT", f"{path}/rules", {"rules": [], "prune": True, "dryRun": True})
    assert entries == []
    _, [entry] = await change("delete_rule", f"{path}/rules/{entries[1]['id'] if entries else rule}")
    assert (entry["action"], entry["old"]["condition"]) == ("delete", "a == 2")
    base = await caller.rule(detector, "a == 1")
    await caller.rule(detector, "a == 3", shadow=True, draftOf=base)
    _, entries = await change("promote", f"{path}/rules/{base}/promote")
    assert [one["action"] for one in entries] == ["promote", "promote"]
    assert entries[0]["new"] == {"condition": "a == 3"}

    _, [entry] = await change("put_relation", f"{path}/relations/owns", {"tuples": [["ada"], ["bob"]]})
    assert short(entry) == ("relation", "create", "owns", "owns", None, {"tuples": 2, "arity": 1})
    _, [entry] = await change("change_relation", f"{path}/relations/owns", {"add": [["eve"]]})
    assert entry["old"] == {"tuples": 2, "arity": 1}
    assert entry["new"] == {"tuples": 3, "arity": 1, "added": [["eve"]], "removed": []}
    _, [entry] = await change("delete_relation", f"{path}/relations/owns")
    assert short(entry)[1:] == ("delete", "owns", "owns", {"tuples": 3, "arity": 1}, None)

    _, [entry] = await change("drain_node", f"/api/cluster/nodes/{NODE}/drain")
    assert short(entry)[:3] == ("node", "drain", NODE)
    _, [entry] = await change("undrain_node", f"/api/cluster/nodes/{NODE}/drain")
    assert short(entry)[:3] == ("node", "undrain", NODE)

    assert noted | NO_CHANGE == {one.name for one in OPERATIONS}
    numbers = [one["seq"] for one in await log(caller)]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_it_says_who_and_from_which_request(settings: Settings, service: LocalService) -> None:
    caller = Caller(Application(settings, service.backend), BOOTSTRAP)
    ada = await with_token(caller, scopes=["write", "read"])
    own = (await ada("GET", "/api/tokens/self")).result
    detector = await ada.detector("d")
    await ada.rule(detector, "a == 1")
    entries = await log(caller)
    assert [(one["kind"], one["token"]) for one in entries[1:]] == [
        ("detector", {"id": own["id"], "name": "bounded"}),
        ("rule", {"id": own["id"], "name": "bounded"}),
    ]
    assert ada.token not in str(entries), "no secret is in the log"
    assert (await ada("GET", "/api/changes")).codes == [1102]


async def test_what_is_refused_is_not_in_the_log(caller: Caller) -> None:
    detector = await caller.detector()
    path = f"/api/detectors/{detector}"
    before = await log(caller)
    for method, end, body in (
        ("POST", "/rules", {"name": "r", "condition": "a =="}),
        ("PATCH", f"/rules/{UNKNOWN}", {"enabled": False}),
        ("DELETE", f"/rules/{UNKNOWN}", None),
        ("PUT", "/rules", {"rules": [{"name": "r", "condition": "a =="}]}),
        ("PUT", "/relations/owns", {"tuples": [[{}]]}),
        ("DELETE", "/relations/owns", None),
    ):
        assert (await caller(method, path + end, body)).status >= 400
    assert (await caller("DELETE", f"/api/token/{UNKNOWN}")).codes == [1202]
    assert await log(caller) == before


@pytest.mark.parametrize("change", [{}, {"add": ["a"]}, {"remove": ["b"]}, {"add": ["a"], "remove": ["b"]}])
async def test_a_relation_that_stays_as_it_is_was_not_changed(
    caller: Caller, change: dict[str, object]
) -> None:
    path = f"/api/detectors/{await caller.detector()}"
    put = (await caller("PUT", f"{path}/relations/r", {"tuples": ["a"]})).result
    record = (await caller("GET", f"{path}/state")).result["journal"]["record"]
    await asyncio.sleep(0.002)
    shown, entries = await made(caller, "PATCH", f"{path}/relations/r", change)
    assert (shown, entries) == (put, [])
    assert (await caller("GET", f"{path}/state")).result["journal"]["record"] == record


async def test_pages_go_on_where_the_last_one_ended(caller: Caller) -> None:
    for number in range(5):
        await caller.detector(f"d{number}")
    seen: list[str] = []
    after = 0
    while (page := (await caller("GET", f"/api/changes?after={after}&limit=2")).result)["changes"]:
        assert len(page["changes"]) <= 2
        seen += [one["name"] for one in page["changes"]]
        assert page["next"] == page["changes"][-1]["seq"]
        after = page["next"]
    assert (seen, page["next"]) == ([f"d{number}" for number in range(5)], after)
    for query in ("after=x", "after=-1", "limit=0", "limit=1001"):
        assert (await caller("GET", f"/api/changes?{query}")).codes == [1006]


async def test_a_token_for_some_detectors_sees_their_changes(caller: Caller) -> None:
    own, other = await caller.detector("own"), await caller.detector("other")
    for one in (other, own):
        await caller.rule(one, "a == 1")
    bounded = await with_token(caller, detectors=[own])
    entries = await log(bounded)
    assert [(one["kind"], one.get("detectorId", one["id"])) for one in entries] == [
        ("detector", own),
        ("rule", own),
    ]
    # A page of which it sees nothing is passed over.
    assert [one["kind"] for one in await log(bounded, "?limit=1")] == ["detector"]
    assert [one["kind"] for one in await log(bounded, "?limit=1&after=1")] == ["rule"]


async def test_a_change_that_cannot_be_logged_is_not_acknowledged(
    caller: Caller, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = await caller.detector()
    ask = service.backend.scheduler.ask

    async def failing(method: str, *given: Any) -> Any:
        if method == "report_changes":
            raise DetectorUnavailable(1502, "the directory is away")
        return await ask(method, *given)

    monkeypatch.setattr(service.backend.scheduler, "ask", failing)
    rule = {"name": "r", "condition": "a == 1"}
    assert (await caller("POST", f"/api/detectors/{detector}/rules", rule)).codes == [1502]
