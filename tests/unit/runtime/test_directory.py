"""The directory: what it keeps over restarts, and that nothing is answered before it is on the disk."""

import pytest

from engine.runtime.directory import Directory, DirectorySettings, mint_offline, opened_offline
from engine.runtime.tokens import digest_of, mint
from snapshots.errors import FolderInUse, NewerFormat, StorageError
from snapshots.store import SnapshotStore
from tests.faults import FaultyFiles

A, B, C = "a" * 32, "b" * 32, "c" * 32


@pytest.fixture
def files():
    return FaultyFiles()


@pytest.fixture
def opened(tmp_path, files):
    directories = []

    def opened() -> Directory:
        for directory in directories:
            directory.close()
        directory = Directory(DirectorySettings(tmp_path, 2, lock_wait_s=0), files=files)
        directories.append(directory)
        directory.open()
        return directory

    yield opened
    for directory in directories:
        directory.close()


def test_tokens_and_detectors_are_there_after_a_restart_in_order_of_creation(opened):
    directory = opened()
    for token_id in (C, A, B):
        directory.add_token(token_id, digest_of(token_id), "hint")
    for detector_id in (B, C, A):
        directory.create_detector(detector_id, f"detector {detector_id[0]}")
    directory.revoke_token(A)
    directory.delete_detector(C)
    found = opened().changes(0, 0)
    assert found.tokens == {digest_of(C): C, digest_of(B): B}
    assert list((found.detectors or {}).items()) == [(B, "detector b"), (A, "detector a")]


def test_no_secret_is_on_the_disk(opened, tmp_path):
    minted = mint()
    assert len(minted.token) == len("rd_") + 43
    assert minted.token.endswith(minted.hint)
    assert len(minted.hint) == 4
    opened().add_token(minted.id, digest_of(minted.token), minted.hint)
    data = b"".join(path.read_bytes() for path in (tmp_path / "directory").iterdir())
    assert digest_of(minted.token) in data
    assert minted.token.encode()[3:20] not in data


def test_only_what_is_new_is_told(opened):
    directory = opened()
    first = directory.changes(0, 0)
    assert (first.tokens, first.detectors) == ({}, {})
    seen = (first.tokens_version, first.detectors_version)
    nothing = directory.changes(*seen)
    assert (nothing.tokens, nothing.detectors) == (None, None)
    version = directory.add_token(A, b"digest", "hint")
    news = directory.changes(*seen)
    assert (news.tokens, news.detectors, news.tokens_version) == ({b"digest": A}, None, version)


def test_versions_and_epochs_grow_over_restarts(opened):
    directory = opened()
    directory.create_detector(A, "a")
    versions, epochs = [directory.changes(0, 0).detectors_version], [directory.lease(A, "x")]
    epochs.append(directory.lease(A, "y"))
    for _ in range(2):
        directory = opened()
        versions.append(directory.changes(0, 0).detectors_version)
        epochs.append(directory.lease(A, "x"))
    assert versions == sorted(set(versions))
    assert epochs == sorted(set(epochs))


def test_only_a_detector_in_the_catalogue_is_leased(opened):
    directory = opened()
    assert directory.lease(A, "x") is None
    directory.create_detector(A, "a")
    assert directory.lease(A, "x")
    directory.delete_detector(A)
    assert directory.lease(A, "x") is None


def test_to_create_twice_is_to_create_once(opened):
    directory = opened()
    assert directory.create_detector(A, "a") == directory.create_detector(A, "a")
    assert directory.add_token(A, b"d", "h") == directory.add_token(A, b"d", "h")
    assert directory.changes(0, 0).detectors == {A: "a"}


def test_what_is_not_there_cannot_be_removed(opened):
    directory = opened()
    assert directory.revoke_token(A) is None
    assert directory.delete_detector(A) is None


def test_files_of_a_deleted_detector_go_when_it_is_purged_or_with_the_next_opening(opened, tmp_path):
    directory = opened()
    for detector_id in (A, B):
        directory.create_detector(detector_id, "")
        store = SnapshotStore(tmp_path / "detectors" / detector_id)
        store.load()
        store.save(b"", version=1)
    directory.purge_detector(A)
    assert (tmp_path / "detectors" / A).exists(), "a detector that lives is not purged"
    directory.delete_detector(A)
    directory.delete_detector(B)
    directory.purge_detector(A)
    assert not (tmp_path / "detectors" / A).exists()
    assert (tmp_path / "detectors" / B).exists()
    opened()
    assert not (tmp_path / "detectors" / B).exists()


@pytest.mark.parametrize("call", range(8))
@pytest.mark.parametrize("change", ["add", "revoke", "create", "delete"])
def test_a_change_that_cannot_be_saved_is_not_made(opened, files, change, call):
    directory = opened()
    directory.add_token(A, b"a", "hint")
    directory.create_detector(A, "a")
    before = directory.changes(0, 0)
    files.fails_at = len(files.calls) + call
    work = {
        "add": lambda: directory.add_token(B, b"b", "hint"),
        "revoke": lambda: directory.revoke_token(A),
        "create": lambda: directory.create_detector(B, "b"),
        "delete": lambda: directory.delete_detector(A),
    }[change]
    with pytest.raises(StorageError):
        work()
    assert files.failed
    assert directory.changes(0, 0) == before
    work()
    after = directory.changes(0, 0)
    assert after != before
    reopened = opened().changes(0, 0)
    assert (reopened.tokens, reopened.detectors) == (after.tokens, after.detectors)


def test_two_directories_cannot_have_one_folder(opened, tmp_path):
    opened()
    with pytest.raises(FolderInUse), opened_offline(tmp_path):
        pass


def test_a_folder_is_let_go_of_where_opening_it_fails(opened, tmp_path, files):
    opened().close()
    failing = Directory(DirectorySettings(tmp_path, 2, lock_wait_s=0), files=FaultyFiles(fails_at=0))
    with pytest.raises(StorageError, match="cannot be read"):
        failing.open()
    opened()


def test_a_directory_saved_by_a_newer_program_is_refused(opened, tmp_path):
    store = SnapshotStore(tmp_path / "directory")
    store.load()
    store.save(b"", version=2)
    with pytest.raises(NewerFormat, match="version 2"):
        opened()


def test_a_token_is_minted_offline(opened, tmp_path):
    minted = mint_offline(tmp_path)
    assert opened().changes(0, 0).tokens == {digest_of(minted.token): minted.id}
