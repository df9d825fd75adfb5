"""Detectors of a backend: what a restart finds, who is active, and which processes come and go."""

import asyncio
from typing import Any

import pytest

from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.tokens import digest_of
from tests.local_runtime.owners import event
from tests.local_runtime.service import local_backend, local_service, until
from tests.unit.runtime.backend.requests import fired, refused

pytestmark = pytest.mark.skipping_clock


async def test_a_restart_finds_tokens_detectors_rules_and_what_they_remember(tmp_path):
    async with local_backend(tmp_path) as backend:
        kept, revoked = await backend.mint_token(), await backend.mint_token()
        await backend.revoke_token(revoked.id)
        one, two = await backend.create_detector("one"), await backend.create_detector("two")
        gone = await backend.create_detector("gone")
        await backend.delete_detector(gone)
        await backend.call(one, ops.add_rule("recent", "once within 10s a == 1"))
        assert await fired(backend, one, 1000, a=1) == ["recent"]
    async with local_backend(tmp_path) as backend:
        assert backend.permit(digest_of(kept.token))
        assert not backend.permit(digest_of(revoked.token))
        assert await backend.detectors() == [(one, "one"), (two, "two")]
        assert await backend.detector(two) == "two"
        assert await fired(backend, one, 11_000, a=2) == ["recent"]
        assert await fired(backend, one, 11_001, a=2) == []
        assert await fired(backend, two, 1, a=1) == []
        assert await refused(backend.call(gone, ops.rules())) == 1200


async def test_what_does_not_exist_is_refused_by_its_kind(tmp_path):
    async with local_backend(tmp_path) as backend:
        for unknown in ("0" * 32, "", "../../etc"):
            assert await refused(backend.call(unknown, ops.rules())) == 1200
            assert await refused(backend.detector(unknown)) == 1200
            assert await refused(backend.delete_detector(unknown)) == 1200
            assert await refused(backend.revoke_token(unknown)) == 1202
            assert not backend.exists(unknown)


async def test_a_token_is_known_at_once_and_unknown_at_once(tmp_path):
    async with local_backend(tmp_path, poll_s=60) as backend:
        assert not backend.any_token
        minted = await backend.mint_token()
        assert backend.any_token
        assert backend.permit(digest_of(minted.token))
        assert not backend.permit(digest_of(minted.token + "x"))
        await backend.revoke_token(minted.id)
        assert not backend.permit(digest_of(minted.token))
        assert not await backend.permit_asked(digest_of(minted.token))
        assert await refused(backend.revoke_token(minted.id)) == 1202


async def test_more_detectors_than_places_take_turns_and_forget_nothing(tmp_path):
    async with local_service(tmp_path, max_resident=2, turn_s=0.001, spares=1) as service:
        backend = service.backend
        ids = [await backend.create_detector(f"{number}") for number in range(6)]
        for detector_id in ids:
            await backend.call(detector_id, ops.add_rule("first", "not once a == 1"))
        most = 0

        async def caller(detector_id: str) -> None:
            nonlocal most
            for step in range(8):
                await backend.call(detector_id, event(1000 + step))
                most = max(most, service.scheduler.active_detectors)

        await asyncio.gather(*(caller(detector_id) for detector_id in ids for _ in range(2)))
        assert most == 2
        for detector_id in ids:
            assert await fired(backend, detector_id, 2000, a=0) == ["first"]
            assert await fired(backend, detector_id, 2001, a=1) == []
        assert {await fired(backend, detector_id, 2002, a=0) == [] for detector_id in ids} == {True}
        assert sum(not actor.dead for actor in service.actors.started) <= 4
        await until(lambda: len(service.scheduler._placed) <= 2)


@pytest.mark.parametrize("spares", [1, 2])
async def test_the_first_processes_serve_all_detectors_while_no_others_come_up(tmp_path, spares):
    """After a restart, all get requests at once, and each process takes its time to start."""
    settings = {"spares": spares, "starts_at_once": 2, "turn_s": 0.001}
    async with local_service(tmp_path, **settings) as service:
        backend, actors = service.backend, service.actors
        ids = [await backend.create_detector(f"{number}") for number in range(30)]
        begin = actors.start

        async def start(*_: object) -> Any:
            if len(actors.started) >= 2:
                await asyncio.Event().wait()
            return await begin()

        actors.start = start
        answers = await asyncio.wait_for(asyncio.gather(*(fired(backend, one, 1) for one in ids)), 30)
        assert answers == [[]] * 30
        # Again, while each still has more to do.
        calls = [fired(backend, one, step) for one in ids for step in range(2, 12)]
        assert await asyncio.wait_for(asyncio.gather(*calls), 30) == [[]] * 300
        assert len(actors.started) == 2
        assert service.scheduler.active_detectors == 2, "both processes are of use"


async def test_a_changed_detector_is_saved_after_the_interval_and_not_again_without_a_change(tmp_path):
    async with local_service(tmp_path, snapshot_interval_s=0.01) as service:
        detector_id = await service.backend.create_detector("one")
        await service.backend.call(detector_id, event(1))
        actor = service.actors.with_detector(detector_id)
        assert actor is not None
        await until(lambda: service.scheduler.counts["snapshots_written"])
        await service.backend.call(detector_id, ops.rules())
        await asyncio.sleep(0.05)
        assert actor.calls.count(("finish_saving", 0)) == 1
        # What was saved is what a killed actor's successor begins with.
        actor.die()
        await until(lambda: not service.scheduler.active_detectors)
        late = await service.backend.call(detector_id, event(0))
        assert b"2001" in late.messages
        assert service.scheduler.counts["journal_records_read"] == 0
        assert service.scheduler.counts["detectors_lost"] == 1


async def test_one_detector_that_cannot_be_activated_keeps_no_other_from_serving(tmp_path):
    async with local_service(tmp_path) as service:
        backend = service.backend
        broken, sound = await backend.create_detector("broken"), await backend.create_detector("sound")
        await backend.call(broken, ops.add_rule("r", "a == 1"))
    for path in (tmp_path / "detectors" / broken).iterdir():
        path.write_bytes(b"")
    async with local_service(tmp_path, max_resident=1, retry_s=0.05) as service:
        backend = service.backend
        answers = await asyncio.gather(*(refused(backend.call(broken, event(1))) for _ in range(20)))
        assert answers == [1501] * 20
        assert await fired(backend, sound, 1) == []
        assert any(broken in reason for reason in (await backend.status()).problems)
        assert (await backend.status()).reasons == []
        tried = sum(call == "activate" for actor in service.actors.started for call, _ in actor.calls)
        began_s = asyncio.get_running_loop().time()
        for _ in range(20):
            assert await refused(backend.call(broken, event(1))) == 1501
        again = sum(call == "activate" for actor in service.actors.started for call, _ in actor.calls)
        assert again - tried <= 2 + (asyncio.get_running_loop().time() - began_s) / 0.05
        await until(lambda: list(service.scheduler._placed) in ([], [sound]))


async def test_a_detector_that_nobody_waits_for_any_more_is_not_activated(tmp_path):
    async with local_service(tmp_path, max_resident=1) as service:
        backend = service.backend
        busy, given_up = await backend.create_detector("busy"), await backend.create_detector("given up")
        go_on = asyncio.Event()

        async def wait(call: str) -> None:
            if call == "handle":
                await go_on.wait()

        for actor in service.actors.started:
            actor.before = wait
        service.actors.before = wait
        under_way = asyncio.create_task(backend.call(busy, event(1)))
        await until(lambda: service.scheduler.active_detectors)
        waits = asyncio.create_task(backend.call(given_up, event(1)))
        await asyncio.sleep(0.01)
        waits.cancel()
        go_on.set()
        await under_way
        await until(lambda: list(service.scheduler._placed) in ([busy], []))
        calls = [call for actor in service.actors.started for call, _ in actor.calls]
        assert calls.count("activate") == 1


@pytest.mark.slow
async def test_callers_that_never_pause_keep_no_other_detector_waiting(tmp_path):
    async with local_service(tmp_path, max_resident=2, spares=0) as service:
        backend, loop = service.backend, asyncio.get_running_loop()
        service.actors.before = lambda call: asyncio.sleep(0.1 * (call == "handle"))
        busy = [await backend.create_detector(f"busy {number}") for number in range(5)]
        sent = dict.fromkeys(busy, 0)

        async def send(detector_id: str) -> None:
            while True:
                assert await fired(backend, detector_id, 1) == []
                sent[detector_id] += 1

        tasks = [asyncio.create_task(send(one)) for one in busy for _ in range(2)]
        await asyncio.sleep(2)
        before = dict(sent)
        await asyncio.sleep(2)
        assert all(sent[one] > before[one] for one in busy), "they take turns"
        other, began_s = await backend.create_detector("other"), loop.time()
        assert await fired(backend, other, 1) == []
        assert loop.time() - began_s < 1
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()


async def test_a_detector_counts_as_large_until_it_leaves(tmp_path):
    async with local_service(tmp_path) as service:
        detector = await service.backend.create_detector("large at first")
        route = await service.scheduler.route(detector, 0, large=True)
        (placed,) = service.scheduler._placed.values()
        assert placed.large
        small = asyncio.create_task(service.scheduler.route(detector, route.epoch))
        await asyncio.sleep(0.01)
        worker = service.actors.with_detector(detector)
        assert worker is not None
        worker.make_room(route.epoch)
        assert (await small).epoch > route.epoch
        assert service.scheduler._placed[detector] is placed
        assert not placed.large
