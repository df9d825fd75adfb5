"""What goes on while the directory is gone, and what front ends know of tokens and detectors."""

import asyncio
from typing import Any

import pytest

from engine.runtime.contract.tokens import StoredToken, digest_of
from snapshots.errors import StorageError
from tests.local_runtime.owners import event
from tests.local_runtime.service import local_backend, local_service, until
from tests.unit.runtime.backend.requests import refused

pytestmark = pytest.mark.skipping_clock


async def test_warm_detectors_go_on_while_the_directory_is_gone(tmp_path):
    async with local_service(tmp_path, poll_s=0.005, ask_s=0.001, deadline_s=1) as service:
        backend = service.backend
        warm, cold = await backend.create_detector("warm"), await backend.create_detector("cold")
        minted = await backend.mint_token()
        await backend.call(warm, event(1))
        service.directories.refuse = True
        service.directories.fail()
        await asyncio.sleep(0.02)
        await backend.call(warm, event(2))
        assert backend.permit(digest_of(minted.token))
        in_vain = (
            backend.call(cold, event(1)),
            backend.create_detector("three"),
            backend.permit_asked(b"unknown"),
        )
        assert await asyncio.gather(*map(refused, in_vain)) == [1501] * 3
        service.directories.refuse = False
        three = await backend.create_detector("three")
        await until(lambda: backend.exists(three))
        assert len(service.directories.started) > 1
        assert [name for _, name in await backend.detectors()] == ["warm", "cold", "three"]


async def test_an_unknown_token_is_asked_for_and_a_flood_of_them_costs_few_questions(tmp_path):
    async with local_service(tmp_path, poll_s=60, ask_s=0.05) as service:
        backend = service.backend
        directory = service.directories.started[-1]
        # As another front end would.
        directory.add_token("t" * 32, StoredToken(b"digest", "hint"))
        assert not backend.permit(b"digest")
        before = service.directories.calls.count("changes")
        found = await asyncio.gather(*(backend.permit_asked(b"digest") for _ in range(500)))
        assert all(found)
        assert len(found) == 500
        assert not any(await asyncio.gather(*(backend.permit_asked(b"%d" % number) for number in range(500))))
        assert service.directories.calls.count("changes") - before == 2
        before = service.directories.calls.count("changes")
        lookups = []
        for number in range(500):
            lookups.append(asyncio.create_task(backend.permit_asked(b"%d" % number)))
            await asyncio.sleep(0)
        await asyncio.gather(*lookups)
        assert service.directories.calls.count("changes") - before < 50


async def test_a_question_that_is_under_way_does_not_answer_for_what_came_after_it(tmp_path):
    async with local_service(tmp_path, poll_s=60, ask_s=0.001) as service:
        directory = service.directories.started[-1]
        changes, go_on, under_way = directory.changes, asyncio.Event(), asyncio.Event()

        async def answered_late(*seen: int) -> Any:
            answer = changes(*seen)
            under_way.set()
            await go_on.wait()
            return answer

        service.scheduler.catalogue.changes = answered_late
        early = asyncio.create_task(service.backend.permit_asked(b"digest"))
        await under_way.wait()
        directory.add_token("t" * 32, StoredToken(b"digest", "hint"))
        late = asyncio.create_task(service.backend.permit_asked(b"digest"))
        await asyncio.sleep(0.01)
        go_on.set()
        assert await late
        await early


async def test_a_question_under_way_does_not_bring_a_revoked_token_back(tmp_path):
    async with local_service(tmp_path, poll_s=60) as service:
        backend = service.backend
        directory = service.directories.started[-1]
        minted = await backend.mint_token()
        changes = directory.changes
        under_way, go_on = asyncio.Event(), asyncio.Event()

        async def answered_late(*seen: int) -> Any:
            answer = changes(*seen)
            under_way.set()
            await go_on.wait()
            return answer

        service.scheduler.catalogue.changes = answered_late
        lookup = asyncio.create_task(backend.permit_asked(digest_of(minted.token)))
        await under_way.wait()
        await backend.revoke_token(minted.id)
        go_on.set()
        assert not await lookup
        assert not backend.permit(digest_of(minted.token))


async def test_a_detector_that_another_front_end_made_or_deleted_is_noticed(tmp_path):
    async with local_service(tmp_path, poll_s=60) as service:
        backend = service.backend
        directory = service.directories.started[-1]
        directory.create_detectors({"a" * 32: "theirs"})
        await backend.call("a" * 32, event(1))
        mine = await backend.create_detector("mine")
        directory.delete_detector(mine)
        assert await refused(backend.call(mine, event(1))) == 1200


async def test_a_service_whose_directory_cannot_start_says_so(tmp_path):
    (tmp_path / "directory").write_text("no folder")
    with pytest.raises(StorageError, match="directory"):
        async with local_backend(tmp_path):
            pass
