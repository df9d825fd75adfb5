"""Whatever bytes come over a connection, or as a body: a sound answer, never an internal error, and soon."""

import asyncio
import gzip
import json
import re
from contextlib import suppress
from typing import Final

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.routes import OPERATIONS
from api.schema.envelope import CODES
from api.schema.examples import EVENT
from api.schema.operation import Operation
from tests.api.caller import Caller, sound
from tests.api.conftest import NODE
from tests.api.fuzz.changes import changed, fuzz, tries
from tests.api.scripted import TOKEN
from tests.api.wire import END_WITHIN_S, EVALUATE, Wire, chunked, request
from tests.api.wire import EVENT as BODY

PROTOBUF: Final = bytes.fromhex(
    "0a330a110a0f0a04686f737412070a057765622d31121e121c0900b8c03d5b86b9172a080a066661696c656432070a016e12021807"
)
"""Logs of one resource: a record with a body and an attribute."""
LINES: Final = b"".join(json.dumps({"event": EVENT}).encode() + b"\n" for _ in range(3))
FORMS: Final = {
    "application/json": [],
    "application/msgpack": [msgpack.packb({"events": [EVENT]}), msgpack.packb({"event": EVENT})],
    "application/x-ndjson": [LINES],
    "application/x-protobuf": [PROTOBUF],
    "text/csv": [b'user,n\nada,1\n"b,ob",2\n'],
}
"""Bodies by media type, besides the example of each operation."""
WITH_BODY: Final = [operation for operation in OPERATIONS if operation.body is not None]
STATUSES: Final = {200, 307, 431, 501, 505, *(code.status for code in CODES.values())} - {500, 504}
HTTP_2: Final = b"\0\0"
CHUNKED: Final = ("Transfer-Encoding: chunked",)
CONNECTIONS: Final = [
    request("POST", EVALUATE, BODY, token=TOKEN),
    request("GET", "/healthz") + request("GET", "/api/detectors", token=TOKEN),
    request("POST", EVALUATE, chunked(BODY[:7], BODY[7:]), token=TOKEN, length=False, headers=CHUNKED),
    request("GET", "http://localhost:80/api/detectors?limit=5&after=%41#x", token=TOKEN),
    b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


async def send(wire: Wire, data: bytes) -> None:
    """Send bytes and the end of the connection; check what comes back before it ends."""
    connection = await wire.connect()
    async with asyncio.timeout(END_WITHIN_S):
        with suppress(ConnectionError):
            await connection.send(data)
            connection.writer.write_eof()
        with suppress(ConnectionError):
            received = await connection.reader.read(-1)
            assert not received or received.startswith((b"HTTP/1.1 ", HTTP_2)), received
            statuses = {int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)}
            assert statuses <= {100, 101, *STATUSES}, received
    await connection.close()


async def ask(caller: Caller, operation: Operation, path: str, headers: dict[str, str], body: bytes) -> None:
    """Call an operation with a body, and check the answer's form, unless it is a stream or bare."""
    answer = await caller.plain(
        operation.method,
        path,
        content=body,
        headers=headers | {"Authorization": f"Bearer {caller.token}"},
    )
    assert answer.status_code in STATUSES, answer.text
    is_bare = operation.is_bare and answer.status_code == 200
    if answer.headers["content-type"] == "application/json" and not is_bare:
        sound(answer)


@fuzz(60)
@given(data=changed(CONNECTIONS))
async def test_a_connection(wire: Wire, data: bytes) -> None:
    for _ in tries():
        await send(wire, data)
    assert (await wire.once(request("GET", "/healthz"))).status == 200


@pytest.mark.slow
@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: operation.name)
@fuzz(20)
@given(data=st.data())
async def test_a_body(caller: Caller, operation: Operation, data: st.DataObject) -> None:
    detector = await caller.detector()
    ids = {"detectorId": detector, "id": await caller.rule(detector, "a == 1"), "name": "n", "nodeId": NODE}
    form = data.draw(st.sampled_from([name.decode() for name in operation.media_types]))
    example = json.dumps(operation.body_example).encode()
    body = data.draw(changed([*FORMS.get(form, []), example]))
    headers = {"Content-Type": form}
    if data.draw(st.booleans()):
        headers["Content-Encoding"] = "gzip"
        body = data.draw(changed([gzip.compress(body, mtime=0)]))
    for _ in tries():
        await ask(caller, operation, operation.path.format_map(ids), headers, body)
