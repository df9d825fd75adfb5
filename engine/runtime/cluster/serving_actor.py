"""The base of Ray actors that serve connections, in an event loop beside Ray's thread."""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
import ray
import uvloop

from engine.runtime.activation.detector_service import Node
from engine.runtime.contract.routes import Address
from engine.runtime.contract.settings import Transport
from engine.runtime.transport import tls
from engine.runtime.transport.link import Link
from engine.runtime.transport.listener import Listener

T = TypeVar("T")

_START_S: Final = 10.0


class ServingActor(ABC):
    """Ray starts it, ends it and tells of its death; calls go beside."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.node = Node()
        self._never = threading.Event()
        self._listeners: list[Listener] = []
        self._loop = uvloop.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="serving", daemon=True).start()

    def listen(self) -> Address:
        """Accept connections, and return the address: the same whenever it is asked. Raises OSError."""
        host: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        self.node = Node(ray.get_runtime_context().get_node_id(), host)
        return self._run(self._listen())

    def watch(self) -> None:
        """Block for as long as the process lives, so that a caller learns of its death at once.

        Needs a thread of its own.
        """
        self._never.wait()

    def pid(self) -> int:
        """Return the id of this process."""
        return os.getpid()

    @abstractmethod
    def _link(self, transport: str) -> Link:
        """Make the link for a connection that is about to be made, by `unix`, `tcp` or `tls`."""

    async def _listen(self) -> Address:
        if not self._listeners:
            if self._transport != "tcp":
                self._listeners.append(await Listener.start(partial(self._link, "unix")))
            if self._transport != "unix":
                encrypted = tls.required()
                link = partial(self._link, "tls" if encrypted else "tcp")
                self._listeners.append(await Listener.start(link, host=self.node.address, tls=encrypted))
        near, *far = [listener.address for listener in self._listeners]
        if not far:
            return near
        return msgspec.structs.replace(near, node=self.node.id, far=far[0])

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_S)
