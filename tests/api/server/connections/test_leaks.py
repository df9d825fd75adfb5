"""Callers who vanish at any moment leave no tasks, descriptors or queue entries behind."""

import asyncio
from pathlib import Path

import pytest

from tests.api.conftest import BOOTSTRAP
from tests.api.leaks import EVENT, REST_WITHIN_S, World, in_each_loop, many_callers, world
from tests.api.streaming import NDJSON, line
from tests.api.wire import chunked, request

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")

CALLERS = 150
CHUNKED = "Transfer-Encoding: chunked"
SOME = b"1\r\nx\r\n" * 40
"""More chunks than the server keeps for the application, of a body without end."""
LARGE = b"400\r\n" + b"x" * 1_024 + b"\r\n"
"""A chunk that is larger than a body may be."""

H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA")
WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: eA==",
)


def post(path: str, body: bytes = b"", *headers: str, token: str | None = BOOTSTRAP) -> bytes:
    return request(path=f"/api/detectors/DETECTOR{path}", body=body, token=token, headers=headers)


WHOLE = post("/evaluate", EVENT)
STREAM = post("/evaluate/batch", b"", CHUNKED, NDJSON)
LINES = b"%x\r\n%s\r\n" % (len(line()) * 50, line() * 50)

ABANDONED: dict[str, bytes] = {
    "nothing sent": b"",
    "half a header": WHOLE[:60],
    "a header and no body": post("/evaluate", b"", "Content-Length: 100"),
    "a header and no body, on the slow path": request(token=BOOTSTRAP, headers=("Content-Length: 100",)),
    "half a body": post("/evaluate", b"", "Content-Length: 100") + b"{" * 50,
    "half a body in chunks": post("/evaluate", b"", CHUNKED) + SOME,
    "an evaluation": WHOLE,
    "an evaluation with a key": post("/evaluate", EVENT, "Idempotency-Key: k"),
    "a batch": post("/evaluate/batch", b'{"events":[%s]}' % b",".join([EVENT[9:-1]] * 50)),
    "a batch in chunks": post("/evaluate/batch", b"", CHUNKED) + chunked(*[b'{"events":[]}']),
    "a new rule": post("/rules", b'{"name":"n","condition":""}'),
    "many requests at once": WHOLE * 20,
    "a request that asks first": post("/evaluate", b"", "Expect: 100-continue", "Content-Length: 100"),
    "refused, 401": post("/evaluate", b"", CHUNKED, token=None) + SOME,
    "refused, 401, unknown": post("/evaluate", b"", CHUNKED, token="x") + SOME,
    "refused, 404": post("/nowhere", b"", CHUNKED) + SOME,
    "refused, 405": request("PUT", path="/api/detectors", token=BOOTSTRAP, headers=(CHUNKED,)) + SOME,
    "refused, 413": post("/evaluate", b"", CHUNKED) + LARGE + SOME,
    "refused, 415": post("/evaluate", b"", CHUNKED, "Content-Type: text/html") + SOME,
    "refused, behind good ones": WHOLE * 3 + post("/evaluate", b"", CHUNKED, token=None) + SOME,
    "refused, and another behind it": post("/evaluate", b"", CHUNKED, token=None) + chunked(b"x") * 1 + WHOLE,
    "refused, with a body past the bound": post("/evaluate", b"", CHUNKED, token=None) + LARGE * 30,
    "refused, the end told twice": post("/evaluate", b"", CHUNKED, "Content-Length: 5", token=None) + SOME,
    "a stream, silent": STREAM,
    "a stream, amid a line": STREAM + LINES + b"5\r\n" + line()[:5] + b"\r\n",
    "a stream with work": STREAM + LINES * 5,
    "a stream that has ended": STREAM + LINES + b"0\r\n\r\n",
    "a stream of which no replies are taken": STREAM + LINES * 40,
    "a stream that is refused": post("/evaluate/batch", b"", CHUNKED, NDJSON, token=None) + LINES * 20,
    "a stream to no detector": request(
        path=f"/api/detectors/{'0' * 32}/evaluate/batch", token=BOOTSTRAP, headers=(CHUNKED, NDJSON)
    )
    + LINES * 20,
    "replies that are not taken": request("GET", "/openapi.json") * 50,
    "HTTP/2": H2_PREFACE,
    "an offer of HTTP/2": request("GET", "/healthz", headers=UPGRADE),
    "an offer of HTTP/2, refused": post("/evaluate", b"", *UPGRADE, CHUNKED, token=None) + SOME,
    "a WebSocket": request("GET", "/healthz", headers=(*WEBSOCKET, "Sec-WebSocket-Key: eA==")),
    "a WebSocket, half": request("GET", "/healthz", headers=WEBSOCKET),
    "not HTTP": b"\x16\x03\x01 hello\r\n\r\n",
    "chunks that are none": post("/evaluate", b"", CHUNKED) + b"zz\r\n",
}
"""What callers have sent when they vanish."""


@pytest.mark.storm
@pytest.mark.parametrize("sent", ABANDONED)
@in_each_loop
async def test_callers_who_vanish_leave_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: str
) -> None:
    async with world(tmp_path, max_body_bytes=1_000, max_discard_bytes=20_000) as given:
        before = await given.at_rest()
        await many_callers(given, bytes_for(given, sent), CALLERS)
        await given.comes_back_to(before)
        assert await serves(given)

    assert caplog.records == [], "nobody can fill the log"


@pytest.mark.storm
@pytest.mark.parametrize(
    "sent", ["an evaluation", "an evaluation with a key", "a batch", "a new rule", "many requests at once",
             "a stream with work", "a stream that has ended", "refused, and another behind it"]
)  # fmt: skip
@in_each_loop
async def test_callers_who_vanish_from_a_queue_leave_their_places(tmp_path: Path, sent: str) -> None:
    # If more was sent than was read, the server notices only when it writes that the caller has gone.
    async with world(tmp_path, deadline_s=2 if "many" in sent else 600) as given:
        before = await given.at_rest()
        go_on = asyncio.Event()
        most = 0

        async def hangs(what: str) -> None:
            nonlocal most
            if what == "handle":
                await go_on.wait()

        given.worker.before = hangs
        vanishing = asyncio.create_task(many_callers(given, bytes_for(given, sent), CALLERS))
        while not vanishing.done():
            most = max(most, given.held().waiting)
            await asyncio.sleep(0.001)
        await vanishing
        # The detector hangs still; only what it was sent first may be kept for it.
        async with asyncio.timeout(REST_WITHIN_S):
            while given.held().waiting:  # noqa: ASYNC110 -- there is no event for it
                await asyncio.sleep(0.01)
        assert given.held().waiting_bytes == 0
        go_on.set()
        await given.comes_back_to(before)
        assert most > 0, "they waited"
        assert await serves(given)


def bytes_for(given: World, sent: str) -> bytes:
    return ABANDONED[sent].replace(b"DETECTOR", given.detector.encode())


async def serves(given: World) -> bool:
    """Return whether an evaluation is answered."""
    path = f"/api/detectors/{given.detector}/evaluate"
    return (await given.wire.once(request(path=path, body=EVENT, token=BOOTSTRAP))).status == 200
