"""What follows a handshake at once belongs to the connection: no byte of it is lost, or taken for garbage."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

from engine.runtime.contract import build
from engine.runtime.contract.build import Protocols
from engine.runtime.contract.requests.calls import Address
from engine.runtime.transport import connecting
from engine.runtime.transport.connecting import Listener, OtherProtocolError, connect
from engine.runtime.transport.link import (
    HEADER,
    MESSAGES,
    PROTOCOLS,
    TOKEN,
    WELCOME,
    Link,
    Note,
    encode,
    pieces,
    responses,
)
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.server_connection import ServerConnection
from tests.certificates import certificates
from tests.local_runtime.service import until
from tests.unit.runtime.transport.peers import SOME_TOKEN, SPOKEN

NOTES = [Note("left", b"7"), Note("left", b"8")]
SAID = b"".join(
    [*pieces(WELCOME, SPOKEN), *pieces(MESSAGES, encode(NOTES[:1])), *pieces(MESSAGES, encode(NOTES[1:]))]
)
"""A welcome, and two frames behind it."""

on_each_loop = pytest.mark.parametrize("uvloop", [False, True], ids=["asyncio", "uvloop"])


def run(work: Callable[[], Any], *, uvloop: bool) -> None:
    factory = pytest.importorskip("uvloop").new_event_loop if uvloop else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work())


@asynccontextmanager
async def saying(*said: bytes, context: Any = None) -> AsyncIterator[Address]:
    """Yield the address of a listener that takes any token, says this piece by piece, and then listens on."""
    over: list[asyncio.Event] = []

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        over.append(asyncio.Event())
        await reader.readexactly(HEADER.size + len(SOME_TOKEN + SPOKEN))
        for piece in said:
            writer.write(piece)
            await writer.drain()
            # What is written next arrives by itself.
            await asyncio.sleep(0.001)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        over[-1].set()

    async with await asyncio.start_server(say, "127.0.0.1", 0, ssl=context) as server:
        yield Address(server.sockets[0].getsockname(), SOME_TOKEN, tls=context is not None)
        for one in over:
            await one.wait()


async def heard(*said: bytes, context: Any = None) -> Sequence[Note]:
    """What a client hears from a listener that says this, before it asks for anything."""
    notes: list[Note] = []

    def link() -> Link:
        made = Link(responses)
        made.take = notes.extend
        return made

    async with saying(*said, context=context) as address:
        connected = await connect(address, link)
        try:
            async with asyncio.timeout(5):
                await until(lambda: len(notes) >= len(NOTES) or not connected.usable)
            assert connected.usable
        finally:
            connected.abort()
    return notes


@on_each_loop
def test_messages_in_one_read_with_the_welcome_are_heard(uvloop):
    async def work() -> None:
        assert await heard(SAID) == NOTES

    run(work, uvloop=uvloop)


@on_each_loop
def test_messages_behind_the_welcome_are_heard_wherever_the_bytes_are_split(uvloop):
    async def work() -> None:
        for cut in range(1, len(SAID)):
            assert await heard(SAID[:cut], SAID[cut:]) == NOTES, f"split at byte {cut}"

    run(work, uvloop=uvloop)


@on_each_loop
@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes certificates")
def test_messages_in_one_tls_record_with_the_welcome_are_heard(uvloop, tmp_path, monkeypatch):
    for name, value in certificates(tmp_path / "ours").items():
        monkeypatch.setenv(name, value)

    async def work() -> None:
        assert await heard(SAID, context=connecting.server_context()) == NOTES

    run(work, uvloop=uvloop)


@on_each_loop
def test_requests_right_behind_the_token_are_answered(uvloop):
    async def work() -> None:
        noted: list[Note] = []
        server = ServerConnection({}, noted=noted.append)
        listener = await Listener.start(server.link, host="127.0.0.1")
        said = b"".join([*pieces(TOKEN, listener.address.token + SPOKEN), *pieces(MESSAGES, encode(NOTES))])
        _, writer = await asyncio.open_connection(*listener.address.place)
        writer.write(said)
        await until(lambda: noted)
        assert noted == NOTES
        server.close()
        listener.close()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    run(work, uvloop=uvloop)


async def test_a_client_whose_loop_is_busy_keeps_a_connection_on_which_a_note_follows_the_welcome(
    monkeypatch,
):
    """A worker notes to all its connections that a detector has left, whether they are welcome yet or not."""
    server = ServerConnection({"echo": _echo})
    listener = await Listener.start(server.link)
    welcome = connecting.pieces

    def with_note(kind: int, payload: bytes) -> Sequence[bytes]:
        if kind == WELCOME:
            asyncio.get_running_loop().call_soon(partial(server.note, "left", b"7"))
        return welcome(kind, payload)

    monkeypatch.setattr(connecting, "pieces", with_note)
    client = await LinkClient.to(listener.address)
    assert await client.ask("echo", int, 1) == 1
    client.link.abort()
    listener.close()


async def _echo(value: int) -> int:
    return value


async def test_a_connection_that_breaks_right_behind_the_welcome_ends_for_its_client_too():
    async with saying(b"".join(pieces(WELCOME, SPOKEN)) + HEADER.pack(0, WELCOME)) as address:
        with suppress(ConnectionResetError):
            client = await LinkClient.to(address)
            await until(lambda: not client.link.usable)


# -- neighbours of other releases ----------------------------------------------------------------------------


def speaking(monkeypatch: pytest.MonkeyPatch, oldest: int, current: int) -> None:
    monkeypatch.setattr(build, "SPOKEN", Protocols(oldest, current))


@pytest.mark.parametrize("others", [(1, 2), (2, 3), (3, 4)], ids=["older", "same", "newer"])
async def test_neighbouring_releases_serve_each_other(monkeypatch, others):
    """The listener is of the release that speaks 2 and 3, the client older, the same or newer."""
    server = ServerConnection({"echo": _echo})
    speaking(monkeypatch, 2, 3)
    listener = await Listener.start(server.link, host="127.0.0.1")
    reader, writer = await asyncio.open_connection(*listener.address.place)
    writer.writelines(pieces(TOKEN, listener.address.token + PROTOCOLS.pack(*others)))
    welcome = b"".join(pieces(WELCOME, PROTOCOLS.pack(2, 3)))
    assert await reader.readexactly(len(welcome)) == welcome
    assert server.connected
    server.close()
    listener.close()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize("others", [(1, 1), (4, 5)], ids=["too old", "too new"])
async def test_a_listener_turns_a_release_away_that_is_too_far_and_says_what_it_speaks(monkeypatch, others):
    made: list[ServerConnection] = []

    def link() -> Link:
        made.append(ServerConnection({}))
        return made[-1].link()

    speaking(monkeypatch, 2, 3)
    listener = await Listener.start(link, host="127.0.0.1")
    reader, writer = await asyncio.open_connection(*listener.address.place)
    writer.writelines(pieces(TOKEN, listener.address.token + PROTOCOLS.pack(*others)))
    assert await reader.read() == b"".join(pieces(WELCOME, PROTOCOLS.pack(2, 3)))
    assert made == []
    listener.close()
    writer.close()


@pytest.mark.parametrize(
    ("theirs", "words"), [((1, 1), "speaks protocol 1,"), ((4, 5), "speaks protocols 4 to 5,")]
)
async def test_a_client_says_both_protocols_if_the_listener_is_too_far_away(monkeypatch, theirs, words):
    speaking(monkeypatch, 2, 3)
    async with saying(b"".join(pieces(WELCOME, PROTOCOLS.pack(*theirs)))) as address:
        with pytest.raises(OtherProtocolError, match=words) as refused:
            await LinkClient.to(address)
    assert "speaks protocols 2 to 3" in str(refused.value)
    assert build.build_version() in str(refused.value)
