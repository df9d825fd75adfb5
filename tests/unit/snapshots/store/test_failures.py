"""A disk that is full or fails: what is said of it, and that nothing is lost by it."""

import errno

import pytest

from snapshots.errors import (
    NoRoom,
    StorageError,
    SyncFailed,
    WriteFailed,
)
from snapshots.format.file_names import segment_name
from tests.faulty_files import FaultyFiles
from tests.unit.snapshots.owners import names, opened, recovered, save, write


def test_no_room_changes_nothing(folder):
    files = FaultyFiles(error=errno.ENOSPC, for_good=True)
    store = write(opened(folder, files=files), b"one")
    files.fails_at = len(files.calls)
    with pytest.raises(NoRoom):
        store.reserve(1_000)
    files.fails_at = None
    store.reserve(1_000)
    write(store, b"two")
    assert store.broken is None
    assert recovered(folder) == (b"born", [b"one", b"two"])


def test_what_is_reserved_makes_no_file_longer_and_is_given_back(folder):
    store = opened(folder)
    store.reserve(100_000)
    path = folder / segment_name(1, 1)
    assert path.stat().st_size == 0
    if path.stat().st_blocks == 0:
        pytest.skip("this file system cannot reserve")
    write(store, b"one")
    store.close()
    assert path.stat().st_blocks * 512 <= 8192


@pytest.mark.parametrize(("call", "kind"), [("write", WriteFailed), ("sync_data", SyncFailed)])
def test_a_failed_write_or_sync_is_the_end_of_a_store(folder, call, kind):
    files = FaultyFiles()
    store = write(opened(folder, files=files), b"one")
    files.fails_at = len(files.calls) + (call == "sync_data")
    with pytest.raises(kind, match=r"journal-.*at offset|journal-.*after offset"):
        write(store, b"two")
    for refused in (
        lambda: store.append(b"", version=3),
        store.sync,
        store.begin_snapshot,
        store.check_owner,
        lambda: store.reserve(1),
        lambda: store.save([b""], version=7, sequence=1),
    ):
        with pytest.raises(kind, match="takes nothing more"):
            refused()
    assert isinstance(store.broken, kind)
    assert recovered(folder)[1][:1] == [b"one"]


@pytest.mark.parametrize("for_good", [False, True])
def test_a_save_that_fails_at_any_call_changes_nothing_and_the_journal_goes_on(folder, for_good):
    calls, acknowledged = 0, False
    while not acknowledged:
        files = FaultyFiles(for_good=for_good)
        store = write(opened(folder, snapshots_kept=1, files=files), b"x")
        sequence = store.begin_snapshot()
        files.fails_at = len(files.calls) + calls
        try:
            store.save([b"saved"], version=7, sequence=sequence)
            acknowledged = True
        except StorageError:
            calls += 1
        files.fails_at = None
        write(store, b"after")
        store.close()
        body, payloads = recovered(folder)
        assert payloads[-1] == b"after"
        assert acknowledged <= (body == b"saved")
    assert calls == 9
    save(opened(folder, snapshots_kept=1))
    assert len(names(folder)) == 3
