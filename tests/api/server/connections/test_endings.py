"""The end of a connection: nothing of the last reply is lost, whatever comes behind its request."""

import asyncio
import math
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from api.http.app import Application
from api.server import sender
from api.server.limits import ConnectionLimit
from api.settings import Settings
from engine.evaluation.wire.events import Answer, Done
from engine.runtime.contract.requests.operations import Operation
from tests.api.leaks import in_each_loop
from tests.api.scripted import TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, EVENT, Wire, chunked, request, served

LARGE = 8_000_000
"""About as much as the system holds for a connection."""

AGAIN = request("POST", EVALUATE, EVENT, token=TOKEN)
CHUNKED = request("POST", EVALUATE, token=TOKEN, headers=("Transfer-Encoding: chunked",)) + chunked(EVENT)
LAST = request("POST", EVALUATE, EVENT, token=TOKEN, headers=("Connection: close",))


@asynccontextmanager
async def answering(reply_bytes: int, limit: ConnectionLimit | None = None) -> AsyncIterator[Wire]:
    """Serve with replies of some size."""

    async def answer(_: str, operation: Operation) -> Answer:
        return Done(b'"%s"' % bytes(reply_bytes).replace(b"\0", b"x"))

    backend, settings = ScriptedBackend(), Settings(max_discard_bytes=400_000)
    backend.answers = answer
    async with served(Application(settings, backend), settings, limit, grace_s=10) as wire:
        yield wire


def plug(wire: Wire) -> socket.socket:
    """Connect. What waits longer than it should is raised."""
    return socket.create_connection(("127.0.0.1", wire.port), timeout=10)


def heard_of(caller: socket.socket, bytes_: float = math.inf) -> bytes:
    """Return this much of what comes, or all until the server closes. Raises what cuts it off."""
    heard = bytearray()
    while len(heard) < bytes_ and (came := caller.recv(65_536)):
        heard += came
    return bytes(heard)


def bodies_bytes(heard: bytes) -> list[int]:
    """Return the lengths of the bodies of replies, all of which came whole."""
    found = []
    while heard:
        head, _, rest = heard.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = re.search(rb"content-length: (\d+)", head)
        assert length, head
        found.append(int(length[1]))
        assert len(rest) >= found[-1], "it was cut off"
        heard = rest[found[-1] :]
    return found


@pytest.mark.parametrize("behind", [b"\r\n", AGAIN, b"x" * 200_000], ids=["a line end", "another", "no HTTP"])
@pytest.mark.parametrize("reply_bytes", [100, 400_000, LARGE])
@in_each_loop
async def test_the_last_reply_comes_whole_though_more_is_sent_amid_it(
    behind: bytes, reply_bytes: int
) -> None:
    def call(wire: Wire) -> bytes:
        with plug(wire) as caller:
            caller.sendall(LAST)
            first = heard_of(caller, reply_bytes // 2)
            # By now all that the server still has to send is with the system.
            time.sleep(0.05)
            caller.sendall(behind)
            time.sleep(0.05)
            return first + heard_of(caller)

    async with answering(reply_bytes) as wire:
        (body_bytes,) = bodies_bytes(await asyncio.to_thread(call, wire))
        assert body_bytes > reply_bytes


@pytest.mark.parametrize("asked", [AGAIN, CHUNKED], ids=["plain", "in chunks"])
@in_each_loop
async def test_replies_come_whole_though_the_server_ends_amid_one_and_the_next_request_comes(
    asked: bytes,
) -> None:
    def call(wire: Wire, stop: Callable[[], object]) -> bytes:
        with plug(wire) as caller:
            caller.sendall(asked)
            first = heard_of(caller, 10)
            stop()
            first += heard_of(caller, LARGE // 2)
            time.sleep(0.1)
            caller.sendall(asked)
            time.sleep(0.1)
            return first + heard_of(caller)

    later = asyncio.get_running_loop().call_soon_threadsafe
    async with answering(LARGE) as wire:
        heard = await asyncio.to_thread(call, wire, lambda: later(wire.stop))
        # Whether the second is begun is for the server to choose.
        assert all(body_bytes > LARGE for body_bytes in bodies_bytes(heard))
        assert heard


@in_each_loop
async def test_who_does_not_close_is_closed_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "LINGER_S", 1.0)

    limit = ConnectionLimit(100)
    async with answering(100, limit) as wire:
        caller = await wire.connect()
        began_s = time.monotonic()
        await caller.send(LAST)
        assert (await caller.receive()).status == 200
        assert await caller.at_end()
        assert len(limit) == 1, "more may come, and is read past"
        async with asyncio.timeout(60):
            while len(limit):  # noqa: ASYNC110 -- there is no event for it
                await asyncio.sleep(0.01)
        assert time.monotonic() - began_s >= 0.99
        assert await wire.comes_to_rest()


@in_each_loop
async def test_who_is_left_to_close_makes_room_for_others() -> None:
    limit = ConnectionLimit(1)
    async with answering(100, limit) as wire:
        leaving = await wire.connect()
        await leaving.send(LAST)
        assert (await leaving.receive()).status == 200
        assert (await wire.once(LAST)).status == 200
        assert len(limit) == 1


@in_each_loop
async def test_who_goes_on_sending_is_read_past_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "LINGER_S", 60)

    limit = ConnectionLimit(100)
    async with answering(100, limit) as wire:
        caller = await wire.connect()
        await caller.send(LAST)
        assert (await caller.receive()).status == 200
        with suppress(OSError):
            async with asyncio.timeout(10):
                while len(limit):
                    await caller.send(b"x" * 65_536)
        assert not len(limit)
        assert await wire.comes_to_rest()
