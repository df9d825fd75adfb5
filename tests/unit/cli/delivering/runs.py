"""Deliveries from feeds to a receiver, run after run with the same files."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec

from api.cli.delivering.deliveries import DeadLetters, Deliveries, Figures
from api.cli.delivering.places import Places
from api.cli.delivering.targets import Appended, Webhook
from api.cli.delivering.templates import FORMS
from rule_detector_client import AsyncClient
from tests.unit.cli.delivering.feeds import Feeds, Receiver, Reset

OK = httpx.Response(200)


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    for byte in body:
        yield bytes([byte])


@dataclass
class Run:
    """Deliveries from feeds to a receiver, run after run with the same files."""

    feeds: Feeds
    folder: Path
    receiver: Receiver = field(default_factory=Receiver)
    names: list[str] | None = None
    dead_after: int = 0
    said: list[str] = field(default_factory=list)
    timeout_s: float = 30.0

    def deliveries(self) -> Deliveries:
        async def receive(request: httpx.Request) -> httpx.Response:
            try:
                response = await self.receiver(request)
            except Reset:
                raise httpx.ReadError("reset") from None
            # As from a socket, its body is not read yet.
            return httpx.Response(
                response.status_code, headers=response.headers, content=in_parts(response.content)
            )

        http = httpx.AsyncClient(transport=httpx.MockTransport(receive))
        target = Webhook(
            http, httpx.URL("https://:pass%20word@hooks.example/a/secret"), "signing-key", self.timeout_s
        )
        self.figures = Figures()
        dead = DeadLetters(Appended(self.folder / "dead"), self.dead_after) if self.dead_after else None
        return Deliveries(
            AsyncClient("http://s", "t", transport=httpx.MockTransport(self.feeds)),
            target,
            FORMS["generic"],
            Places(self.folder / "state", target.sync, every=self.names is None),
            dead,
            self.figures,
            self.said.append,
            self.names,
        )

    @asynccontextmanager
    async def running(self, *, crash: bool = False) -> AsyncIterator["asyncio.Task[None]"]:
        """Deliver meanwhile; at the end as after SIGTERM, or after a crash."""
        stop = asyncio.Event()
        deliveries = self.deliveries()
        task = asyncio.create_task(deliveries.run(stop))
        try:
            yield task
            if crash:
                deliveries.places.save = lambda: None
                task.cancel()
            stop.set()
            await asyncio.wait([task])
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if not crash:
            await task

    @asynccontextmanager
    async def following(self, detector: str, at: int = 0) -> AsyncIterator["asyncio.Task[None]"]:
        """Deliver meanwhile, from when the place of the only detector is kept."""
        async with self.running() as task:
            await self.until(lambda: self.places() == {detector: at}, task)
            yield task

    async def until(self, holds: Callable[[], object], task: "asyncio.Task[None]") -> None:
        """Wait until something holds; fail if the deliveries end before."""
        for _ in range(200_000):
            if holds():
                return
            if task.done():
                await task
                raise AssertionError("it has ended")
            await asyncio.sleep(0.5)
        raise AssertionError(self.said)

    def places(self) -> dict[str, int]:
        state = self.folder / "state"
        return msgspec.json.decode(state.read_bytes())["places"] if state.exists() else {}

    def figure(self, name: str, detector: str) -> float:
        value = self.figures.registry.get_sample_value(
            f"rule_detector_deliver_{name}", {"detector": detector}
        )
        assert value is not None
        return value
