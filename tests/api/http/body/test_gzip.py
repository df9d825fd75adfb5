"""Bodies as gzip: understood wherever a body is, within the same limits on what they become."""

import gzip
import json
from typing import Any

import msgpack
import pytest

from api.http.body import reading
from api.http.body.reading import MEMBERS_MAX, PIECE_BYTES, Inflating
from api.schema.envelope import RequestRefusal
from api.settings import Settings
from tests.api.caller import Caller, Said

EVENT = {"fields": {"a": 1}, "timestamp_ms": 5}
GZIP = {"Content-Encoding": "gzip"}


async def sent(caller: Caller, path: str, content: bytes, method: str = "POST", **headers: str) -> Said:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return await caller(method, path, content=content, headers={**GZIP, **headers})


async def detector_of(caller: Caller) -> str:
    detector = await caller.detector()
    await caller.rule(detector, "a == 1")
    return f"/api/detectors/{detector}"


async def test_every_body_may_be_gzip(caller: Caller) -> None:
    path = await detector_of(caller)
    packed = gzip.compress(json.dumps({"event": EVENT}).encode())
    assert len((await sent(caller, f"{path}/evaluate", packed)).result["actions"]) == 1
    batch = gzip.compress(json.dumps({"events": [EVENT, EVENT]}).encode())
    assert len((await sent(caller, f"{path}/evaluate/batch", batch)).result["results"]) == 2
    batch = gzip.compress(msgpack.packb({"events": [EVENT]}))
    said = await sent(caller, f"{path}/evaluate/batch", batch, Content_Type="application/msgpack")
    assert len(said.result["results"]) == 1
    records = gzip.compress(b'{"a":1}\n') + gzip.compress(b'{"a":2}\n')
    assert (await sent(caller, f"{path}/ingest", records)).result["accepted"] == 2
    rule = gzip.compress(b'{"name": "n", "condition": "a == 2"}')
    assert (await sent(caller, f"{path}/rules", rule)).status == 200
    tuples = gzip.compress(b"1\n2\n")
    said = await sent(caller, f"{path}/relations/r", tuples, "PUT", Content_Type="application/x-ndjson")
    assert said.result["tuples"] == 2


async def test_a_stream_may_be_gzip(caller: Caller) -> None:
    path = await detector_of(caller)
    headers = {**GZIP, "Content-Type": "application/x-ndjson", "Authorization": f"Bearer {caller.token}"}
    lines = gzip.compress(json.dumps(EVENT).encode() + b"\n" + json.dumps(EVENT).encode())
    for content, done in ((lines, {"done": 2}), (lines[:-6] + b"\0" * 6, None), (lines[:-6], None)):
        said = await caller.plain("POST", f"{path}/evaluate/batch", content=content, headers=headers)
        closing = json.loads(said.text.splitlines()[-1])
        assert said.status_code == 200
        if done is None:
            assert [entry["code"] for entry in closing["errors"]] == [1000]
        else:
            assert closing == done


@pytest.mark.parametrize("path", ["/evaluate", "/ingest", "/rules"])
async def test_what_is_no_gzip_is_refused(caller: Caller, path: str) -> None:
    path = await detector_of(caller) + path
    good = gzip.compress(b"{}")
    for content in (b"", b"{}", good[:-1], good[:5], good[:-5] + b"x" * 5, good + b"x"):
        assert (await sent(caller, path, content)).codes == [1000]


class Received:
    """Gives a body in pieces of a size, and counts them."""

    def __init__(self, body: bytes, size: int) -> None:
        self.pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
        self.given = 0

    async def __call__(self) -> dict[str, Any]:
        if self.given == len(self.pieces):
            return {"type": "http.disconnect"}
        self.given += 1
        more = self.given < len(self.pieces)
        return {"type": "http.request", "body": self.pieces[self.given - 1], "more_body": more}


async def all_of(receive: Inflating) -> bytes:
    found = b""
    while True:
        message = await receive()
        assert len(message["body"]) <= PIECE_BYTES
        found += message["body"]
        if not message["more_body"]:
            return found


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("length", [0, 1, 1_000, PIECE_BYTES, 3 * PIECE_BYTES])
async def test_it_becomes_what_it_was_however_it_is_cut(size: int, length: int) -> None:
    for body in (bytes(number * number % 251 for number in range(length)), bytes(length)):
        packed = gzip.compress(body[: length // 3]) + gzip.compress(body[length // 3 :])
        receive = Inflating(Received(packed, size))
        assert await all_of(receive) == body
        assert (await receive())["type"] == "http.disconnect"


async def test_a_bomb_is_refused_once_it_is_too_large_and_holds_nobody(
    caller: Caller, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await detector_of(caller)
    became: list[int] = []
    inflated = Inflating._inflated

    def counted(self: Inflating) -> bytes:
        piece = inflated(self)
        became.append(len(piece))
        return piece

    monkeypatch.setattr(Inflating, "_inflated", counted)
    monkeypatch.setattr(reading, "PIECE_BYTES", 4_096)
    bomb = gzip.compress(b" " * 20_000_000)
    assert len(bomb) < settings.max_batch_body_bytes
    said = await sent(caller, f"{path}/ingest", bomb)
    assert (said.status, said.codes) == (413, [1003])
    assert sum(became) <= settings.max_batch_body_bytes + 4_096
    assert max(became) <= 4_096


@pytest.mark.parametrize("member", [gzip.compress(b""), gzip.compress(b" ")], ids=["empty", "small"])
async def test_many_members_are_inflated_together(member: bytes) -> None:
    members = 3 * MEMBERS_MAX
    receive, messages = Inflating(Received(member * members, 1 << 20)), 0
    while (message := await receive())["more_body"]:
        messages += 1
        assert len(message["body"]) <= MEMBERS_MAX
    assert messages <= members / MEMBERS_MAX


async def test_after_a_defect_nothing_more_is_made_of_the_body() -> None:
    receive = Inflating(Received(b"no gzip" * 100, 70))
    with pytest.raises(RequestRefusal, match="the body is not gzip: it is damaged"):
        await all_of(receive)
    assert await receive() == {"type": "http.request", "body": b"", "more_body": True}
