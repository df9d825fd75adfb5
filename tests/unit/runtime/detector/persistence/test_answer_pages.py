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
from snapshots.errors import StorageError
from snapshots.format.file_names import listing
from tests.local_runtime.owners import Owners

KEPT_US = 600_000_000


class World(Owners):
    """A detector, its clock, and the answers that were given in it."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.now_us = 10**15
        self.given: dict[str, tuple[int, Any]] = {}

    def send(self, keys: list[str]) -> None:
        batch = [evaluation(key, self.now_us) for key in keys]
        for key, answer in zip(keys, self.actor.handle(batch).answers, strict=True):
            assert isinstance(answer, Done)
            self.given[key] = self.now_us, answer

    def check(self) -> int:
        """Repeat all evaluations that must be known; gives how many there were."""
        seen = self.detector.events_seen
        known = {key: one for key, (at_us, one) in self.given.items() if self.now_us - at_us <= KEPT_US}
        repeats = [evaluation(key, self.given[key][0]) for key in known]
        assert self.actor.handle(repeats).answers == list(known.values())
        assert self.detector.events_seen == seen
        return len(known)


def evaluation(key: str, at_us: int) -> Operation:
    event = {"fields": {"key": key, "a": len(key) % 2}, "timestamp_ms": at_us // 1000}
    return ops.evaluate(json.dumps({"event": event}).encode(), key)


@pytest.mark.parametrize("seed", range(6))
def test_every_answer_of_the_last_ten_minutes_is_found_after_a_kill_whatever_snapshots_there_were(
    tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    world = World(tmp_path)
    known, kills = 0, 0
    world.send(["the first"])
    world(ops.add_rule("r", "once a == 1"))
    for number in range(60):
        world.now_us += drawn.choice((1_000_000, 20_000_000, 60_000_000))
        world.send([f"{number} {place}" * drawn.randrange(1, 3) for place in range(drawn.randrange(1, 5))])
        if drawn.random() < 0.4:
            assert world.save()
        if drawn.random() < 0.3:
            # Killed: nothing of it is closed in order, and another one takes over what is there.
            world.activate()
            known, kills = max(known, world.check()), kills + 1
    assert kills > 5
    assert known > 15
    pages = listing(path.name for path in world.folder.iterdir()).pages
    assert 0 < len(pages) < 40


def test_a_snapshot_does_not_grow_with_the_answers_that_are_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    sizes, pages = [], []
    for number in range(3):
        world.send([f"{number} {place}" for place in range(500)])
        world.now_us += 1_000_000
        assert world.save()
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
    world = World(tmp_path / "data")
    world.send(["before"])
    assert world.actor.begin_saving()
    world.files.fail_next(failing)
    with pytest.raises(StorageError):
        world.actor.finish_saving()
    assert len(list(world.folder.glob("snapshot-*"))) == 1
    # Killed there, nothing is lost; and where it goes on, nothing either.
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    world.data, killed = tmp_path / "killed", world.actor
    world.activate()
    assert world.check() == 1
    world.data, world.actor = tmp_path / "data", killed
    world.send(["after"])
    assert world.save()
    assert len(list(world.folder.glob("snapshot-*"))) == 2
    world.activate()
    assert world.check() == 2
