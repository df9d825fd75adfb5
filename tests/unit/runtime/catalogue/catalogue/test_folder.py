"""A directory answers only as long as its folder is its own."""

from contextlib import suppress

import pytest

from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.offline import mint_offline, opened_offline
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import StoredToken
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import (
    Fenced,
    StorageError,
    WrongFolder,
)
from snapshots.files import RealFiles
from snapshots.store import Store
from tests.unit.runtime.catalogue.catalogue.directories import A, B, C, expecting, opened_with, told
from tests.unit.snapshots.owners import change


def held(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("place", ["empty", "missing", "another"])
def test_a_folder_that_is_not_the_expected_one_is_refused_and_nothing_is_made_in_it(tmp_path, place):
    expected = begin_folder(tmp_path / "data")
    data = tmp_path / place
    if place == "empty":
        data.mkdir()
    elif place == "another":
        mint_offline(data)
    before = held(tmp_path)
    with pytest.raises(WrongFolder, match=expected):
        expecting(data, expected).open()
    assert held(tmp_path) == before


WORK = {
    "changes": lambda directory: directory.changes(0, 0),
    "add": lambda directory: directory.add_token(B, StoredToken(b"b", "hint")),
    "revoke": lambda directory: directory.revoke_token(A),
    "create": lambda directory: directory.create_detectors({B: "b"}),
    "delete": lambda directory: directory.delete_detector(A),
    "purge": lambda directory: directory.purge_detector(C),
}


@pytest.mark.parametrize("instead", ["empty", "another"])
@pytest.mark.parametrize("work", WORK)
def test_a_folder_that_is_swapped_meanwhile_is_noticed_and_nothing_is_made_in_it(tmp_path, work, instead):
    data = tmp_path / "data"
    directory = expecting(data, begin_folder(data))
    directory.open()
    directory.add_token(A, StoredToken(b"a", "hint"))
    for detector_id in (A, C):
        directory.create_detectors({detector_id: ""})
    directory.delete_detector(C)
    data.rename(tmp_path / "aside")
    if instead == "another":
        with opened_offline(data) as other:
            other.add_token(A, StoredToken(b"a", "hint"))
            for detector_id in (A, C):
                other.create_detectors({detector_id: ""})
    else:
        data.mkdir()
    before = held(tmp_path)
    with pytest.raises(WrongFolder):
        WORK[work](directory)
    assert held(tmp_path) == before
    directory.close()


def refused(remove, what):
    with suppress(Refusal):
        remove(what)


ANSWERS_WITHOUT_A_CHANGE = {
    "changes": lambda directory: directory.changes(0, 0),
    "a token that is there": lambda directory: directory.add_token(A, StoredToken(b"a", "hint")),
    "a token that is not there": lambda directory: refused(directory.revoke_token, B),
    "a detector that is there": lambda directory: directory.create_detectors({A: ""}),
    "a detector that is not there": lambda directory: refused(directory.delete_detector, B),
    "nothing to purge": lambda directory: directory.purge_detector(B),
    "a lease": lambda directory: directory.lease(A),
    "no lease": lambda directory: directory.lease(B),
}


@pytest.mark.parametrize("ask", ANSWERS_WITHOUT_A_CHANGE.values(), ids=ANSWERS_WITHOUT_A_CHANGE)
def test_a_directory_with_a_successor_answers_nothing(tmp_path, ask):
    with opened_with(tmp_path, RealFiles()) as directory:
        directory.add_token(A, StoredToken(b"a", "hint"))
        directory.create_detectors({A: ""})
        ask(directory)
        successor = Store(tmp_path / "directory")
        successor.recover()
        with pytest.raises(Fenced):
            ask(directory)
        successor.close()


@pytest.mark.parametrize("ask", ANSWERS_WITHOUT_A_CHANGE.values(), ids=ANSWERS_WITHOUT_A_CHANGE)
def test_a_directory_that_cannot_know_whether_it_has_a_successor_answers_nothing(tmp_path, files, ask):
    directory = expecting(tmp_path, begin_folder(tmp_path), files)
    directory.open()
    directory.add_token(A, StoredToken(b"a", "hint"))
    directory.create_detectors({A: ""})
    files.fail_next("is_named")
    with pytest.raises(StorageError, match="cannot be read"):
        ask(directory)
    directory.close()


def used(data, *, now_s=lambda: 0.0):
    directory = Catalogue(RuntimeSettings(data=data, snapshots_kept=3, lock_wait_s=0), now_s=now_s)
    directory.open()
    return directory


def snapshots(data):
    return sorted((data / "directory").glob("snapshot-*"))


def reopened(data):
    directory = used(data)
    try:
        return told(directory)
    finally:
        directory.close()


def test_a_run_that_ends_saves_what_it_changed_and_one_that_changed_nothing_does_not(tmp_path):
    directory = used(tmp_path)
    directory.add_token(A, StoredToken(b"a", "hint"))
    directory.close()
    assert len(snapshots(tmp_path)) == 2
    used(tmp_path).close()
    assert len(snapshots(tmp_path)) == 2


def test_a_change_is_saved_after_a_minute(tmp_path):
    now_s = 0.0
    directory = used(tmp_path, now_s=lambda: now_s)
    directory.add_token(A, StoredToken(b"a", "hint"))
    for now_s, expected in ((59.0, 1), (60.0, 2), (200.0, 2)):  # noqa: B007 -- the lambda reads it
        directory.changes(0, 0)
        assert len(snapshots(tmp_path)) == expected
    directory.add_token(B, StoredToken(b"b", "hint"))
    directory.changes(0, 0)
    assert len(snapshots(tmp_path)) == 3
    directory.close()


@pytest.mark.parametrize("kind", ["journal", "snapshot"])
def test_damage_of_one_file_loses_nothing_that_a_run_which_ended_had(tmp_path, kind):
    for token_id, digest in ((A, b"a"), (B, b"b")):
        directory = used(tmp_path)
        directory.add_token(token_id, StoredToken(digest, "hint"))
        directory.create_detectors({token_id: "one"})
        before = told(directory)
        directory.close()
    files = [path for path in (tmp_path / "directory").glob(f"{kind}-*") if path.stat().st_size]
    assert len(files) >= 2
    for path in files:
        data = path.read_bytes()
        # Nothing tells a damaged header from that of a segment with more records.
        begin = 44 if path == max(files) and kind == "journal" else 0
        for at in range(begin, len(data), 23):
            change(path, at)
            assert reopened(tmp_path) == before
            path.write_bytes(data)
