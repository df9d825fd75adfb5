"""The connections between processes: frames, tokens, TLS, and what becomes of requests when one breaks."""

import asyncio
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.errors import ActorDied, DetectorUnavailable
from engine.runtime.contract.failures import ActorFailed
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Reply
from engine.runtime.contract.requests.routes import Address
from engine.runtime.process import temporary
from engine.runtime.transport import tls
from engine.runtime.transport.connecting import connect
from engine.runtime.transport.frames import (
    HEADER,
    MESSAGES,
    TOKEN,
    TOKEN_BYTES,
    WELCOME,
    FrameReader,
    pieces,
)
from engine.runtime.transport.link import Link
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.link_server import LinkServer, Outcome
from engine.runtime.transport.listener import Listener
from engine.runtime.transport.messages import Answered, Batch, Moved, Response, responses
from snapshots.errors import WriteFailed
from tests.certificates import certificates
from tests.local_runtime.service import until

HOSTS = pytest.mark.parametrize("host", [None, "127.0.0.1"], ids=["unix", "tcp"])
SOME_TOKEN = b"t" * TOKEN_BYTES
LARGE = 4 * 1024 * 1024


@pytest.fixture(autouse=True)
def within(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of all temporary ones; afterwards it is empty."""
    tmp_path_factory.getbasetemp()
    folder = Path(tempfile.mkdtemp(prefix="rd-test-", dir="/tmp"))
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(folder))
    yield folder
    # Only what is empty can be removed.
    folder.rmdir()


class Peer:
    """A process that listens: it sends back what it is asked, and answers batches once `answers` has room."""

    def __init__(self) -> None:
        self.servers: list[LinkServer] = []
        self.batches: list[tuple[Batch, Callable[[Outcome], None]]] = []
        self.released = 0
        self.at_once = True

    def link(self) -> Link:
        server = LinkServer({"echo": self._echo, "fail": self._fail, "hang": self._hang}, self._submit)
        self.servers.append(server)
        return server.link()

    def release(self) -> None:
        self.released += 1

    async def _echo(self, value: Any) -> Any:
        return value

    async def _fail(self, kind: str) -> None:
        raise {"disk": WriteFailed("the disk"), "key": KeyError("key"), "odd": Odd("so odd")}[kind]

    async def _hang(self) -> None:
        await asyncio.Event().wait()

    def _submit(self, batch: Batch, settled: Callable[[Outcome], None]) -> "Peer | None":
        if self.at_once:
            settled(Reply([Done(operation.payload[::-1]) for operation in batch.operations]))
            return None
        self.batches.append((batch, settled))
        return self


class Odd(Exception):
    pass


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[tuple[Peer, Listener]]:
    peer = Peer()
    listener = await Listener.start(peer.link, **options)
    try:
        yield peer, listener
    finally:
        listener.close()
        for server in peer.servers:
            server.close()
        await asyncio.sleep(0.01)


@asynccontextmanager
async def linked(**options: Any) -> AsyncIterator[tuple[Peer, LinkClient]]:
    async with listening(**options) as (peer, listener):
        client = await LinkClient.to(listener.address)
        try:
            yield peer, client
        finally:
            client.link.abort()


def sent(client: LinkClient, *payloads: bytes) -> "asyncio.Future[Response | None]":
    """Send a batch; its response comes in the future."""
    answer: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
    client.send(answer.set_result, 1, [ops.evaluate(payload) for payload in payloads])
    return answer


# -- answers -------------------------------------------------------------------------------------------------


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
        for batch, settled in reversed(peer.batches):
            settled(Reply([Done(batch.operations[0].payload)]))
        assert (await first).answers == [Done(b"1")]
        assert (await second).answers == [Done(b"2")]


async def test_several_connections_are_served_at_once():
    async with listening() as (peer, listener):
        clients = [await LinkClient.to(listener.address) for _ in range(5)]
        peer.at_once = False
        answers = [sent(client, b"%d" % number) for number, client in enumerate(clients)]
        await until(lambda: len(peer.batches) == 5)
        for batch, settled in peer.batches:
            settled(Reply([Done(batch.operations[0].payload)]))
        assert [(await answer).answers for answer in answers] == [[Done(b"%d" % n)] for n in range(5)]
        for client in clients:
            client.link.abort()


async def test_one_who_gives_up_an_ask_ends_it_there_too():
    async with linked() as (peer, client):
        asked = asyncio.create_task(client.ask("hang", None))
        await until(lambda: peer.servers[0].under_way)
        asked.cancel()
        await until(lambda: not peer.servers[0].under_way)
        assert client.under_way == 0


async def test_a_forgotten_batch_is_answered_to_nobody():
    async with linked() as (peer, client):
        peer.at_once = False
        number = client.send(lambda _: pytest.fail("it was forgotten"), 1, [ops.rules()])
        client.forget(number)
        await until(lambda: peer.batches)
        peer.batches[0][1](Reply([]))
        assert await client.ask("echo", int, 1) == 1


# -- frames --------------------------------------------------------------------------------------------------


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


# -- broken connections --------------------------------------------------------------------------------------


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
        expected = b"".join(pieces(TOKEN, SOME_TOKEN))
        assert peer.recv(len(expected), socket.MSG_WAITALL) == expected
        peer.sendall(HEADER.pack(0, WELCOME))
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
        peer.batches[0][1](DetectorUnavailable(1503, "the end", 2.0))
        response = await answer
        assert (response.code, response.message, response.retry_after_s) == (1503, "the end", 2.0)


# -- who is let in -------------------------------------------------------------------------------------------


async def everything(reader: asyncio.StreamReader) -> bytes:
    """What the listener says until it ends the connection."""
    try:
        return await asyncio.wait_for(reader.read(), 1.5)
    except ConnectionResetError:
        return b""


@HOSTS
async def test_a_wrong_token_is_turned_away_and_the_right_one_is_still_let_in(host):
    async with listening(host=host) as (peer, listener):
        with pytest.raises(ConnectionResetError):
            await LinkClient.to(Address(listener.address.place, b"x" * TOKEN_BYTES))
        assert not peer.servers
        client = await LinkClient.to(listener.address)
        assert await client.ask("echo", int, 1) == 1
        client.link.abort()


@pytest.mark.parametrize("said", [b"", b"x", HEADER.pack(TOKEN_BYTES, TOKEN) + b"t" * 31])
async def test_one_that_says_too_little_is_ended_and_holds_up_nobody(said):
    async with listening(host="127.0.0.1", token_s=0.2) as (peer, listener):
        reader, writer = await asyncio.open_connection(*listener.address.place)
        writer.write(said)
        client = await LinkClient.to(listener.address)
        assert await client.ask("echo", int, 1) == 1
        assert await everything(reader) == b""
        writer.close()
        assert len(peer.servers) == 1
        client.link.abort()


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\n\r\n", HEADER.pack(0, MESSAGES), HEADER.pack(2**32 - 1, TOKEN)],
    ids=["http", "messages", "too long a token"],
)
async def test_one_that_says_anything_but_the_token_is_ended(said):
    async with listening(host="127.0.0.1") as (peer, listener):
        reader, writer = await asyncio.open_connection(*listener.address.place)
        writer.write(said)
        assert await everything(reader) == b""
        writer.close()
        assert not peer.servers


async def test_a_unix_socket_is_for_its_user_alone_and_its_path_is_short():
    async with listening() as (_, listener):
        path = Path(listener.address.place)
        modes = await asyncio.to_thread(lambda: [one.stat().st_mode & 0o777 for one in (path.parent, path)])
        assert modes == [0o700, 0o600]
        assert len(str(path)) < 100


async def test_a_port_is_open_at_the_given_address_alone():
    async with listening(host="127.0.0.1") as (_, listener):
        host, port = listener.address.place
        assert host == "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", port)


def test_an_address_does_not_tell_its_token():
    assert "t" * 5 not in repr(Address("/tmp/x", SOME_TOKEN))


async def test_what_a_killed_worker_left_behind_is_removed_by_the_next(within):
    left = temporary.TemporaryFolder("rd-actor-", frozenset({"batches"}))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(left.path / "batches"))
    left._lock.release()
    async with listening() as (_, listener):
        assert [one.name for one in within.iterdir()] == [Path(listener.address.place).parent.name]


async def test_a_peer_that_never_welcomes_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        await connect(Address(silent.getsockname(), SOME_TOKEN), lambda: Link(responses), within_s=0.05)


async def test_an_address_where_nothing_listens_is_an_os_error(within):
    with pytest.raises(FileNotFoundError):
        await LinkClient.to(Address(str(within / "nothing"), SOME_TOKEN))


# -- TLS -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes certificates")
def test_between_machines_only_those_with_a_certificate_of_the_cluster_connect(tmp_path, monkeypatch):
    ours, others = certificates(tmp_path / "ours"), certificates(tmp_path / "others")
    uvloop = pytest.importorskip("uvloop")

    def environment(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setitem(os.environ, name, value)

    async def run() -> None:
        environment(ours)
        assert tls.required()
        async with listening(host="127.0.0.1", tls=True) as (peer, listener):
            client = await LinkClient.to(listener.address)
            assert (await sent(client, b"x" * LARGE)).answers == [Done(b"x" * LARGE)]
            client.link.abort()
            plain = Address(listener.address.place, listener.address.token)
            with pytest.raises((OSError, TimeoutError)):
                await connect(plain, lambda: Link(responses), within_s=0.5)
            environment(others)
            with pytest.raises(OSError, match="certificate"):
                await LinkClient.to(listener.address)
            assert len(peer.servers) == 1

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_tls_without_certificates_is_an_error_that_names_the_variable():
    assert not tls.required({})
    assert not tls.required({"RAY_USE_TLS": "0"})
    with pytest.raises(OSError, match="RAY_TLS_SERVER_CERT is not"):
        tls.server_context({"RAY_USE_TLS": "1"})


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
