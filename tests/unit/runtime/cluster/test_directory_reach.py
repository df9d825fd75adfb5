"""Which directory a service ends when it cannot connect to it, and which goes on for the others."""

import asyncio
import errno
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.cluster import directory_reach
from engine.runtime.cluster.directory_reach import DirectoryReach, Places
from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.requests.calls import Address
from engine.runtime.front_end.scheduler_client import Unreachable
from engine.runtime.transport.connecting import Listener
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.server_connection import ServerConnection
from tests.certificates import certificates

HERE = "here"
SILENT_S = 1.0


class Catalogue:
    """A directory as Ray reaches it."""

    def __init__(self, address: Address | Exception) -> None:
        self.address = address
        self.actor = self
        self.answers = True
        self.asked: list[str] = []
        self.ended = 0

    async def ask(self, method: str) -> Any:
        self.asked.append(method)
        if not self.answers:
            await asyncio.Event().wait()
        if method.startswith("listen") and isinstance(self.address, Exception):
            raise self.address
        return (4711, self.address, self.address) if method == "listen" else "folder"

    async def end(self) -> None:
        self.ended += 1


def refusing() -> Catalogue:
    """One at whose port nobody listens, as behind a firewall that refuses."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    return Catalogue(Address(("127.0.0.1", port), b"t" * 32, node="there"))


async def attempt(reach: DirectoryReach, directory: Any) -> Exception:
    with pytest.raises((ActorDied, Unreachable)) as failed:
        await reach.connect(directory, HERE)
    return failed.value


async def test_a_directory_that_only_this_service_cannot_reach_goes_on_and_the_service_gives_up() -> None:
    reach, directory = DirectoryReach(SILENT_S), refusing()
    errors = [await attempt(reach, directory) for _ in range(3)]
    assert [type(error) for error in errors] == [ActorDied, ActorDied, Unreachable]
    assert isinstance(directory.address, Address)
    assert str(directory.address.place) in str(errors[-1])
    assert directory.ended == 0


async def test_a_directory_that_does_not_answer_ray_either_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_reach, "_ANSWER_S", 0.05)
    monkeypatch.setattr(directory_reach, "_PING_S", 0.05)
    directory = refusing()
    ask = directory.ask

    async def only_once(method: str) -> Any:
        found = await ask(method)
        directory.answers = False
        return found

    directory.ask = only_once  # type: ignore[method-assign]
    reach = DirectoryReach(SILENT_S)
    assert isinstance(await attempt(reach, directory), ActorDied)
    assert directory.ended == 1
    # Nor does it say where it listens.
    assert isinstance(await attempt(reach, directory), ActorDied)
    assert directory.ended == 2


async def test_a_directory_that_has_answered_here_or_cannot_listen_is_ended() -> None:
    reach, directory = DirectoryReach(SILENT_S), refusing()
    assert isinstance(directory.address, Address)
    reach.answered(directory, Places(0, directory.address, directory.address))
    directory.answers = False
    assert isinstance(await attempt(reach, directory), ActorDied)
    assert directory.ended == 1
    # Ray may take long to answer for a process that was lost with its node.
    assert directory.asked == []
    deaf = Catalogue(OSError("no address is free"))
    assert isinstance(await attempt(reach, deaf), ActorDied)
    assert deaf.ended == 1


async def test_a_service_that_lacks_descriptors_ends_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(_: Address) -> LinkClient:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(LinkClient, "to", full)
    reach, directory = DirectoryReach(SILENT_S), refusing()
    assert isinstance(directory.address, Address)
    reach.answered(directory, Places(0, directory.address, directory.address))  # type: ignore[arg-type]
    assert "Too many open files" in str(await attempt(reach, directory))
    assert directory.ended == 0


async def test_a_stopped_directory_that_has_answered_here_is_ended_soon() -> None:
    # The system accepts connections for a process that is stopped.
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        directory = Catalogue(Address(stopped.getsockname(), b"t" * 32))
        assert isinstance(directory.address, Address)
        reach = DirectoryReach(0.05)
        reach.answered(directory, Places(0, directory.address, directory.address))
        async with asyncio.timeout(3):
            assert isinstance(await attempt(reach, directory), ActorDied)
        assert directory.ended == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl makes certificates")
@pytest.mark.parametrize("known", ["authority", "certificate", "neither file"])
async def test_a_service_with_a_wrong_certificate_ends_no_directory(
    known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = certificates(tmp_path / "ours"), certificates(tmp_path / "theirs")
    for name, value in theirs.items():
        monkeypatch.setenv(name, value)
    listener = await Listener.start(lambda: ServerConnection({}).link(), host="127.0.0.1", tls=True)
    try:
        wrong = {
            # It knows the directory's certificate, but the directory does not know its own.
            "authority": {**ours, "RAY_TLS_CA_CERT": theirs["RAY_TLS_CA_CERT"]},
            "certificate": {**theirs, "RAY_TLS_CA_CERT": ours["RAY_TLS_CA_CERT"]},
            "neither file": {**theirs, "RAY_TLS_SERVER_CERT": str(tmp_path / "missing")},
        }[known]
        for name, value in wrong.items():
            monkeypatch.setenv(name, value)
        reach, directory = DirectoryReach(SILENT_S), Catalogue(listener.address)
        reach.answered(directory, Places(0, listener.address, listener.address))
        errors = [await attempt(reach, directory) for _ in range(3)]
        assert isinstance(errors[-1], Unreachable)
        assert all("certificate" in str(error) for error in errors)
        assert directory.ended == 0
    finally:
        listener.close()
