"""What a backend has answered survives processes, journals and disks that fail."""

import asyncio
import errno
import json
from typing import Any

import pytest

from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from tests.faulty_files import FaultyFiles
from tests.local_runtime.owners import event
from tests.local_runtime.service import local_service, until
from tests.unit.runtime.backend.requests import fired, fired_at_last, refused

pytestmark = pytest.mark.skipping_clock


async def test_a_long_journal_brings_the_next_snapshot_forward_and_batches_go_on_meanwhile(tmp_path):
    async with local_service(tmp_path, snapshot_journal_bytes=2_000) as service:
        backend = service.backend
        detector_id = await backend.create_detector("one")
        await backend.call(detector_id, event(0))
        actor = service.actors.with_detector(detector_id)
        assert actor is not None
        go_on = asyncio.Event()

        async def wait(call: str) -> None:
            if call == "finish_saving":
                await go_on.wait()

        actor.before = wait
        for number in range(40):
            await backend.call(detector_id, event(number))
        assert actor.calls.count(("begin_saving", 0)) == 1
        assert ("handle", 1) in actor.calls[actor.calls.index(("finish_saving", 0)) :]
        go_on.set()
        await until(lambda: service.scheduler.counts["snapshots_written"])


@pytest.mark.parametrize("call", ["handle", "sync", "begin_saving"])
async def test_a_journal_that_fails_is_told_and_the_detector_comes_back_beside_the_others(tmp_path, call):
    files = FaultyFiles()
    settings = {"handle": {}, "sync": {"journal_sync": "interval", "journal_sync_interval_s": 0.01}}
    chosen = settings.get(call, {"journal_sync": "interval", "snapshot_interval_s": 0.01})
    shared = {"detectors_per_worker": 2, "retry_s": 0.01}
    async with local_service(tmp_path, files=files, **shared, **chosen) as service:
        backend = service.backend
        detector_id, other = await backend.create_detector("one"), await backend.create_detector("other")
        for each in (other, detector_id):
            await backend.call(each, ops.add_rule("r", "once a == 1"))
        worker = service.actors.with_detector(other)
        assert worker is service.actors.with_detector(detector_id)
        files.fail_next("sync_data")
        if call == "handle":
            assert await refused(backend.call(detector_id, event(1))) == 1502
        else:
            await backend.call(detector_id, event(1))
        await until(lambda: service.scheduler.counts["journal_failures"] == 1)
        for each in (other, detector_id):
            assert await fired(backend, each, 2, a=1) == ["r"]
            assert await fired(backend, each, 3) == ["r"]
        assert service.actors.with_detector(other) is worker


async def test_a_record_that_cannot_be_written_was_certainly_not_evaluated(tmp_path):
    files = FaultyFiles()
    async with local_service(tmp_path, files=files) as service:
        backend = service.backend
        detector_id = await backend.create_detector("one")
        await backend.call(detector_id, ops.add_rule("r", "once a == 1"))
        files.fail_next("write")
        assert await refused(backend.call(detector_id, event(1, a=1))) == 1501
        assert await fired(backend, detector_id, 2) == []


async def test_of_what_was_in_flight_only_what_has_a_key_is_sent_again_and_evaluated_once(tmp_path):
    async with local_service(tmp_path) as service:
        backend = service.backend
        detector_id = await backend.create_detector("one")
        await backend.call(detector_id, ops.add_rule("first", "a == 1 and not once b == 1"))
        actor = service.actors.with_detector(detector_id)
        assert actor is not None
        handle = actor.actor.handle

        def die_after(batch: Any) -> Any:
            reply = handle(batch)
            actor.die()
            return reply

        actor.actor.handle = die_after
        body = event(1, a=1).payload
        once_b = event(2, b=1)
        keyed = asyncio.create_task(backend.call(detector_id, ops.evaluate(body, "key")))
        bare = asyncio.create_task(refused(backend.call(detector_id, once_b)))
        assert [action["name"] for action in json.loads((await keyed).result)["actions"]] == ["first"]
        assert await bare == 1502
        again = await backend.call(detector_id, ops.evaluate(body, "key"))
        assert again == keyed.result()
        assert await fired(backend, detector_id, 3, a=1) == []


async def test_damage_is_reported_and_the_detector_goes_on_from_the_snapshot_before_and_the_journal(tmp_path):
    async with local_service(tmp_path, snapshot_interval_s=0.01) as service:
        backend = service.backend
        detector_id = await backend.create_detector("one")
        for count, name in enumerate(("first", "second", "third"), start=1):
            await backend.call(detector_id, ops.add_rule(name, "a == 1"))
            await until(lambda count=count: service.scheduler.counts["snapshots_written"] == count)
    newest = max((tmp_path / "detectors" / detector_id).glob("snapshot-*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    async with local_service(tmp_path) as service:
        backend = service.backend
        assert await fired(backend, detector_id, 1, a=1) == ["first", "second", "third"]
        status = await backend.status()
        assert status.reasons == []
        (reason,) = status.problems
        assert newest.name in reason
        assert detector_id in reason
        assert service.scheduler.counts["files_set_aside"] == 1


async def test_a_full_disk_refuses_what_must_be_kept_until_there_is_room(tmp_path):
    files = FaultyFiles(error=errno.ENOSPC, for_good=True)
    async with local_service(tmp_path, files=files, retry_s=0.01, snapshot_interval_s=0.01) as service:
        backend = service.backend
        one, two = await backend.create_detector("one"), await backend.create_detector("two")
        await backend.call(one, ops.add_rule("r", "once a == 1"))
        await fired(backend, one, 1, a=1)
        files.fail_next("reserve", "create", "make_folder")
        large = event(2, text="x" * 200_000)
        answer = await backend.call(one, large)
        assert [entry.code for entry in answer.entries] == [1501]
        assert any("has no room" in reason for reason in (await backend.status()).problems)
        assert service.scheduler.counts["batches_without_room"] == 1
        assert b'"r"' in (await backend.call(one, ops.rules())).result
        # One that is passive can be read only.
        answer = await backend.call(two, event(1))
        assert [entry.code for entry in answer.entries] == [1501]
        assert (await backend.call(two, ops.rules())).result == b'{"rules":[]}'
        with pytest.raises(DetectorUnavailable, match=r"has no room|cannot be made") as caught:
            await backend.create_detector("three")
        assert caught.value.code == 1501
        await until(lambda: service.scheduler.counts["snapshots_failed"])
        files.fails_at = None
        await backend.call(one, large)
        assert await fired(backend, one, 3) == ["r"]
        assert await fired_at_last(backend, two, 1) == []
        await until(lambda: not service.scheduler._problems.current)


async def test_a_process_that_is_lost_loses_nothing_that_it_wrote_but_what_was_never_written(tmp_path):
    """An evaluation may be in the journal and not yet on the disk: that outlives the process."""
    for sync, lost in (("interval", 0), ("off", 1)):
        settings = {"journal_sync": sync, "journal_sync_interval_s": 60, "spares": 0}
        async with local_service(tmp_path / sync, **settings) as service:
            backend = service.backend
            detector_id = await backend.create_detector("one")
            await backend.call(detector_id, event(1))
            actor = service.actors.with_detector(detector_id)
            assert actor is not None

            async def dies(_: str, actor: Any = actor) -> None:
                actor.die()

            actor.before = dies
            assert len(await backend.close()) == lost
