"""The fleet on real Ray actors: what the unit tests say of it holds with processes that can be killed."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.evaluation.wire.events import Done
from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.tokens import digest_of
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.measurements.figures import WorkerAnswer
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.front_end.fleet import Fleet
from engine.runtime.transport.link_client import LinkClient
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import StorageError, WrongFolder
from tests.local_runtime.service import until

RayFleet = Callable[..., AbstractAsyncContextManager[Fleet]]

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUTO, TCP, SHARED = ("auto", 1), ("tcp", 1), ("auto", 8)
"""How a fleet reaches its workers, and how many detectors a worker has."""


@pytest.fixture(params=[TCP, SHARED], ids=["tcp", "shared"])
def own_fleet(ray_fleet: RayFleet, request: pytest.FixtureRequest) -> RayFleet:
    """Gives a started Fleet of the test's own. Services are of the first kind: others restart them."""
    return of_kind(ray_fleet, request.param)


def of_kind(ray_fleet: RayFleet, kind: tuple[str, int]) -> RayFleet:
    return partial(ray_fleet, transport=kind[0], detectors_per_worker=kind[1], spares=1)


@pytest.fixture(
    # The first kind has the workers of the second, and the transport of the third.
    params=[pytest.param(AUTO, marks=pytest.mark.long), TCP, SHARED],
    ids=["auto", "tcp", "shared"],
    scope="module",
)
def kind(request: pytest.FixtureRequest) -> tuple[str, int]:
    """The kind of the fleet that tests share."""
    return request.param


@pytest.fixture(scope="module")
def folder(kind: tuple[str, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fleet that tests share."""
    return tmp_path_factory.mktemp("fleet")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(ray_fleet: RayFleet, kind: tuple[str, int], folder: Path) -> AsyncIterator[Fleet]:
    """The fleet of all tests after which it goes on, though they kill its processes."""
    async with of_kind(ray_fleet, kind)(folder) as fleet:
        yield fleet


@pytest_asyncio.fixture(loop_scope="module")
async def detector_id(fleet: Fleet) -> AsyncIterator[str]:
    """A detector of the fleet, deleted after the test."""
    detector_id = await fleet.create_detector("one")
    yield detector_id
    await fleet.delete_detector(detector_id)


def event(timestamp_ms: float, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


async def fired(fleet: Fleet, detector_id: str, timestamp_ms: float, **fields: Any) -> list[str]:
    answer = await fleet.call(detector_id, event(timestamp_ms, **fields))
    assert isinstance(answer, Done), answer
    return [action["name"] for action in json.loads(answer.result)["actions"]]


@contextlib.contextmanager
def unmounted(folder: Path, meanwhile: Path) -> Iterator[None]:
    """Have an empty folder in place of another one. It must stay empty."""
    folder.rename(meanwhile)
    folder.mkdir()
    try:
        yield
        assert list(folder.iterdir()) == []
    finally:
        shutil.rmtree(folder)
        meanwhile.rename(folder)


def title(pid: int) -> str:
    """The title of a process, as `ps` and Ray's dashboard show it."""
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0")


def directory_pid(folder: Path) -> int:
    """The process that has the lock's file open; what stands in the file is the pid of the service."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(entry.readlink() == folder / "lock" for entry in (process / "fd").iterdir()):
                assert int(process.name) != os.getpid(), (
                    "the lock is the directory's, in a process of its own"
                )
                return int(process.name)
    raise AssertionError("nobody has the lock")


async def pid_of(fleet: Fleet, detector_id: str) -> int:
    """The process that hosts a detector."""
    return (await connection_of(fleet, detector_id).ask("figures", WorkerAnswer)).process.pid


def stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped."""
    states = [
        path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


def connection_of(fleet: Fleet, detector_id: str) -> LinkClient:
    """The connection on which batches travel to the detector's worker."""
    client = fleet.channels._channels[detector_id]._client
    assert client is not None
    return client


@pytest.mark.ray
async def test_a_restart_finds_tokens_detectors_rules_and_what_they_remember(own_fleet, tmp_path):
    async with own_fleet(tmp_path) as fleet:
        minted, revoked = await fleet.mint_token(), await fleet.mint_token()
        await fleet.revoke_token(revoked.id)
        one, two = await fleet.create_detector("one"), await fleet.create_detector("two")
        added = await fleet.call(one, ops.add_rule("recent", "per user once within 10s a == 1", notify=True))
        assert set(json.loads(added.result)) == {"id"}
        assert await fired(fleet, one, 1000, a=1, user="ada") == ["recent"]
        assert await fired(fleet, one, 2000, a=2, user="bob") == []
        refused = await fleet.call(one, ops.add_rule("bad", "a ==="))
        assert refused.entries[0].code == 1300
        with pytest.raises(Refusal):
            await fleet.revoke_token("0" * 32)
    async with own_fleet(tmp_path) as fleet:
        assert fleet.token_known(digest_of(minted.token))
        assert not fleet.token_known(digest_of(revoked.token))
        assert await fleet.detectors() == [(one, "one"), (two, "two")]
        assert await fired(fleet, one, 11_000, a=2, user="ada") == ["recent"]
        assert await fired(fleet, one, 11_001, a=2, user="ada") == []
        await fleet.delete_detector(one)
        assert not (tmp_path / "detectors" / one).exists()
        with pytest.raises(Refusal):
            await fleet.call(one, ops.rules())


@pytest.mark.ray
async def test_more_detectors_than_places_take_turns_and_forget_nothing(own_fleet, tmp_path):
    async with own_fleet(tmp_path, max_resident=2, turn_s=0.01) as fleet:
        ids = [await fleet.create_detector(f"{number}") for number in range(6)]
        for detector_id in ids:
            await fleet.call(detector_id, ops.add_rule("never yet", "not once a == 1"))
        await asyncio.gather(
            *(fired(fleet, one, 1000 + step) for one in ids for step in range(10) for _ in range(5))
        )
        assert (await fleet.status()).active_detectors <= 2
        for detector_id in ids:
            assert await fired(fleet, detector_id, 2000, a=0) == ["never yet"]
            assert await fired(fleet, detector_id, 2001, a=1) == []
        for detector_id in ids:
            assert await fired(fleet, detector_id, 2002, a=0) == []


@pytest.mark.ray
async def test_services_of_one_cluster_share_a_folder_and_the_last_one_saves_it(own_fleet, tmp_path):
    async with own_fleet(tmp_path) as one:
        detector_id = await one.create_detector("one")
        async with own_fleet(tmp_path) as other:
            await other.call(detector_id, ops.add_rule("seen", "once a == 1"))
            assert await fired(other, detector_id, 1, a=1) == ["seen"]
            assert await fired(one, detector_id, 2) == ["seen"]
            assert await pid_of(one, detector_id) == await pid_of(other, detector_id)
            minted = await other.mint_token()
            assert await one.token_lookup(digest_of(minted.token))
            await other.revoke_token(minted.id)
            await until(lambda: not one.token_known(digest_of(minted.token)))
            pid = await pid_of(one, detector_id)
        # The other one's end takes nothing from it.
        assert await fired(one, detector_id, 3) == ["seen"]
        assert await pid_of(one, detector_id) == pid
    await until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.ray
@pytest.mark.parametrize("kind", [TCP], indirect=True, ids=["tcp"])
async def test_a_copy_of_a_folder_that_is_served_is_refused(
    ray_fleet: RayFleet, fleet: Fleet, folder: Path, tmp_path: Path
) -> None:
    shutil.copy(folder / "identity", tmp_path / "identity")
    with pytest.raises(StorageError, match="remove the file `identity` if it is a copy"):
        async with ray_fleet(tmp_path):
            pass


@pytest.mark.ray
@pytest.mark.parametrize("kind", [TCP], indirect=True, ids=["tcp"])
@pytest.mark.usefixtures("fleet")
async def test_an_empty_mount_in_place_of_a_folder_that_is_served_is_refused_and_stays_empty(
    ray_fleet: RayFleet, folder: Path, tmp_path: Path
) -> None:
    identity = begin_folder(folder)
    said = f"it has no id, and the service's has the id {identity}"
    with unmounted(folder, tmp_path / "right"), pytest.raises(WrongFolder, match=said):
        async with ray_fleet(folder):
            pass


@pytest.mark.ray
@pytest.mark.parametrize("own_fleet", [TCP], indirect=True, ids=["tcp"])
async def test_a_folder_that_another_process_holds_is_refused_with_its_pid(own_fleet, tmp_path):
    from snapshots.data_folder.lock import FolderLock  # noqa: PLC0415 -- held here, so that the actor is the other process

    # What has an id already is opened without the lock here, and with it there.
    begin_folder(tmp_path)
    with FolderLock(tmp_path), pytest.raises(StorageError, match=f"pid {os.getpid()}"):
        async with own_fleet(tmp_path, lock_wait_s=0.1):
            pass


@pytest.mark.ray
async def test_batches_travel_the_way_that_is_set(
    fleet: Fleet, kind: tuple[str, int], detector_id: str
) -> None:
    await fired(fleet, detector_id, 1)
    transport = connection_of(fleet, detector_id).link._transport
    families = {"auto": socket.AF_UNIX, "tcp": socket.AF_INET}
    family = transport.get_extra_info("socket").family
    assert family == families[kind[0]]


@pytest.mark.ray
async def test_a_front_end_whose_connection_broke_makes_another_to_the_same_worker(
    fleet: Fleet, detector_id: str
) -> None:
    await fleet.call(detector_id, ops.add_rule("always", "not a == 1"))
    pid = await pid_of(fleet, detector_id)
    connection_of(fleet, detector_id).link.abort()
    assert await fired(fleet, detector_id, 1000) == ["always"]
    assert await pid_of(fleet, detector_id) == pid


@pytest.mark.ray
async def test_a_worker_that_is_stopped_is_ended_and_its_detector_goes_on_in_another(
    fleet: Fleet, detector_id: str
) -> None:
    await fleet.call(detector_id, ops.add_rule("seen", "once a == 1"))
    assert await fired(fleet, detector_id, 1000, a=1) == ["seen"]
    pid = await pid_of(fleet, detector_id)
    os.kill(pid, signal.SIGSTOP)
    # Threads that have not heard of it yet would answer.
    await until(lambda: stopped(pid))
    with pytest.raises(DetectorUnavailable) as unknown:
        await fired(fleet, detector_id, 2000)
    assert unknown.value.code == 1502
    assert await fired(fleet, detector_id, 3000) == ["seen"]
    assert await pid_of(fleet, detector_id) != pid


@pytest.mark.ray
async def test_a_killed_actor_costs_only_what_was_in_flight(fleet: Fleet, detector_id: str) -> None:
    await fleet.call(detector_id, ops.add_rule("always", "not a == 1"))
    outcomes: Counter[Any] = Counter()
    stop = asyncio.Event()

    async def caller() -> None:
        while not stop.is_set():
            try:
                outcomes[*await fired(fleet, detector_id, 1000)] += 1
            except DetectorUnavailable as error:
                outcomes[error.code] += 1

    callers = [asyncio.create_task(caller()) for _ in range(64)]
    for kill in range(2):
        answered = outcomes["always",]
        await until(lambda answered=answered: outcomes["always",] > answered + 500)
        os.kill(await pid_of(fleet, detector_id), signal.SIGKILL)
        await until(lambda kill=kill: outcomes[1502] > kill * 64)
    answered = outcomes["always",]
    await until(lambda: outcomes["always",] > answered + 500)
    stop.set()
    await asyncio.wait_for(asyncio.gather(*callers), 60)
    # Each caller had one request under way at each of two kills; the rule was never missing afterwards.
    assert set(outcomes) == {("always",), 1502}
    assert 2 <= outcomes[1502] <= 2 * 64


@pytest.mark.ray
async def test_an_actor_killed_while_idle_costs_nothing(fleet: Fleet, detector_id: str) -> None:
    await fleet.call(detector_id, ops.add_rule("always", "not a == 1"))
    connection = connection_of(fleet, detector_id)
    os.kill(await pid_of(fleet, detector_id), signal.SIGKILL)
    await until(lambda: not connection.link.usable)
    assert await fired(fleet, detector_id, 1000) == ["always"]


@pytest.mark.ray
async def test_a_killed_directory_is_started_again_while_warm_detectors_go_on(
    fleet: Fleet, folder: Path
) -> None:
    minted = await fleet.mint_token()
    warm, cold = await fleet.create_detector("warm"), await fleet.create_detector("cold")
    await fired(fleet, warm, 1)
    os.kill(directory_pid(folder), signal.SIGKILL)
    assert await fired(fleet, warm, 2) == []
    assert fleet.token_known(digest_of(minted.token))
    assert await fired(fleet, cold, 1) == []
    three = await fleet.create_detector("three")
    assert await fleet.detectors() == [(warm, "warm"), (cold, "cold"), (three, "three")]
    for each in (warm, cold, three):
        await fleet.delete_detector(each)


@pytest.mark.ray
async def test_bodies_of_many_megabytes_pass(fleet: Fleet, detector_id: str) -> None:
    padding = "x" * 1_500
    events = [{"fields": {"padding": padding}, "timestamp_ms": 1} for _ in range(10_000)]
    answer = await fleet.call(detector_id, ops.evaluate_batch(json.dumps({"events": events}).encode()))
    assert isinstance(answer, Done)
    assert len(json.loads(answer.result)["results"]) == 10_000


@pytest.mark.ray
async def test_callers_that_wait_together_share_a_batch(fleet: Fleet, detector_id: str) -> None:
    await fired(fleet, detector_id, 1)
    client = connection_of(fleet, detector_id)
    sizes = []
    send = client.send

    def counted(settled: Any, epoch: int, operations: list[Operation], *given: Any) -> int:
        sizes.append(len(operations))
        return send(settled, epoch, operations, *given)

    client.send = counted
    await asyncio.gather(*(fired(fleet, detector_id, 2) for _ in range(2_500)))
    assert sum(sizes) == 2_500
    assert len(sizes) <= 4


@pytest.mark.ray
@pytest.mark.parametrize("kind", [SHARED], indirect=True, ids=["shared"])
async def test_the_title_of_a_workers_process_names_its_detector(fleet: Fleet) -> None:
    detector_id = await fleet.create_detector("titled")
    await fired(fleet, detector_id, 1)
    pid = await pid_of(fleet, detector_id)
    assert detector_id in title(pid)
    await fleet.delete_detector(detector_id)
    assert detector_id not in title(pid)
