"""The service ticks detectors by itself: active and passive ones, after crashes, restarts and moves.

All of it runs on the skipping clock, from which the server's clock follows. Rules fire at a set time.
"""

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.catalogue.offline import copy_data_folder, restore_detector
from engine.runtime.concurrency.background import cancel
from engine.runtime.contract.measures import ACTIVATIONS, DUE_ACTIVATIONS
from engine.runtime.detector.persistence import journal_entries
from engine.runtime.detector.persistence.journal_entries import Ticked
from engine.runtime.scheduler.due_activations import DueActivations
from snapshots.files import RealFiles
from snapshots.inspection import read_only
from tests.faulty_files import FaultyFiles
from tests.local_runtime.actors import LocalNodes
from tests.local_runtime.alarms import SECOND, Clock, T, alarm, event, install
from tests.local_runtime.losses import Loss
from tests.local_runtime.service import LocalService, local_service

pytestmark = pytest.mark.skipping_clock

PASSIVE = {"passivate_after_s": 0.5}
"""Detectors that rest soon."""


@pytest.fixture(autouse=True)
def alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


@asynccontextmanager
async def service(folder: Path, clock: Clock, **settings: Any) -> AsyncIterator[LocalService]:
    async with local_service(folder, now_us=clock.now_us, **settings) as made:
        yield made


async def create(made: LocalService, *dues_s: float) -> str:
    """Make a detector that has seen an event, with rules that fire so many seconds from now."""
    backend = made.backend
    detector = await backend.create_detector("one")
    now_us = made.actors.now_us()
    for due_s in dues_s:
        await backend.call(detector, alarm(now_us + round(due_s * 1e6)))
    await backend.call(detector, event(now_us))
    return detector


def ticks(folder: Path, detector: str) -> list[float]:
    """The ticks that the journal has, as seconds after T."""
    records = read_only(folder / "detectors" / detector, RealFiles()).records
    entries = [entry for one in records for entry in journal_entries.decode(one.payload).entries]
    return [(entry.time_us - T) / SECOND for entry in entries if isinstance(entry, Ticked)]


def marks(folder: Path, detector: str) -> list[str]:
    return [path.name for path in folder.glob(f"detectors/{detector}/due-*")]


def one_tick_within(folder: Path, detector: str, due_s: float, within_s: float = 1.1) -> bool:
    """Whether it was ticked once, and soon after something was due."""
    found = ticks(folder, detector)
    assert len(found) == 1, found
    assert due_s <= found[0] <= due_s + within_s, (due_s, found)
    return True


async def test_an_active_detector_is_ticked_soon_after_something_is_due(tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock) as made:
        began_s = asyncio.get_running_loop().time()
        detector = await create(made, 5.5, 5.6, 20)
        await asyncio.sleep(5.4)
        assert ticks(tmp_path, detector) == []
        await asyncio.sleep(2)
        assert one_tick_within(tmp_path, detector, began_s + 5.5)
        await asyncio.sleep(20)
        assert len(ticks(tmp_path, detector)) == 2
        assert made.scheduler.counts[DUE_ACTIVATIONS] == 0


async def test_a_passive_detector_is_activated_ticked_and_rests_again(tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock, **PASSIVE) as made:
        began_s = asyncio.get_running_loop().time()
        detector = await create(made, 30, 90)
        await asyncio.sleep(10)
        assert made.scheduler.active_detectors == 0
        await asyncio.sleep(22)
        assert one_tick_within(tmp_path, detector, began_s + 30, 2.0)
        assert made.scheduler.active_detectors == 0, "it rests at once"
        await asyncio.sleep(60)
        assert len(ticks(tmp_path, detector)) == 2
        assert made.scheduler.counts[DUE_ACTIVATIONS] == 2
        assert marks(tmp_path, detector) == []
        await asyncio.sleep(100)
        assert made.scheduler.counts[DUE_ACTIVATIONS] == 2


async def test_a_detector_with_nothing_due_is_never_activated_and_has_no_mark(tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock, **PASSIVE) as made:
        detector = await create(made)
        await asyncio.sleep(100)
        assert made.scheduler.active_detectors == 0
        assert made.scheduler.counts[DUE_ACTIVATIONS] == 0
        assert made.scheduler.counts[ACTIVATIONS] == 1
        assert marks(tmp_path, detector) == []
    assert ticks(tmp_path, detector) == []


@pytest.mark.parametrize("passive", [False, True])
async def test_what_was_due_while_no_service_ran_fires_at_once(passive: bool, tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock, **(PASSIVE if passive else {})) as made:
        detector = await create(made, 100)
        await asyncio.sleep(10)
    clock.passed_s += 1_000
    async with service(tmp_path, clock) as made:
        began_s = clock.passed_s + asyncio.get_running_loop().time()
        await asyncio.sleep(2)
        assert one_tick_within(tmp_path, detector, began_s - 0.1, 2.0)
        assert made.scheduler.active_detectors == 0


@pytest.mark.slow
@pytest.mark.parametrize("due_s", [5, 200])
async def test_a_detector_that_was_active_when_all_was_killed_is_looked_at(
    due_s: int, tmp_path: Path
) -> None:
    """The folder is copied as the kill leaves it. Only the detector that may be due is woken."""
    clock = Clock()
    async with service(tmp_path / "killed", clock) as made:
        detector = await create(made, due_s)
        other = await create(made)
        await asyncio.sleep(1)
        shutil.copytree(tmp_path / "killed", tmp_path / "left")
    clock.passed_s += 60
    async with service(tmp_path / "left", clock) as made:
        await asyncio.sleep(2)
        assert made.scheduler.counts[DUE_ACTIVATIONS] == 1
        assert len(ticks(tmp_path / "left", detector)) == (due_s == 5)
        await asyncio.sleep(300)
        assert len(ticks(tmp_path / "left", detector)) == 1
        assert made.scheduler.counts[DUE_ACTIVATIONS] == (1 if due_s == 5 else 2)
        assert marks(tmp_path / "left", other) == []


async def test_a_detector_whose_worker_is_killed_is_activated_in_another(tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock) as made:
        detector = await create(made, 10)
        worker = made.actors.with_detector(detector)
        assert worker is not None
        began_s = asyncio.get_running_loop().time()
        worker.die()
        await asyncio.sleep(5)
        assert ticks(tmp_path, detector) == []
        await asyncio.sleep(10)
        assert one_tick_within(tmp_path, detector, began_s + 10, 2.0)


async def test_a_scheduler_that_is_replaced_knows_what_is_due(tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock, **PASSIVE) as made:
        passive = await create(made, 30)
        await asyncio.sleep(5)
        await cancel(made.scheduler._looks)
        successor = DueActivations(made.scheduler._services, made.scheduler._place, clock.now_us)
        made.scheduler._services.dues.forget(passive)
        for _ in range(40):
            await successor.look()
            await asyncio.sleep(1)
        assert len(ticks(tmp_path, passive)) == 1


async def test_a_detector_that_moves_is_ticked_where_it_is(tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock, nodes=LocalNodes(n=4, m=4)) as made:
        began_s = asyncio.get_running_loop().time()
        detector = await create(made, 10)
        await made.backend.move_detector(detector, "")
        await asyncio.sleep(13)
        assert one_tick_within(tmp_path, detector, began_s + 10, 2.0)
        assert made.scheduler.active_detectors == 1
        assert made.scheduler.counts[DUE_ACTIVATIONS] == 0


async def test_a_fork_fires_by_itself(tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock) as made:
        detector = await create(made, 10)
        fork = await made.backend.fork_detector(detector, "fork")
        await asyncio.sleep(13)
        assert len(ticks(tmp_path, fork)) == len(ticks(tmp_path, detector)) == 1
        assert made.scheduler.counts[DUE_ACTIVATIONS] == 2, "once to know when something is due"


async def test_a_deleted_detector_is_activated_no_more(tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock, **PASSIVE) as made:
        detector = await create(made, 10)
        await asyncio.sleep(5)
        await made.backend.delete_detector(detector)
        await asyncio.sleep(10)
        assert made.scheduler.counts[DUE_ACTIVATIONS] == 0
        assert len(made.scheduler._services.dues) == 0


async def test_callers_who_come_while_it_is_activated_keep_it_active(tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock, passivate_after_s=60.0) as made:
        detector = await create(made, 50, 100)
        await asyncio.sleep(70)
        assert made.scheduler.active_detectors == 0, "its own ticks keep no detector active"

        async def slowly(what: str) -> None:
            await asyncio.sleep(5 if what == "activate" else 0)

        for worker in made.actors.started:
            worker.before = slowly
        made.actors.before = slowly
        await asyncio.sleep(32)
        assert made.scheduler.counts[DUE_ACTIVATIONS] == 1
        await made.backend.call(detector, event(clock.now_us()))
        activations = made.scheduler.counts[ACTIVATIONS]
        await asyncio.sleep(30)
        assert made.scheduler.active_detectors == 1
        assert made.scheduler.counts[ACTIVATIONS] == activations


@pytest.mark.slow
async def test_a_detector_that_cannot_be_ticked_is_activated_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with service(tmp_path, clock, **PASSIVE) as made:
        await create(made, 10)
        await asyncio.sleep(5)

        async def dies(what: str) -> None:
            if what == "handle":
                raise RuntimeError("planted")

        for worker in made.actors.started:
            worker.before = dies
        made.actors.before = dies
        await asyncio.sleep(250)
        assert 5 <= made.scheduler.counts[DUE_ACTIVATIONS] <= 8
        assert 243 <= made.scheduler._due_activations.overdue_s <= 250
        for worker in made.actors.started:
            worker.before = lambda _: asyncio.sleep(0)
        made.actors.before = lambda _: asyncio.sleep(0)
        await asyncio.sleep(300)
        assert len(made.scheduler._services.dues) == 0
        assert made.scheduler._due_activations.overdue_s == 0


async def test_a_detector_that_callers_activate_is_overdue_no_more(tmp_path: Path) -> None:
    clock = Clock()
    async with service(tmp_path, clock, **PASSIVE) as made:
        detector = await create(made)
        await asyncio.sleep(5)
        made.scheduler._services.dues.note(detector, clock.now_us() + 600 * SECOND, since_us=T)
        assert made.scheduler._due_activations.overdue_s > 5
        await made.backend.call(detector, event(clock.now_us()))
        assert made.scheduler._due_activations.overdue_s == 0


async def test_what_is_due_on_a_full_disk_fires_once_there_is_room(tmp_path: Path) -> None:
    clock = Clock()
    files = FaultyFiles(error=errno.ENOSPC, for_good=True)
    async with service(tmp_path, clock, files=files, **PASSIVE) as made:
        detector = await create(made, 30)
        await asyncio.sleep(20)
        files.fail_next("create", "write", "reserve", "rename")
        await asyncio.sleep(30)
        files.fails_at = None
        await asyncio.sleep(60)
        assert len(ticks(tmp_path, detector)) == 1


async def test_a_backup_knows_what_is_due_and_so_does_a_detector_that_is_restored_from_it(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with service(tmp_path / "data", clock, **PASSIVE) as made:
        passive, active = await create(made, 30), await create(made, 31)
        await asyncio.sleep(5)
        await made.backend.call(active, event(clock.now_us()))
        copy_data_folder(tmp_path / "data", tmp_path / "backup")
        await asyncio.sleep(60)
    clock.passed_s += 100
    async with service(tmp_path / "other", clock) as made:
        await create(made)
    restore_detector(tmp_path / "backup", tmp_path / "other", passive)
    for folder in (tmp_path / "backup", tmp_path / "other"):
        async with service(folder, clock):
            await asyncio.sleep(3)
            assert len(ticks(folder, passive)) == 1
            assert folder.name == "other" or len(ticks(folder, active)) == 1


@pytest.mark.parametrize("kind", ["note report of ended", "ask activate", "answer activate", "ask held"])
async def test_whatever_message_is_lost_a_passive_detector_is_ticked_soon(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with service(tmp_path, clock, **PASSIVE) as made:
        began_s = asyncio.get_running_loop().time()
        detector = await create(made, 30)
        loss = Loss(kind)
        if kind != "note report of ended":
            await asyncio.sleep(20)
            assert made.scheduler.active_detectors == 0
        loss.install(monkeypatch)
        await asyncio.sleep(began_s + 45 - asyncio.get_running_loop().time())
        assert one_tick_within(tmp_path, detector, began_s + 30, 10)
        await asyncio.sleep(10)
        assert made.scheduler.active_detectors == 0
        assert loss.lost == 1


@pytest.mark.slow
async def test_many_that_are_due_at_once_are_activated_a_few_at_a_time(tmp_path: Path) -> None:
    clock = Clock()
    settings = {"max_resident": 8, "starts_at_once": 2, "spares": 2}
    async with service(tmp_path, clock, **PASSIVE, **settings) as made:
        begun_s = asyncio.get_running_loop().time()
        dues_s = begun_s + 60
        detectors = [await create(made, dues_s - asyncio.get_running_loop().time()) for _ in range(40)]
        await asyncio.sleep(20)
        assert made.scheduler.active_detectors == 0
        assert asyncio.get_running_loop().time() < dues_s
        most = 0
        for _ in range(4_000):
            most = max(most, made.scheduler.active_detectors)
            await asyncio.sleep(0.02)
        assert 1 <= most <= 2
        for detector in detectors:
            assert one_tick_within(tmp_path, detector, dues_s, 20.0)
        assert made.scheduler.counts[DUE_ACTIVATIONS] == 40
