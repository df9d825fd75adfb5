"""Started actors: how many, for whom, and which are replaced."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.scheduler.workers.detector_worker import Callbacks
from engine.runtime.scheduler.workers.worker_pool import WorkerPool
from tests.local_runtime.actors import LocalActors
from tests.local_runtime.service import until

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
        pool = WorkerPool(actors, chosen)
        pools.append(pool)
        return pool, actors

    yield make
    for pool in pools:
        await pool.close()


def alive(actors: LocalActors) -> int:
    return sum(not actor.dead for actor in actors.started)


async def test_spares_are_started_ahead_and_again_as_they_are_taken(make):
    pool, actors = make()
    pool.fill()
    await settled()
    assert len(actors.started) == 2
    await pool.take()
    await settled()
    assert len(actors.started) == 3


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


async def test_no_more_are_being_started_at_once_than_is_set(make):
    pool, actors = make(starts_at_once=2, spares=3)
    takers = [asyncio.create_task(pool.take()) for _ in range(9)]
    under_way = 0
    most = 0
    begin = actors.start

    async def counted(*arguments: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return await begin(*arguments)

    actors.start = counted
    taken = await asyncio.gather(*takers)
    assert len({actor.port.name for actor in taken}) == 9
    assert most == 2


async def test_whoever_shares_out_places_is_told_how_many_are_started(tmp_path):
    settings = RuntimeSettings(data=tmp_path, spares=2)
    actors, told = LocalActors(settings), []
    pool = WorkerPool(actors, settings, told.append)
    pool.fill()
    await settled()
    assert told == [1, 2]
    actors.refuse = True
    actors.started[0].die()
    await settled()
    assert told == [1, 2, 1]
    await pool.close()


async def test_no_more_are_started_than_may_be_active(make):
    pool, actors = make(max_resident=3)
    for _ in range(3):
        await pool.take()
        await settled()
    assert len(actors.started) == 3


async def test_each_taker_has_an_actor_of_its_own(make):
    pool, actors = make()
    taken = await asyncio.gather(*(pool.take() for _ in range(5)))
    assert len({actor.port.name for actor in taken}) == 5
    await settled()
    assert len(actors.started) == 7


async def test_what_is_given_back_is_used_again(make):
    pool, actors = make()
    for _ in range(10):
        pool.give_back(await pool.take())
        await settled()
    assert len(actors.started) == 3
    assert alive(actors) == 3


async def test_no_more_than_twice_the_spares_wait_unused_for_long(make):
    pool, actors = make(unused_s=0.02)
    taken = await asyncio.gather(*(pool.take() for _ in range(6)))
    await settled()
    for actor in taken:
        pool.give_back(actor)
    assert alive(actors) == 8
    await until(lambda: alive(actors) < 8)
    assert alive(actors) == 4


async def test_workers_that_are_soon_needed_again_are_not_ended(make):
    pool, actors = make(unused_s=60)
    for _ in range(8):
        taken = await asyncio.gather(*(pool.take() for _ in range(6)))
        assert pool._trimming is None
        await settled()
        for worker in taken:
            pool.give_back(worker)
        assert pool._trimming is not None
    assert alive(actors) == len(actors.started) == 8


@pytest.mark.parametrize(("settings", "resident_bytes"), [({"activations_max": 1}, 0), ({}, 2**40)])
async def test_a_worn_actor_is_replaced(make, settings, resident_bytes):
    pool, actors = make(**settings)
    worn = await pool.take()
    pool.give_back(worn, resident_bytes)
    await settled()
    assert worn.port.dead
    assert alive(actors) == 2


async def test_one_that_dies_unused_is_replaced_and_never_taken(make):
    pool, actors = make()
    pool.fill()
    await settled()
    for actor in list(actors.started):
        actor.die()
    await settled()
    assert alive(actors) == 2
    taken = await pool.take()
    assert not taken.port.dead


async def test_the_death_of_one_in_use_is_told_once(make):
    pool, _ = make()
    told = []
    actor = await pool.take()
    actor.enter(1, Callbacks(lambda _: None, lambda: told.append("died")))
    actor.port.die()
    await settled()
    assert told == ["died"]
    assert actor.dead
    pool.lose(actor)
    assert told == ["died"]
    assert len(pool.all) == 2


async def test_one_that_is_lost_is_ended_and_nobody_is_told(make):
    pool, _ = make()
    actor = await pool.take()
    actor.enter(1, Callbacks(lambda _: None, lambda: pytest.fail("whoever loses it knows")))
    actor.leave(1)
    pool.lose(actor)
    await settled()
    assert actor.port.dead


async def test_while_none_can_be_started_takers_wait_until_one_can(make):
    pool, actors = make()
    actors.refuse = True
    taker = asyncio.create_task(pool.take())
    await asyncio.sleep(0.03)
    assert not taker.done()
    actors.refuse = False
    await asyncio.wait_for(taker, 2)


@pytest.mark.parametrize("gone_first", [False, True])
async def test_a_taker_that_goes_away_leaves_its_actor_to_the_next(make, gone_first):
    pool, actors = make(spares=0)
    only = await pool.take()
    actors.refuse = True
    gone, stays = (asyncio.create_task(pool.take()) for _ in range(2))
    await settled()
    if gone_first:
        gone.cancel()
    pool.give_back(only)
    gone.cancel()
    assert await asyncio.wait_for(stays, 1) is only


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


async def test_no_more_workers_are_started_ahead_than_detectors_may_need(make):
    pool, actors = make(detectors_per_worker=4, spares=3, max_resident=8)
    for _ in range(5):
        await pool.take()
        await settled()
    assert len(actors.started) == 2


async def test_a_worn_worker_takes_no_more_and_is_ended_by_the_last_who_leaves(make):
    pool, _ = make(detectors_per_worker=2, spares=0)
    one, other = await pool.take(), await pool.take()
    assert one is other
    pool.give_back(one, resident_bytes=2**40)
    assert await pool.take() is not one
    assert not one.dead
    pool.give_back(one)
    await settled()
    assert one.port.dead


async def test_the_death_of_a_worker_is_told_to_all_but_who_caused_it(make):
    pool, _ = make(detectors_per_worker=3)
    told = []
    worker = await pool.take()
    for epoch in range(3):
        worker.enter(epoch, Callbacks(lambda _: None, lambda epoch=epoch: told.append(epoch)))
    worker.leave(1)
    pool.lose(worker)
    assert told == [0, 2]


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


async def test_closing_ends_every_actor(make):
    pool, actors = make()
    await pool.take()
    await settled()
    await pool.close()
    assert alive(actors) == 0
