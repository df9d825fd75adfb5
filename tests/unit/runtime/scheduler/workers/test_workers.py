"""Started actors: how many, for whom, and which are replaced."""

import asyncio
import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.cluster_nodes import Nodes
from engine.runtime.scheduler.workers.detector_worker import Callbacks, DetectorWorker
from engine.runtime.scheduler.workers.worker_pool import WorkerPool
from tests.local_runtime.actors import LocalActors, LocalNodes

pytestmark = pytest.mark.skipping_clock


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def make(tmp_path):
    pools = []

    def make(**settings: Any) -> tuple[WorkerPool, LocalActors]:
        chosen = RuntimeSettings(data=Path(tmp_path), **{"spares": 2, "retry_s": 0.01, **settings})
        actors = LocalActors(chosen)
        pool = WorkerPool(actors, chosen, Nodes(LocalNodes(), chosen))
        pools.append(pool)
        return pool, actors

    yield make
    for pool in pools:
        await pool.close()


def alive(actors: LocalActors) -> int:
    return sum(not actor.dead for actor in actors.started)


class World:
    """A pool, and beside it a plain account of who has which worker."""

    def __init__(self, chance: random.Random, folder: Path) -> None:
        self.chance = chance
        self.settings = RuntimeSettings(
            data=folder,
            retry_s=0.01,
            unused_s=0.5,
            spares=chance.randrange(3),
            starts_at_once=chance.choice((1, 2, 4)),
            max_resident=chance.choice((3, 6)),
            detectors_per_worker=chance.choice((1, 1, 3)),
            activations_max=chance.choice((2, 1_000)),
        )
        self.actors = LocalActors(self.settings)
        self.started: list[int] = []
        """The numbers of started workers that were told."""
        self.pool = WorkerPool(
            self.actors, self.settings, Nodes(LocalNodes(), self.settings), self.started.append
        )
        self.starting = 0
        self.has: dict[int, DetectorWorker] = {}
        """The workers of detectors, by the epochs of their activations."""
        self.alone: set[int] = set()
        self.given: Counter[DetectorWorker] = Counter()
        """How often each worker was given to a detector."""
        self.worn: set[DetectorWorker] = set()
        self.takers: dict[int, asyncio.Task[DetectorWorker]] = {}
        self.died: list[int] = []
        self.expected: list[int] = []
        """The epochs of the detectors that died with their workers."""
        self.killed: DetectorWorker | None = None
        """The worker that died last."""
        self.epochs = itertools.count(1)
        self.start, self.actors.start = self.actors.start, self.counted

    async def counted(self, *arguments: Any) -> Any:
        self.starting += 1
        assert self.starting <= self.settings.starts_at_once
        try:
            await asyncio.sleep(self.chance.choice((0, 0.001)))
            return await self.start(*arguments)
        finally:
            self.starting -= 1

    async def step(self) -> None:
        chance = self.chance
        step = chance.choice(
            [*[self.take] * 4, *[self.give_back] * 3, self.die, self.go, self.refuse, self.rest]
        )
        if (under_way := step()) is not None:
            await under_way
        await asyncio.sleep(chance.choice((0, 0, 0.002, 0.02)))
        self.look()

    def look(self) -> None:
        """Compare what there is with the account."""
        for epoch, task in [*self.takers.items()]:
            if task.done():
                del self.takers[epoch]
                self.enter(epoch, task.result())
        taken = Counter(self.has.values())
        assert max(taken.values(), default=0) <= self.settings.detectors_per_worker
        assert all(taken[self.has[epoch]] == 1 for epoch in self.alone & self.has.keys())
        assert sorted(self.died) == sorted(self.expected)
        living = {worker.port.name for worker in self.pool.all}
        assert {worker.port.name for worker in self.has.values()} <= living
        assert living == {actor.name for actor in self.actors.started if not actor.dead}
        assert (self.started or [0])[-1] == len(living)
        assert not [worker for worker in self.worn if not worker.dead and not taken[worker]]

    def enter(self, epoch: int, worker: DetectorWorker) -> None:
        if worker is self.killed:
            self.alone.discard(epoch)
            return
        assert not worker.dead
        assert worker not in self.worn
        worker.enter(epoch, Callbacks(lambda _: None, lambda: self.died.append(epoch)))
        self.has[epoch] = worker
        self.given[worker] += 1

    def take(self) -> None:
        if len(self.has) + len(self.takers) < self.settings.max_resident:
            epoch = next(self.epochs)
            if alone := self.chance.random() < 0.2:
                self.alone.add(epoch)
            self.takers[epoch] = asyncio.create_task(self.pool.take(alone=alone))

    def give_back(self) -> None:
        if self.has:
            epoch = self.chance.choice(list(self.has))
            worker = self.has.pop(epoch)
            self.alone.discard(epoch)
            worker.leave(epoch)
            resident_bytes = self.chance.choice((0, 0, 0, 2**40))
            if resident_bytes or self.given[worker] >= (
                self.settings.activations_max * self.settings.detectors_per_worker
            ):
                self.worn.add(worker)
            self.pool.give_back(worker, resident_bytes)

    async def die(self) -> None:
        """A worker dies, used or not, or whoever has it gives it up."""
        if not self.pool.all:
            return
        worker = self.chance.choice(sorted(self.pool.all, key=lambda worker: worker.port.name))
        self.look()
        for epoch in [epoch for epoch, one in self.has.items() if one is worker]:
            del self.has[epoch]
            self.alone.discard(epoch)
            self.expected.append(epoch)
        # Somebody may be about to get it.
        self.killed = worker
        if self.chance.random() < 0.5:
            worker.port.die()
            await settled()
        else:
            self.pool.lose(worker)

    def go(self) -> None:
        """A taker goes away; if it has got a worker in this moment, the next one has it."""
        if self.takers:
            epoch = self.chance.choice(list(self.takers))
            self.takers.pop(epoch).cancel()
            self.alone.discard(epoch)

    def refuse(self) -> None:
        self.actors.refuse = self.chance.random() < 0.5

    def rest(self) -> None:
        """Nothing."""

    async def settle(self) -> None:
        """Have all be served, and surplus workers end."""
        self.actors.refuse = False
        await asyncio.sleep(0.2)
        self.look()
        assert not self.takers, "everybody has a worker"
        taken = Counter(self.has.values())
        assert [worker.taken for worker in self.pool.all] == [taken[worker] for worker in self.pool.all]
        used, free = set(self.has.values()), self.settings.max_resident - len(self.has)
        per_worker = self.settings.detectors_per_worker
        room = sum(
            per_worker - count
            for worker, count in Counter(self.has.values()).items()
            if worker not in self.worn and not worker.alone
        )
        needed = min(self.settings.spares, max(0, -(-(free - room) // per_worker)))
        assert len(self.pool.all - used) >= needed, "spares are ready"
        await asyncio.sleep(0.6)
        assert len(self.pool.all - used) <= max(1, 2 * self.settings.spares), "no more than are useful"


async def test_workers_are_shared_replaced_and_ended_as_a_plain_account_says(
    examples: Any, tmp_path: Path
) -> None:
    for chance in examples(400):
        world = World(chance, tmp_path)
        world.pool.fill()
        for _ in range(40):
            await world.step()
        await world.settle()
        await world.pool.close()
        assert alive(world.actors) == 0


async def test_one_that_is_spared_does_not_count_as_ready_for_those_that_come(make):
    pool, actors = make(spares=1, max_resident=3)
    pool.fill()
    await settled()
    for _ in range(2):
        pool.fill(besides=1)
        await settled()
        assert len(actors.started) == 2
    await pool.take()
    for _ in range(3):
        pool.fill(besides=1)
        await settled()
    assert len(actors.started) == 3
    await pool.take()
    pool.fill(besides=1)
    await settled()
    assert len(actors.started) == 3, "no more than there can be active detectors"


async def test_workers_that_are_soon_needed_again_are_not_ended(make):
    pool, actors = make(unused_s=60)
    for _ in range(8):
        taken = await asyncio.gather(*(pool.take() for _ in range(6)))
        await settled()
        for worker in taken:
            pool.give_back(worker)
        await asyncio.sleep(25)
    assert alive(actors) == len(actors.started) == 8


@pytest.mark.parametrize(("spares", "kept"), [(0, 1), (2, 4)])
async def test_of_more_unused_workers_than_are_useful_those_unused_longest_are_ended(make, spares, kept):
    pool, actors = make(spares=spares, unused_s=60)
    for _ in range(2):
        taken = await asyncio.gather(*(pool.take() for _ in range(6)))
        await settled()
        for some in (taken[:-1], taken[-1:]):
            for worker in some:
                pool.give_back(worker)
            await asyncio.sleep(61)
        assert [worker for worker in taken if not worker.dead] == taken[-kept:]
        assert alive(actors) == kept


async def test_few_workers_are_filled_and_those_with_room_come_before_new_ones(make):
    pool, actors = make(detectors_per_worker=3, spares=0)
    taken = []
    for epoch in range(7):
        worker = await pool.take()
        worker.enter(epoch, Callbacks(lambda _: None, lambda: None))
        taken.append(worker)
    await settled()
    assert [worker.port.name for worker in taken] == [f"local-{n}" for n in (0, 0, 0, 1, 1, 1, 2)]
    taken[1].leave(1)
    pool.give_back(taken[1])
    assert (await pool.take()).port.name == "local-0", "it is the fullest that has room"
    assert alive(actors) == 3


async def test_a_detector_goes_where_no_other_is_being_activated(make):
    pool, actors = make(detectors_per_worker=3, spares=1)
    slow = await pool.take()
    await settled()
    assert await pool.take() is not slow
    await settled()
    assert alive(actors) == 3


async def test_who_needs_a_worker_alone_has_it_and_holds_up_nobody(make):
    pool, actors = make(detectors_per_worker=3, spares=0)
    shared = await pool.take()
    shared.enter(1, Callbacks(lambda _: None, lambda: None))
    actors.refuse = True
    waits = asyncio.create_task(pool.take(alone=True))
    await settled()
    second = await pool.take()
    assert second is shared
    second.enter(2, Callbacks(lambda _: None, lambda: None))
    actors.refuse = False
    alone = await asyncio.wait_for(waits, 2)
    assert alone is not shared
    alone.enter(3, Callbacks(lambda _: None, lambda: None))
    assert await pool.take() is shared
    assert await pool.take() not in (shared, alone)
    alone.leave(3)
    pool.give_back(alone)
    assert not alone.alone
    assert alive(actors) >= 2


@pytest.mark.parametrize(
    ("settings", "taken", "started"),
    [
        ({"max_resident": 3}, 3, 3),
        ({"detectors_per_worker": 4, "spares": 3, "max_resident": 8}, 5, 2),
    ],
)
async def test_no_more_are_started_than_detectors_may_need(make, settings, taken, started):
    pool, actors = make(**settings)
    for _ in range(taken):
        await pool.take()
        await settled()
    assert len(actors.started) == started
