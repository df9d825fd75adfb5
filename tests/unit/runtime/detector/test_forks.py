"""A detector that begins with the state of another: whole or not at all, and the other goes on."""

import asyncio
import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from snapshots.errors import Fenced, StorageError
from tests.faulty_files import FaultyFiles
from tests.local_runtime.catalogues import newborn
from tests.local_runtime.owners import event
from tests.local_runtime.service import LocalService, local_service, until
from tests.unit.runtime.backend.requests import fired, refused

pytestmark = pytest.mark.skipping_clock


QUICK: dict[str, Any] = {"retry_s": 0.01}


async def source_of(service: LocalService) -> str:
    """A detector with a rule and an event that it remembers."""
    detector_id = await service.backend.create_detector("source")
    await service.backend.call(detector_id, ops.add_rule("seen", "per user once a == 1"))
    assert await fired(service.backend, detector_id, 1, a=1, user="ada") == ["seen"]
    return detector_id


async def rule_ids(service: LocalService, detector_id: str) -> list[str]:
    answer = await service.backend.call(detector_id, ops.rules())
    return [rule["id"] for rule in json.loads(answer.result)["rules"]]


def folders(data: Path) -> set[str]:
    return {path.name for path in data.glob("detectors/*")}


async def nothing_is_left_but(service: LocalService, *ids: str) -> None:
    assert folders(service.settings.data) == set(ids)
    assert [detector_id for detector_id, _ in await service.backend.detectors()] == list(ids)


class Gate:
    """Holds a call of workers until it is opened."""

    def __init__(self, service: LocalService, call: str) -> None:
        self.met = asyncio.Event()
        self.open = asyncio.Event()
        self._call = call
        service.actors.before = self._before
        for worker in service.actors.started:
            worker.before = self._before

    async def _before(self, call: str) -> None:
        if call == self._call:
            self.met.set()
            await self.open.wait()


async def test_a_fork_remembers_what_its_source_saw_and_then_goes_its_own_way(tmp_path):
    async with local_service(tmp_path) as service:
        source = await source_of(service)
        fork = await service.backend.fork_detector(source, "fork")
        assert await service.backend.detectors() == [(source, "source"), (fork, "fork")]
        assert await fired(service.backend, fork, 2, user="ada") == ["seen"]
        assert await fired(service.backend, source, 3, a=1, user="bob") == ["seen"]
        assert await fired(service.backend, fork, 4, user="bob") == []
        await service.backend.call(source, ops.remove_rule((await rule_ids(service, source))[0]))
        assert len(await rule_ids(service, fork)) == 1
    async with local_service(tmp_path) as service:
        assert await fired(service.backend, fork, 5, user="ada") == ["seen"]
        assert await fired(service.backend, fork, 6, user="bob") == []
        assert await rule_ids(service, source) == []


async def test_rules_of_a_fork_have_ids_of_their_own(tmp_path):
    async with local_service(tmp_path) as service:
        source = await source_of(service)
        fork = await service.backend.fork_detector(source, "fork")
        again = await service.backend.fork_detector(fork, "of the fork")
        ids = [await rule_ids(service, detector) for detector in (source, fork, again)]
        assert len({rule_id for each in ids for rule_id in each}) == 3
        assert all(re.fullmatch("[0-9a-f]{32}", rule_id) for each in ids for rule_id in each)
        actions = (await service.backend.call(fork, event(2, user="ada"))).result
        assert json.loads(actions)["actions"][0]["ruleId"] == ids[1][0]


async def test_the_source_evaluates_while_its_fork_is_written_and_that_is_not_in_it(tmp_path):
    async with local_service(tmp_path) as service:
        source = await source_of(service)
        gate = Gate(service, "make_fork")
        forking = asyncio.create_task(service.backend.fork_detector(source, "fork"))
        await gate.met.wait()
        assert await fired(service.backend, source, 2, a=1, user="bob") == ["seen"]
        assert not forking.done()
        gate.open.set()
        fork = await forking
        assert await fired(service.backend, fork, 3, user="bob") == []
        assert await fired(service.backend, fork, 4, user="ada") == ["seen"]


async def test_forks_of_one_detector_are_written_one_at_a_time(tmp_path):
    async with local_service(tmp_path) as service:
        source = await source_of(service)
        gate = Gate(service, "make_fork")
        forking = [asyncio.create_task(service.backend.fork_detector(source, f"{n}")) for n in range(3)]
        await gate.met.wait()
        await fired(service.backend, source, 2, a=1, user="bob")
        worker = service.actors.with_detector(source)
        assert worker is not None
        assert [call for call, _ in worker.calls].count("begin_fork") == 1
        gate.open.set()
        forks = await asyncio.gather(*forking)
        assert [await fired(service.backend, fork, 3, user="bob") for fork in forks] == [
            [],
            ["seen"],
            ["seen"],
        ]


async def test_a_passivated_detector_can_be_forked(tmp_path):
    async with local_service(tmp_path, passivate_after_s=0.0) as service:
        source = await source_of(service)
        await until(lambda: service.scheduler.active_detectors == 0)
        fork = await service.backend.fork_detector(source, "fork")
        assert await fired(service.backend, fork, 2, user="ada") == ["seen"]


async def test_a_detector_that_must_make_room_is_passivated_after_its_fork(tmp_path):
    async with local_service(tmp_path, max_resident=1, turn_s=0.0) as service:
        source = await source_of(service)
        gate = Gate(service, "make_fork")
        forking = asyncio.create_task(service.backend.fork_detector(source, "fork"))
        await gate.met.wait()
        other = await service.backend.create_detector("other")
        waits = asyncio.create_task(fired(service.backend, other, 1))
        await asyncio.sleep(0.05)
        assert not waits.done()
        gate.open.set()
        fork = await forking
        assert await waits == []
        assert await fired(service.backend, fork, 2, user="ada") == ["seen"]


@pytest.mark.parametrize("sync", ["always", "interval", "off"])
async def test_a_fork_has_what_its_source_has_only_in_memory(tmp_path, sync):
    async with local_service(tmp_path, journal_sync=sync) as service:
        source = await source_of(service)
        fork = await service.backend.fork_detector(source, "fork")
        service.actors.with_detector(source).die()  # type: ignore[union-attr]
        assert await fired(service.backend, fork, 2, user="ada") == ["seen"]


async def test_a_fork_does_not_have_the_answers_to_keys_of_its_source(tmp_path):
    async with local_service(tmp_path) as service:
        source = await source_of(service)
        body = b'{"event": {"fields": {"a": 1, "user": "ada"}, "timestamp_ms": 2}}'
        await service.backend.call(source, ops.evaluate(body, "key"))
        fork = await service.backend.fork_detector(source, "fork")
        again = json.loads((await service.backend.call(fork, ops.evaluate(body, "key"))).result)
        assert again["actions"][0]["ruleId"] == (await rule_ids(service, fork))[0]


# -- what fails leaves nothing -------------------------------------------------------------------------------


async def test_past_the_limit_nothing_is_left(tmp_path):
    async with local_service(tmp_path, detectors_max=1) as service:
        source = await source_of(service)
        assert await refused(service.backend.fork_detector(source, "fork")) == 1400
        await nothing_is_left_but(service, source)


async def test_what_does_not_exist_cannot_be_forked(tmp_path):
    async with local_service(tmp_path) as service:
        assert await refused(service.backend.fork_detector("0" * 32, "fork")) == 1200
        await nothing_is_left_but(service)


async def test_a_source_that_is_deleted_meanwhile_leaves_a_whole_fork(tmp_path):
    async with local_service(tmp_path) as service:
        source = await source_of(service)
        gate = Gate(service, "make_fork")
        forking = asyncio.create_task(service.backend.fork_detector(source, "fork"))
        await gate.met.wait()
        deleting = asyncio.create_task(service.backend.delete_detector(source))
        await asyncio.sleep(0.01)
        gate.open.set()
        fork = await forking
        await deleting
        assert await fired(service.backend, fork, 2, user="ada") == ["seen"]
        await until(lambda: folders(tmp_path) == {fork})


async def test_a_source_that_is_deleted_before_leaves_nothing(tmp_path):
    async with local_service(tmp_path) as service:
        source = await source_of(service)
        gate = Gate(service, "handle")
        busy = asyncio.create_task(service.backend.call(source, event(2)))
        await gate.met.wait()
        forking = asyncio.create_task(refused(service.backend.fork_detector(source, "fork")))
        await asyncio.sleep(0.01)
        deleting = asyncio.create_task(service.backend.delete_detector(source))
        await asyncio.sleep(0.01)
        gate.open.set()
        assert await forking == 1200
        await asyncio.gather(busy, deleting)
        await until(lambda: not folders(tmp_path))


@pytest.mark.parametrize("call", ["begin_fork", "make_fork"])
async def test_if_the_process_dies_nothing_is_left(tmp_path, call):
    async with local_service(tmp_path, **QUICK) as service:
        source = await source_of(service)
        gate = Gate(service, call)
        forking = asyncio.create_task(refused(service.backend.fork_detector(source, "fork")))
        await gate.met.wait()
        service.actors.with_detector(source).die()  # type: ignore[union-attr]
        gate.open.set()
        assert await forking == 1501
        await nothing_is_left_but(service, source)
        assert await fired(service.backend, source, 2, user="ada") == ["seen"]


@pytest.mark.parametrize("call", ["make_folder", "create", "write", "sync", "rename", "sync_folder"])
async def test_if_its_folder_cannot_be_made_nothing_is_left_and_the_source_goes_on(tmp_path, call):
    files = FaultyFiles()
    async with local_service(tmp_path, files=files, **QUICK) as service:
        source = await source_of(service)
        gate = Gate(service, "make_fork")
        forking = asyncio.create_task(refused(service.backend.fork_detector(source, "fork")))
        await gate.met.wait()
        files.error = errno.ENOSPC
        files.fail_next(call)
        gate.open.set()
        assert await forking == 1501
        assert files.failed
        await nothing_is_left_but(service, source)
        assert await fired(service.backend, source, 2, user="ada") == ["seen"]


async def test_a_directory_that_opens_again_in_between_takes_the_folder_for_a_leftover(tmp_path):
    async with local_service(tmp_path, **QUICK) as service:
        source = await source_of(service)
        directories = service.directories

        async def before(call: str) -> None:
            if call == "enter_fork":
                directories.before = _go_on
                directories.fail()

        directories.before = before
        assert await refused(service.backend.fork_detector(source, "fork")) == 1502
        assert len(service.directories.started) == 2
        await nothing_is_left_but(service, source)
        fork = await service.backend.fork_detector(source, "fork")
        assert await fired(service.backend, fork, 2, user="ada") == ["seen"]


async def test_a_fork_that_is_asked_for_again_is_the_same(tmp_path):
    async with local_service(tmp_path) as service:
        source = await source_of(service)
        fork = "f" * 32
        version = await service.scheduler.fork_detector(source, fork, "fork")
        assert await fired(service.backend, fork, 2, a=1, user="bob") == ["seen"]
        assert await service.scheduler.fork_detector(source, fork, "fork") == version
        assert await fired(service.backend, fork, 3, user="bob") == ["seen"]


async def test_a_service_that_stops_completes_what_it_began(tmp_path):
    async with local_service(tmp_path) as service:
        source = await source_of(service)
        gate = Gate(service, "make_fork")
        forking = asyncio.create_task(service.backend.fork_detector(source, "fork"))
        await gate.met.wait()
        closing = asyncio.create_task(service.backend.close())
        await asyncio.sleep(0.05)
        gate.open.set()
        await closing
        fork = await forking
    async with local_service(tmp_path) as service:
        assert await fired(service.backend, fork, 2, user="ada") == ["seen"]


async def _go_on(_: str) -> None:
    return None


# -- the actor -----------------------------------------------------------------------------------------------


def actor(data: Path) -> OperationExecutor:
    return OperationExecutor(RuntimeSettings(data=data))


def test_an_owner_that_was_overtaken_makes_no_fork(tmp_path):
    newborn(tmp_path, "source")
    old, new = actor(tmp_path), actor(tmp_path)
    old.activate("source", 1)
    new.activate("source", 2)
    with pytest.raises(Fenced):
        old.begin_fork("fork")
    assert old.detector_id is None
    new.begin_fork("fork")()
    assert folders(tmp_path) == {"source", "fork"}


def test_a_read_only_detector_makes_no_fork(tmp_path):
    newborn(tmp_path, "source")
    full = FaultyFiles(error=errno.ENOSPC)
    reading = OperationExecutor(RuntimeSettings(data=tmp_path), files=full)
    full.fail_next("create")
    reading.activate("source", 1)
    with pytest.raises(StorageError, match="read-only"):
        reading.begin_fork("fork")
    assert folders(tmp_path) == {"source"}
