"""The scheduler's view of one detector: activated in a worker, passivated, or lost with the worker."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from engine.runtime.contract.errors import ActorDied, DetectorUnavailable
from engine.runtime.contract.measures import ACTIVATIONS_FAILED
from engine.runtime.contract.requests.calls import Held, Report, Route
from engine.runtime.scheduler.detectors.gate import Gate, Leaving
from engine.runtime.scheduler.detectors.services import Services
from engine.runtime.scheduler.workers.detector_worker import Callbacks, DetectorWorker, answered
from snapshots.errors import StorageError, WrongFolder

_log = logging.getLogger(__name__)

_ATTEMPTS: Final = 3
_FAST_S: Final = 0.25
"""An activation that takes less is fast, because starting a process takes longer."""
_OVER_S: Final = 1.0
"""How long to wait for the end of an activation that a front end cannot use."""
_BUSY_S: Final = 0.2
"""A detector that has served requests this recently counts as busy."""


class PlacedDetector:
    """Where a detector is active, and its activation slot. Asking for its route activates it."""

    def __init__(
        self, detector_id: str, services: Services, forget: Callable[["PlacedDetector"], None]
    ) -> None:
        self.detector_id = detector_id
        self.used_at_s = 0.0
        self.large = False
        self.reserved: DetectorWorker | None = None
        """The worker that is reserved for its next activation."""
        self.moving = False
        self._gate = Gate(detector_id, services.settings.retry_s)
        self._services = services
        self._forget = forget
        self._loop = asyncio.get_running_loop()
        self._worker: DetectorWorker | None = None
        self.epoch = 0
        """The epoch of the current or last activation."""
        self._over = asyncio.Event()
        """Set when the current activation is over."""
        self._activated_in_s = 0.0
        self._leaving = Leaving(self._tell_room)
        self.activating: asyncio.Task[None] | None = None
        """The activation in progress."""
        self._dropping: asyncio.Task[None] | None = None
        """Tasks that drop the detector from a shared worker after a cancelled activation."""
        self._waiters = 0
        self._waits_since_s: float | None = None
        """When it began to wait for a slot or a worker; None if it does not wait."""
        self._waits_for_worker = False
        self._asked_at_s = float("inf")
        """When a worker was asked to activate it; infinite while none is."""
        self._at_risk = False
        """Whether the death of the worker would lose data, or has lost data."""
        self._lost_because = ""

    # -- as the holder of a slot -----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether it served requests a moment ago."""
        return self._loop.time() < self.used_at_s + _BUSY_S

    @property
    def activates_fast(self) -> bool:
        """Whether the last activation was faster than starting a process."""
        return self._activated_in_s <= _FAST_S

    @property
    def replaceable(self) -> bool:
        """Whether another detector could replace it: not if its worker would end and none could start."""
        worn = self._worker is not None and self._worker.worn
        return not worn or self._services.workers.no_room is None

    def make_room(self) -> None:
        """Have the detector passivated: at once if it is idle, otherwise after its turn."""
        self._leaving.make_room(wanted=True)

    def stay(self) -> None:
        """Keep the detector active if it is not being passivated already."""
        if not self.moving:
            self._leaving.make_room(wanted=False)

    # -- public ----------------------------------------------------------------------------------------------

    def stalled(self, for_s: float) -> str | None:
        """Return the problem that its activation takes longer than this; None if it does not."""
        if (seconds := self._loop.time() - self._asked_at_s) < for_s:
            return None
        return f"detector {self.detector_id}: its activation has taken {seconds:.0f} s; does its disk answer?"

    @property
    def worker_name(self) -> str | None:
        """The name of the worker in which the detector is active; None if it is not."""
        return None if self._worker is None else self._worker.port.name

    @property
    def node(self) -> str | None:
        """The node on which the detector is active; None if it is not."""
        return None if self._worker is None else self._worker.port.node

    async def route(self, left_epoch: int, large: bool = False) -> Route:
        """Return the detector's route; activate the detector first if it is not active.

        `left_epoch` is the epoch of an activation that the front end cannot use. If that is the current one,
        waits a moment for its end. `large` says whether large requests wait. If all callers are cancelled,
        the detector is not activated. Raises Refusal 1200, and DetectorUnavailable 1501 and 1503.
        """
        self._leaving.needed()
        with self.needed():
            if self._worker is not None and self.epoch == left_epoch:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_OVER_S):
                        await self._over.wait()
            while self._worker is None:
                self.large = self.large or large
                await self._activation()
            return Route(self._worker.port.name, self._worker.port.address, self.epoch)

    async def activate_for_tick(self) -> None:
        """Activate the passive detector, and have it leave once its worker has ticked it.

        Returns when it has left, or is needed by callers. Raises like `route`.
        """
        with self.needed():
            await self._leaving.activate_for_tick(self._activation())
            self._gate.check()

    @contextmanager
    def needed(self) -> Iterator[None]:
        """Keep this object, and an activation in progress, within this context."""
        self._waiters += 1
        try:
            yield
        finally:
            self._waiters -= 1
            self._forget_if_unneeded()

    async def vacate(self) -> None:
        """Have the detector passivated after its turn, unless it is in the reserved worker already."""
        if self.activating is not None:
            await asyncio.wait({self.activating})
        if self._worker is not None and self.reserved is not None:
            self.make_room()
            await self._over.wait()

    def no_room(self, why: str, *, give_up_s: float, shared: bool) -> None:
        """Note that no node has room for another worker.

        If the detector has waited since `give_up_s` or longer, its requests are refused. Otherwise, if
        workers can be `shared`, it returns its slot, which was for a new worker, and waits for another one.
        """
        if self.activating is None or self._waits_since_s is None:
            return
        if self._waits_since_s <= give_up_s:
            self._refuse_for_now(why)
            self.activating.cancel()
        elif shared and self._waits_for_worker:
            self.activating.cancel()

    def adopt(self, worker: DetectorWorker, held: Held) -> None:
        """Take over an activation by an earlier scheduler."""
        self._services.slots.adopt(self)
        self._set_active(worker, held.epoch)
        self._at_risk = held.at_risk
        self._receive_reports(worker)

    async def delete(self) -> None:
        """Refuse all requests with 1200, and drop the detector unsaved."""
        self._gate.deleted = True
        await self._stop_activating()
        if self._dropping is not None:
            await self._dropping
        if (worker := self._worker) is not None:
            try:
                await answered(worker.port.delete(self.epoch), 2 * self._services.settings.hung_s)
            except ActorDied:
                self._lose("it did not end")

    async def close(self) -> str | None:
        """Wait a limited time until waiting requests are answered, then save the detector.

        If the detector could not be saved, returns the reason.
        """
        self._gate.closing = True
        if self.activating is not None:
            await asyncio.wait({self.activating}, timeout=self._services.settings.shutdown_s)
            await self._stop_activating()
        if (worker := self._worker) is not None:
            most_s = self._services.settings.shutdown_s + 3 * self._services.settings.hung_s
            try:
                reason = await answered(worker.port.close(self.epoch), most_s)
            except ActorDied as error:
                self._lost_because = self._lost_because or f"its process was lost: {error}"
            else:
                self._at_risk = False
                return reason
        return self._lost_because if self._at_risk else None

    # -- activation ------------------------------------------------------------------------------------------

    async def _activation(self) -> None:
        """Activate the detector, or await a pending activation. If it fails, the gate has the reason."""
        self._gate.check()
        if self.activating is None:
            self.activating = self._loop.create_task(self._try_to_activate())
        # A cancelled caller must not cancel the activation for the others.
        await asyncio.shield(self.activating)

    async def _stop_activating(self) -> None:
        if self.activating is not None:
            self.activating.cancel()
            await asyncio.wait({self.activating})

    async def _try_to_activate(self) -> None:
        """Activate the detector; if that fails, note the reason for the waiting callers."""
        try:
            if not await self._activate():
                self._gate.deleted = True
        except asyncio.CancelledError:
            # The code that cancelled this task has noted the reason.
            pass
        except ActorDied:
            self._refuse_for_now("the processes that tried to activate it died")
        except StorageError as error:
            self._services.counts[ACTIVATIONS_FAILED] += 1
            self._services.problems.begin(self.detector_id, f"it cannot be activated: {error}")
            self._refuse_for_now(str(error))
        except DetectorUnavailable as error:
            self._refuse_for_now(error.message)
        except Exception:  # noqa: BLE001 -- it is logged, and waiting callers must be answered
            message = f"an internal error; its reference in the log is {secrets.token_hex(6)}"
            extra = {"fields": {"detector": self.detector_id}}
            _log.exception("detector %s, activation failed: %s", self.detector_id, message, extra=extra)
            self._refuse_for_now(message)
        finally:
            self.activating = None
            self._forget_if_unneeded()

    async def _activate(self) -> bool:
        """Activate the detector in a worker, unless no caller waits any more once a worker is available.

        Returns False if the detector does not exist. Raises StorageError, DetectorUnavailable, and ActorDied
        if the activation killed several workers in a row.
        """
        if self._waits_since_s is None:
            self._waits_since_s = self._loop.time()
        self._waits_for_worker = False
        try:
            await self._services.slots.acquire(self)
            for _ in range(_ATTEMPTS):
                if not self._waiters:
                    return True
                try:
                    return await self._activate_once()
                except ActorDied as error:
                    died = error
            raise died
        finally:
            if self._worker is None:
                self._release_slot()

    async def _activate_once(self) -> bool:
        """Try one worker. Afterwards the worker has the detector, is given back, or is ended."""
        workers = self._services.workers
        worker, self.reserved = self.reserved, None
        if worker is None or worker.dead:
            self._waits_for_worker = True
            worker = await workers.take(alone=self.detector_id in self._services.alone)
        self._waits_since_s = None
        empty, unwanted = True, False
        try:
            epoch = await self._services.catalogue.lease(self.detector_id)
            if epoch is None:
                return False
            empty = False
            began_s = self._asked_at_s = self._loop.time()
            asked = self._leaving.wanted
            worker.pending.add(epoch)
            try:
                within_s = self._services.settings.activation_hung_s
                activated = await answered(worker.port.activate(self.detector_id, epoch, asked), within_s)
            except asyncio.CancelledError:
                if worker.taken > 1:
                    unwanted = True
                    self._dropping = self._loop.create_task(workers.drop_taken(worker, epoch))
                raise
            finally:
                worker.pending.discard(epoch)
            if worker.dead:
                raise ActorDied("it died right after the activation")
            self._activated_in_s = self._loop.time() - began_s
            self._set_active(worker, epoch, asked)
        except StorageError as error:
            # A worker that sees another data folder is useless; the next one may start on another node.
            empty = not isinstance(error, WrongFolder)
            raise
        finally:
            self._asked_at_s = float("inf")
            if self._worker is None and not unwanted:
                (workers.give_back if empty else workers.lose)(worker)
        self._services.activated(self.detector_id, activated)
        self._receive_reports(worker)
        return True

    def _receive_reports(self, worker: DetectorWorker) -> None:
        """Receive the worker's reports about the detector, including those already received."""
        reported = partial(self._reported, worker)
        callbacks = Callbacks(reported, self._found_dead, self.detector_id, lambda: self._leaving.wanted)
        worker.enter(self.epoch, callbacks)

    def _set_active(self, worker: DetectorWorker, epoch: int, asked: bool = False) -> None:
        """Note where it is active. `asked`: the worker knows that another detector waits for the slot."""
        self._worker = worker
        self.epoch = epoch
        self._over = asyncio.Event()
        self.used_at_s = self._loop.time()
        self._at_risk = False
        if (wanted := self._leaving.wanted) != asked:
            self._tell_room(wanted)

    def _tell_room(self, wanted: bool) -> None:
        if self._worker is not None:
            self._worker.port.make_room(self.epoch, wanted=wanted)

    # -- what the worker reports -----------------------------------------------------------------------------

    def _reported(self, worker: DetectorWorker, report: Report) -> None:
        services = self._services
        services.reported(self.detector_id, report)
        if worker is not self._worker or report.epoch != self.epoch:
            return
        if report.used:
            self.used_at_s = self._loop.time()
        if report.at_risk is not None:
            self._at_risk = report.at_risk
        if report.stays:
            services.slots.keep(self)
        if report.ended is None:
            return
        if report.ended.reason is not None:
            _log.warning("the detector %s is lost: %s", self.detector_id, report.ended.reason)
            if report.ended.hung or self._services.settings.detectors_per_worker == 1:
                self._lose(report.ended.reason)
                return
            self._lost_because = report.ended.reason
        if report.ended.alone:
            services.alone.add(self.detector_id)
        elif not self._leaving.room_wanted:
            services.alone.discard(self.detector_id)
        self._leave()
        services.workers.give_back(worker, report.ended.resident_bytes)

    def _found_dead(self) -> None:
        self._services.lost(self.detector_id)
        self._lose("its process was lost")

    def _lose(self, reason: str) -> None:
        """End the worker, and give up the data that it has not saved."""
        worker, self._lost_because = self._worker, reason
        self._leave()
        if worker is not None:
            self._services.workers.lose(worker)

    def _leave(self) -> None:
        """Note that the worker no longer has the detector."""
        if self._worker is not None:
            self._worker.leave(self.epoch)
        self._worker = None
        self._over.set()
        self._release_slot()
        self._forget_if_unneeded()

    def _release_slot(self) -> None:
        self.large = False
        self._leaving.left()
        self._services.slots.release(self)

    def _refuse_for_now(self, reason: str) -> None:
        """Refuse all requests for `retry_s`, with a reason."""
        self._waits_since_s = None
        self._loop.call_at(self._gate.refuse_for_now(reason), self._forget_if_unneeded)

    def _forget_if_unneeded(self) -> None:
        """Forget this object if a new one could replace it without loss."""
        idle = self._worker is None and self.activating is None and not self._waiters
        if idle and not self._gate.refuses_for_now:
            self._forget(self)
