"""A really full disk: what cannot be kept is refused, and everything works again when there is space."""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.wire.events import Done, Refused
from engine.language.text.parser import parse
from engine.runtime.contract.errors import STARTING, DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.tokens import digest_of
from engine.runtime.front_end.backend import Backend
from tests.local_runtime.service import local_service, until
from tests.reference import ReferenceDetector

NO_SUCH_FILE_SYSTEM = "no file system of a bounded size can be mounted here"
DISK_BYTES = 8 * 1024 * 1024
CONDITION = "once within 10m a == 1"


def mounted(folder: Path, *command: str) -> bool:
    folder.mkdir()
    try:
        return subprocess.run([*command, str(folder)], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def file_system(kind: str, folder: Path) -> Iterator[Path]:
    """Mount a small file system and return its folder."""
    at = folder / "disk"
    if kind == "tmpfs":
        done = mounted(at, "mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs")
    else:
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], capture_output=True, check=False)
        done = made.returncode == 0 and mounted(at, "mount", "-o", "loop,errors=remount-ro", str(image))
    if not done:
        pytest.skip(NO_SUCH_FILE_SYSTEM)
    try:
        yield at
    finally:
        # Lazily: actors that died within this process left their files open.
        subprocess.run(["umount", "-l", str(at)], check=True)


def fill(ballast: Path) -> None:
    """Take all the remaining space, to the last byte."""
    with ballast.open("wb", buffering=0) as file:
        for piece in (1024 * 1024, 4096, 512, 1):
            try:
                while True:
                    file.write(bytes(piece))
                    os.fsync(file.fileno())
            except OSError:
                continue


def take_all_inodes(disk: Path) -> None:
    """Leave no space for another file, however small."""
    with contextlib.suppress(OSError):
        for number in itertools.count():
            (disk / f"inode {number}").touch()


def make_read_only(disk: Path) -> None:
    """Make the file system fail; afterwards it takes no more writes."""
    found = subprocess.run(
        ["findmnt", "-no", "SOURCE", str(disk)], capture_output=True, text=True, check=True
    )
    trigger = Path("/sys/fs/ext4", Path(found.stdout.strip()).name, "trigger_fs_error")
    if not trigger.exists():
        pytest.skip(NO_SUCH_FILE_SYSTEM)
    trigger.write_text("1")


class Detector:
    """A detector of a backend, and its expected state."""

    def __init__(self, backend: Backend, detector_id: str) -> None:
        self.backend = backend
        self.id = detector_id
        self.reference = ReferenceDetector()
        self.refused = 0

    async def ask(self, operation: ops.Operation) -> Any:
        """Return the result; None if the disk had no space."""
        try:
            answer = await self.backend.call(self.id, operation)
        except DetectorUnavailable as error:
            if error.code != STARTING:
                raise
            self.refused += 1
            return None
        if isinstance(answer, Refused):
            assert [entry.code for entry in answer.entries] == [STARTING], answer
            self.refused += 1
            return None
        assert isinstance(answer, Done)
        return json.loads(answer.result)

    async def add_rule(self) -> bool:
        """Add a rule; return whether it was accepted."""
        result = await self.ask(ops.add_rule("rule", CONDITION))
        if result is not None:
            self.reference.add_rule(result["id"], "rule", parse(CONDITION), notify=False)
        return result is not None

    async def event(self, number: int) -> bool:
        """Send an event; return whether it was accepted. An accepted event is answered as specified."""
        fields = {"a": number % 7, "text": "x" * 3000}
        body = json.dumps({"event": {"fields": fields, "timestamp_ms": number * 1000}}).encode()
        result = await self.ask(ops.evaluate(body))
        if result is None:
            return False
        fired = [action["ruleId"] for action in result["actions"]]
        assert fired == [one[1] for one in self.reference.evaluate(fields, number * 1000) or []]
        return True

    async def rules(self) -> list[str]:
        return [rule["id"] for rule in (await self.ask(ops.rules()))["rules"]]


async def create_detectors(backend: Backend) -> None:
    """Create detectors until there is no space for another."""
    while True:
        await backend.create_detector("no room" * 30)


@pytest.mark.storm
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
async def test_a_full_disk_refuses_what_it_cannot_keep_and_nothing_else(tmp_path: Path, kind: str) -> None:
    with file_system(kind, tmp_path) as disk:
        ballast = disk / "ballast"
        settings = {"snapshot_interval_s": 0.2, "retry_s": 0.05, "snapshot_journal_bytes": 1024 * 1024}
        async with local_service(disk / "data", **settings) as service:
            detector = Detector(service.backend, await service.backend.create_detector("full"))
            assert await detector.add_rule()
            for number in range(20):
                assert await detector.event(number)
            numbers = iter(range(20, 10_000))
            for _ in range(2):
                fill(ballast)
                # Space reserved for the journal may still be used.
                while await detector.event(next(numbers)):
                    pass
                for _ in range(5):
                    assert not await detector.event(next(numbers))
                    assert await detector.rules() == list(detector.reference.rules)
                # A rule is small: a few may still fit.
                while await detector.add_rule():
                    pass
                with pytest.raises(DetectorUnavailable, match="No space left"):
                    await create_detectors(service.backend)
                assert service.backend.exists(detector.id)
                ballast.unlink()
                for _ in range(3):
                    # By itself: nothing is restarted.
                    assert await detector.event(next(numbers))
            refused = detector.refused
            fill(ballast)
            while await detector.event(next(numbers)):
                pass
            # If the process is lost while the disk is full, nothing that was answered is lost.
            worker = service.actors.with_detector(detector.id)
            assert worker is not None
            worker.die()
            await until(lambda: service.scheduler.active_detectors == 0)
            await detector.event(next(numbers))
            # Its journal has records that its next owner would have to replay and save, for which there is no
            # space.
            for _ in range(3):
                assert await detector.rules() == list(detector.reference.rules)
                assert not await detector.event(next(numbers))
            if kind == "ext4":
                # There is no inode, either.
                os.truncate(ballast, 0)
                take_all_inodes(disk)
                fill(ballast)
                worker = service.actors.with_detector(detector.id)
                assert worker is not None
                worker.die()
                await until(lambda: service.scheduler.active_detectors == 0)
                assert await detector.rules() == list(detector.reference.rules)
            ballast.unlink()
            for path in disk.glob("inode *"):
                path.unlink()
        async with local_service(disk / "data") as service:
            detector.backend = service.backend
            assert await detector.rules() == list(detector.reference.rules)
            assert await detector.event(next(numbers))
    print(f"{kind}: {len(detector.reference.events)} events taken, {refused} requests refused")


@pytest.mark.storm
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
async def test_a_service_that_starts_on_a_full_disk_can_be_read(tmp_path: Path, kind: str) -> None:
    with file_system(kind, tmp_path) as disk:
        ballast = disk / "ballast"
        async with local_service(disk / "data") as service:
            minted = await service.backend.mint_token()
            detector = Detector(service.backend, await service.backend.create_detector("full"))
            assert await detector.add_rule()
            assert await detector.event(1)
            fill(ballast)
        # Nothing could be saved, so the next owners must replay the journals.
        fill(ballast)
        async with local_service(disk / "data", directory_answer_age_max_s=1, retry_s=0.05) as service:
            detector.backend = service.backend
            for number in range(2, 5):
                assert await detector.rules() == list(detector.reference.rules)
                assert not await detector.event(number)
                with pytest.raises(DetectorUnavailable, match="No space left"):
                    await create_detectors(service.backend)
                await asyncio.sleep(0.5)
            # Tokens are known only while the directory keeps sending them.
            assert service.backend.permit(digest_of(minted.token))
            ballast.unlink()
            await service.backend.create_detector("room")
            assert await detector.event(5)


@pytest.mark.storm
async def test_a_disk_that_has_become_read_only_refuses_changes_and_can_be_read(tmp_path: Path) -> None:
    with file_system("ext4", tmp_path) as disk:
        async with local_service(disk / "data", directory_answer_age_max_s=1) as service:
            backend = service.backend
            minted = await backend.mint_token()
            detectors = [Detector(backend, await backend.create_detector(name)) for name in "ab"]
            for detector in detectors:
                assert await detector.add_rule()
                assert await detector.event(1)
            make_read_only(disk)
            for number in range(2, 6):
                for detector in detectors:
                    assert not await detector.event(number)
                    assert await detector.rules() == list(detector.reference.rules)
                with pytest.raises(DetectorUnavailable, match="Read-only"):
                    await backend.create_detector("c")
                await asyncio.sleep(0.5)
            # Tokens are known only while the directory keeps sending them.
            assert backend.permit(digest_of(minted.token))
