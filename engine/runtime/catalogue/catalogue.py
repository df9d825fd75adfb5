"""The single owner of tokens, catalogue and leases, as a plain class."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import astuple

from engine.runtime.catalogue import catalogue_state
from engine.runtime.catalogue.catalogue_state import (
    CatalogueState,
    Change,
    DetectorCreated,
    DetectorPurged,
    DetectorRemoved,
    Reported,
    TokenAdded,
    TokenRevoked,
    delete_leftovers,
    prepare_folder,
    record_version,
    recovered_state,
    room_for_detectors,
    state_version,
)
from engine.runtime.contract import errors
from engine.runtime.contract.catalogue_changes import (
    Changes,
    LoggedChange,
    LoggedPage,
    Made,
    Opened,
    TableVersions,
)
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import KnownToken, StoredToken, TokenEntry, known_token
from engine.runtime.detector.persistence import detector_snapshot
from engine.runtime.detector.persistence.detector_snapshot import SNAPSHOT_VERSION
from snapshots.data_folder.identity import check_identity
from snapshots.data_folder.lock import FolderLock
from snapshots.data_folder.mounts import check_mount
from snapshots.errors import Fenced, StorageError, WriteFailed
from snapshots.files import Files, RealFiles, storage_errors
from snapshots.folders import create_folders, destroy_folder, has_snapshot
from snapshots.store import Store
from snapshots.write.due_marks import due_times

_EPOCHS_PER_OPENING: Final = 2**32
_SNAPSHOT_JOURNAL_BYTES: Final = 1024 * 1024
"""A journal of this size, or of the newest snapshot's if that is larger, triggers a snapshot: the amortized
cost of snapshots per change is constant."""

_SNAPSHOT_INTERVAL_S: Final = 60.0
"""A change is included in a snapshot after this time, or when the directory closes. From then on, damage of
the journal cannot lose it."""

_SEGMENTS_MAX: Final = 8
"""More segments than this trigger a snapshot on opening, since each opening may leave a segment."""

_WARNINGS_KEPT: Final = 10
_RECORD_BYTES: Final = 4096
"""The room for a change in the journal; only a token for very many detectors takes more."""


class Catalogue:
    """Tokens, catalogue and leases. A change is on the disk before it is acknowledged, or it is not made.

    Epochs and versions combine the number of the opening, which is stored, with a count within the opening,
    which is not. So they grow across restarts.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        *,
        lock: FolderLock | None = None,
        files: Files | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._files = files or RealFiles()
        self._folder = settings.data / "directory"
        self._detectors_folder = settings.data / "detectors"
        self._data = settings.data
        self._lock = lock or FolderLock(settings.data, wait_s=settings.lock_wait_s)
        kept = settings.snapshots_kept
        self._store = Store(self._folder, snapshots_kept=kept, reads_without_room=True, files=self._files)
        self._state = CatalogueState()
        self._opening = self._granted = 0
        self._tokens = TableVersions[bytes, KnownToken](0)
        self._detectors = TableVersions[str, str](0)
        self._snapshot_bytes = 0
        self._warnings: list[str] = []
        self._now_s = now_s
        self._opened, self._save_at_s = False, 0.0
        self._mark_is_synced = False
        """Whether the mark of this opening's first record is known to be on the disk."""
        self._newborn = detector_snapshot.empty_snapshot()

    def open(self) -> Opened:
        """Lock the data folder and read it. On a full disk, changes raise NoRoom until there is room.

        Raises StorageError, including FolderInUse, and WrongFolder before anything is changed.
        """
        try:
            # This comes before the lock, which would create the folder and its lock file.
            self._check_folder()
            check_mount(self._data, self._files)
            self._lock.acquire()
            return self._open()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise StorageError(f"{self._data} cannot be read: {error}") from error
            raise

    def _check_folder(self) -> None:
        """Raise WrongFolder if the data folder is not the expected one. Raises OSError."""
        if self._settings.folder_id is not None:
            check_identity(self._data, self._settings.folder_id, self._files)

    def _open(self) -> Opened:
        prepare_folder(self._data, self._files)
        recovered = self._store.recover()
        self._store.check_owner()
        self._state = recovered_state(recovered)
        assert self._store.epoch is not None, "recovery sets an epoch"
        self._opening = self._store.epoch * _EPOCHS_PER_OPENING
        self._tokens, self._detectors = TableVersions(self._opening + 1), TableVersions(self._opening + 1)
        assert recovered.snapshot is not None, "a folder begins with one"
        self._snapshot_bytes = len(recovered.snapshot.body)
        self._opened = True
        self._save_at_s = self._now_s() + _SNAPSHOT_INTERVAL_S
        self._save_if_long()
        if self._store.segment_count > _SEGMENTS_MAX:
            self._save_if_can_be()
        return Opened((*map(str, recovered.damage), *self._delete_unfinished()), self._store.epoch)

    def _delete_unfinished(self) -> list[str]:
        """Delete half created and half removed folders; return warnings about foreign or undeletable ones."""
        warnings = []
        for detector_id in list(self._state.removed):
            try:
                self.purge_detector(detector_id)
            except StorageError as error:
                # Leftover files must not keep the service from starting.
                warnings.append(str(error))
        known = self._state.detectors.keys() | self._state.removed
        return [*warnings, *delete_leftovers(self._detectors_folder, known, self._files)]

    def close(self) -> None:
        """Save all changes, if possible, and release the data folder."""
        if self._opened and self._changed:
            self._save_if_can_be()
        self._opened = False
        self._store.close()
        self._lock.release()

    @property
    def epoch(self) -> int:
        """An epoch before those of all leases of this opening, and after all earlier ones."""
        return self._opening

    def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since the versions that a front end has seen. Raises StorageError."""
        self.check_owner()
        if self._changed and self._now_s() >= self._save_at_s:
            self._save_if_can_be()
        if not self._lock.held:
            # A predecessor that was cut off held the lock, and may have ended since.
            with contextlib.suppress(StorageError):
                self._lock.acquire()
        state = self._state
        return Changes(
            self._tokens.since(
                tokens_seen,
                lambda: {token.digest: known_token(each, token) for each, token in state.tokens.items()},
            ),
            self._detectors.since(detectors_seen, state.detectors.copy),
            tuple(self._warnings),
        )

    def add_token(self, token_id: str, token: StoredToken, made: Made | None = None) -> int:
        """Store a token; return the version of the tokens that includes it. Raises Refusal 1400."""
        self.check_owner()
        if token_id not in self._state.tokens:
            if len(self._state.tokens) >= self._settings.tokens_max:
                raise errors.too_many("tokens", self._settings.tokens_max)
            self._change(TokenAdded(token_id, *astuple(token), *((made,) if made else ())))
            self._tokens.note(token.digest, known_token(token_id, token))
        return self._tokens.version

    def revoke_token(self, token_id: str, made: Made | None = None) -> int:
        """Remove a token; return the version of the tokens without it. Raises Refusal 1202."""
        self.check_owner()
        token = self._state.tokens.get(token_id)
        if token is None:
            raise errors.no_such_token(token_id)
        self._change(TokenRevoked(token_id, made))
        return self._tokens.note(token.digest, None)

    def tokens(self) -> list[TokenEntry]:
        """Return all tokens, in order of creation."""
        self.check_owner()
        used = self._state.tokens_used
        return [
            TokenEntry(each, token.hint, token.name, token.created_at_ms, used.get(each), token.grant)
            for each, token in self._state.tokens.items()
        ]

    def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        """Note that tokens were used. Nothing is journaled; the next snapshot includes it."""
        used = self._state.tokens_used
        for token_id in token_ids:
            if token_id in self._state.tokens:
                used[token_id] = max(at_ms, used.get(token_id, at_ms))

    def create_detectors(
        self,
        names: Mapping[str, str],
        owners: Mapping[str, str] | None = None,
        made: Mapping[str, Made] | None = None,
    ) -> list[int | None]:
        """Add detectors, given as names by id, in one change, and grant each to its owner, a token.

        Returns for each the catalogue's version that includes it; None if a limit is reached.
        """
        self.check_owner()
        owned, by, known = owners or {}, made or {}, self._state.detectors
        wanted = [DetectorCreated(one, name, owned.get(one, ""), by.get(one)) for one, name in names.items()]
        new = self._within_limits([one for one in wanted if one.id not in known])
        if new:
            self._store.reserve(len(new) * _RECORD_BYTES)
            # Folders are created first: the next opening deletes a folder without a detector, but a detector
            # without a folder is lost.
            folder, version = self._detectors_folder, SNAPSHOT_VERSION
            ids = [one.id for one in new]
            create_folders(folder, ids, self._newborn, version=version, files=self._files)
        versions = self._enter(new) if new else {}
        return [versions.get(one, self._detectors.version if one in known else None) for one in names]

    def _within_limits(self, new: list[DetectorCreated]) -> list[DetectorCreated]:
        """Return the new detectors that fit the limits of the service and of their owners."""
        del new[max(0, self._settings.detectors_max - len(self._state.detectors)) :]
        found: list[DetectorCreated] = []
        owned = Counter[str]()
        for one in new:
            owned[one.owner] += 1
            if owned[one.owner] <= room_for_detectors(self._state, one.owner):
                found.append(one)
        return found

    def enter_fork(
        self, detector_id: str, name: str, owner: str = "", made: Made | None = None, source: str = ""
    ) -> int:
        """Add a detector whose folder exists. Raises DetectorUnavailable if that has no snapshot."""
        self.check_owner()
        if detector_id not in self._state.detectors:
            new = self._within_limits([DetectorCreated(detector_id, name, owner, made, source)])
            if not new:
                raise errors.too_many("detectors", self._settings.detectors_max, owner)
            if not has_snapshot(self._detectors_folder / detector_id, self._files):
                raise errors.DetectorUnavailable(
                    errors.STARTING, "nothing was created: its files passed for leftovers"
                )
            self._enter(new)
        return self._detectors.version

    def _enter(self, new: Sequence[DetectorCreated]) -> dict[str, int]:
        """Add detectors whose folders exist; return the version that includes each."""
        self._change(*new)
        for owner in {one.owner for one in new} & self._state.tokens.keys():
            token = self._state.tokens[owner]
            self._tokens.note(token.digest, known_token(owner, token))
        return {one.id: self._detectors.note(one.id, one.name) for one in new}

    def delete_detector(self, detector_id: str, made: Made | None = None) -> int:
        """Remove a detector; return the catalogue's version without it. Raises Refusal 1200.

        Its files stay until `purge_detector`; the next opening purges leftovers.
        """
        self.check_owner()
        if detector_id not in self._state.detectors:
            raise errors.no_such_detector(detector_id)
        self._change(DetectorRemoved(detector_id, made))
        return self._detectors.note(detector_id, None)

    def report_changes(self, report_id: str, changes: list[LoggedChange]) -> None:
        """Log changes that were made elsewhere. Repeated reports with the same id are logged once."""
        self.check_owner()
        if report_id not in self._state.log.ids:
            self._change(Reported(report_id, changes))

    def logged_changes(self, after: int, limit: int) -> LoggedPage:
        """Return at most `limit` logged changes after a number."""
        self.check_owner()
        return self._state.log.page(after, limit, self._store.page, self._settings.changes_kept_days)

    def removed_detectors(self) -> list[str]:
        """Return the removed detectors whose files may still exist."""
        self.check_owner()
        return list(self._state.removed)

    def purge_detector(self, detector_id: str) -> None:
        """Delete the files of a removed or never completed detector, which must not be active anywhere."""
        self.check_owner()
        if detector_id in self._state.detectors:
            return
        destroy_folder(self._detectors_folder / detector_id, self._files)
        if detector_id in self._state.removed:
            self._change(DetectorPurged(detector_id))

    def lease(self, detector_id: str) -> int | None:
        """Return a new, latest epoch for an activation of a detector; None if the detector does not exist.

        An activation may write to the detector's folder until one with a later epoch writes to it.
        """
        self.check_owner()
        if detector_id not in self._state.detectors:
            return None
        self._granted += 1
        assert self._granted < _EPOCHS_PER_OPENING
        return self._opening + self._granted

    def dues(self, detector_ids: Sequence[str]) -> dict[str, int]:
        """Return when passive detectors have to be ticked, as `due_times` does."""
        self.check_owner()
        return due_times(self._detectors_folder, detector_ids, self._files)

    def _change(self, *changes: Change) -> None:
        """Write changes, then apply them. NoRoom: nothing was done; after other errors that is unknown."""
        payloads = [catalogue_state.encode(change) for change in changes]
        self._store.reserve(sum(max(_RECORD_BYTES, 2 * len(payload)) for payload in payloads))
        try:
            for change, payload in zip(changes, payloads, strict=True):
                self._store.append(payload, version=record_version(change))
        except WriteFailed as error:
            if len(changes) == 1:
                raise
            raise StorageError(f"some of {len(changes)} changes may be written: {error}") from error
        self._store.sync()
        if not self._mark_is_synced:
            # Not every file system writes the mark with the record. This happens once per opening.
            with storage_errors(f"{self._folder} cannot be synced"):
                self._files.sync_folder(self._folder)
            self._mark_is_synced = True
        self._store.check_owner()
        missing = self._store.missing()
        for change in changes:
            catalogue_state.apply(change, self._state)
        if missing is not None:
            message = f"{missing} was removed or replaced while in use; a snapshot replaces it"
            self._warnings = [*self._warnings, message][-_WARNINGS_KEPT:]
            self._save_if_can_be()
        self._save_if_long()

    def _save_if_long(self) -> None:
        if self._store.journal_bytes >= max(_SNAPSHOT_JOURNAL_BYTES, self._snapshot_bytes):
            self._save_if_can_be()

    @property
    def _changed(self) -> bool:
        """Whether the journal has changes that no snapshot includes."""
        return self._store.sequence > self._store.snapshot_sequence

    def _save_if_can_be(self) -> None:
        # The journal holds all changes, and another attempt follows.
        self._save_at_s = self._now_s() + _SNAPSHOT_INTERVAL_S
        with contextlib.suppress(StorageError):
            self._save()

    def _save(self) -> None:
        sequence = self._store.begin_snapshot()
        self._state.log.move_to_page(self._store, sequence, self._settings.changes_kept_days)
        body = catalogue_state.encode_state(self._state)
        self._store.save([body], version=state_version(self._state), sequence=sequence)
        self._store.close_earlier_segments()
        self._snapshot_bytes = len(body)

    def check_owner(self) -> None:
        """Raise StorageError unless this directory still owns the data folder, and so has its latest state.

        Called before each answer, even one from memory: while this process was stopped or cut off, a
        successor may have revoked a token or granted a lease.
        """
        try:
            self._store.check_owner()
        except Fenced:
            # If the folder was replaced, there is no successor, and the error must say what happened.
            with storage_errors(f"{self._data} cannot be read"):
                self._check_folder()
            raise
