"""`repair` keeps what can be kept, moves the rest aside, and may be repeated."""

import contextlib
import shutil

import pytest

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import StoredToken
from snapshots.data_folder.lock import FolderLock
from snapshots.inspection import inspect_folder, read_only
from snapshots.repair import finish_repairs, repair, what_can_be_kept
from snapshots.store import Store
from tests.faulty_files import Died, FaultyFiles
from tests.unit.cli.commands import run
from tests.unit.snapshots.owners import change

A, B, C = "a" * 32, "b" * 32, "c" * 32


def repaired(data, *, status=0):
    return run("repair --yes", data, status=status).output


@pytest.fixture
def data(tmp_path):
    """A data folder whose directory died with three tokens and a detector with four records."""
    directory = Catalogue(RuntimeSettings(data=tmp_path, snapshots_kept=3, lock_wait_s=0))
    directory.open()
    directory.create_detectors({A: "one"})
    for token_id in (A, B, C):
        directory.add_token(token_id, StoredToken(token_id[:1].encode(), "hint"))
    directory._store.close()
    directory.close()
    store = Store(tmp_path / "detectors" / A, epoch=2**32 + 1)
    store.recover()
    for number in range(4):
        store.append(b"%d" % number, version=1)
    store.sync()
    store.close()
    return tmp_path


def segment(folder):
    return max(path for path in folder.glob("journal-*") if path.stat().st_size)


def tokens(data):
    directory = Catalogue(RuntimeSettings(data=data, snapshots_kept=3, lock_wait_s=0))
    try:
        directory.open()
        return [one.id for one in directory.tokens()]
    finally:
        directory.close()


def test_a_whole_folder_is_left_alone(data):
    def held():
        return {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name != "lock"}

    before = held()
    assert "nothing to repair" in repaired(data)
    assert held() == before


def test_every_flipped_bit_of_the_catalogues_journal_costs_at_most_its_own_record(data):
    path = segment(data / "directory")
    place = path.read_bytes().index(bytes(B, "ascii"))
    change(path, place)
    assert "1 record among them cannot be read" in repaired(data)
    assert tokens(data) == [A, C]
    assert "nothing to repair" in repaired(data)


def test_a_detector_keeps_what_came_before_the_damage_and_nothing_is_written_unasked(data):
    folder = data / "detectors" / A
    path = segment(folder)
    # The third of four records, which have 41 bytes each.
    change(path, 44 + 2 * 41 + 36)
    assert "everything up to record 2" in run("repair", data, input="n\n", status=1).output
    assert inspect_folder(folder).refusal
    repaired(data)
    assert [one.payload for one in read_only(folder).records] == [b"0", b"1"]
    assert inspect_folder(data / "damaged" / "detectors" / f"{A}.damaged-1").refusal


@pytest.mark.parametrize("kind", ["journal", "snapshot"])
def test_a_folder_that_lost_files_is_repaired_or_left_as_it_is(data, kind):
    folder = data / "detectors" / A
    for path in folder.glob(f"{kind}-*"):
        path.unlink()
    said = repaired(data, status=int(kind == "snapshot"))
    if kind == "journal":
        assert [*read_only(folder).records] == []
    else:
        assert "nothing can be kept" in said
        assert segment(folder).exists()


@pytest.mark.parametrize(
    ("is_journal_there", "payloads", "told"),
    [
        (
            True,
            [b"0", b"1", b"2", b"3", b"4"],
            "everything up to record 5, from the older snapshot of record 0",
        ),
        (
            False,
            [],
            "record 0, from the older snapshot of record 0; lost is all after it, up to record 4 or later",
        ),
    ],
)
def test_instead_of_a_snapshot_that_cannot_be_read_an_older_one_and_the_journal_are_kept(
    data, is_journal_there, payloads, told
):
    folder = data / "detectors" / A
    early = segment(folder)
    store = Store(folder, epoch=2**32 + 2)
    store.recover()
    store.save([b"saved"], version=1, sequence=store.begin_snapshot())
    store.append(b"4", version=1)
    store.sync()
    store.close()
    snapshot = max(folder.glob("snapshot-*"))
    # As on a bad sector, the call that reads it fails.
    snapshot.rename(data / "elsewhere")
    snapshot.mkdir()
    if not is_journal_there:
        early.unlink()
    said = repaired(data)
    assert f"{snapshot}: it cannot be read: it is no regular file" in said
    assert told in said
    assert [one.payload for one in read_only(folder).records] == payloads
    assert (data / "damaged" / "detectors" / f"{A}.damaged-1" / snapshot.name).exists()
    assert "nothing to repair" in repaired(data)


def test_a_repair_that_was_killed_between_its_renames_is_run_again(data):
    folder, aside = data / "detectors" / A, data / "damaged" / "detectors"
    change(segment(folder), 44 + 36)
    (aside / f"{A}.unfinished").mkdir(parents=True)
    folder.rename(aside / f"{A}.damaged-1")
    repaired(data)
    assert inspect_folder(folder).refusal is None


def test_what_cannot_be_repaired_is_told_and_does_not_keep_others_from_it(data):
    unusable, folder = data / "detectors" / B, data / "detectors" / A
    shutil.copytree(folder, unusable)
    path = segment(unusable)
    path.unlink()
    path.mkdir()
    said = repaired(data, status=1)
    assert f"{path}" in said
    assert "1 part cannot be repaired" in said
    assert "nothing to repair" not in said
    change(segment(folder), 44 + 2 * 41 + 36)
    said = repaired(data, status=1)
    assert f"{folder}: repaired" in said
    assert "1 part cannot be repaired" in said
    path.rmdir()
    repaired(data)
    assert what_can_be_kept(unusable) is None


def test_a_detector_whose_folder_is_gone_is_told_and_a_folder_of_the_disk_is_not(data):
    (data / "detectors" / "lost+found").mkdir()
    assert "nothing to repair" in repaired(data)
    shutil.rmtree(data / "detectors" / A)
    said = repaired(data, status=1)
    assert f"{data / 'detectors' / A}: no snapshot can be used" in said
    assert "nothing to repair" not in said


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_damaged_id_is_told_and_left_to_people(data, is_folder):
    identity = data / "identity"
    identity.mkdir() if is_folder else identity.write_bytes(b"")
    said = repaired(data, status=1)
    assert str(identity) in said
    assert "nothing to repair" not in said
    assert identity.exists()


def test_a_folder_in_use_is_refused(data):
    with FolderLock(data):
        repaired(data, status=1)


@pytest.mark.parametrize("options", [(), ("--new-id",)])
def test_a_detector_is_restored_from_a_backup_where_it_is_damaged_or_beside_itself(
    data, tmp_path_factory, options
):
    backup = tmp_path_factory.mktemp("backup")
    run("backup --data", data, backup)
    restore = ("restore --data", data, backup, "--detector", A, *options)
    if not options:
        assert "that is whole" in run(*restore, status=1).output
        change(segment(data / "detectors" / A), 44 + 36)
    restored = data / "detectors" / run(*restore).output.split()[-1]
    assert (restored.name == A) is not bool(options)
    assert [one.payload for one in read_only(restored).records] == [b"0", b"1", b"2", b"3"]
    directory = Catalogue(RuntimeSettings(data=data, snapshots_kept=3, lock_wait_s=0))
    directory.open()
    names = directory.changes(0, 0).detectors.whole
    epoch = directory.lease(restored.name)
    directory.close()
    assert set(names) == {A, restored.name}
    Store(restored, epoch=epoch).recover()


def test_a_repair_that_dies_at_any_call_is_finished_by_the_next(data, tmp_path_factory):
    folder, aside = data / "detectors" / A, data / "damaged" / "detectors"
    change(segment(folder), 44 + 2 * 41 + 36)
    damaged = tmp_path_factory.mktemp("kept") / "one"
    shutil.copytree(folder, damaged)
    for calls in range(200):
        shutil.rmtree(folder)
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(damaged, folder)
        kept = what_can_be_kept(folder)
        files = FaultyFiles(fails_at=calls, dies=True)
        with contextlib.suppress(Died):
            repair(kept, aside, files)
        finish_repairs(data / "detectors", aside)
        again = what_can_be_kept(folder)
        if again is not None:
            repair(again, aside)
        assert [one.payload for one in read_only(folder).records] == [b"0", b"1"], calls
        assert what_can_be_kept(folder) is None
        if not files.failed:
            break
    assert calls > 10
