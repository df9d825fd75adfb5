"""The directory's snapshots: damage of what they replace loses nothing."""

import pytest

from engine.runtime.catalogue.catalogue import Catalogue, CatalogueSettings
from engine.runtime.contract.catalogue_changes import StoredToken
from tests.unit.runtime.catalogue.catalogue.directories import A, B, told
from tests.unit.snapshots.owners import change


def used(data, *, now_s=lambda: 0.0):
    directory = Catalogue(CatalogueSettings(data, 3, lock_wait_s=0), now_s=now_s)
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
