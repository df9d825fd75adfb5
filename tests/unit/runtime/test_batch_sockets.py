"""The connection on which batches travel, both ends in one process: a thread and an event loop."""

import asyncio
import contextlib
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.failures import ActorFailed
from engine.runtime.process import temporary
from engine.runtime.transport import batch_connection, batch_server
from engine.runtime.transport.batch_connection import BatchConnection, NotSent
from engine.runtime.transport.batch_server import BatchServer
from engine.runtime.transport.frames import (
    BATCH,
    FAILURE,
    HEADER,
    REPLY,
    TOKEN_BYTES,
    WELCOME,
    Address,
    FrameReader,
    Payload,
    pieces,
)
from snapshots.errors import WriteFailed
from tests.local_runtime import until

HOSTS = pytest.mark.parametrize("host", [None, "127.0.0.1"], ids=["unix", "tcp"])
LARGE = 4 * 1024 * 1024
TOKEN = b"t" * TOKEN_BYTES


def backwards(batch: Payload) -> bytes:
    return bytes(batch[::-1])


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture(autouse=True)
def within(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of all temporary ones; afterwards it is empty, and threads and descriptors are as before."""
    folder = Path(tempfile.mkdtemp(prefix="rd-test-", dir="/tmp"))
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(folder))
    threads, open_before = set(threading.enumerate()), descriptors()
    yield folder
    for thread in set(threading.enumerate()) - threads:
        thread.join(5)
        assert not thread.is_alive(), thread
    assert descriptors() <= open_before
    # Only what is empty can be removed.
    folder.rmdir()


@asynccontextmanager
async def connected(
    handle: Callable[[Payload], bytes] = backwards, host: str | None = None
) -> AsyncIterator[BatchConnection]:
    connection = await BatchConnection.to(BatchServer(handle, host=host).address)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def scripted(
    script: Callable[[socket.socket], None], **options: float
) -> AsyncIterator[BatchConnection]:
    """A connection to an actor that says the welcome and then does as the script has it, in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener:
            peer, _ = listener.accept()
        with peer, contextlib.suppress(OSError):
            assert peer.recv(TOKEN_BYTES, socket.MSG_WAITALL) == TOKEN
            peer.sendall(HEADER.pack(0, WELCOME))
            script(peer)

    thread = threading.Thread(target=run)
    thread.start()
    connection = await BatchConnection.to(Address(listener.getsockname(), TOKEN), **options)
    try:
        yield connection
    finally:
        await connection.close()
        await asyncio.to_thread(thread.join)


def request(peer: socket.socket) -> bytes:
    length, kind = HEADER.unpack(peer.recv(HEADER.size, socket.MSG_WAITALL))
    assert kind == BATCH
    return peer.recv(length, socket.MSG_WAITALL)


def introduced(server: BatchServer) -> socket.socket:
    """A front end's connection, welcomed, as a plain socket."""
    family = socket.AF_UNIX if isinstance(server.address.place, str) else socket.AF_INET
    peer = socket.socket(family)
    peer.connect(server.address.place)
    peer.sendall(server.address.token)
    assert peer.recv(HEADER.size, socket.MSG_WAITALL) == HEADER.pack(0, WELCOME)
    return peer


# -- answers -------------------------------------------------------------------------------------------------


@HOSTS
async def test_batches_of_all_sizes_are_answered_in_turn(host):
    async with connected(host=host) as connection:
        for size in (0, 1, 5, 16 * 1024, 16 * 1024 + 1, 65_531, 65_532, 65_536, 100_000, LARGE, 3):
            batch = os.urandom(size)
            assert await connection.ask(batch) == batch[::-1], size


@pytest.fixture(scope="module")
def uvloop() -> Any:
    """Gives uvloop, which keeps some descriptors from its first loop on."""
    module = pytest.importorskip("uvloop")
    module.new_event_loop().close()
    return module


@HOSTS
def test_uvloop_does_the_same(uvloop, host):
    async def ask() -> None:
        async with connected(host=host) as connection:
            for size in (1, 65_532, LARGE, 3):
                batch = os.urandom(size)
                assert await connection.ask(batch) == batch[::-1], size

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ask())


@pytest.mark.parametrize("error", [WriteFailed("the disk"), KeyError("key"), AssertionError("broken")])
async def test_what_the_actor_raises_is_raised_with_its_traceback_and_the_next_batch_is_answered(error):
    failing = [error]

    def handle(batch: Payload) -> bytes:
        if failing:
            raise failing.pop()
        return bytes(batch)

    async with connected(handle) as connection:
        with pytest.raises(type(error)) as raised:
            await connection.ask(b"1")
        assert type(raised.value) is type(error)
        assert raised.value.args == error.args
        assert "in handle" in str(raised.value.__cause__)
        assert await connection.ask(b"2") == b"2"


async def test_an_exception_that_names_a_file_of_no_encoding_travels():
    def handle(_: Payload) -> bytes:
        raise WriteFailed("the file \udcff")

    async with connected(handle) as connection:
        with pytest.raises(WriteFailed, match=r"the file \\udcff"):
            await connection.ask(b"1")


async def test_an_exception_that_does_not_travel_names_its_type():
    class Odd(Exception):
        pass

    def handle(_: Payload) -> bytes:
        raise Odd("so odd")

    async with connected(handle) as connection:
        with pytest.raises(ActorFailed, match="Odd: so odd"):
            await connection.ask(b"1")


async def test_a_cancelled_caller_leaves_the_connection_in_step():
    go, begun = threading.Event(), threading.Event()

    def handle(batch: Payload) -> bytes:
        begun.set()
        assert go.wait(10)
        return bytes(batch)

    async with connected(handle) as connection:
        first = asyncio.create_task(connection.ask(b"first"))
        await asyncio.to_thread(begun.wait)
        first.cancel()
        await asyncio.wait({first})
        second = asyncio.create_task(connection.ask(b"second"))
        await asyncio.sleep(0.01)
        go.set()
        assert await second == b"second"
        assert await connection.ask(b"third") == b"third"


@pytest.mark.parametrize("size", [1, 2, 7, 4_000])
async def test_answers_may_come_in_pieces_of_any_size(size):
    answer = bytes(range(256)) * (1 if size < 4_000 else 400)

    def script(peer: socket.socket) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            request(peer)
            whole = b"".join(pieces(REPLY, answer))
            for begin in range(0, len(whole), size):
                peer.sendall(whole[begin : begin + size])
                time.sleep(0.0001)
        peer.recv(1)

    async with scripted(script) as connection:
        assert await connection.ask(b"1") == answer
        assert await connection.ask(b"2") == answer


def test_every_cut_of_frames_yields_exactly_the_whole_ones():
    frames = [(REPLY, b""), (FAILURE, b"abc"), (REPLY, b"x" * 20)]
    whole = b"".join(b"".join(pieces(*frame)) for frame in frames)
    ends = [5, 13, 38]
    for first in range(len(whole) + 1):
        for second in range(first, len(whole) + 1):
            reader = FrameReader()
            got = []
            for piece, end in ((whole[:first], first), (whole[first:second], second)):
                reader.room()[: len(piece)] = piece
                got += reader.received(len(piece))
                assert got == frames[: sum(each <= end for each in ends)]


@pytest.mark.parametrize("length", [65_530, 65_531, 65_532, 200_000])
@pytest.mark.parametrize("before", [b"", b"y" * 1_000])
def test_long_frames_are_whole_wherever_they_are_cut(length, before):
    frames = [(REPLY, before), (REPLY, b"z" * length), (REPLY, b"after")]
    whole = b"".join(b"".join(pieces(*frame)) for frame in frames)
    for step in (1_021, 65_536):
        reader, got, begin = FrameReader(), [], 0
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


def answering(answer: bytes) -> Callable[[socket.socket], object]:
    """A script that reads a batch, answers that, and waits for the front end to go."""
    return lambda peer: (request(peer), peer.sendall(answer), peer.recv(1))


BREAKS: dict[str, Callable[[socket.socket], object]] = {
    "unread": lambda peer: peer.recv(1),
    "read": request,
    "in the header": lambda peer: (request(peer), peer.sendall(b"\x05\x00")),
    "in the answer": lambda peer: (request(peer), peer.sendall(HEADER.pack(5, REPLY) + b"ab")),
    "in a long answer": lambda peer: (request(peer), peer.sendall(HEADER.pack(LARGE, REPLY) + b"a" * 99_000)),
    "with a reset": lambda peer: (request(peer), reset(peer)),
    "with garbage": answering(b"GET / HTTP/1.1\r\n\r\n"),
    "with another length": answering(HEADER.pack(2**31, REPLY)),
    "with a batch": answering(HEADER.pack(0, BATCH)),
    "with a second welcome": answering(HEADER.pack(0, WELCOME)),
}


@pytest.mark.parametrize("script", BREAKS.values(), ids=BREAKS)
async def test_a_connection_that_breaks_after_sending_is_a_death_and_then_nothing_is_sent(script):
    async with scripted(script) as connection:
        with pytest.raises(ActorDied):
            await asyncio.wait_for(connection.ask(b"batch" * 100), 5)
        with pytest.raises(NotSent):
            await connection.ask(b"batch")


async def test_an_answer_that_nobody_asked_for_ends_the_connection():
    async with scripted(lambda peer: (peer.sendall(HEADER.pack(0, REPLY)), peer.recv(1))) as connection:
        await until(lambda: not connection.usable)
        with pytest.raises(NotSent):
            await connection.ask(b"batch")


async def test_a_connection_that_broke_before_is_told_from_one_that_broke_meanwhile():
    async with scripted(lambda peer: None) as connection:
        await until(lambda: not connection.usable)
        with pytest.raises(NotSent):
            await connection.ask(b"batch")


async def test_what_is_too_long_for_a_frame_is_not_sent(monkeypatch):
    monkeypatch.setattr(batch_connection, "FRAME_BYTES_MAX", 10)
    async with connected() as connection:
        with pytest.raises(NotSent):
            await connection.ask(b"x" * 11)
        assert await connection.ask(b"ab") == b"ba"


async def test_a_reply_that_is_too_long_for_a_frame_leaves_the_outcome_open(monkeypatch):
    monkeypatch.setattr(batch_server, "FRAME_BYTES_MAX", 10)
    async with connected() as connection:
        with pytest.raises(ActorDied):
            await connection.ask(b"x" * 11)


async def test_an_actor_that_never_reads_holds_up_the_next_batch_and_no_more_than_one_is_held():
    done = threading.Event()
    async with scripted(lambda peer: done.wait(10)) as connection:
        callers = [asyncio.create_task(connection.ask(b"x" * LARGE)) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert connection._transport.get_write_buffer_size() <= LARGE
        callers[0].cancel()
        callers[1].cancel()
        await asyncio.wait(callers[:2])
        assert connection._transport.get_write_buffer_size() <= LARGE
        await connection.close()
        # Of the last one nothing was sent.
        with pytest.raises(NotSent):
            await callers[2]
        done.set()


async def test_a_front_end_that_never_reads_holds_up_nothing_but_its_own_connection():
    lock, answered = threading.Lock(), threading.Event()

    def handle(batch: Payload) -> bytes:
        with lock:
            answered.set()
            return bytes(LARGE)

    server = BatchServer(handle)
    with await asyncio.to_thread(introduced, server) as peer:
        peer.sendall(b"".join(pieces(BATCH, b"1")))
        assert await asyncio.to_thread(answered.wait, 5)
        assert lock.acquire(timeout=5)
        lock.release()
    await asyncio.to_thread(server.thread.join, 5)
    assert not server.thread.is_alive()


async def test_closing_ends_what_is_under_way_and_the_actors_thread():
    go = threading.Event()
    server = BatchServer(lambda batch: bytes(go.wait(10)))
    connection = await BatchConnection.to(server.address)
    asked = asyncio.create_task(connection.ask(b"1"))
    await asyncio.sleep(0.01)
    await connection.close()
    with pytest.raises(ActorDied):
        await asked
    go.set()
    await asyncio.to_thread(server.thread.join, 5)
    assert not server.thread.is_alive()


class Killed(BaseException):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_thread_that_dies_takes_the_connection_with_it():
    def handle(_: Payload) -> bytes:
        raise Killed

    async with connected(handle) as connection:
        with pytest.raises(ActorDied):
            await asyncio.wait_for(connection.ask(b"1"), 5)


# -- who is let in -------------------------------------------------------------------------------------------


@HOSTS
async def test_a_wrong_token_is_turned_away_and_the_right_one_is_still_let_in(host):
    server = BatchServer(backwards, host=host)
    with pytest.raises(ConnectionResetError):
        await BatchConnection.to(Address(server.address.place, b"x" * TOKEN_BYTES))
    connection = await BatchConnection.to(server.address)
    assert await connection.ask(b"ab") == b"ba"
    await connection.close()


@pytest.mark.parametrize("said", [b"", b"x", b"G" * 31])
async def test_one_that_says_too_little_is_waited_for_only_so_long(said):
    server = BatchServer(backwards, host="127.0.0.1", token_s=0.05)
    with socket.create_connection(server.address.place) as stranger:
        stranger.sendall(said)
        connection = await BatchConnection.to(server.address)
        assert await connection.ask(b"ab") == b"ba"
        await connection.close()


async def test_one_that_leaves_before_the_token_is_whole_is_forgotten():
    server = BatchServer(backwards)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(server.address.place)
        stranger.sendall(server.address.token[:-1])
    connection = await BatchConnection.to(server.address)
    await connection.close()


@HOSTS
async def test_nobody_else_is_let_in_once_the_caller_is(host, within):
    server = BatchServer(backwards, host=host)
    connection = await BatchConnection.to(server.address)
    await until(lambda: not list(within.iterdir()))
    with pytest.raises((FileNotFoundError, ConnectionError)):
        await BatchConnection.to(server.address)
    assert await connection.ask(b"ab") == b"ba"
    await connection.close()


def test_garbage_after_the_token_ends_the_connection():
    for garbage in (b"GET / HTTP/1.1\r\n", HEADER.pack(0, REPLY), HEADER.pack(2**32 - 1, BATCH)):
        server = BatchServer(backwards)
        with introduced(server) as peer:
            peer.sendall(garbage)
            with contextlib.suppress(ConnectionResetError):
                assert peer.recv(1) == b""
        server.thread.join(5)
        assert not server.thread.is_alive()


def test_a_unix_socket_is_for_its_user_alone_and_its_path_is_short():
    server = BatchServer(backwards, listen_s=0.2)
    path = Path(server.address.place)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(str(path)) < 100
    server.thread.join(5)
    assert not path.parent.exists(), "nobody came in time"


def test_a_port_is_open_at_the_given_address_alone():
    server = BatchServer(backwards, host="127.0.0.1", listen_s=0.2)
    host, port = server.address.place
    assert host == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), 1)
    server.thread.join(5)


def test_an_address_does_not_tell_its_token():
    assert "t" * 5 not in repr(Address("/tmp/x", TOKEN))


def test_what_a_killed_actor_left_behind_is_removed_by_the_next(within):
    left = temporary.TemporaryFolder("rd-actor-", frozenset({"batches"}))
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(left.path / "batches"))
    left._lock.release()
    server = BatchServer(backwards, listen_s=0.05)
    assert [one.name for one in within.iterdir()] == [Path(server.address.place).parent.name]
    server.thread.join(5)


async def test_a_peer_that_never_welcomes_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        await BatchConnection.to(Address(silent.getsockname(), TOKEN), within_s=0.05)


async def test_an_address_where_nothing_listens_is_an_os_error(within):
    with pytest.raises(FileNotFoundError):
        await BatchConnection.to(Address(str(within / "nothing"), TOKEN))
