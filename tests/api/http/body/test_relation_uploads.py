"""Uploads of relations over the wire's interface: callers who go away, are slow, or send too much."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from api.http.app import Application
from api.http.handling.relation_upload import PART_BYTES
from api.settings import Settings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.local_runtime.service import LocalService, front_end

LINES = b"".join(b'["user %06d"]\n' % number for number in range(6_000))
"""Six parts of a body."""

pytestmark = pytest.mark.parametrize("service", ["here"], indirect=True)
Message = dict[str, Any]


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


GONE: Message = {"type": "http.disconnect"}


class Upload:
    """A PUT whose body comes message by message; `between` is called before each."""

    def __init__(self, app: Application, path: str, token: str = BOOTSTRAP, **headers: str) -> None:
        self.app, self.path, self.sent = app, path, list[Message]()
        self.headers = {"authorization": f"Bearer {token}", "content-type": "application/x-ndjson", **headers}
        self.taken = 0

    async def __call__(self, *messages: Message, between: Callable[[int], Any] = lambda _: None) -> list[int]:
        """Send messages; give the codes of the answer, and none if there was no answer or it succeeded."""
        waiting = list(messages)

        async def receive() -> Message:
            made = between(self.taken)
            if made is not None:
                await made
            self.taken += 1
            if waiting:
                return waiting.pop(0)
            await asyncio.sleep(3600)
            raise AssertionError

        async def send(message: Message) -> None:
            self.sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "PUT",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "server": ("service", 80),
            "client": ("127.0.0.1", 1),
            "state": {},
            "headers": [(name.encode(), value.encode()) for name, value in self.headers.items()],
        }
        await self.app(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in self.sent)
        return [entry["code"] for entry in json.loads(body)["errors"]] if body else []


@pytest.fixture
def app(settings: Settings, service: LocalService) -> Application:
    return Application(settings, service.backend)


@pytest.fixture
async def path(caller: Caller) -> str:
    return f"/api/detectors/{await caller.detector()}/relations"


def pieces(size: int = 10_000) -> list[Message]:
    cut = [LINES[at : at + size] for at in range(0, len(LINES), size)]
    return [*map(part, cut), part(b"", more=False)]


async def settled(caller: Caller, path: str) -> list[Any]:
    """The relations, once what goes on in the background has ended."""
    await asyncio.sleep(0)
    return (await caller("GET", path)).result["relations"]


async def test_the_last_tuple_is_bounded_even_if_it_arrives_whole(
    app: Application, caller: Caller, path: str
) -> None:
    body = b'{"tuples": ["a", "%b"]}' % (b"x" * 70_000)
    upload = Upload(app, f"{path}/r", **{"content-type": "application/json"})
    assert await upload(part(body, more=False)) == [1001]
    assert await settled(caller, path) == []


async def test_a_caller_who_goes_away_at_any_place_leaves_nothing(
    app: Application, caller: Caller, path: str, service: LocalService
) -> None:
    messages = pieces()
    for number in range(len(messages)):
        assert await Upload(app, f"{path}/r")(*messages[:number], GONE) == []
        assert await settled(caller, path) == []
    await asyncio.gather(*service.backend.background)
    worker = service.actors.with_detector(path.split("/")[3])
    assert worker is not None
    assert len(worker.actor._the_active().uploads) == 0
    assert await Upload(app, f"{path}/r")(*messages) == []
    assert (await settled(caller, path))[0]["tuples"] == 6_000


async def test_a_front_end_holds_a_part_and_not_the_body(app: Application, path: str) -> None:
    held = list[int]()
    assert (
        await Upload(app, f"{path}/r")(*pieces(1_000), between=lambda _: held.append(app.memory.held_bytes))
        == []
    )
    assert PART_BYTES / 2 < max(held) <= PART_BYTES + 2_000
    assert app.memory.held_bytes == 0


async def test_a_token_that_is_revoked_during_an_upload_changes_nothing(
    app: Application, caller: Caller, path: str
) -> None:
    token = (await caller("POST", "/api/token")).result

    def revoke(taken: int) -> Any:
        return caller("DELETE", f"/api/token/{token['id']}") if taken == 3 else None

    upload = Upload(app, f"{path}/r", token["token"])
    assert await upload(*pieces(), between=revoke) == [1101]
    assert await settled(caller, path) == []


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_past_the_limit_is_1003(
    settings: Settings, service: LocalService, caller: Caller, path: str, announced: bool
) -> None:
    limited = Application(replace(settings, max_relation_body_bytes=50_000), service.backend)
    headers = {"content-length": str(len(LINES))} if announced else {}
    upload = Upload(limited, f"{path}/r", **headers)
    assert await upload(*pieces()) == [1003]
    assert upload.taken <= (1 if announced else 6)
    assert await settled(caller, path) == []


async def test_a_part_that_does_not_arrive_in_time_is_1502(
    settings: Settings, service: LocalService, caller: Caller, path: str
) -> None:
    hurried = Application(replace(settings, deadline_s=0.1), service.backend)
    assert await Upload(hurried, f"{path}/r")(*pieces()[:4]) == [1502]
    assert await settled(caller, path) == []


async def test_a_body_may_take_longer_than_a_request_in_all(
    settings: Settings, service: LocalService, caller: Caller, path: str
) -> None:
    hurried = Application(replace(settings, deadline_s=0.5), service.backend)
    assert await Upload(hurried, f"{path}/r")(*pieces(), between=lambda _: asyncio.sleep(0.15)) == []
    assert (await settled(caller, path))[0]["tuples"] == 6_000


async def test_two_front_ends_upload_the_same_relation_one_after_the_other(
    settings: Settings, service: LocalService, caller: Caller, path: str
) -> None:
    async with front_end(service) as one, front_end(service) as other:
        apps = [Application(settings, end.backend) for end in (one, other)]
        done = await asyncio.gather(*(Upload(app, f"{path}/r")(*pieces()) for app in apps))
        assert done == [[], []]
        said = Caller(apps[0], BOOTSTRAP)
        assert (await said("PATCH", f"{path}/r", {"add": ["x"]})).result["tuples"] == 6_001
        said = Caller(apps[1], BOOTSTRAP)
        assert (await said("GET", path)).result["relations"][0]["tuples"] == 6_001


async def test_a_worker_that_dies_during_an_upload_changes_nothing(
    app: Application, caller: Caller, path: str, service: LocalService
) -> None:
    before = (await caller("PUT", f"{path}/r", {"tuples": ["x"]})).result

    def die(taken: int) -> None:
        worker = service.actors.with_detector(path.split("/")[3])
        if taken == 4 and worker is not None:
            worker.die()

    [code] = await Upload(app, f"{path}/r")(*pieces(), between=die)
    assert code in (1501, 1502)
    assert await settled(caller, path) == [before]


async def test_a_fork_during_an_upload_has_what_was_there_before(
    app: Application, caller: Caller, path: str
) -> None:
    before = (await caller("PUT", f"{path}/r", {"tuples": ["x"]})).result

    def fork(taken: int) -> Any:
        return caller("POST", path.replace("relations", "fork"), {"name": "n"}) if taken == 2 else None

    assert await Upload(app, f"{path}/s")(*pieces(), between=fork) == []
    [r, s] = await settled(caller, path)
    assert (r, s["tuples"]) == (before, 6_000)
    [_, copy] = (await caller("GET", "/api/detectors")).result
    assert (await caller("GET", f"/api/detectors/{copy['id']}/relations")).result == {"relations": [before]}
