"""The directory: what it keeps over restarts, and how many there may be of each."""

from collections import Counter

import msgspec
import pytest

from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.offline import mint_offline, opened_offline
from engine.runtime.contract.catalogue_changes import TableUpdate
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import KnownToken, StoredToken, TokenEntry, digest_of, mint
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import NewerFormat, OlderFormat
from snapshots.folders import create_folder
from snapshots.store import Store
from tests.unit.runtime.catalogue.catalogue.directories import A, B, C, D, expecting


def test_tokens_and_detectors_are_there_after_a_restart_in_order_of_creation(opened):
    directory = opened()
    for token_id in (C, A, B):
        directory.add_token(token_id, StoredToken(digest_of(token_id), "hint"))
    for detector_id in (B, C, A):
        directory.create_detectors({detector_id: f"detector {detector_id[0]}"})
    directory.revoke_token(A)
    directory.delete_detector(C)
    found = opened().changes(0, 0)
    assert found.tokens.whole == {digest_of(C): KnownToken(C), digest_of(B): KnownToken(B)}
    assert list((found.detectors.whole or {}).items()) == [(B, "detector b"), (A, "detector a")]


def test_no_secret_is_on_the_disk(opened, tmp_path):
    minted = mint()
    assert len(minted.token) == len("rd_") + 43
    assert minted.token.endswith(minted.stored.hint)
    assert len(minted.stored.hint) == 4
    opened().add_token(minted.id, minted.stored)
    data = b"".join(path.read_bytes() for path in (tmp_path / "directory").iterdir())
    assert digest_of(minted.token) in data
    assert minted.token.encode()[3:20] not in data


def test_names_of_tokens_survive_and_times_of_use_do_with_a_snapshot(opened):
    directory = opened()
    directory.add_token(A, StoredToken(b"a", "hint", "shop", 5))
    directory.add_token(B, StoredToken(b"b", "hint"))
    directory.tokens_used([A, C], 7)
    directory.tokens_used([A], 6)
    told = TokenEntry(A, "hint", "shop", 5, 7)
    assert directory.tokens() == [told, TokenEntry(B, "hint", "", None, None)]
    assert opened().tokens()[0] == told
    directory = opened()
    directory.tokens_used([A], 8)
    directory._store.close()
    assert opened().tokens()[0] == told
    directory = opened()
    directory.tokens_used([A], 8)
    directory._save()
    told = msgspec.structs.replace(told, used_at_ms=8)
    assert opened().tokens()[0] == told
    opened().revoke_token(A)
    assert opened().tokens() == [TokenEntry(B, "hint", "", None, None)]


def test_only_what_is_new_is_told(opened):
    directory = opened()
    first = directory.changes(0, 0)
    assert (first.tokens.whole, first.detectors.whole) == ({}, {})
    seen = (first.tokens.version, first.detectors.version)
    nothing = directory.changes(*seen)
    assert (nothing.tokens, nothing.detectors) == (TableUpdate(seen[0]), TableUpdate(seen[1]))
    version = directory.add_token(A, StoredToken(b"digest", "hint"))
    directory.create_detectors({B: "b"})
    news = directory.changes(*seen)
    assert news.tokens == TableUpdate(version, changes=[(b"digest", KnownToken(A))])
    assert news.detectors.changes == [(B, "b")]
    directory.revoke_token(A)
    directory.delete_detector(B)
    news = directory.changes(*seen)
    assert news.tokens.changes == [(b"digest", KnownToken(A)), (b"digest", None)]
    assert news.detectors.changes == [(B, "b"), (B, None)]


def test_versions_and_epochs_grow_over_restarts(opened):
    directory = opened()
    directory.create_detectors({A: "a"})
    versions, epochs = [directory.changes(0, 0).detectors.version], [directory.lease(A)]
    epochs.append(directory.lease(A))
    for _ in range(2):
        directory = opened()
        versions.append(directory.changes(0, 0).detectors.version)
        epochs.append(directory.lease(A))
    assert versions == sorted(set(versions))
    assert epochs == sorted(set(epochs))


def test_only_a_detector_in_the_catalogue_is_leased(opened):
    directory = opened()
    assert directory.lease(A) is None
    directory.create_detectors({A: "a"})
    assert directory.lease(A) is not None
    directory.delete_detector(A)
    assert directory.lease(A) is None


def test_to_create_twice_is_to_create_once(opened):
    directory = opened()
    assert directory.create_detectors({A: "a"}) == directory.create_detectors({A: "a"})
    assert directory.add_token(A, StoredToken(b"d", "h")) == directory.add_token(A, StoredToken(b"d", "h"))
    assert directory.changes(0, 0).detectors.whole == {A: "a"}


def test_what_is_not_there_cannot_be_removed(opened):
    directory = opened()
    for remove, code in ((directory.revoke_token, 1202), (directory.delete_detector, 1200)):
        with pytest.raises(Refusal) as caught:
            remove(A)
        assert [entry.code for entry in caught.value.entries] == [code]


def test_files_of_a_deleted_detector_go_when_it_is_purged_or_with_the_next_opening(opened, tmp_path):
    directory = opened()
    for detector_id in (A, B):
        directory.create_detectors({detector_id: ""})
    directory.purge_detector(A)
    assert (tmp_path / "detectors" / A).exists(), "a detector that lives is not purged"
    directory.delete_detector(A)
    directory.delete_detector(B)
    directory.purge_detector(A)
    assert not (tmp_path / "detectors" / A).exists()
    assert (tmp_path / "detectors" / B).exists()
    opened()
    assert not (tmp_path / "detectors" / B).exists()


def test_a_snapshot_is_made_once_the_journal_has_as_much_as_the_one_before(opened, tmp_path, monkeypatch):
    monkeypatch.setattr("engine.runtime.catalogue.catalogue._SNAPSHOT_JOURNAL_BYTES", 1000)
    directory = opened()
    sizes = []
    for number in range(1000):
        directory.add_token(f"{number:032x}", StoredToken(b"%d" % number, "hint"))
        newest = max((tmp_path / "directory").glob("snapshot-*"))
        if newest.stat().st_size not in sizes:
            sizes.append(newest.stat().st_size)
    # Each has at least the half more, where a fixed distance would have brought hundreds of them.
    assert 5 < len(sizes) < 40
    assert sum(sizes) < 5 * sizes[-1]
    assert len(opened().changes(0, 0).tokens.whole or ()) == 1000


def test_openings_leave_a_bounded_number_of_segments(opened, tmp_path):
    counts = []
    for number in range(30):
        directory = opened()
        directory.add_token(f"{number:032x}", StoredToken(b"%d" % number, "hint"))
        # It dies, and saves nothing.
        directory._store.close()
        counts.append(len(list((tmp_path / "directory").glob("journal-*-000001.rdj"))))
    assert max(counts) <= 12
    for _ in range(5):
        assert len(opened().changes(0, 0).tokens.whole or ()) == 30
    before = sorted((tmp_path / "directory").glob("snapshot-*"))
    for _ in range(5):
        opened()
    assert sorted((tmp_path / "directory").glob("snapshot-*")) == before, "nothing was changed since"


def test_no_more_detectors_are_entered_than_there_may_be(tmp_path):
    directory = Catalogue(RuntimeSettings(data=tmp_path, snapshots_kept=2, lock_wait_s=0, detectors_max=2))
    directory.open()
    versions = [directory.create_detectors({one: ""}) for one in (A, B)]
    assert directory.create_detectors({C: ""}) == [None]
    assert not (tmp_path / "detectors" / C).exists()
    assert directory.create_detectors({B: ""}) == versions[1], "to create twice is to create once"
    directory.delete_detector(A)
    assert directory.create_detectors({C: ""}) != [None]
    directory.close()
    again = Catalogue(RuntimeSettings(data=tmp_path, snapshots_kept=2, lock_wait_s=0, detectors_max=1))
    again.open()
    assert again.create_detectors({A: ""}) == [None]
    assert list(again.changes(0, 0).detectors.whole or ()) == [B, C], "a lower limit takes nothing away"
    again.close()


def test_no_more_tokens_are_added_than_there_may_be(tmp_path):
    directory = Catalogue(RuntimeSettings(data=tmp_path, snapshots_kept=2, lock_wait_s=0, tokens_max=2))
    directory.open()
    tokens = {one: StoredToken(one.encode(), "hint") for one in (A, B, C)}
    versions = [directory.add_token(one, tokens[one]) for one in (A, B)]
    with pytest.raises(Refusal, match="the service has 2 tokens"):
        directory.add_token(C, tokens[C])
    assert directory.add_token(B, tokens[B]) == versions[1], "to add twice is to add once"
    directory.revoke_token(A)
    directory.add_token(C, tokens[C])
    directory.close()
    again = Catalogue(RuntimeSettings(data=tmp_path, snapshots_kept=2, lock_wait_s=0, tokens_max=1))
    again.open()
    with pytest.raises(Refusal):
        again.add_token(A, tokens[A])
    assert [token.id for token in again.tokens()] == [B, C], "a lower limit takes nothing away"
    again.close()


@pytest.mark.parametrize(("version", "error"), [(1, OlderFormat), (4, NewerFormat)])
def test_a_directory_saved_in_another_format_is_refused(opened, tmp_path, version, error):
    create_folder(tmp_path / "directory", b"", version=version)
    with pytest.raises(error, match=f"version {version}"):
        opened()


def test_a_token_is_minted_offline(opened, tmp_path):
    minted = mint_offline(tmp_path)
    assert opened().changes(0, 0).tokens.whole == {digest_of(minted.token): KnownToken(minted.id)}


def test_detectors_that_are_created_together_share_the_syncs_of_folder_and_journal(opened, files, tmp_path):
    directory = opened()
    directory.create_detectors({A: "a"})
    before = len(files.calls)
    first, second = directory.create_detectors({B: "b", C: "c"})
    assert first < second, "each has its version"
    calls = Counter(files.calls[before:])
    assert (calls["sync"], calls["sync_folder"], calls["sync_data"]) == (2, 3, 1)
    assert directory.create_detectors({A: "a", C: "c", D: "d"}) == [second + 1] * 3
    for detector_id in (A, B, C, D):
        store = Store(tmp_path / "detectors" / detector_id, epoch=1)
        assert store.recover().snapshot.body == directory._newborn


def test_a_token_that_is_minted_offline_begins_the_folder(tmp_path):
    minted = mint_offline(tmp_path / "data")
    with opened_offline(tmp_path / "data") as directory:
        assert directory.changes(0, 0).tokens.whole == {digest_of(minted.token): KnownToken(minted.id)}
    assert expecting(tmp_path / "data", begin_folder(tmp_path / "data")).open().damage == ()
