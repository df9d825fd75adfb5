"""Delivers the firings of feeds, each at least once and those of a detector in order, and counts them."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, start_http_server

from api.cli.delivering.places import Places
from api.cli.delivering.targets import Appended, DeliveryError, Target
from api.cli.delivering.templates import Form, as_json, generic
from api.cli.lookup import detector_among
from rule_detector_client import AsyncClient, Detector, Firing, Gap, ServiceError

M = TypeVar("M", Counter, Gauge)

_PREFIX: Final = "rule_detector_deliver_"
LOOK_S: Final = 5.0
"""The interval between two looks for new detectors."""
GRACE_S: Final = 5.0
"""How long attempts that are under way may go on at the end."""
WAIT_S_MAX: Final = 60.0
"""The longest wait before the next attempt, unless the target asks for a longer one."""
_WAIT_S: Final = 1.0
_DOUBLINGS_MAX: Final = 10
_NO_SUCH_PLACE: Final = 1006
_NO_SUCH_DETECTOR: Final = 1200


class Figures:
    """Counts what is delivered, by the id of the detector."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._all: list[Counter | Gauge] = []
        self.delivered = self._made(Counter, "delivered", "Firings that the target took.")
        self.failed = self._made(Counter, "failed_attempts", "Attempts to deliver a firing that failed.")
        self.dead = self._made(Counter, "dead_letters", "Firings that the target refused for good.")
        meaning = "Firings that the service no longer kept when they were read."
        self.lost = self._made(Counter, "lost", meaning)
        self.breaks = self._made(Counter, "feed_breaks", "Connections to a feed that ended.")
        meaning = "Whether a firing waits because the last attempt to deliver it failed."
        self.waiting = self._made(Gauge, "waiting", meaning)
        self.place = self._made(Gauge, "place", "Number of the last firing delivered.")

    def _made(self, kind: type[M], name: str, meaning: str) -> M:
        metric = kind(f"{_PREFIX}{name}", meaning, ["detector"], registry=self.registry)
        self._all.append(metric)
        return metric

    def serve(self, host: str, port: int) -> int:
        """Serve the metrics from a thread, and return the port. Raises OSError."""
        try:
            server, _ = start_http_server(port, host, self.registry)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
        return server.server_port

    def follow(self, detector_id: str, place: int) -> None:
        """Show the figures of a detector, which begins after a place."""
        for metric in self._all:
            metric.labels(detector_id)
        self.place.labels(detector_id).set(place)

    def forget(self, detector_id: str) -> None:
        """Drop the figures of a detector that was deleted."""
        for metric in self._all:
            metric.remove(detector_id)


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where firings go that the target has refused for good so many times."""

    file: Appended
    attempts: int

    async def add(self, detector: Detector, firing: Firing, reason: str) -> None:
        """Add a firing, and return once it is safe. Raises OSError."""
        self.file.append(as_json({"reason": reason, "firing": generic(detector, firing)}))
        await asyncio.to_thread(self.file.sync)


@dataclass(slots=True)
class Deliveries:
    """The deliveries of all feeds to one target. No feed waits for another one."""

    client: AsyncClient
    target: Target
    form: Form
    places: Places
    dead_letters: DeadLetters | None
    figures: Figures
    tell: Callable[[str], None]
    """Receives what an operator must know."""
    names: Sequence[str] | None = None
    """The detectors by id or name; None for all, also those that come."""
    begun: Callable[[], None] = lambda: None
    """Is called once the places of the detectors that are there at the start are known, and saved."""
    jitter: Callable[[], float] = random.random
    _feeds: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _placeless: set[str] | None = None
    """The detectors of the start whose places are not known yet; None if it is not known which there are."""
    _deleted: set[str] = field(default_factory=set)
    _busy: set[asyncio.Task[Any] | None] = field(default_factory=set)
    """The tasks that are in an attempt."""
    _stopping: bool = False

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set; then give attempts that are under way a little time.

        Raises ServiceError if the service refuses, OSError if the places cannot be saved.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                others = [tasks.create_task(self.places.keep()), tasks.create_task(self._follow(tasks))]
                await stop.wait()
                self._stopping = True
                feeds = self._feeds.values()
                for task in feeds:
                    if task not in self._busy:
                        task.cancel()
                if feeds:
                    await asyncio.wait(feeds, timeout=GRACE_S)
                for task in (*others, *feeds):
                    task.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            self.places.close()

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        """Begin the feeds of the detectors that are there, and of each that comes. Raises ServiceError."""
        is_first = True
        while is_first or self.names is None:
            try:
                there = [detector async for detector in self.client.detectors()]
            except ServiceError as error:
                if is_first or error.is_refusal:
                    raise
                there = []
            if self.names is not None:
                there = [detector_among(there, name) for name in self.names]
            if is_first:
                self._placeless = {detector.id for detector in there}
                await self._begin()
            for detector in there:
                if detector.id not in self._feeds:
                    is_new = not is_first or self.places.is_complete
                    self._feeds[detector.id] = tasks.create_task(self._deliver_all(detector, is_new=is_new))
            is_first = False
            await asyncio.sleep(LOOK_S)

    async def _deliver_all(self, detector: Detector, *, is_new: bool) -> None:
        """Deliver a feed from its place on: of a new detector from the beginning, else from the newest."""
        try:
            place = await self._beginning(detector, is_new=is_new)
            await self._begin(detector)
            while not await self._deliver_after(place, detector):
                self.tell(
                    f"{detector.name}: the feed ends before the firing {place} that was delivered last, as "
                    "after a backup was restored; it goes on with the newest"
                )
                self.places.forget(detector.id)
                place = await self._beginning(detector, is_new=False)
        except ServiceError as error:
            if error.code != _NO_SUCH_DETECTOR:
                raise
            self.tell(f"{detector.name}: the detector {detector.id} was deleted")
            self.places.forget(detector.id)
            self.figures.forget(detector.id)
            await self._begin(detector)
            if self.names is None:
                # A backup may bring it back.
                del self._feeds[detector.id]
                return
            self._deleted.add(detector.id)
            if self._deleted == self._feeds.keys():
                raise ServiceError("all detectors to deliver from were deleted") from None

    async def _begin(self, placed: Detector | None = None) -> None:
        """Tell that it has begun, once no detector of the start is without a place. Raises OSError."""
        if self._placeless is None:
            return
        if placed is not None:
            self._placeless.discard(placed.id)
        if not self._placeless:
            self._placeless = None
            self.places.complete()
            await asyncio.to_thread(self.places.save)
            self.begun()

    async def _deliver_after(self, place: int, detector: Detector) -> bool:
        """Deliver what follows a place until the end; return False if there is no such place."""

        def on_break(_error: ServiceError, _wait_s: float) -> None:
            self.figures.breaks.labels(detector.id).inc()

        try:
            async for entry in self.client.firings(detector.id, place, on_break):
                match entry:
                    case Gap(first, last):
                        self.figures.lost.labels(detector.id).inc(last - first + 1)
                        self.tell(
                            f"{detector.name}: the firings {first} to {last} are lost: the service no longer "
                            "keeps them"
                        )
                    case Firing(seq=last):
                        if not await self._delivered(detector, entry):
                            break
                self.places.move(detector.id, last)
                self.figures.place.labels(detector.id).set(last)
                if self._stopping:
                    break
        except ServiceError as error:
            if error.code != _NO_SUCH_PLACE:
                raise
            return False
        return True

    async def _beginning(self, detector: Detector, *, is_new: bool) -> int:
        """Return the place of a detector, which is kept from now on, even if nothing fires."""
        place = self.places.of(detector.id)
        if place is None and is_new:
            place = 0
        said = ""
        while place is None:
            try:
                place = await self.client.last_firing(detector.id)
            except ServiceError as error:
                if error.is_refusal:
                    raise
                if said != str(error):
                    said = str(error)
                    self.tell(f"{detector.name}: it is not known yet what fired last: {error}")
                await asyncio.sleep(LOOK_S)
        self.places.move(detector.id, place)
        self.figures.follow(detector.id, place)
        return place

    async def _delivered(self, detector: Detector, firing: Firing) -> bool:
        """Deliver a firing, however long it takes; return False if it is left undelivered at the end."""
        body, key = self.form.body(detector, firing), f"{detector.id}-{firing.seq}"
        which = f"{detector.name}: the firing {firing.seq}"
        waiting = self.figures.waiting.labels(detector.id)
        attempts, refusals, said = 1, 0, ""
        while (error := await self._attempt(body, key)) is not None:
            self.figures.failed.labels(detector.id).inc()
            waiting.set(1)
            refusals += error.final
            if error.final and self.dead_letters is not None and refusals >= self.dead_letters.attempts:
                await self.dead_letters.add(detector, firing, f"{error}{error.detail}")
                self.figures.dead.labels(detector.id).inc()
                self.tell(f"{which} is a dead letter: {self.target}: {error}{error.detail}")
                break
            if said != str(error):
                said = str(error)
                self.tell(f"{which} is not delivered yet: {self.target}: {error}{error.detail}")
            if self._stopping:
                return False
            longest_s = min(_WAIT_S * 2 ** min(attempts - 1, _DOUBLINGS_MAX), WAIT_S_MAX)
            await asyncio.sleep(max(longest_s * (1 + self.jitter()) / 2, error.retry_after_s))
            attempts += 1
        else:
            self.figures.delivered.labels(detector.id).inc()
            if said:
                self.tell(f"{which} is delivered, by attempt {attempts}")
        waiting.set(0)
        return True

    async def _attempt(self, body: bytes, key: str) -> DeliveryError | None:
        """Send a body once, and return why that failed."""
        task = asyncio.current_task()
        self._busy.add(task)
        try:
            await self.target.send(body, self.form.content_type, key)
        except DeliveryError as error:
            return error
        finally:
            self._busy.discard(task)
        return None
