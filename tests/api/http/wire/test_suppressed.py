"""How many actions a rule has held back is said in each form of an answer, over a socket."""

import json
from collections.abc import Sequence
from typing import Any

import msgpack
import pytest

from api.http.app import Application
from api.settings import Settings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.streaming import line, stream
from tests.api.wire import Wire, request, served
from tests.local_runtime.service import LocalService

TIMES_MS = (0, 1_000, 2_000, 10_000)
EVENTS = [{"fields": {"user": "ada"}, "timestamp_ms": time_ms} for time_ms in TIMES_MS]
Actions = Sequence[Sequence[dict[str, Any]]]


async def sent(wire: Wire, path: str, body: bytes, media_type: str = "application/json") -> Any:
    headers = (f"Content-Type: {media_type}",)
    connection = await wire.connect()
    served = await (
        await connection.send(request(path=path, body=body, token=BOOTSTRAP, headers=headers))
    ).receive()
    assert served.status == 200, served.body
    return served.envelope["result"]


async def one_by_one(wire: Wire, path: str, query: str) -> Actions:
    """Send each event with a query; what is only tried is recorded after that."""
    found = []
    for event in EVENTS:
        body = json.dumps({"event": event}).encode()
        found.append((await sent(wire, f"{path}/evaluate{query}", body))["actions"])
        if "dry_run" in query:
            await sent(wire, f"{path}/evaluate", body)
    return found


async def in_a_batch(wire: Wire, path: str, query: str) -> Actions:
    body = json.dumps({"events": EVENTS}).encode()
    results = (await sent(wire, f"{path}/evaluate/batch{query}", body))["results"]
    return [one["actions"] for one in results]


async def as_msgpack(wire: Wire, path: str, query: str) -> Actions:
    body: bytes = msgpack.packb({"events": EVENTS})
    results = (await sent(wire, f"{path}/evaluate/batch{query}", body, "application/msgpack"))["results"]
    return [one["actions"] for one in results]


async def as_lines(wire: Wire, path: str, _: str) -> Actions:
    one = await stream(wire, path.rsplit("/", 1)[1], BOOTSTRAP)
    await one.send(b"".join(line(time_ms, user="ada") for time_ms in TIMES_MS))
    await one.end()
    await one.begun()
    *results, done = await one.rest()
    assert done == {"done": len(EVENTS)}
    return [result["actions"] for result in results]


@pytest.mark.parametrize(
    ("send", "query"),
    [
        *((one_by_one, f"?{query}") for query in ("", "explain=true", "details=true", "dry_run=true")),
        (one_by_one, "?dry_run=true&details=true"),
        *((form, f"?{query}") for form in (in_a_batch, as_msgpack) for query in ("", "dry_run=true")),
        (in_a_batch, "?details=true"),
        (as_lines, ""),
    ],
)
async def test_what_was_held_back_is_said_with_the_next_action(
    settings: Settings, service: LocalService, caller: Caller, send: Any, query: str
) -> None:
    detector = await caller.detector()
    await caller.rule(detector, "per user (count(user == user) within 1h >= 0)", every_secs=10)
    async with served(Application(settings, service.backend), settings) as wire:
        found = await send(wire, f"/api/detectors/{detector}", query)
    assert [[action.get("suppressed") for action in actions] for actions in found] == [[None], [], [], [2]]
    for action in (*found[0], *found[3]):
        assert ("node" in action, "keys" in action) == ("explain" in query, "details" in query)
