"""`backup` and `restore`: copies of a data folder that a service goes on using."""

import asyncio
import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.cli.inspection.data_folder import read_data_folder
from engine.runtime.catalogue.catalogue_state import STATE_VERSION, CatalogueState, encode_state
from engine.runtime.catalogue.offline import copy_data_folder, opened_offline
from engine.runtime.contract.requests.operations import (
    add_rule,
    change_rule,
    evaluate,
    put_relation,
    relation,
    rules,
    stage_tuples,
    versions,
)
from engine.runtime.contract.requests.tuples import TuplesPart
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import NothingUsable, StorageError
from snapshots.folders import create_folder
from snapshots.format.file_names import listing
from tests.faulty_files import Died, FaultyFiles
from tests.local_runtime.service import LocalService, local_service
from tests.unit.cli.commands import run
from tests.unit.cli.inspection.inspecting import event


async def filled(service: LocalService, *names: str) -> list[str]:
    detectors = []
    for name in names:
        detector = await service.backend.create_detector(name)
        await service.backend.call(detector, add_rule("forced", "per user once ok == false", notify=True))
        await service.backend.call(detector, evaluate(event(1)))
        detectors.append(detector)
    return detectors


@pytest.fixture
def data(tmp_path: Path) -> Path:
    async def make() -> None:
        async with local_service(tmp_path / "data") as service:
            await service.backend.mint_token()
            await filled(service, "one", "two")

    asyncio.run(make())
    return tmp_path / "data"


def test_a_backup_is_restored_to_a_folder_that_a_service_goes_on_with(data: Path, tmp_path: Path) -> None:
    copied = run("backup --data", data, tmp_path / "backup")
    assert f"{tmp_path / 'backup'}: copied 2 detectors, " in copied.stdout
    shutil.rmtree(data)
    run("restore --data", data, tmp_path / "backup")
    # A copy has no id. With `--existing-data`, a service takes the restored folder.
    assert read_data_folder(tmp_path / "backup").identity is None
    assert read_data_folder(data).whole
    assert begin_folder(data, must_exist=True) == read_data_folder(data).identity

    async def go_on() -> list[int]:
        async with local_service(data) as service:
            detectors = [entry.id for entry in read_data_folder(data).detectors]
            for detector in detectors:
                await service.backend.call(detector, evaluate(event(2)))
                [rule] = json.loads((await service.backend.call(detector, rules())).result)["rules"]
                assert rule["name"] == "forced"
        return [entry.contents.events_seen for entry in read_data_folder(data).detectors if entry.contents]

    assert asyncio.run(go_on()) == [2, 2]


def test_relations_and_versions_are_copied_and_restored_with_one_detector(data: Path, tmp_path: Path) -> None:
    one, two = (entry.id for entry in read_data_folder(data).detectors)

    async def held(detector: str) -> list[bytes]:
        async with local_service(data) as service:
            [rule] = json.loads((await service.backend.call(detector, rules())).result)["rules"]
            asked = (relation("owns", limit=9), versions(rule["id"]))
            return [(await service.backend.call(detector, each)).result for each in asked]

    async def changed() -> None:
        async with local_service(data) as service:
            [rule] = json.loads((await service.backend.call(one, rules())).result)["rules"]
            for operation in (
                change_rule(rule["id"], name="renamed"),
                stage_tuples("u", 0, TuplesPart("ndjson", b'["a",1]\n["b",2]\n')),
                put_relation("owns", "u", 1),
            ):
                await service.backend.call(one, operation)

    asyncio.run(changed())
    before = asyncio.run(held(one))
    run("backup --data", data, tmp_path / "backup")
    said = run("inspect", tmp_path / "backup", "--detector", one).stdout
    assert "  relations  1, with 2 tuples\n" in said
    assert re.search(r"\n  versions   [0-9]+ bytes of earlier ones\n", said)
    for folder in (data, tmp_path / "backup"):
        assert "\n  relations" not in run("inspect", folder, "--detector", two).stdout

    async def deleted() -> None:
        async with local_service(data) as service:
            await service.backend.delete_detector(one)

    asyncio.run(deleted())
    run("restore --data", data, tmp_path / "backup", "--detector", one)
    assert asyncio.run(held(one)) == before


@pytest.mark.slow
async def test_a_backup_of_a_service_at_work_has_everything_acknowledged_before(tmp_path: Path) -> None:
    acknowledged = 0
    async with local_service(tmp_path / "data") as service:
        backend = service.backend
        [busy] = await filled(service, "busy")

        async def work() -> None:
            nonlocal acknowledged
            while True:
                await backend.call(busy, evaluate(event(acknowledged)))
                acknowledged += 1

        async def come_and_go() -> None:
            while True:
                [detector] = await filled(service, "short")
                await backend.delete_detector(detector)

        tasks = [asyncio.create_task(work()), asyncio.create_task(come_and_go())]
        try:
            for number in range(10):
                await asyncio.sleep(0.05)
                before, backup = acknowledged, tmp_path / str(number)
                await asyncio.to_thread(copy_data_folder, tmp_path / "data", backup)
                report = read_data_folder(backup)
                assert report.whole, report.damage
                assert not report.orphans
                [contents] = [entry.contents for entry in report.detectors if entry.id == busy]
                assert contents is not None
                assert contents.events_seen >= before + 1
        finally:
            for task in tasks:
                task.cancel()
    assert acknowledged > 10


def test_what_is_no_backup_or_would_overwrite_something_is_refused(data: Path, tmp_path: Path) -> None:
    run("backup --data", data, tmp_path / "whole")
    before = sorted(data.rglob("*"))
    refused = run("restore --data", data, tmp_path / "whole", status=1)
    assert "is not empty: name a new" in refused.stderr
    for target in (data / "backup", data / "detectors" / "backup"):
        refused = run("backup --data", data, target, status=1)
        assert refused.stderr == f"rule-detector: {target} is in {data}, which is to be copied\n"
    assert sorted(data.rglob("*")) == before
    refused = run("backup --data", tmp_path / "nothing", tmp_path / "backup", status=1)
    assert "is no data folder" in refused.stderr
    assert not (tmp_path / "backup").exists()


def odd_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Put, one after another, something that is no regular file in the place of each file of a folder."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock"):
        aside = path.rename(folder.parent / "aside")
        path.symlink_to(aside)
        yield path, "it is a symbolic link, and must not be"
        path.unlink()
        os.mkfifo(path)
        yield path, "it is no regular file"
        path.unlink()
        aside.rename(path)


def test_a_backup_is_not_followed_out_of_its_folder_and_cannot_block(data: Path, tmp_path: Path) -> None:
    backup, new = tmp_path / "backup", tmp_path / "new"
    run("backup --data", data, backup)
    tried = 0
    for path, said in odd_files(backup):
        refused = run("restore --data", new, backup, status=1)
        assert (said in refused.stderr, str(path) in refused.stderr) == (True, True)
        assert not list(new.glob("*/*"))
        # Claims and marks are empty, so nobody reads them.
        unread = bool(listing([path.name]).claims or listing([path.name]).marks)
        assert unread or said in run("inspect", backup, status=1).output
        tried += 1
    assert tried >= 6
    [one, *_] = (backup / "detectors").iterdir()
    for folder in (backup / "directory", backup / "detectors", one):
        elsewhere = folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(elsewhere)
        refused = run("restore --data", new, backup, status=1)
        assert f"{folder} is a symbolic link, and must not be" in refused.stderr
        folder.unlink()
        elsewhere.rename(folder)
    run("restore --data", new, backup)


def test_a_service_may_have_its_detectors_on_another_disk(data: Path, tmp_path: Path) -> None:
    (data / "detectors").rename(tmp_path / "disk")
    (data / "detectors").symlink_to(tmp_path / "disk")
    assert "copied 2 detectors" in run("backup --data", data, tmp_path / "backup").stdout


@pytest.mark.parametrize("member", ["detectors", "removed"])
def test_a_catalogue_cannot_name_a_folder_outside(data: Path, tmp_path: Path, member: str) -> None:
    outside = "../../outside"
    body = encode_state(CatalogueState(**{member: {outside: "x"} if member == "detectors" else {outside}}))
    shutil.rmtree(data / "directory")
    create_folder(data / "directory", body, version=STATE_VERSION)
    create_folder(tmp_path / "outside", b"", version=1)
    for command in ("backup", "restore"):
        arguments = (data, tmp_path / "new") if command == "backup" else (tmp_path / "new", data)
        refused = run(f"{command} --data", *arguments, status=1)
        assert "a detector with the id '../../outside', which no service gives" in refused.stderr
    assert "which no service gives" in run("inspect", data, status=1).stdout
    shutil.rmtree(data / "detectors")
    with pytest.raises(StorageError, match="no service gives"), opened_offline(data):
        pass
    assert list((tmp_path / "outside").iterdir())


@pytest.mark.storm
def test_a_copy_that_fails_anywhere_leaves_nothing_and_can_be_repeated(data: Path, tmp_path: Path) -> None:
    call = 0
    while True:
        target = tmp_path / str(call)
        files = FaultyFiles(fails_at=call, error=errno.ENOSPC)
        try:
            copied = copy_data_folder(data, target, files)
        except StorageError:
            assert files.failed
            assert [path.name for path in target.glob("*")] in ([], ["lock"])
            copied = copy_data_folder(data, target)
        assert (copied.detectors, copied.damage) == (2, ())
        assert read_data_folder(target).whole
        call += 1
        if not files.failed:
            break
    assert call > 50


@pytest.mark.storm
def test_a_copy_whose_process_is_killed_anywhere_is_whole_or_no_data_folder(
    data: Path, tmp_path: Path
) -> None:
    call = whole = 0
    while True:
        target, again = tmp_path / str(call), tmp_path / f"{call} again"
        files = FaultyFiles(fails_at=call, dies=True)
        with contextlib.suppress(Died):
            copy_data_folder(data, target, files)
        if (target / "directory").exists():
            whole += 1
            assert read_data_folder(target).whole
            run("restore --data", again, target)
        elif target.exists():
            assert "is no data folder" in run("restore --data", again, target, status=1).stderr
            started = set(target.iterdir()) - {target / "lock"}
            refused = run("backup --data", data, target, status=1 if started else 0)
            if started:
                assert "holds a copy that was interrupted: remove it" in refused.stderr
                with pytest.raises(NothingUsable, match="interrupted"), opened_offline(target):
                    pass
        call += 1
        if not files.failed:
            break
    assert whole >= 2


def test_damage_is_copied_and_told(data: Path, tmp_path: Path) -> None:
    detector = min((data / "detectors").iterdir())
    for snapshot in detector.glob("snapshot-*"):
        snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"?")
    copied = run("backup --data", data, tmp_path / "backup", status=1)
    assert f"warning: {tmp_path / 'backup' / 'detectors' / detector.name}: " in copied.stderr
    assert "1 folder damaged" in copied.stderr
    assert len(read_data_folder(tmp_path / "backup").detectors) == 2


def test_a_detector_that_lost_its_snapshots_does_not_keep_the_others_from_being_copied(
    data: Path, tmp_path: Path
) -> None:
    lost = min((data / "detectors").iterdir())
    for snapshot in lost.glob("snapshot-*"):
        snapshot.unlink()
    copied = run("backup --data", data, tmp_path / "backup", status=1)
    assert f"warning: {lost} holds no snapshot" in copied.stderr
    assert [path.name for path in (tmp_path / "backup" / "detectors").iterdir()] != [lost.name]
