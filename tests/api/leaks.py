"""A service over real sockets of which all that could leak is counted, and callers who behave badly."""

import asyncio
import inspect
import itertools
import random
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import uvloop

from api.http.app import Application
from api.server.limits import ConnectionLimit
from api.settings import Settings
from tests.api.conftest import BOOTSTRAP
from tests.api.wire import Connection, Wire, request, served
from tests.local_runtime.service import LocalService, local_service
from tests.local_runtime.workers import LocalWorker
from tests.thoroughness import tried
from tests.waiting_clock import WaitingLoop

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": WaitingLoop,
    "uvloop": uvloop.new_event_loop,
}
"""The loop of the tests, and the one that serves."""
TRIED = tried(LOOPS, 0)
"""On which of them this run tries what is the same on both."""

REST_WITHIN_S = 20.0
Leaving = Literal["closes", "resets", "ends its half"]
WAYS: tuple[Leaving, ...] = ("closes", "resets", "ends its half")


def run(loop: str, work: Coroutine[Any, Any, None]) -> None:
    """Run what a test does in one of the loops."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(work)


def in_each_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test once in each of the loops that this run tries."""

    @pytest.mark.parametrize("loop", TRIED)
    def in_loop(loop: str, **given: Any) -> None:
        run(loop, test(**given))

    given = inspect.signature(test)
    loop = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)
    in_loop.__signature__ = given.replace(parameters=[*given.parameters.values(), loop])
    in_loop.__name__, in_loop.__doc__ = test.__name__, test.__doc__
    return in_loop


class Held(NamedTuple):
    """What is held at a moment."""

    descriptors: int
    tasks: int
    slots: int
    watched: int
    streams: int
    waiting: int
    waiting_bytes: int

    def within(self, other: "Held") -> bool:
        """Return whether nothing is held that was not in the other."""
        return all(mine <= theirs for mine, theirs in zip(self, other, strict=True))


@dataclass
class World:
    """A service over a real backend without Ray, with one detector that is active."""

    app: Application
    limit: ConnectionLimit
    wire: Wire
    service: LocalService
    detector: str

    @property
    def worker(self) -> LocalWorker:
        found = self.service.actors.with_detector(self.detector)
        assert found is not None
        return found

    def held(self) -> Held:
        waiting = self.service.backend.channels[self.detector]._mailbox
        timeouts = self.app.timeouts
        return Held(
            descriptors=sum(1 for _ in Path("/proc/self/fd").iterdir()),
            tasks=len(asyncio.all_tasks()),
            slots=len(self.limit) + len(self.limit._unauthenticated) + len(self.limit._idle),
            watched=len(timeouts._young) + len(timeouts._older),
            streams=len(self.app.quart.streams._open),
            waiting=len(waiting),
            waiting_bytes=waiting.bytes,
        )

    async def at_rest(self) -> Held:
        """Return what is held where nobody calls; the backend itself has a short task now and then."""
        found = []
        for _ in range(20):
            found.append(self.held())
            await asyncio.sleep(0.005)
        return Held(*(min(column) for column in zip(*found, strict=True)))

    async def comes_back_to(self, before: Held) -> None:
        """Wait until nothing is held that was not before. Fails where that does not come."""
        now = self.held()
        for _ in range(int(REST_WITHIN_S / 0.02)):
            now = self.held()
            if now.within(before):
                return
            await asyncio.sleep(0.02)
        running = Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks())
        raise AssertionError(f"before {before}\nnow {now}\n{running}")


@asynccontextmanager
async def world(
    folder: Path, *, limit: ConnectionLimit | None = None, patient: bool = False, **chosen: Any
) -> AsyncIterator[World]:
    """Yield a service with the given settings. If `patient`, only HTTP has its deadline."""
    # A request may be slow because of what else this machine does.
    settings = Settings(data=folder, bootstrap_token=BOOTSTRAP, **{"slow_request_ms": 0} | chosen)
    runtime = settings.runtime_settings()
    rest = {name: value for name, value in vars(runtime).items() if name != "data"}
    if patient:
        rest["deadline_s"] = 1_000.0
    limit = ConnectionLimit(5_000) if limit is None else limit
    async with local_service(settings.data, **rest) as service:
        app = Application(settings, service.backend)
        detector = await service.backend.create_detector("d")
        async with served(app, settings, limit) as wire:
            path = f"/api/detectors/{detector}/evaluate"
            assert (await wire.once(request(path=path, body=EVENT, token=BOOTSTRAP))).status == 200
            await wire.hang_up()
            yield World(app, limit, wire, service, detector)


EVENT = b'{"event":{"fields":{"a":1},"timestamp_ms":0}}'


async def leave(connection: Connection, way: Leaving) -> None:
    """Be gone, in one of the ways of callers."""
    transport = connection.writer.transport
    match way:
        case "closes":
            transport.close()
        case "resets":
            plug = transport.get_extra_info("socket")
            with suppress(OSError):
                plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        case "ends its half":
            with suppress(OSError, RuntimeError):
                transport.write_eof()
            # It listens for a while, for a reply that may or may not come.
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(0.2):
                    while await connection.reader.read(65_536):
                        pass
            transport.abort()


async def many_callers(
    world: World, data: bytes, count: int, *, at_once: int = 50, listens: bool = False
) -> None:
    """Have callers connect, send the same bytes and go, each in its way and at a moment of its own."""
    moments = random.Random(7)
    ways = itertools.cycle(WAYS)
    todo = iter(range(count))

    async def callers() -> None:
        for _ in todo:
            connection = Connection(*await asyncio.open_connection("127.0.0.1", world.wire.port))
            if not listens:
                connection.writer.transport.pause_reading()
            with suppress(OSError):
                connection.writer.write(data)
            await asyncio.sleep(moments.choice((0, 0, 0.001, 0.003, 0.01, 0.03)))
            way = next(ways)
            if way == "ends its half" and not listens:
                connection.writer.transport.resume_reading()
            await leave(connection, way)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(callers())
