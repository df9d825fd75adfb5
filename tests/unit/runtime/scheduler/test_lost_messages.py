"""Every kind of message between front end, scheduler and worker is lost once: all is right soon after.

The connection goes on, so nothing tells that something was lost. On a stream that is impossible; but what
survives it survives a step that was cut short on either side, too.
"""

import ast
import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest

import engine.runtime
from engine.evaluation.wire.events import Done
from engine.language.diagnostics import Refusal
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import Grant
from engine.runtime.process.log_records import LOGGED, Logged
from engine.runtime.transport.link import Link, Request, Response, responses
from engine.runtime.transport.link_client import LinkClient
from engine.runtime.transport.server_connection import ServerConnection
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import StorageError
from tests.local_runtime.actors import LocalNodes
from tests.local_runtime.connections import Pipe
from tests.local_runtime.losses import REPORTED, Loss
from tests.local_runtime.service import LocalService, until
from tests.local_runtime.workers import LocalWorker

pytestmark = pytest.mark.skipping_clock

T = TypeVar("T")

SLOTS = 1
SECONDS = 20
"""All of a test takes less, by the clock of its loop: nothing here may wait for a timeout of the runtime."""
EVENT = ops.evaluate(b'{"event": {"fields": {"a": 1}, "timestamp_ms": 1}}')
LARGE = ops.evaluate_batch(json.dumps({"events": [{"fields": {"a": 1}, "timestamp_ms": 0}] * 400}).encode())


# -- the service ---------------------------------------------------------------------------------------------


class Compared(LocalService):
    """A service that compares its settings as those on Ray do, and gives up a connection where that fails."""

    async def _connect(self) -> LinkClient:
        try:
            client = await super()._connect()
            await client.ask("compare", list, 1, "here", {})
        except BaseException:
            self.connected[-1].link.abort()
            raise
        return client


class Scene:
    """A front end, the scheduler and its workers, connected as their processes are."""

    def __init__(self, service: LocalService) -> None:
        self.actors, self.scheduler, self.backend = service.actors, service.scheduler, service.backend
        self.folder = service.settings.data
        self.detectors: list[str] = []
        """Those that should exist."""

    async def again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call as callers do: again, as long as that may succeed."""
        while True:
            with suppress(DetectorUnavailable):
                return await call()
            await asyncio.sleep(0.1)

    async def create(self) -> str:
        self.detectors.append(await self.again(lambda: self.backend.create_detector("one")))
        return self.detectors[-1]

    async def evaluate(self, detector: str) -> None:
        assert isinstance(await self.again(lambda: self.backend.call(detector, EVENT)), Done)

    async def active(self) -> tuple[str, LocalWorker]:
        """A detector and the worker in which it is active."""
        detector = await self.create()
        await self.evaluate(detector)
        worker = self.actors.with_detector(detector)
        assert worker is not None
        return detector, worker

    def activations(self) -> list[str]:
        """The detectors that living workers have, once for each activation."""
        living = [worker for worker in self.actors.started if not worker.dead]
        return sorted(queue.detector_id for one in living for queue in one.service.queues.values())

    async def settle(self) -> None:
        """Wait until everything is as it should be: detectors, activations, slots, folders, routes."""
        # More detectors than slots are served, so no slot is lost.
        while len(self.detectors) < SLOTS + 1:
            await self.create()
        for detector in 2 * self.detectors:
            await self.evaluate(detector)
        await until(lambda: self.activations() == self.placed())
        assert len(set(self.placed())) == len(self.placed()) <= SLOTS
        await until(lambda: {one.name for one in self.folder.glob("detectors/*")} == set(self.detectors))
        assert {one for one, _ in await self.backend.detectors()} == set(self.detectors)

    def placed(self) -> list[str]:
        """The detectors that the scheduler believes to be active."""
        return sorted(
            one.detector_id for one in self.scheduler._placed.values() if one.worker_name is not None
        )


@asynccontextmanager
async def scene(folder: Path, **settings: Any) -> AsyncIterator[Scene]:
    chosen = RuntimeSettings(
        data=folder,
        folder_id=begin_folder(folder),
        **{"spares": 1, "max_resident": SLOTS, "detectors_per_worker": 2, "turn_s": 0.0, **settings},
        actor_bytes_max=2**40,
    )
    made = Scene(Compared(chosen, nodes=LocalNodes(n=8, m=8)))
    await made.backend.start()
    try:
        yield made
    finally:
        assert await made.backend.close() == []
        assert made.activations() == []


# -- what sends each kind ------------------------------------------------------------------------------------


async def evaluations(scene: Scene) -> None:
    await scene.active()


async def slots(scene: Scene) -> None:
    """More detectors than slots take turns."""
    for detector in 2 * [await scene.create() for _ in range(SLOTS + 1)]:
        await scene.evaluate(detector)


async def steady_use(scene: Scene) -> None:
    detector = await scene.create()
    for _ in range(4):
        await scene.evaluate(detector)
        await asyncio.sleep(0.2)


async def late_batches(scene: Scene) -> None:
    """Batches come at each moment of a passivation."""
    detector = await scene.create()
    for turns in range(12):
        await scene.evaluate(detector)
        for worker in scene.actors.started:
            for queue in worker.service.queues.values():
                queue.make_room()
        for _ in range(turns):
            await asyncio.sleep(0)
        await scene.evaluate(detector)


async def deletion(scene: Scene) -> None:
    detector, _ = await scene.active()
    await scene.again(lambda: scene.backend.delete_detector(detector))
    scene.detectors.remove(detector)


async def fork(scene: Scene) -> None:
    detector, _ = await scene.active()
    scene.detectors.append(await scene.again(lambda: scene.backend.fork_detector(detector, "fork")))


async def move(scene: Scene) -> None:
    detector, _ = await scene.active()
    await scene.again(lambda: scene.backend.move_detector(detector, ""))


async def drain(scene: Scene) -> None:
    with pytest.raises(Refusal):
        await scene.again(lambda: scene.backend.drain_node("none", draining=True))


async def tokens(scene: Scene) -> None:
    minted = await scene.again(lambda: scene.backend.mint_token("one"))
    assert scene.backend.permit(minted.stored.digest)
    assert [one.id for one in await scene.again(scene.backend.tokens)] == [minted.id]
    await scene.again(lambda: scene.backend.revoke_token(minted.id))
    assert await scene.again(scene.backend.tokens) == []


async def rates(scene: Scene) -> None:
    minted = await scene.again(lambda: scene.backend.mint_token("slow", Grant(events_per_s=10)))
    permit = scene.backend.permit(minted.stored.digest)
    assert permit is not None
    assert permit.rate is not None
    permit.spend(3)
    while permit.rate.spent:  # noqa: ASYNC110 -- it has no event
        await asyncio.sleep(0.1)


async def log(scene: Scene) -> None:
    detector, _ = await scene.active()
    added = ops.add_rule("r", "a == 1")
    assert isinstance(await scene.again(lambda: scene.backend.change(detector, added)), Done)
    page = await scene.again(lambda: scene.backend.logged_changes(0, 10))
    made = [one.action for one in page.changes if one.kind == "rule"]
    # Where its answer was lost, the rule was added again.
    rules = json.loads((await scene.backend.call(detector, ops.rules())).result)["rules"]
    assert made == ["create"] * len([one for one in rules if one["name"] == "r"])


async def figures(scene: Scene) -> None:
    await scene.again(lambda: scene.backend.add_counts({("a",): 1.0}))
    assert (await scene.again(scene.backend.status)).problems == []
    assert (await scene.again(scene.backend.cluster)).workers
    worker = scene.actors.started[0]
    assert (await worker.figures()).figures.detectors == []


async def large_answer(scene: Scene) -> None:
    detector = await scene.create()
    for _ in range(4):
        await scene.again(lambda: scene.backend.call(detector, ops.add_rule("n" * 250, "a == 1")))
    assert isinstance(await scene.again(lambda: scene.backend.call(detector, LARGE)), Done)


async def caller_that_leaves(scene: Scene) -> None:
    """Its detector is activated nevertheless."""
    detector = await scene.create()
    worker = await scene.actors.start()
    asking = asyncio.create_task(scene.backend.call(detector, EVENT))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    worker.die()


async def logs(scene: Scene) -> None:
    _, worker = await scene.active()
    assert worker.service.log(Logged("engine", 30, "told by a worker", {}, ""))


async def feeds(scene: Scene) -> None:
    """What a front end asks for so often that one loss does not matter."""
    detector, _ = await scene.active()
    added = ops.add_rule("r", "missing it_is_never_there", notify=True)
    assert isinstance(await scene.again(lambda: scene.backend.call(detector, added)), Done)
    assert isinstance(await scene.again(lambda: scene.backend.call(detector, EVENT)), Done)
    while (await scene.backend.newest_firings([detector])) != {detector: 1}:  # noqa: ASYNC110 -- no event
        await asyncio.sleep(0.1)


def telling(**changes: Any) -> Callable[[Scene], Awaitable[None]]:
    """What has a worker report this."""

    async def tell(scene: Scene) -> None:
        detector, worker = await scene.active()
        (queue,) = worker.service.queues.values()
        queue.activation.reporter.tell(**changes)
        if problem := changes.get("problem"):
            await until_known(lambda: f"detector {detector}: {problem}", scene)
            queue.activation.reporter.tell(problem="")
        await scene.settle()
        assert (await scene.backend.status()).problems == [] or "removed" in changes

    return tell


async def until_known(problem: Callable[[], str], scene: Scene) -> None:
    while problem() not in (await scene.backend.status()).problems:  # noqa: ASYNC110 -- it has no event
        await asyncio.sleep(0.1)


SCENARIOS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    **dict.fromkeys(["open", "compare", "leave", "changes", "route", "activate", "held"], evaluations),
    **dict.fromkeys(["create_detector", "delete_detector", "delete"], deletion),
    **dict.fromkeys(["fork_detector", "fork"], fork),
    **dict.fromkeys(["add_token", "revoke_token", "tokens", "tokens_used"], tokens),
    **dict.fromkeys(["status", "cluster", "figures", "report_figures", "add_counts"], figures),
    **dict.fromkeys(["report_changes", "logged_changes"], log),
    "events_spent": rates,
    "newest_firings": feeds,
    "move": move,
    "drain": drain,
    "close": evaluations,
}
"""What makes each call. It is lost once, and once its answer is."""

NOTES: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "make room": slots,
    "left": slots,
    "logged": logs,
    "report of used": steady_use,
    "report of ended": slots,
    "report of counts": telling(counts={"forks": 1}),
    "report of problem": telling(problem="its disk is full"),
    "report of removed": telling(removed="a file was removed"),
    "report of stays": telling(stays=True),
    "report of at_risk": telling(at_risk=True),
    "report of newest_firing": feeds,
}

MESSAGES: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "Batch": evaluations,
    "Answered": evaluations,
    "Moved": late_batches,
    "Announced": large_answer,
    "Fetch": large_answer,
    "Withdraw": caller_that_leaves,
}
ON_A_LINK = {"Confirm", "Unknown", "Returned", "Failed"}
"""What is lost on a single link below."""

KINDS = {
    **{f"{way} {method}": scenario for method, scenario in SCENARIOS.items() for way in ("ask", "answer")},
    **{f"note {name}": scenario for name, scenario in NOTES.items()},
    **MESSAGES,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_is_lost_once_all_is_right_soon(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = Loss(kind)
    loss.install(monkeypatch)
    async with asyncio.timeout(SECONDS):
        async with scene(tmp_path) as made:
            await KINDS[kind](made)
            await made.settle()
    assert loss.lost == 1


# -- one link ------------------------------------------------------------------------------------------------


async def raises() -> int:
    raise StorageError("the disk")


async def returns() -> int:
    return 7


@pytest.mark.parametrize("kind", ["Ask", "Returned", "Failed"])
async def test_a_call_is_answered_in_the_end_if_a_message_is_lost(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = Loss(kind)
    loss.install(monkeypatch)
    client = LinkClient(Link(responses))
    Pipe.between(client.link, ServerConnection({"beat": raises if kind == "Failed" else returns}).link())
    async with asyncio.timeout(SECONDS):
        asking = client.ask_until_answered("beat", int)
        if kind == "Failed":
            with pytest.raises(StorageError):
                await asking
        else:
            assert await asking == 7
    assert loss.lost == 1


@pytest.mark.parametrize("kind", ["Confirm", "Unknown"])
async def test_a_loss_is_noticed_though_the_question_after_it_is_lost_too(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = [Loss("ask beat"), Loss(kind)]
    for loss in losses:
        loss.install(monkeypatch)
    client = LinkClient(Link(responses))
    Pipe.between(client.link, ServerConnection({"beat": returns}).link())
    async with asyncio.timeout(SECONDS):
        assert await client.ask_until_answered("beat", int) == 7
    assert [loss.lost for loss in losses] == [1, 1]


async def test_a_call_that_takes_long_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    async def long() -> int:
        nonlocal calls
        calls += 1
        await asyncio.sleep(100)
        return calls

    client = LinkClient(Link(responses))
    Pipe.between(client.link, ServerConnection({"long": long}).link())
    assert await client.ask_until_answered("long", int) == 1


# -- that none is missing ------------------------------------------------------------------------------------

CALLING = {"ask", "ask_until_answered", "_command"}
ON_BEATS = {"beat", "turn"}
"""Calls on connections of their own, as those on a single link above."""
OF_RAY = {"listen", "folder", "watch"}
"""Calls that Ray makes, and repeats."""


def called_in_the_code() -> tuple[set[str], set[str]]:
    """The names of the methods that are called, and of the notes that are sent, anywhere in the runtime."""
    methods: set[str] = set()
    notes: set[str] = set()
    for path in Path(engine.runtime.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value=str(name)), *_]):
                    if attr in CALLING:
                        methods.add(name)
                case ast.Call(func=ast.Attribute(attr="note"), args=[ast.Name(id=name), *_]) if (
                    name.isupper()
                ):
                    notes.add(name)
    return methods, notes


def test_every_kind_of_message_is_lost_in_a_test() -> None:
    methods, notes = called_in_the_code()
    assert methods - OF_RAY == {*SCENARIOS, *ON_BEATS}
    assert {name.lower().replace("_", " ") for name in notes} == {name.partition(" of ")[0] for name in NOTES}
    assert {f"report of {field}" for field in REPORTED} == {
        name for name in NOTES if name.startswith("report of ")
    }
    classes = {one.__name__ for one in (*get_args(Request), *get_args(Response))}
    assert classes - {"Ask", "Note"} == {*MESSAGES, *ON_A_LINK}
    assert LOGGED in NOTES
