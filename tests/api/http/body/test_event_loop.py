"""What the event loop does with large bodies: it passes them on, and decodes and searches none of them."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

import pytest

from api.http import service
from api.http.routes import rules
from tests.api.scripted import DETECTOR, TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, Wire, chunked, request

LARGE = 90_000
UNKNOWN = f"/api/detectors/{'b' * 32}/evaluate"
RULES = f"/api/detectors/{DETECTOR}/rules"
NESTED = bytes([0x91]) * 59 + b"\x80"
MSGPACK = "Content-Type: application/msgpack"

BODIES = {
    "open brackets": b"[" * LARGE,
    "empty arrays": b"[" + b"[]," * (LARGE // 3) + b"[]]",
    "empty objects": b'{"name":[' + b"{}," * (LARGE // 3) + b"{}]}",
    "members": b'{"name":{' + b",".join(b'"%d":{}' % i for i in range(LARGE // 10)) + b"}}",
    "escapes": b'{"condition":"' + b"\\u0041" * (LARGE // 6) + b'"}',
    "backslashes": b'{"condition":"' + b"\\\\" * (LARGE // 2) + b'"}',
    "digits": b'{"name":' + b"7" * LARGE + b"}",
    "blanks": b" " * LARGE + b"[]",
    "half a pair of surrogates": b'{"name":"' + b"x" * LARGE + b'\\ud800"}',
    "no UTF-8": b'{"name":"' + b"x" * LARGE + b'\xff"}',
}
DECODED_HERE = {
    "a new detector": ("POST", "/api/detectors"),
    "a new rule": ("POST", RULES),
    "a change": ("PATCH", f"{RULES}/{'c' * 32}"),
    "a parse": ("POST", "/api/conditions/parse"),
}
EVALUATED = {
    "an event": (EVALUATE, 200),
    "a batch": (f"{EVALUATE}/batch", 200),
    "an event for nobody": (UNKNOWN, 404),
    "a batch for nobody": (f"{UNKNOWN}/batch", 404),
}
COSTLY = frozenset(
    {"convert", "count", "decode", "findall", "finditer", "fullmatch", "loads", "raw_decode", "replace"}
    | {"search", "split", "splitlines", "strip", "sub", "translate"}
)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Yield the calls of this thread, which is that of the loop, that go through more than a few KiB."""
    found: list[str] = []

    def note(frame: FrameType, event: str, called: Any) -> None:
        # A plain head is searched where it ends, and what comes with it is at most one read of the socket.
        if event != "c_call" or called.__name__ not in COSTLY or frame.f_code.co_name == "read_plain":
            return
        met = (getattr(called, "__self__", None), *frame.f_locals.values())
        sizes = [len(one) for one in met if isinstance(one, str | bytes | bytearray | memoryview)]
        if max(sizes, default=0) > service.DECODED_AT_ONCE_BYTES_MAX:
            found.append(f"{called.__name__} in {frame.f_code.co_qualname}")

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def status_of(wire: Wire, sent: bytes) -> int:
    """Return the status of the reply, and read nothing else of it."""
    connection = await wire.connect()
    await connection.send(sent)
    async with asyncio.timeout(10):
        line = await connection.reader.readline()
    return int(line[9:12])


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize("asked", DECODED_HERE.values(), ids=DECODED_HERE)
async def test_a_large_body_is_decoded_in_a_thread(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, str], *, in_chunks: bool
) -> None:
    decoded = []

    def noted(file: ModuleType, name: str) -> None:
        original = getattr(file, name)

        def decode(body: bytes, *arguments: Any, **named: Any) -> Any:
            decoded.append((len(body), threading.current_thread() is threading.main_thread()))
            return original(body, *arguments, **named)

        monkeypatch.setattr(file, name, decode)

    noted(service, "decode")
    noted(rules, "parsed")
    json = ("Content-Type: application/json",)
    sent = []
    for body in BODIES.values():
        if in_chunks:
            whole = chunked(*[body[at : at + 5_000] for at in range(0, len(body), 5_000)])
            headers = (*json, "Transfer-Encoding: chunked")
            sent.append(request(*asked, token=TOKEN, headers=headers) + whole)
        else:
            sent.append(request(*asked, body, token=TOKEN, headers=json))
    with watched() as costly:
        for one in sent:
            # Some are texts of conditions, and the backend takes any.
            assert await status_of(wire, one) in {200, 400}
    assert costly == []
    assert decoded == [(len(body), False) for body in BODIES.values()]


async def test_a_small_body_is_decoded_without_the_detour(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop = []
    decode = service.decode

    def noted(*arguments: Any, **named: Any) -> Any:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return decode(*arguments, **named)

    monkeypatch.setattr(service, "decode", noted)
    assert await status_of(wire, request("POST", body=b"{}", token=TOKEN)) == 400
    assert on_loop == [True]


@pytest.mark.parametrize("way", ["plain", "chunked", "closing"])
@pytest.mark.parametrize(("path", "status"), EVALUATED.values(), ids=EVALUATED)
async def test_what_is_to_be_evaluated_is_passed_on_as_it_came(
    wire: Wire, scripted: ScriptedBackend, path: str, status: int, way: str
) -> None:
    sent = [((), body) for body in BODIES.values()]
    if path.endswith("batch"):
        sent += [
            ((MSGPACK,), NESTED * (LARGE // len(NESTED))),
            ((MSGPACK,), b"\xdd\0\0\xff\xff" + b"\x80" * LARGE),
        ]
    requests = []
    for headers, body in sent:
        if way == "chunked":
            head = request("POST", path, token=TOKEN, headers=(*headers, "Transfer-Encoding: chunked"))
            requests.append(head + chunked(body))
        else:
            more = ("Connection: close",) if way == "closing" else ()
            requests.append(request("POST", path, body, token=TOKEN, headers=(*headers, *more)))
    with watched() as costly:
        for one in requests:
            assert await status_of(wire, one) == status
    assert costly == []
    expected = [body for _, body in sent] if status == 200 else []
    assert [operation.payload for operation in scripted.operations] == expected
