"""Callers that leave in the middle of a change, at every step of it: it is made wholly or not at all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import wraps
from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done
from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.front_end.backend import Backend
from engine.runtime.scheduler.scheduler import _PURGE_AGAIN_S
from tests.local_runtime.actors import LocalNodes
from tests.local_runtime.service import FrontEnd, LocalService, front_end, local_service, until
from tests.thoroughness import tried

pytestmark = pytest.mark.skipping_clock

STEPS_MAX = 400
EVENT = ops.evaluate(b'{"event": {"fields": {}, "timestamp_ms": 1}}')


class Scene:
    """A service, and a front end that asks it: in its process, or over a connection."""

    def __init__(self, service: LocalService, remote: FrontEnd | None) -> None:
        self.service = service
        self.remote = remote
        self.backend = service.backend if remote is None else remote.backend
        self.data = service.settings.data

    @property
    def directory(self) -> Catalogue:
        return self.service.directories.started[-1]

    @property
    def detectors(self) -> set[str]:
        return set(self.directory._state.detectors)

    @property
    def folders(self) -> set[str]:
        return {folder.name for folder in self.data.glob("detectors/*")}

    async def active(self, name: str = "active") -> str:
        """A detector that is active."""
        detector = await self.backend.create_detector(name)
        assert isinstance(await self.backend.call(detector, EVENT), Done)
        return detector

    async def leave(self, work: Awaitable[object], steps: int) -> bool:
        """Have a caller wait that many turns of the loop for this, and leave; return whether it left."""
        caller = asyncio.ensure_future(work)
        for _ in range(steps):
            await asyncio.sleep(0)
        left = caller.cancel()
        with suppress(asyncio.CancelledError, Refusal, DetectorUnavailable):
            await caller
        return left

    async def check(self) -> None:
        """Wait until all is quiet. Each detector is whole: listed, on the disk, known to its front end."""
        scheduler = self.service.scheduler
        await until(
            lambda: not self.backend.background and not scheduler._background and not scheduler._purges
        )
        if self.remote is not None:
            serves = self.remote.serves
            await until(lambda: not serves.under_way)
        async with asyncio.timeout(2):
            # It does not take the next look at what is left of removed detectors.
            await until(lambda: self.folders == self.detectors)
        assert not self.directory._state.removed
        await self.backend._cache.ask()
        assert {detector for detector, _ in await self.backend.detectors()} == self.detectors
        tokens = {token.id for token in await self.backend.tokens()}
        known = self.backend._cache.tokens.entries()
        assert {token.id for _, token in known} == tokens
        await until(lambda: not any(one.activating or one.moving for one in scheduler._placed.values()))
        placed = [one for one in scheduler._placed.values() if one.worker_name is not None]
        assert {one.detector_id for one in placed} <= self.detectors
        assert scheduler._slots.held == len(placed)
        assert sum(worker.taken for worker in scheduler._workers.all) == len(placed)
        assert not any(one.reserved for one in scheduler._placed.values())


@asynccontextmanager
async def scene(folder: Path, how: str) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        nodes = LocalNodes(n=4.0, m=4.0)
        service = await stack.enter_async_context(
            local_service(folder, nodes=nodes, max_resident=8, ask_s=0.001)
        )
        remote = None if how == "here" else await stack.enter_async_context(front_end(service))
        yield Scene(service, remote)


async def deletion(scene: Scene) -> Callable[[Backend], Awaitable[object]]:
    detector = await scene.active()
    return lambda backend: backend.delete_detector(detector)


async def creation(_: Scene) -> Callable[[Backend], Awaitable[object]]:
    return lambda backend: backend.create_detector("new")


async def fork(scene: Scene) -> Callable[[Backend], Awaitable[object]]:
    detector = await scene.active()
    return lambda backend: backend.fork_detector(detector, "fork")


async def minting(_: Scene) -> Callable[[Backend], Awaitable[object]]:
    return lambda backend: backend.mint_token("new")


async def revocation(scene: Scene) -> Callable[[Backend], Awaitable[object]]:
    minted = await scene.backend.mint_token("old")
    return lambda backend: backend.revoke_token(minted.id)


async def move(scene: Scene) -> Callable[[Backend], Awaitable[object]]:
    detector = await scene.active()
    return lambda backend: backend.move_detector(detector, "")


async def draining(_: Scene) -> Callable[[Backend], Awaitable[object]]:
    return lambda backend: backend.drain_node("m", draining=False)


async def first_event(scene: Scene) -> Callable[[Backend], Awaitable[object]]:
    detector = await scene.backend.create_detector("passive")
    return lambda backend: backend.call(detector, EVENT)


CHANGES = [deletion, creation, fork, minting, revocation, move, draining, first_event]
WAYS = [
    pytest.param(change, how, id=f"{change.__name__} {how}")
    for how in ("remote", "here")
    for change in CHANGES
]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "how"), tried(WAYS, len(CHANGES)))
async def test_a_caller_that_leaves_at_any_step_leaves_nothing_half_done(tmp_path, change, how):
    async with scene(tmp_path, how) as on:
        for steps in range(STEPS_MAX):
            asked = await change(on)
            left = await on.leave(asked(on.backend), steps)
            await on.check()
            for detector in on.detectors:
                await on.backend.delete_detector(detector)
            if not left:
                break
        assert 2 < steps < STEPS_MAX - 1, "it has been left at every step"


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", tried([deletion, fork, revocation, move], 2), ids=lambda change: change.__name__
)
async def test_a_front_end_that_dies_at_any_step_leaves_nothing_half_done(tmp_path, change):
    async with scene(tmp_path, "here") as on:
        for steps in range(STEPS_MAX):
            asked = await change(on)
            async with front_end(on.service) as dying:
                working = asyncio.ensure_future(asked(dying.backend))
                for _ in range(steps):
                    await asyncio.sleep(0)
                over = working.done()
                dying.serves.close()
                working.cancel()
                await asyncio.wait({working})
            await on.check()
            for detector in on.detectors:
                await on.backend.delete_detector(detector)
            if over:
                break
        assert 2 < steps < STEPS_MAX - 1, "it has died at every step"


async def test_a_detector_whose_removal_had_an_unknown_outcome_is_purged_later(tmp_path):
    async with scene(tmp_path, "here") as on:
        detector = await on.active()
        # The directory removes it, but its answer never comes.
        assert on.directory.delete_detector(detector) is not None
        assert detector in on.folders
        await asyncio.sleep(_PURGE_AGAIN_S + 1)
        await on.check()
        assert not on.folders


async def test_a_purge_that_fails_is_repeated_until_the_files_are_gone(tmp_path, monkeypatch):
    async with scene(tmp_path, "here") as on:
        detector = await on.active()
        purge = Catalogue.purge_detector
        failures = iter([DetectorUnavailable(1501, "the disk is away"), RuntimeError("broken")])

        @wraps(purge)
        def fails_twice(directory: Catalogue, detector_id: str) -> None:
            for error in failures:
                raise error
            purge(directory, detector_id)

        monkeypatch.setattr(Catalogue, "purge_detector", fails_twice)
        await on.backend.delete_detector(detector)
        assert on.folders == {detector}
        await asyncio.sleep(3 * _PURGE_AGAIN_S)
        await on.check()
        assert not on.folders


async def test_a_directory_that_was_killed_between_the_two_steps_of_a_removal_purges_when_it_starts(tmp_path):
    async with scene(tmp_path, "here") as on:
        detector = await on.active()
        assert on.directory.delete_detector(detector) is not None
    async with scene(tmp_path, "here") as on:
        await on.check()
        assert detector not in on.folders


async def test_a_caller_that_leaves_while_the_directory_opens_again_holds_up_no_other(tmp_path):
    async with scene(tmp_path, "here") as on:
        for steps in range(STEPS_MAX):
            on.service.directories.fail()
            with suppress(DetectorUnavailable):
                await on.service.scheduler.changes(0, 0)
            began = len(on.service.directories.started)
            left = await on.leave(on.service.scheduler.changes(0, 0), steps)
            await on.service.scheduler.changes(0, 0)
            await on.check()
            assert len(on.service.directories.started) <= began + 1, "one was opened, and is used"
            if not left:
                break
        assert 2 < steps < STEPS_MAX - 1
