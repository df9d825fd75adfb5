"""Kept answers on the disk, beside the snapshots: found after a kill, and gone in time."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from snapshots.errors import StorageError
from snapshots.format.file_names import listing
from tests.faulty_files import FaultyFiles
from tests.local_runtime.catalogues import newborn

ONE = "1" * 32
KEPT_US = 600_000_000


class World:
    """A data folder with one detector, its clock, and the answers that were given in it."""

    def __init__(self, data: Path, files: FaultyFiles | None = None) -> None:
        self.data = data
        self.files = files
        self.clock_us = 10**15
        self.epoch = 0
        self.given: dict[str, tuple[int, Any]] = {}

    @property
    def folder(self) -> Path:
        return self.data / "detectors" / ONE

    def activate(self) -> OperationExecutor:
        """Give an actor with the detector, as a process does that knows nothing of those before it."""
        self.epoch += 1
        actor = OperationExecutor(
            RuntimeSettings(data=self.data), files=self.files, now_us=lambda: self.clock_us
        )
        self.activated = actor.activate(ONE, self.epoch)
        return actor

    def ask(self, actor: OperationExecutor, keys: list[str]) -> None:
        batch = [evaluation(key, self.clock_us) for key in keys]
        for key, answer in zip(keys, actor.handle(batch).answers, strict=True):
            assert isinstance(answer, Done)
            self.given[key] = self.clock_us, answer

    def check(self, actor: OperationExecutor) -> int:
        """Repeat all evaluations that must be known; gives how many there were."""
        assert actor._active is not None
        seen = actor._active.detector.events_seen
        known = {key: one for key, (at_us, one) in self.given.items() if self.clock_us - at_us <= KEPT_US}
        repeats = [evaluation(key, self.given[key][0]) for key in known]
        assert actor.handle(repeats).answers == list(known.values())
        assert actor._active.detector.events_seen == seen
        return len(known)


def evaluation(key: str, at_us: int) -> Operation:
    event = {"fields": {"key": key, "a": len(key) % 2}, "timestamp_ms": at_us // 1000}
    return ops.evaluate(json.dumps({"event": event}).encode(), key)


def save(actor: OperationExecutor) -> None:
    assert actor.begin_saving()
    actor.finish_saving()


@pytest.mark.parametrize("seed", range(6))
def test_every_answer_of_the_last_ten_minutes_is_found_after_a_kill_whatever_snapshots_there_were(
    tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    newborn(tmp_path, ONE)
    world = World(tmp_path)
    actor, known, kills = world.activate(), 0, 0
    world.ask(actor, ["the first"])
    actor.handle([ops.add_rule("r", "once a == 1")])
    for number in range(60):
        world.clock_us += drawn.choice((1_000_000, 20_000_000, 60_000_000))
        world.ask(
            actor, [f"{number} {place}" * drawn.randrange(1, 3) for place in range(drawn.randrange(1, 5))]
        )
        if drawn.random() < 0.4:
            save(actor)
        if drawn.random() < 0.3:
            # Killed: nothing of it is closed in order, and another one takes over what is there.
            actor, kills = world.activate(), kills + 1
            known = max(known, world.check(actor))
    assert kills > 5
    assert known > 15
    pages = listing(path.name for path in world.folder.iterdir()).pages
    assert 0 < len(pages) < 40


def test_a_snapshot_does_not_grow_with_the_answers_that_are_kept(tmp_path: Path) -> None:
    newborn(tmp_path, ONE)
    world = World(tmp_path)
    actor = world.activate()
    sizes, pages = [], []
    for number in range(3):
        world.ask(actor, [f"{number} {place}" for place in range(500)])
        world.clock_us += 1_000_000
        save(actor)
        names = listing(path.name for path in world.folder.iterdir())
        sizes.append((world.folder / names.snapshots[max(names.snapshots)]).stat().st_size)
        pages.append((world.folder / names.pages[max(names.pages)]).stat().st_size)
    assert max(sizes) - min(sizes) < 100
    # No page repeats what an earlier one has: 32 bytes for each answer and little besides.
    assert max(pages) < 500 * 32 + 500


@pytest.mark.parametrize("failing", ["create", "write", "sync", "rename", "sync_folder"])
def test_where_a_page_cannot_be_written_there_is_no_snapshot_and_the_next_page_has_its_answers(
    tmp_path: Path, failing: str
) -> None:
    newborn(tmp_path / "data", ONE)
    world = World(tmp_path / "data", files := FaultyFiles())
    actor = world.activate()
    world.ask(actor, ["before"])
    assert actor.begin_saving()
    files.fail_next(failing)
    with pytest.raises(StorageError):
        actor.finish_saving()
    assert len(list(world.folder.glob("snapshot-*"))) == 1
    # Killed there, nothing is lost; and where it goes on, nothing either.
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    killed = World(tmp_path / "killed")
    killed.epoch, killed.given, killed.clock_us = world.epoch, dict(world.given), world.clock_us
    assert killed.check(killed.activate()) == 1
    world.ask(actor, ["after"])
    save(actor)
    assert len(list(world.folder.glob("snapshot-*"))) == 2
    assert world.check(world.activate()) == 2
