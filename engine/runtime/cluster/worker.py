"""The worker process: a DetectorActor that takes batches from Ray and from a connection of its own."""

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
    """A DetectorActor in its own process, which receives and answers batches as bytes.

    Batches arrive in Ray's thread or in the connection's thread; other calls may also arrive in either. The
    caller makes one call at a time, but a call that it has abandoned may still run in one thread when the
    next arrives in the other. So every method that uses the state holds the lock. The lock also makes the
    writes of one thread visible to the other. `finish_saving` does not take it, since it runs beside
    evaluations.
    """

    def __init__(self, settings: RuntimeSettings) -> None:
        super().__init__(settings, crashes_to=crashes_to)
        # Some methods call others, so the lock is reentrant.
        self._one_at_a_time = threading.RLock()
        collect_seldom()
        map_large_blocks()
        self._frozen_heap = FrozenHeap()

    def listen(self, node: str, way: Literal["auto", "tcp"]) -> Address | None:
        """Also accept batches on a connection, from the one caller; return the address for it.

        `node` is the caller's Ray node. Returns None if only Ray may carry batches. Raises OSError.
        """
        near = node == ray.get_runtime_context().get_node_id()
        if near and way == "auto":
            return BatchServer(self.handle_bytes, self.call_bytes).address
        if not near and os.environ.get("RAY_USE_TLS", "").lower() not in _NO:
            # Traffic between machines must be encrypted, and only Ray has the certificates.
            return None
        host = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return BatchServer(self.handle_bytes, self.call_bytes, host=host).address

    def handle_bytes(self, batch: Payload) -> bytes:
        """Execute an encoded batch."""
        operations = decode_batch(batch)
        with self._one_at_a_time:
            reply = self.handle(operations)
        return encode_reply(reply)

    def call_bytes(self, call: Payload) -> bytes:
        """Execute an encoded call of one of the methods below. Raises what that raises."""
        return carry_out(self, call)

    def activate(self, detector_id: str, epoch: int) -> Activated:
        """Activate a detector. Raises StorageError."""
        with self._one_at_a_time:
            activated = super().activate(detector_id, epoch)
            self._frozen_heap.activated()
        return activated

    def sync(self) -> None:
        """Sync the journal to the disk. Raises StorageError."""
        with self._one_at_a_time:
            super().sync()

    def begin_saving(self) -> bool:
        """Copy the state for a snapshot. Raises StorageError."""
        with self._one_at_a_time:
            return super().begin_saving()

    def passivate(self) -> int:
        """Save and drop the detector; return the bytes that the process holds. Raises StorageError."""
        with self._one_at_a_time:
            return super().passivate()

    def discard(self) -> None:
        """Drop the detector without saving it."""
        with self._one_at_a_time:
            super().discard()
            self._frozen_heap.gone()
