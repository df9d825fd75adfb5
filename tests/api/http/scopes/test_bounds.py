"""Tokens that are for some detectors only, that expire, and what they may hand on."""

import time

import pytest

from api.http.app import Application
from api.settings import Settings
from tests.api.caller import Caller
from tests.api.http.scopes.tokens import token, with_token
from tests.local_runtime.service import LocalService, front_end

UNKNOWN = "0" * 32


def soon_ms(seconds: float) -> int:
    return round((time.time() + seconds) * 1000)


async def test_other_detectors_are_not_there(caller: Caller) -> None:
    own, other = await caller.detector("own"), await caller.detector("other")
    bounded = await with_token(caller, detectors=[own])
    for method, end, body in (
        ("GET", "", None),
        ("GET", "/rules", None),
        ("DELETE", "", None),
        ("POST", "/fork", {"name": "x"}),
        ("POST", "/evaluate", {"event": {"fields": {}, "timestamp_ms": 0}}),
        ("POST", "/evaluate/batch", {"events": []}),
    ):
        hidden = await bounded(method, f"/api/detectors/{other}{end}", body)
        missing = await bounded(method, f"/api/detectors/{UNKNOWN}{end}", body)
        assert (hidden.status, hidden.codes) == (404, [1200])
        assert hidden.texts[0].replace(other, UNKNOWN) == missing.texts[0]
    assert (await bounded("GET", f"/api/detectors/{own}")).result["name"] == "own"
    assert (await bounded.evaluate(own, {})).result == {"actions": []}
    assert (await caller("GET", f"/api/detectors/{other}")).result["name"] == "other"


async def test_other_detectors_are_not_listed(caller: Caller) -> None:
    ids = [await caller.detector(f"d{number}") for number in range(5)]
    for one in ids:
        await caller.evaluate(one, {})
    own = [ids[3], ids[1]]
    bounded = await with_token(caller, detectors=own)
    listed = await bounded("GET", "/api/detectors")
    assert [one["id"] for one in listed.result] == [ids[1], ids[3]]
    for query, found in {"limit=1": [1], f"after={ids[1]}": [3], f"after={ids[1]}&limit=5": [3]}.items():
        page = await bounded("GET", f"/api/detectors?{query}")
        assert [one["id"] for one in page.result] == [ids[number] for number in found]
    assert (await bounded("GET", f"/api/detectors?after={ids[0]}")).codes == [1006]
    cluster = (await bounded("GET", "/api/cluster")).envelope
    assert not [one for one in (ids[0], ids[2], ids[4]) if one in str(cluster)]
    assert [one for one in own if one in str(cluster)]
    assert (await bounded("POST", f"/api/cluster/nodes/{UNKNOWN}/drain")).codes == [1102]


async def test_what_a_token_creates_is_added_to_what_it_is_for(caller: Caller, service: LocalService) -> None:
    bounded = await with_token(caller, detectors=[])
    assert (await bounded("GET", "/api/detectors")).result == []
    created = await bounded.detector("mine")
    await caller.detector("not mine")
    await bounded.rule(created, "a == 1")
    fork = (await bounded("POST", f"/api/detectors/{created}/fork", {"name": "fork"})).result["id"]
    assert [one["id"] for one in (await bounded("GET", "/api/detectors")).result] == [created, fork]
    assert (await bounded("GET", "/api/tokens/self")).result["detectors"] == sorted([created, fork])
    await bounded("DELETE", f"/api/detectors/{fork}")
    assert (await bounded("GET", "/api/tokens/self")).result["detectors"] == [created]
    # The directory has it, not only this front end.
    kept = (await service.backend.tokens())[-1].grant.detectors
    assert kept is not None
    assert created in kept


async def test_what_a_token_creates_is_there_at_other_front_ends_at_once(
    caller: Caller, settings: Settings, service: LocalService
) -> None:
    # A front end hears of changes only when it asks.
    async with front_end(service, poll_s=60.0) as apart:
        secret = await token(caller, detectors=[])
        here = caller.other(secret)
        there = Caller(Application(settings, apart.backend), secret)
        assert (await there("GET", "/api/tokens/self")).result["detectors"] == []
        first, second, third = [await here.detector(name) for name in ("a", "b", "c")]
        assert (await there.evaluate(first, {})).result == {"actions": []}
        fourth = await here.detector("d")
        assert (await there("GET", "/api/detectors/name:d")).result["id"] == fourth
        fifth = await here.detector("e")
        within = {"name": "w", "detectors": [fifth]}
        assert (await there("POST", "/api/tokens", within)).codes == []
        sixth = await here.detector("f")
        listed = (await there("GET", "/api/detectors")).result
        assert [one["id"] for one in listed] == [first, second, third, fourth, fifth, sixth]


async def test_a_token_is_for_a_bounded_number_of_detectors(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("engine.runtime.front_end.permits", "engine.runtime.catalogue.catalogue_state"):
        monkeypatch.setattr(f"{place}.TOKEN_DETECTORS_MAX", 2)
    bounded = await with_token(caller, detectors=[])
    first, _ = await bounded.detector(), await bounded.detector()
    refused = await bounded("POST", "/api/detectors", {"name": "one too many"})
    assert (refused.status, refused.codes) == (409, [1400])
    assert (await bounded("POST", f"/api/detectors/{first}/fork", {"name": "f"})).codes == [1400]
    assert len((await caller("GET", "/api/detectors")).result) == 2
    # A front end that does not know of both yet leaves it to the directory, which says the same of the token.
    monkeypatch.setattr("engine.runtime.front_end.permits.TOKEN_DETECTORS_MAX", 3)
    late = await bounded("POST", "/api/detectors", {"name": "one too many"})
    assert (late.status, late.codes) == (409, [1400])
    assert late.texts[0].startswith("the token already has 1000 detectors")
    assert len((await caller("GET", "/api/detectors")).result) == 2


async def test_an_expired_token_is_refused(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = await caller.detector()
    expiring = await with_token(caller, expires_ms=soon_ms(60))
    assert (await expiring.evaluate(detector, {})).status == 200
    assert (await expiring("GET", "/api/detectors")).status == 200
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 61)
    for reply in (await expiring.evaluate(detector, {}), await expiring("GET", "/api/detectors")):
        assert (reply.status, reply.codes, reply.texts) == (401, [1101], ["the token has expired"])
        assert reply.headers["www-authenticate"] == "Bearer"
    assert (await caller("GET", "/api/detectors")).status == 200


@pytest.mark.parametrize(
    "bad",
    [
        {"scopes": []},
        {"scopes": ["owner"]},
        {"scopes": "read"},
        {"scopes": None},
        {"detectors": ["x"]},
        {"detectors": None},
        {"expires_ms": 5},
        {"expires_ms": "tomorrow"},
        {"events_per_s": 0},
        {"events_per_s": -1},
        {"events_per_s": True},
    ],
)
async def test_bounds_are_checked(caller: Caller, bad: dict[str, object]) -> None:
    reply = await caller("POST", "/api/tokens", {"name": "x", **bad})
    assert (reply.status, reply.codes) == (400, [1001])
    assert reply.texts[0].startswith(next(iter(bad)))
    assert (await caller("GET", "/api/tokens")).result == {"tokens": []}


async def test_a_fraction_of_a_millisecond_is_refused_as_such(caller: Caller) -> None:
    reply = await caller("POST", "/api/tokens", {"name": "x", "expires_ms": 4102444800000.5})
    assert reply.texts == [
        "expires_ms: expected a whole number of milliseconds since 1970, got 4102444800000.5"
    ]


async def test_a_token_makes_only_tokens_that_may_do_no_more(caller: Caller) -> None:
    own, other = await caller.detector(), await caller.detector()
    bounds = {
        "scopes": ["admin", "read"],
        "detectors": [own],
        "expires_ms": soon_ms(600),
        "events_per_s": 10,
    }
    maker = await with_token(caller, **bounds)
    beyond = {
        "scopes": ["admin", "write"],
        "expires_ms": soon_ms(700),
        "events_per_s": 11,
    }
    for name, value in beyond.items():
        for wanted in ({**bounds, name: value}, {one: bounds[one] for one in bounds if one != name}):
            reply = await maker("POST", "/api/tokens", {"name": "more", **wanted})
            assert (reply.status, reply.codes) == (403, [1102])
            assert reply.texts[0].startswith(name)
    # A detector that it does not see is not there; and without detectors, the new token would be for all.
    assert (await maker("POST", "/api/tokens", {"name": "m", **bounds, "detectors": [other]})).codes == [1200]
    unbounded = {one: bounds[one] for one in bounds if one != "detectors"}
    assert (await maker("POST", "/api/tokens", {"name": "m", **unbounded})).codes == [1102]
    assert (await maker("POST", "/api/token")).codes == [1102]
    less = {**bounds, "scopes": ["read"], "events_per_s": 9}
    reader = maker.other(await token(maker, **less))
    shown = (await reader("GET", "/api/tokens/self")).result
    assert {name: shown[name] for name in less} == less
    assert len((await caller("GET", "/api/tokens")).result["tokens"]) == 2


async def test_a_token_for_some_detectors_sees_and_revokes_those_for_no_others(caller: Caller) -> None:
    own, other = await caller.detector(), await caller.detector()
    admin = await with_token(caller, detectors=[own])
    await token(caller, detectors=[own])
    await token(caller, detectors=[own, other])
    await token(caller)
    everyone = (await caller("GET", "/api/tokens")).result["tokens"]
    listed = (await admin("GET", "/api/tokens")).result["tokens"]
    assert [one["id"] for one in listed] == [one["id"] for one in everyone[:2]]
    for hidden in everyone[2:]:
        assert (await admin("DELETE", f"/api/token/{hidden['id']}")).codes == [1202]
    assert (await admin("DELETE", f"/api/token/{listed[1]['id']}")).status == 200
    assert len((await caller("GET", "/api/tokens")).result["tokens"]) == 3


async def test_a_token_may_always_revoke_itself(caller: Caller) -> None:
    other = (await caller("POST", "/api/token")).result["id"]
    for bounds in ({"scopes": ["evaluate"]}, {"detectors": []}, {"scopes": ["read"], "events_per_s": 1}):
        bounded = await with_token(caller, **bounds)
        own = (await bounded("GET", "/api/tokens/self")).result["id"]
        refused = [1202] if "scopes" not in bounds else [1102]
        assert (await bounded("DELETE", f"/api/token/{other}")).codes == refused
        assert (await bounded("DELETE", f"/api/token/{own}")).result == {"id": own}
        assert (await bounded("GET", "/api/tokens/self")).codes == [1101]


async def test_problems_are_told_to_those_who_may_read_all(caller: Caller) -> None:
    own = await caller.detector()
    told = {"problems", "ready"}
    for bounds, names in (
        ({}, told),
        ({"scopes": ["read"]}, told),
        ({"scopes": ["evaluate"]}, {"ready"}),
        ({"detectors": [own]}, {"ready"}),
    ):
        bounded = await with_token(caller, **bounds)
        assert (await bounded("GET", "/readyz")).result.keys() == names


async def test_the_bootstrap_token_shows_that_it_may_do_all(caller: Caller) -> None:
    shown = (await caller("GET", "/api/tokens/self")).result
    assert shown == {
        **dict.fromkeys(("scopes", "detectors", "expires_ms", "events_per_s", "id")),
        "name": "bootstrap token",
    }
