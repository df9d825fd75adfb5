"""Both ends of a connection between processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract import build
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.calls import Reply
from engine.runtime.transport.connecting import Listener
from engine.runtime.transport.link import PROTOCOLS, Link, Response
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.server_connection import ServerConnection, Submission
from snapshots.errors import WriteFailed

HOSTS = pytest.mark.parametrize("host", [None, "127.0.0.1"], ids=["unix", "tcp"])

SOME_TOKEN = b"t" * 32
SPOKEN = PROTOCOLS.pack(*build.SPOKEN)
"""The protocols of this release, as both ends name them."""
LARGE = 4 * 1024 * 1024


class Peer:
    """A process that listens: it sends back what it is asked, and answers batches once `answers` has room."""

    def __init__(self) -> None:
        self.servers: list[ServerConnection] = []
        self.batches: list[tuple[int, Submission]] = []
        self.at_once = True
        self.go_on = asyncio.Event()
        self.changed = False

    def link(self) -> Link:
        methods = {"echo": self._echo, "fail": self._fail, "hang": self._hang, "change": self._change}
        server = ServerConnection(methods, self._submit, abandonable={"hang"})
        self.servers.append(server)
        return server.link()

    @property
    def released(self) -> int:
        """How many batches are answered, or their callers gone."""
        return sum(submission.done for _, submission in self.batches)

    async def _echo(self, value: Any) -> Any:
        return value

    async def _fail(self, kind: str) -> None:
        raise {"disk": WriteFailed("the disk"), "key": KeyError("key"), "odd": Odd("so odd")}[kind]

    async def _hang(self) -> None:
        await asyncio.Event().wait()

    async def _change(self) -> None:
        await self.go_on.wait()
        self.changed = True

    def _submit(self, epoch: int, submission: Submission) -> None:
        if self.at_once:
            submission.settle(Reply([Done(one.payload[::-1]) for one in submission.operations]))
        else:
            self.batches.append((epoch, submission))


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


def sent(client: LinkClient, *payloads: bytes) -> "asyncio.Future[Response | None]":
    """Send a batch; its response comes in the future."""
    answer: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()
    client.send(answer.set_result, 1, [ops.evaluate(payload) for payload in payloads])
    return answer
