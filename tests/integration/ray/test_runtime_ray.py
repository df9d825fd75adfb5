"""The backend on real Ray actors: the unit tests' statements hold with processes that can be killed."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.evaluation.wire.events import Done
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.figures import WorkerAnswer
from engine.runtime.contract.measures import DUE_ACTIVATIONS
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.front_end.backend import Backend
from engine.runtime.transport.link_client import LinkClient
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import StorageError, WrongFolder
from tests.local_runtime.losses import Loss
from tests.local_runtime.service import until

RayBackend = Callable[..., AbstractAsyncContextManager[Backend]]

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUTO, TCP = ("auto", 1), ("tcp", 8)
"""How a backend reaches its workers, and how many detectors a worker has."""


def of_kind(ray_backend: RayBackend, kind: tuple[str, int]) -> RayBackend:
    return partial(ray_backend, transport=kind[0], detectors_per_worker=kind[1], spares=1)


# Services are of the first kind: other tests restart and kill them.
@pytest.fixture(params=[pytest.param(AUTO, marks=pytest.mark.long), TCP], ids=["auto", "tcp"], scope="module")
def kind(request: pytest.FixtureRequest) -> tuple[str, int]:
    """The kind of the backend that tests share."""
    return request.param


@pytest.fixture(scope="module")
def folder(kind: tuple[str, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the backend that tests share."""
    return tmp_path_factory.mktemp("backend")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend(ray_backend: RayBackend, kind: tuple[str, int], folder: Path) -> AsyncIterator[Backend]:
    """The backend of all tests that it survives, although they kill its processes."""
    async with of_kind(ray_backend, kind)(folder) as backend:
        yield backend


@pytest_asyncio.fixture(loop_scope="module")
async def detector_id(backend: Backend) -> AsyncIterator[str]:
    """A detector of the backend, deleted after the test."""
    detector_id = await backend.create_detector("one")
    yield detector_id
    await backend.delete_detector(detector_id)


def event(timestamp_ms: float, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


async def fired(backend: Backend, detector_id: str, timestamp_ms: float, **fields: Any) -> list[str]:
    answer = await backend.call(detector_id, event(timestamp_ms, **fields))
    assert isinstance(answer, Done), answer
    return [action["name"] for action in json.loads(answer.result)["actions"]]


@contextlib.contextmanager
def unmounted(folder: Path, meanwhile: Path) -> Iterator[None]:
    """Put an empty folder in place of another one. It must stay empty."""
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


async def pid_of(backend: Backend, detector_id: str) -> int:
    """The process that hosts a detector."""
    return (await connection_of(backend, detector_id).ask("figures", WorkerAnswer)).figures.process.pid


def stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped."""
    states = [
        path.read_text().rpartition(")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return set(states) == {"T"}


def connection_of(backend: Backend, detector_id: str) -> LinkClient:
    """The connection on which batches travel to the detector's worker."""
    client = backend.channels[detector_id]._client
    assert client is not None
    return client


@pytest.mark.ray
async def test_more_detectors_than_places_take_turns_and_forget_nothing(
    ray_backend: RayBackend, tmp_path: Path
) -> None:
    async with of_kind(ray_backend, TCP)(tmp_path, max_resident=2, turn_s=0.01) as backend:
        ids = [await backend.create_detector(f"{number}") for number in range(6)]
        for detector_id in ids:
            await backend.call(detector_id, ops.add_rule("never yet", "not once a == 1"))
        await asyncio.gather(
            *(fired(backend, one, 1000 + step) for one in ids for step in range(10) for _ in range(5))
        )
        assert (await backend.status()).active_detectors <= 2
        for detector_id in ids:
            assert await fired(backend, detector_id, 2000, a=0) == ["never yet"]
            assert await fired(backend, detector_id, 2001, a=1) == []
        for detector_id in ids:
            assert await fired(backend, detector_id, 2002, a=0) == []


@pytest.mark.ray
@pytest.mark.parametrize("kind", [TCP], indirect=True, ids=["tcp"])
async def test_a_copy_of_a_folder_that_is_served_is_refused(
    ray_backend: RayBackend, backend: Backend, folder: Path, tmp_path: Path
) -> None:
    shutil.copy(folder / "identity", tmp_path / "identity")
    with pytest.raises(StorageError, match="remove the file `identity` if it is a copy"):
        async with ray_backend(tmp_path):
            pass


@pytest.mark.ray
@pytest.mark.parametrize("kind", [TCP], indirect=True, ids=["tcp"])
@pytest.mark.usefixtures("backend")
async def test_an_empty_mount_in_place_of_a_folder_that_is_served_is_refused_and_stays_empty(
    ray_backend: RayBackend, folder: Path, tmp_path: Path
) -> None:
    identity = begin_folder(folder)
    said = f"it has no id, and the service's has the id {identity}"
    with unmounted(folder, tmp_path / "right"), pytest.raises(WrongFolder, match=said):
        async with ray_backend(folder):
            pass


@pytest.mark.ray
async def test_a_folder_that_another_process_holds_is_refused_with_its_pid(
    ray_backend: RayBackend, tmp_path: Path
) -> None:
    from snapshots.data_folder.lock import FolderLock  # noqa: PLC0415 -- held here, so that the actor is the other process

    # What has an id already is opened without the lock here, and with it there.
    begin_folder(tmp_path)
    with FolderLock(tmp_path), pytest.raises(StorageError, match=f"pid {os.getpid()}"):
        async with ray_backend(tmp_path, lock_wait_s=0.1):
            pass


@pytest.mark.ray
async def test_batches_travel_the_way_that_is_set(
    backend: Backend, kind: tuple[str, int], detector_id: str
) -> None:
    await fired(backend, detector_id, 1)
    transport = connection_of(backend, detector_id).link._transport
    families = {"auto": socket.AF_UNIX, "tcp": socket.AF_INET}
    family = transport.get_extra_info("socket").family
    assert family == families[kind[0]]


@pytest.mark.ray
async def test_a_front_end_whose_connection_broke_makes_another_to_the_same_worker(
    backend: Backend, detector_id: str
) -> None:
    await backend.call(detector_id, ops.add_rule("always", "not a == 1"))
    pid = await pid_of(backend, detector_id)
    connection_of(backend, detector_id).link.abort()
    assert await fired(backend, detector_id, 1000) == ["always"]
    assert await pid_of(backend, detector_id) == pid


@pytest.mark.ray
async def test_a_worker_that_is_stopped_is_ended_and_its_detector_goes_on_in_another(
    backend: Backend, detector_id: str
) -> None:
    await backend.call(detector_id, ops.add_rule("seen", "once a == 1"))
    assert await fired(backend, detector_id, 1000, a=1) == ["seen"]
    pid = await pid_of(backend, detector_id)
    os.kill(pid, signal.SIGSTOP)
    # Threads that do not know it yet would answer.
    await until(lambda: stopped(pid))
    with pytest.raises(DetectorUnavailable) as unknown:
        await fired(backend, detector_id, 2000)
    assert unknown.value.code == 1502
    assert await fired(backend, detector_id, 3000) == ["seen"]
    assert await pid_of(backend, detector_id) != pid


@pytest.mark.ray
async def test_an_actor_killed_while_idle_costs_nothing(backend: Backend, detector_id: str) -> None:
    await backend.call(detector_id, ops.add_rule("always", "not a == 1"))
    connection = connection_of(backend, detector_id)
    os.kill(await pid_of(backend, detector_id), signal.SIGKILL)
    await until(lambda: not connection.link.usable)
    assert await fired(backend, detector_id, 1000) == ["always"]


@pytest.mark.ray
@pytest.mark.parametrize("kind", [TCP], indirect=True, ids=["tcp"])
async def test_the_title_of_a_workers_process_names_its_detector(backend: Backend) -> None:
    detector_id = await backend.create_detector("titled")
    await fired(backend, detector_id, 1)
    pid = await pid_of(backend, detector_id)
    assert detector_id in title(pid)
    await backend.delete_detector(detector_id)
    assert detector_id not in title(pid)


SECONDS = 15
"""Half of the deadline of requests, which shows that nothing waited for the lost one."""


@pytest.mark.ray
async def test_whatever_a_front_end_loses_once_its_detectors_answer_soon(
    ray_backend: RayBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ray_backend(tmp_path, deadline_s=2 * SECONDS, spares=1) as backend:
        await fired(backend, await backend.create_detector("first"), 1)
        for kind in ("ask create_detector", "answer create_detector", "ask route", "answer route", "Batch"):
            loss = Loss(kind)
            with monkeypatch.context() as patch:
                loss.install(patch)
                async with asyncio.timeout(SECONDS):
                    detector = await backend.create_detector(kind)
                    # With a key, it is sent again.
                    answer = await backend.call(detector, ops.evaluate(event(1).payload, "key"))
                    assert isinstance(answer, Done)
            assert loss.lost == 1, kind


SILENT_S = 2


@pytest.mark.ray
@pytest.mark.parametrize(
    "state", [pytest.param("active", marks=pytest.mark.long), "passive", "its process is killed"]
)
async def test_a_timed_rule_fires_once_without_any_event(
    ray_backend: RayBackend, state: str, tmp_path: Path
) -> None:
    passivate_after_s = 0.2 if state == "passive" else 600.0
    async with ray_backend(tmp_path, passivate_after_s=passivate_after_s, spares=1) as backend:
        detector = await backend.create_detector("hosts")
        silent = f"per host (not once within {SILENT_S}s beat == 1)"
        await backend.call(detector, ops.add_rule("silent", silent, notify=True, timed=True))
        heard_ms = time.time_ns() // 1_000_000
        await fired(backend, detector, heard_ms, host="web-1", beat=1)
        if state == "its process is killed":
            os.kill(await pid_of(backend, detector), signal.SIGKILL)
        async with asyncio.timeout(60):
            # This keeps no detector active.
            while not await backend.newest_firings([detector]):  # noqa: ASYNC110 -- it has no event
                await asyncio.sleep(0.1)
        print(f"told {time.time() - heard_ms / 1_000 - SILENT_S:.2f} s after it was due")
        if state != "its process is killed":
            # It may also be woken to find out when something is due.
            assert ((await backend.status()).counts[DUE_ACTIVATIONS] > 0) is (state == "passive")
        for wait_s in (SILENT_S, 0):
            answer = await backend.call(detector, ops.firings(0, 100))
            found = [(one["seq"], one["time_ms"]) for one in json.loads(answer.result)["firings"]]
            assert found == [(1, heard_ms + SILENT_S * 1_000 + 0.001)]
            await asyncio.sleep(wait_s)
