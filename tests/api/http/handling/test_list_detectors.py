"""The list of detectors: whole, in pages, built in pieces, and bounded."""

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from api.http.app import Application
from api.http.routes import detectors as routes
from api.schema.envelope import Response, success
from api.settings import Settings
from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.front_end.memory_budget import MemoryBudget
from tests.api.caller import Caller
from tests.api.scripted import ScriptedBackend
from tests.local_runtime.service import local_service

UNKNOWN = "0" * 32


async def created(caller: Caller, count: int) -> list[dict[str, str]]:
    return [
        {"id": await caller.detector(f"number {number}"), "name": f"number {number}"}
        for number in range(count)
    ]


async def test_pages_follow_each_other_in_order_of_creation(caller: Caller) -> None:
    detectors = await created(caller, 7)
    assert (await caller("GET", "/api/detectors")).result == detectors
    assert (await caller("GET", "/api/detectors?limit=3")).result == detectors[:3]
    after = detectors[2]["id"]
    assert (await caller("GET", f"/api/detectors?limit=3&after={after}")).result == detectors[3:6]
    assert (await caller("GET", f"/api/detectors?after={after}")).result == detectors[3:]
    assert (await caller("GET", f"/api/detectors?after={detectors[-1]['id']}")).result == []
    assert (await caller("GET", "/api/detectors?limit=1000")).result == detectors


async def test_a_page_only_changes_by_what_was_created_or_deleted_behind_its_place(caller: Caller) -> None:
    detectors = await created(caller, 5)
    await caller("DELETE", f"/api/detectors/{detectors[0]['id']}")
    await caller("DELETE", f"/api/detectors/{detectors[3]['id']}")
    later = await created(caller, 1)
    page = (await caller("GET", f"/api/detectors?limit=10&after={detectors[1]['id']}")).result
    assert page == [detectors[2], detectors[4], *later]


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("limit=0", ["limit: expected a whole number from 1 to 1000, got `0`"]),
        ("limit=1001", ["limit: expected a whole number from 1 to 1000, got `1001`"]),
        ("limit=1.5", ["limit: expected a whole number from 1 to 1000, got `1.5`"]),
        ("limit=1e1", ["limit: expected a whole number from 1 to 1000, got `1e1`"]),
        ("limit=", ["limit: expected a whole number from 1 to 1000, got ``"]),
        ("limit=ten", ["limit: expected a whole number from 1 to 1000, got `ten`"]),
        (f"limit={'9' * 5000}", [f"limit: expected a whole number from 1 to 1000, got `{'9' * 80}`"]),
        ("limit=1&limit=2", ["limit: expected once, came more than once"]),
        ("after=1", ["after: expected the id of a detector, got `1`"]),
        ("after=%0A%ff", ["after: expected the id of a detector, got `\n\ufffd`"]),
        (f"after={UNKNOWN}", [f"after: there is no detector `{UNKNOWN}`; it may have been deleted"]),
        (
            "after=x&limit=x",
            [
                "limit: expected a whole number from 1 to 1000, got `x`",
                "after: expected the id of a detector, got `x`",
            ],
        ),
    ],
)
async def test_wrong_parameters_are_refused_with_what_they_may_be(
    caller: Caller, query: str, texts: list[str]
) -> None:
    reply = await caller("GET", f"/api/detectors?{query}")
    assert (reply.status, set(reply.codes), reply.texts) == (400, {1006}, texts)


async def test_other_parameters_and_those_of_other_operations_are_ignored(caller: Caller) -> None:
    detectors = await created(caller, 2)
    assert (await caller("GET", "/api/detectors?x=1&limits=0&=&&")).result == detectors
    assert (await caller("POST", "/api/detectors?limit=0", {"name": "n"})).status == 200
    assert (await caller("GET", f"/api/detectors/{detectors[0]['id']}?limit=0")).status == 200


async def test_there_are_no_more_detectors_than_may_be(settings: Settings) -> None:
    chosen = dataclasses.replace(settings, max_detectors=2)
    runtime = chosen.runtime_settings()
    rest = {name: value for name, value in vars(runtime).items() if name != "data"}
    async with local_service(chosen.data, **rest) as service:
        caller = Caller(Application(chosen, service.backend), settings.bootstrap_token)
        first, _ = await created(caller, 2)
        full = await caller("POST", "/api/detectors", {"name": "n"})
        assert (full.status, full.codes) == (409, [1400])
        assert full.texts == ["the service has 2 detectors; limit 2"]
        assert len((await caller("GET", "/api/detectors")).result) == 2
        await caller("DELETE", f"/api/detectors/{first['id']}")
        assert (await caller("POST", "/api/detectors", {"name": "n"})).status == 200


class Many(ScriptedBackend):
    """Has very many detectors."""

    async def detectors(self) -> list[tuple[str, str]]:
        return [(f"{number:032x}", f'"{number}"') for number in range(10 * routes._PIECE + 1)]


async def whole_list(backend: ScriptedBackend, lists: int = 1) -> Response:
    """Ask for the whole list this many times at once; return the first answer."""
    async with Application(Settings(), backend).quart.app_context():  # type: ignore[arg-type]
        asked = (routes._all() for _ in range(lists))
        return (await asyncio.gather(*asked))[0]


async def test_a_list_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Many()
    whole = b"".join((await whole_list(backend)).pieces)
    length = len(whole) - len(success(b"").body)
    monkeypatch.setattr(routes, "LIST_BYTES_MAX", length)
    assert b"".join((await whole_list(backend)).pieces) == whole
    monkeypatch.setattr(routes, "LIST_BYTES_MAX", length - len("[],") - 10)
    with pytest.raises(Refusal, match="the list exceeds") as refused:
        await whole_list(backend)
    assert (refused.value.entries[0].code, backend.memory.held) == (1400, 0)


async def test_a_list_for_which_there_is_no_memory_is_refused_and_leaves_nothing_behind() -> None:
    backend = Many()
    backend.memory = MemoryBudget(1024 * 1024)
    with pytest.raises(DetectorUnavailable, match="no memory is left for the list") as refused:
        await whole_list(backend)
    assert (refused.value.code, backend.memory.held) == (1401, 0)


@pytest.mark.parametrize("lists", [1, 20])
async def test_others_have_their_turn_while_long_lists_are_built(lists: int) -> None:
    backend = Many()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    reply = await whole_list(backend, lists)
    other.cancel()
    assert turns >= 10 * lists
    listed: list[Any] = json.loads(b"".join(reply.pieces))["result"]
    assert listed == [
        {"id": f"{number:032x}", "name": f'"{number}"'} for number in range(10 * routes._PIECE + 1)
    ]
