"""Requests between processes: frames, batches, and what becomes of them when a connection breaks."""

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.errors import ActorDied, ActorFailed, DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Address, Reply
from engine.runtime.transport.link import (
    HEADER,
    MESSAGES,
    TOKEN,
    WELCOME,
    Answered,
    FrameReader,
    Moved,
    pieces,
    responses,
)
from engine.runtime.transport.link_client import LinkClient, error_in
from snapshots.errors import WriteFailed
from tests.local_runtime.service import until
from tests.unit.runtime.transport.peers import HOSTS, LARGE, SOME_TOKEN, SPOKEN, Peer, listening, sent


@asynccontextmanager
async def linked(**options: Any) -> AsyncIterator[tuple[Peer, LinkClient]]:
    async with listening(**options) as (peer, listener):
        client = await LinkClient.to(listener.address)
        try:
            yield peer, client
        finally:
            client.link.abort()


async def exchange(host: str | None) -> None:
    async with linked(host=host) as (_, client):
        for size in (0, 1, 5, 16 * 1024, 65_531, 65_532, 100_000, LARGE, 3):
            payload = os.urandom(size)
            assert await sent(client, payload, b"ab") == Answered(
                client._numbers, [Done(payload[::-1]), Done(b"ba")]
            )
            assert await client.ask("echo", int, size) == size


@HOSTS
async def test_batches_of_all_sizes_are_answered(host):
    await exchange(host)


@HOSTS
def test_uvloop_does_the_same(host):
    module = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=module.new_event_loop) as runner:
        runner.run(exchange(host))


@pytest.mark.parametrize(
    ("kind", "type_", "text"),
    [("disk", WriteFailed, "the disk"), ("key", KeyError, "key"), ("odd", ActorFailed, "Odd: so odd")],
)
async def test_what_the_other_process_raises_is_raised_with_its_traceback(kind, type_, text):
    async with linked() as (_, client):
        with pytest.raises(type_, match=text) as raised:
            await client.ask("fail", None, kind)
        assert "in _fail" in str(raised.value.__cause__)
        assert await client.ask("echo", str, "next") == "next"


async def test_each_request_gets_its_own_response_in_whatever_order_they_come():
    async with linked() as (peer, client):
        peer.at_once = False
        first, second = sent(client, b"1"), sent(client, b"2")
        await until(lambda: len(peer.batches) == 2)
        for _, batch in reversed(peer.batches):
            batch.settle(Reply([Done(batch.operations[0].payload)]))
        assert (await first).answers == [Done(b"1")]
        assert (await second).answers == [Done(b"2")]


async def test_one_who_gives_up_an_ask_that_may_be_abandoned_ends_it_there_too():
    async with linked() as (peer, client):
        asked = asyncio.create_task(client.ask("hang", None))
        await until(lambda: peer.servers[0].under_way)
        asked.cancel()
        await until(lambda: not peer.servers[0].under_way)
        assert client.under_way == 0


@pytest.mark.parametrize("leave", ["gives up", "dies"])
async def test_any_other_ask_is_executed_to_its_end_whoever_waits(leave):
    async with linked() as (peer, client):
        asked = asyncio.create_task(client.ask("change", None))
        await until(lambda: peer.servers[0].under_way)
        if leave == "dies":
            client.link.abort()
        asked.cancel()
        await asyncio.wait({asked})
        await asyncio.sleep(0.01)
        assert not peer.changed
        peer.go_on.set()
        await until(lambda: peer.changed)
        await until(lambda: not peer.servers[0].under_way)


async def test_a_forgotten_batch_is_answered_to_nobody():
    async with linked() as (peer, client):
        peer.at_once = False
        number = client.send(lambda _: pytest.fail("it was forgotten"), 1, [ops.rules()])
        client.withdraw(number)
        await until(lambda: peer.batches)
        peer.batches[0][1].settle(Reply([]))
        assert await client.ask("echo", int, 1) == 1


async def test_large_answers_stay_with_the_worker_until_there_is_room() -> None:
    async with linked() as (_, client):
        asked: list[tuple[int, Callable[[], None]]] = []
        released: list[int] = []

        def room(bytes_: int, fetch: Callable[[], None]) -> Callable[[], None]:
            asked.append((bytes_, fetch))
            return lambda: released.append(bytes_)

        client.room = room
        large, small = sent(client, b"ab" * LARGE), sent(client, b"ab")
        assert (await small).answers == [Done(b"ba")]
        await until(lambda: asked)
        assert client.is_announced(1)
        assert not large.done()
        assert await client.ask("echo", int, 1) == 1
        ((size, fetch),) = asked
        assert size == 2 * LARGE
        fetch()
        assert (await large).answers == [Done(b"ba" * LARGE)]
        await until(lambda: released == [size])
        assert not client.is_announced(1)


@pytest.mark.parametrize("ends", ["forgotten", "withdrawn", "lost"])
async def test_announced_answers_that_nobody_waits_for_are_dropped_at_both_ends(ends: str) -> None:
    async with linked() as (peer, client):
        released: list[int] = []
        client.room = lambda bytes_, _: lambda: released.append(bytes_)
        answer = sent(client, b"ab" * LARGE)
        await until(lambda: client.is_announced(1))
        match ends:
            case "forgotten":
                client.withdraw(1)
            case "withdrawn":
                client.withdraw(1)
            case _:
                client.link.abort()
                assert await answer is None
        assert released == [2 * LARGE]
        assert not client.is_announced(1)
        await until(lambda: not peer.servers[0]._announced)


def test_every_cut_of_frames_yields_exactly_the_whole_ones():
    frames = [(MESSAGES, b""), (WELCOME, b"abc"), (MESSAGES, b"x" * 20)]
    whole = b"".join(b"".join(pieces(*frame)) for frame in frames)
    ends = [5, 13, 38]
    for first in range(len(whole) + 1):
        for second in range(first, len(whole) + 1):
            reader = FrameReader(MESSAGES, WELCOME)
            got = []
            for piece, end in ((whole[:first], first), (whole[first:second], second)):
                reader.room()[: len(piece)] = piece
                got += reader.received(len(piece))
                assert got == frames[: sum(each <= end for each in ends)]


@pytest.mark.parametrize("length", [65_530, 65_531, 65_532, 200_000])
@pytest.mark.parametrize("before", [b"", b"y" * 1_000])
def test_long_frames_are_whole_wherever_they_are_cut(length, before):
    frames = [(MESSAGES, before), (MESSAGES, b"z" * length), (MESSAGES, b"after")]
    whole = b"".join(b"".join(pieces(*frame)) for frame in frames)
    for step in (1_021, 65_536):
        reader, got, begin = FrameReader(MESSAGES), [], 0
        while begin < len(whole):
            room = reader.room()
            count = min(step, len(room), len(whole) - begin)
            assert count > 0
            room[:count] = whole[begin : begin + count]
            got += reader.received(count)
            begin += count
        assert got == frames


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


BREAKS: dict[str, Callable[[socket.socket], object]] = {
    "at its end": lambda peer: peer.close(),
    "with a reset": reset,
    "in the header": lambda peer: (peer.sendall(b"\x05\x00"), peer.close()),
    "in a response": lambda peer: (peer.sendall(HEADER.pack(5, MESSAGES) + b"ab"), peer.close()),
    "in a long one": lambda peer: (peer.sendall(HEADER.pack(LARGE, MESSAGES) + b"a" * 99_000), peer.close()),
    "with garbage": lambda peer: peer.sendall(b"GET / HTTP/1.1\r\n\r\n"),
    "with messages that are none": lambda peer: peer.sendall(b"".join(pieces(MESSAGES, b"\xc1"))),
    "with another length": lambda peer: peer.sendall(HEADER.pack(2**31, MESSAGES)),
    "with a second welcome": lambda peer: peer.sendall(HEADER.pack(0, WELCOME)),
}


@pytest.mark.parametrize("script", BREAKS.values(), ids=BREAKS)
async def test_a_connection_that_breaks_ends_what_is_under_way_without_a_response(script):
    def accept(listener: socket.socket) -> socket.socket:
        peer, _ = listener.accept()
        expected = b"".join(pieces(TOKEN, SOME_TOKEN + SPOKEN))
        assert peer.recv(len(expected), socket.MSG_WAITALL) == expected
        peer.sendall(b"".join(pieces(WELCOME, SPOKEN)))
        return peer

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = asyncio.create_task(asyncio.to_thread(accept, listener))
        client = await LinkClient.to(Address(listener.getsockname(), SOME_TOKEN))
        with await accepting as peer:
            ended: list[str] = []
            client.ended = lambda: ended.append("it")
            batch = sent(client, b"batch" * 100)
            asked = asyncio.create_task(client.ask("echo", int, 1))
            await asyncio.to_thread(peer.recv, 1_000)
            await asyncio.to_thread(script, peer)
            assert await asyncio.wait_for(batch, 5) is None
            with pytest.raises(ActorDied):
                await asked
            await until(lambda: ended == ["it"])
            assert not client.link.usable
            with pytest.raises(ActorDied):
                await client.ask("echo", int, 1)


async def test_the_end_of_a_connection_releases_its_batches():
    async with linked() as (peer, client):
        peer.at_once = False
        sent(client, b"1")
        await until(lambda: peer.batches)
        client.link.abort()
        await until(lambda: peer.released == 1)
        assert peer.servers[0].under_way == 0


async def test_what_raises_for_a_caller_reaches_it_as_it_is():
    async with linked() as (peer, client):
        peer.at_once = False
        answer = sent(client, b"1")
        await until(lambda: peer.batches)
        peer.batches[0][1].settle(DetectorUnavailable(1503, "the end", 2.0))
        response = await answer
        error = error_in(response)
        assert isinstance(error, DetectorUnavailable)
        assert (error.code, error.message, error.retry_after_s) == (1503, "the end", 2.0)


def test_moved_is_told_from_all_that_may_have_been_executed():
    assert isinstance(responses.decode(b"\x91\x92\x0a\x05")[0], Moved)


async def test_a_connection_to_a_machine_that_acknowledges_nothing_is_to_end_in_time() -> None:
    async with linked(host="127.0.0.1") as (_, client):
        client.link.end_if_unacknowledged(1.5)
        own = client.link._transport.get_extra_info("socket")
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1_500
    async with linked() as (_, client):
        # On the same machine there is nothing to acknowledge.
        client.link.end_if_unacknowledged(1.5)
        assert client.link.usable
