"""Who may connect: tokens, sockets, ports, certificates."""

import asyncio
import os
import shutil
import socket
from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests.calls import Address
from engine.runtime.process import temporary
from engine.runtime.transport import connecting
from engine.runtime.transport.connecting import connect
from engine.runtime.transport.link import HEADER, MESSAGES, TOKEN, Link, responses
from engine.runtime.transport.link_client import LinkClient
from tests.certificates import certificates
from tests.unit.runtime.transport.peers import HOSTS, LARGE, SOME_TOKEN, listening, sent


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
            await LinkClient.to(Address(listener.address.place, b"x" * 32))
        assert not peer.servers
        client = await LinkClient.to(listener.address)
        assert await client.ask("echo", int, 1) == 1
        client.link.abort()


@pytest.mark.parametrize("said", [b"", b"x", HEADER.pack(32, TOKEN) + b"t" * 31])
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
        # Nobody else gets as far as the socket, so it needs no token.
        assert listener.address.token == b""
        assert len(str(path)) < 100


async def test_a_port_is_open_at_the_given_address_alone():
    async with listening(host="127.0.0.1") as (_, listener):
        assert listener.address.place[0] == "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", listener.address.place[1])


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


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes certificates")
def test_between_machines_only_those_with_a_certificate_of_the_cluster_connect(tmp_path, monkeypatch):
    ours, others = certificates(tmp_path / "ours"), certificates(tmp_path / "others")
    uvloop = pytest.importorskip("uvloop")

    def environment(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setitem(os.environ, name, value)

    async def run() -> None:
        environment(ours)
        assert connecting.tls_required()
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
    assert not connecting.tls_required({})
    assert not connecting.tls_required({"RAY_USE_TLS": "0"})
    with pytest.raises(OSError, match="RAY_TLS_SERVER_CERT is not"):
        connecting.server_context({"RAY_USE_TLS": "1"})
