"""The base of Ray actors that serve connections, in an event loop beside Ray's thread."""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import ray

from engine.runtime.activation.detector_service import Node
from engine.runtime.concurrency.threads import LoopThread, turn_of
from engine.runtime.contract.requests.calls import Address
from engine.runtime.contract.settings import Transport
from engine.runtime.transport.connecting import Listener, tls_required
from engine.runtime.transport.link import Link
from engine.runtime.transport.server_connection import ServerConnection

_START_S: Final = 10.0


class Serving:
    """Serves connections in an event loop with a thread of its own."""

    def __init__(self, name: str, link: Callable[[str], Link]) -> None:
        """`link` makes the link of a new connection over `unix`, `tcp` or `tls`."""
        self.loop = LoopThread(name).loop
        self._link = link
        self._listeners: list[Listener] = []
        self._address: Address | None = None

    def listen(self, transport: Transport, node: Node) -> Address:
        """Accept connections; return the address, always the same one. Raises OSError."""
        if self._address is None:
            listening = asyncio.run_coroutine_threadsafe(self._listen(transport, node), self.loop)
            self._address = listening.result(_START_S)
        return self._address

    async def _listen(self, transport: Transport, node: Node) -> Address:
        if transport != "tcp":
            self._listeners.append(await Listener.start(partial(self._link, "unix")))
        if transport != "unix":
            encrypted = tls_required()
            link = partial(self._link, "tls" if encrypted else "tcp")
            self._listeners.append(await Listener.start(link, host=node.address, tls=encrypted))
        near, *far = [listener.address for listener in self._listeners]
        return msgspec.structs.replace(near, node=node.id, far=far[0] if far else None)


class ServingActor(ABC):
    """A Ray actor that callers reach by connections. Ray only starts it, ends it and reports its death."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.node = Node()
        self._never = threading.Event()
        self._serving = Serving("serving", self._link)
        self._beating: Serving | None = None

    def listen(self) -> tuple[int, Address, Address]:
        """Accept connections; return the pid, the address, and a second address for beats.

        Repeated calls return the same. A thread of its own answers a `beat` as long as this process runs, and
        a `turn` once the serving loop has turned. Raises OSError.
        """
        if not self.node.id:
            host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
            self.node = Node(ray.get_runtime_context().get_node_id(), host)
        if self._beating is None:
            methods = {"beat": _beat, "turn": self._turn}
            self._beating = Serving("beats", lambda _: ServerConnection(methods).link())
        beats = self._beating.listen(self._transport, self.node)
        return os.getpid(), self._serving.listen(self._transport, self.node), beats

    def watch(self) -> None:
        """Block as long as the process lives, so that a caller learns of its death at once.

        Occupies a thread.
        """
        self._never.wait()

    @abstractmethod
    def _link(self, transport: str) -> Link:
        """Make the link of a new connection over `unix`, `tcp` or `tls`."""

    async def _turn(self) -> int:
        await turn_of(self._serving.loop)
        return 0


async def _beat() -> int:
    return 0
