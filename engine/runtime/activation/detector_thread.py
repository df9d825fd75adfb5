"""The threads in which a worker executes the calls of its detectors, beside its event loop."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from engine.evaluation.detector import Detector
from engine.runtime.concurrency.threads import Threads, Turns
from engine.runtime.contract.requests.calls import Activated, Reply
from engine.runtime.contract.requests.operations import EVALUATIONS, PUT_RULES, TICK, TICK_DUE, Operation
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.process.collector import FrozenHeap

T = TypeVar("T")

_SMALL_BYTES: Final = 32 * 1024
"""Payloads of this size are evaluated in a few milliseconds unless the detector has many rules."""
_SLOW_S: Final = 0.02
"""If a batch of a detector takes longer, to evaluate or to sync, threads execute the next ones: other
detectors need not wait for them."""
_SLOW_SHARE: Final = 0.01
"""They do so until the slow batch has taken only this share of the time. The batches in between do not
predict the next one: a caller may alternate cheap and expensive ones."""
_SLOW_ALONE_S: Final = 0.3
"""Replaces _SLOW_S for a detector that is alone in its process, where only the scheduler waits. Most first
batches, which compile the rules, take less. A thread costs a single caller a tenth of the latency."""
_LARGE_BYTES: Final = 1024 * 1024
"""Payloads of this size are evaluated in a fraction of a second."""
_MUCH: Final = frozenset({PUT_RULES, TICK, TICK_DUE})
"""Operations that may take long however short they are: they may remove many rules or fire for many keys."""
_CALLS_AT_ONCE: Final = 4
_SAVING_AT_ONCE: Final = 2
"""How many detectors that share a worker are saved at the same time."""
_PIECES_FROM_BYTES: Final = 1024 * 1024
"""Detectors from this size on are freed in pieces. Collecting one takes about 10 ms."""
_RULE_BYTES: Final = 4 * 1024
"""The approximate memory of a rule."""


class WorkerThreads:
    """The threads of a worker for the calls of all its detectors.

    Python code runs in one thread at a time, so more threads do not evaluate faster. But while one thread
    waits for a disk, the others serve other detectors. Short calls never wait behind a long batch, nor long
    batches behind the longest ones. Threads that compute take turns.
    """

    def __init__(self, detectors: int) -> None:
        """Start the threads for a number of detectors."""
        shared = detectors > 1
        self.calls: Final = Threads("detector", _CALLS_AT_ONCE if shared else 1)
        self._long: Final = Threads("long batch", _CALLS_AT_ONCE) if shared else self.calls
        self._longest: Final = Threads("longest batch", _CALLS_AT_ONCE) if shared else self.calls
        self.turns: Final = Turns() if shared else None
        # One activation at a time, so that a crash report of a replay is attributed to the right detector.
        self.activations: Final = Threads("activation") if shared else self.calls
        self.saving: Final = Threads("saving", _SAVING_AT_ONCE if shared else 1)
        self.heap: Final = FrozenHeap(detectors)

    def for_long(self, payload_bytes: int) -> Threads:
        """Return the threads for a long batch."""
        return self._longest if payload_bytes > _LARGE_BYTES else self._long

    def frees_in_pieces(self, detector: Detector) -> bool:
        """Whether other detectors would wait for long if this one were freed in one step."""
        held_bytes = detector.histories.bytes + detector.relations_bytes + detector.feed.bytes
        return self.turns is not None and held_bytes + _RULE_BYTES * len(detector.live) >= _PIECES_FROM_BYTES

    def free(self, detector: Detector) -> None:
        """Free a detector that has left, in pieces, in a thread of its own. Nobody waits for it."""
        threading.Thread(target=self._free, args=(detector,), name="freeing", daemon=True).start()

    def _free(self, detector: Detector) -> None:
        assert self.turns is not None, "others share the worker"
        with self.turns:
            detector.feed.forget()
            detector.take_apart(self.turns.pass_on)
        self.heap.gone()


@dataclass(eq=False)
class DetectorThread:
    """A detector inside a worker, called from the worker's event loop; threads execute long calls.

    Calls are made one at a time, except those of `beside`. They raise StorageError.
    """

    executor: OperationExecutor
    """Executes the calls. Callers may use it directly for what needs no thread."""
    _threads: WorkerThreads
    alone: Callable[[], bool] = lambda: True
    """Returns whether no other detector is active in this process."""
    others_wait: Callable[[], bool] = lambda: False
    """Returns whether other work waits in this process besides the batch about to be executed."""
    now_s: Callable[[], float] = time.monotonic
    _slow_until_s: float = 0.0
    """Until when its batches count as slow."""
    _long: bool = False
    """Whether the last batch computed for long."""
    cpu_s: float = 0.0
    """The processor time of its batches."""

    async def activate(self, detector_id: str, epoch: int) -> Activated:
        return await self._threads.activations.call(partial(self._activate, detector_id, epoch))

    def handle_at_once(self, batch: Sequence[Operation]) -> Reply | None:
        """Execute a small batch of events in the event loop, which is faster than waking a thread.

        Returns None if it is large or may take long, or if other detectors wait already. Reading or changing
        rules takes longer the more there are, and meanwhile the scheduler would get no answer.
        """
        if _payload_bytes(batch) > _SMALL_BYTES or not EVALUATIONS.issuperset([one.kind for one in batch]):
            return None
        executor = self.executor
        if executor.may_fire_much or executor.has_many_rules or self.now_s() < self._slow_until_s:
            return None
        return self._handle(batch) if self.alone() or not self.others_wait() else None

    async def handle(self, batch: Sequence[Operation]) -> Reply:
        """Execute a batch. Raises StorageError if its answers would not be durable."""
        reply = self.handle_at_once(batch)
        if reply is not None:
            return reply
        threads, payload_bytes = self._threads, _payload_bytes(batch)
        if payload_bytes <= _SMALL_BYTES and not (self._long or self.executor.may_fire_much):
            return await self.call(partial(self._handle, batch))
        return await threads.for_long(payload_bytes).call(partial(self._handle, batch, threads.turns))

    async def call(self, work: Callable[[], T]) -> T:
        """Execute a call in a thread."""
        return await self._threads.calls.call(work)

    async def beside(self, work: Callable[[], T]) -> T:
        """Execute a call in another thread while batches continue."""
        return await self._threads.saving.call(work)

    async def passivate(self) -> int:
        """Save and drop the detector; return the bytes that the process holds."""
        # As in `handle`, a thread is woken only for long work.
        if self.executor.passivates_at_once and not self._threads.heap.holds_many:
            return self._dropping(self.executor.passivate)
        return await self.call(partial(self._dropping, self.executor.passivate))

    async def discard(self) -> None:
        await self.call(partial(self._dropping, self.executor.discard))

    def _handle(self, batch: Sequence[Operation], turn: Turns | None = None) -> Reply:
        began_s, before_s = time.perf_counter(), time.thread_time()
        try:
            return self.executor.handle(batch, turn)
        finally:
            cpu_s = time.thread_time() - before_s
            self.cpu_s += cpu_s
            self._long = cpu_s > _SLOW_S
            took_s = time.perf_counter() - began_s
            if took_s > (_SLOW_ALONE_S if self.alone() else _SLOW_S):
                self._slow_until_s = self.now_s() + took_s / _SLOW_SHARE

    def _activate(self, detector_id: str, epoch: int) -> Activated:
        activated = self.executor.activate(detector_id, epoch)
        self._threads.heap.activated()
        return activated

    def _dropping(self, drop: Callable[[], T]) -> T:
        detector = self.executor.detector
        large = detector if detector is not None and self._threads.frees_in_pieces(detector) else None
        del detector
        dropped = drop()
        if large is None:
            self._threads.heap.gone()
        else:
            self._threads.free(large)
        return dropped


def _payload_bytes(batch: Sequence[Operation]) -> int:
    """Return the size of a batch; a short operation that may take long counts as large."""
    return sum([len(one.payload) + (one.kind in _MUCH) * (_SMALL_BYTES + 1) for one in batch])
