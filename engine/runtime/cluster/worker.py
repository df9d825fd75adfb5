"""A DetectorActor with a process of its own, which takes batches from Ray and from a connection beside it."""

import os
import threading
from typing import Final, Literal

import ray

from engine.runtime.contract.calls import Activated, carry_out
from engine.runtime.contract.operations import decode_batch, encode_reply
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.actor import DetectorActor
from engine.runtime.process.collector import FrozenHeap, collect_seldom
from engine.runtime.process.crashes import crashes_to
from engine.runtime.process.large_blocks import map_large_blocks
from engine.runtime.transport.batch_server import BatchServer
from engine.runtime.transport.frames import Address, Payload

_NO: Final = ("", "0", "false")


class WorkerActor(DetectorActor):
    """A DetectorActor with a process of its own, whose batches travel as one string of bytes each.

    They come on Ray's thread and on that of the connection, while all else comes on Ray's. Whoever calls asks
    for one thing at a time; but what it no longer waits for may still be under way on the one when the next
    comes on the other. So every method of the state holds the lock. It also is what lets each thread see all
    that the other did: whoever acquires a lock sees what was written before its release. `finish_saving`
    stays beside it, as beside the thread that evaluates.
    """

    def __init__(self, settings: RuntimeSettings) -> None:
        super().__init__(settings, crashes_to=crashes_to)
        # Some methods call others.
        self._one_at_a_time = threading.RLock()
        collect_seldom()
        map_large_blocks()
        self._hiding = FrozenHeap()

    def listen(self, node: str, way: Literal["auto", "tcp"]) -> Address | None:
        """Take batches from a connection, too: the address for the one caller, who is on that node of Ray's.

        None where it may only be called by Ray. Raises OSError.
        """
        near = node == ray.get_runtime_context().get_node_id()
        if near and way == "auto":
            return BatchServer(self.handle_bytes, self.call_bytes).address
        if not near and os.environ.get("RAY_USE_TLS", "").lower() not in _NO:
            # Between machines nothing is to travel in the clear, and Ray has the certificates.
            return None
        host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return BatchServer(self.handle_bytes, self.call_bytes, host=host).address

    def handle_bytes(self, batch: Payload) -> bytes:
        """Carry out a batch."""
        operations = decode_batch(batch)
        with self._one_at_a_time:
            reply = self.handle(operations)
        return encode_reply(reply)

    def call_bytes(self, call: Payload) -> bytes:
        """Carry out a call of one of the methods below. Raises what that raises."""
        return carry_out(self, call)

    def activate(self, detector_id: str, epoch: int) -> Activated:
        """Wake a detector. Raises StorageError."""
        with self._one_at_a_time:
            activated = super().activate(detector_id, epoch)
            self._hiding.awake()
        return activated

    def sync(self) -> None:
        """Bring to the disk what the journal holds. Raises StorageError."""
        with self._one_at_a_time:
            super().sync()

    def begin_saving(self) -> bool:
        """Copy what a snapshot holds. Raises StorageError."""
        with self._one_at_a_time:
            return super().begin_saving()

    def passivate(self) -> int:
        """Save and forget the detector; the bytes that the process holds. Raises StorageError."""
        with self._one_at_a_time:
            return super().passivate()

    def discard(self) -> None:
        """Forget the detector without saving it."""
        with self._one_at_a_time:
            super().discard()
            self._hiding.gone()
