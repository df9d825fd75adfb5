"""The one owner of tokens and of the catalogue of detectors, as a plain class. It grants leases."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from engine.runtime.tokens import MintedToken, digest_of, mint
from snapshots.errors import FolderInUse, NewerFormat, StorageError
from snapshots.files import Files, RealFiles
from snapshots.lock import FolderLock
from snapshots.store import SnapshotStore

STATE_VERSION: Final = 1
_EPOCHS_PER_OPENING: Final = 2**32


class KeptToken(msgspec.Struct, frozen=True):
    """What is kept of a token."""

    digest: bytes
    hint: str


class Kept(msgspec.Struct, frozen=True):
    """All that the directory keeps. Dicts are in order of creation, and never changed in place."""

    tokens: dict[str, KeptToken] = {}
    detectors: dict[str, str] = {}
    """Names by id."""
    struck: frozenset[str] = frozenset()
    """Detectors that were deleted and whose files may still be there."""


class Opened(msgspec.Struct, frozen=True):
    """The data folder is ours. `damage` names what had to be set aside, or could not be removed."""

    damage: tuple[str, ...]


class Changes(msgspec.Struct, frozen=True):
    """What a front end has not seen yet, whole, with its version; None where nothing is new."""

    tokens_version: int
    detectors_version: int
    tokens: dict[bytes, str] | None = None
    """Ids by digest."""
    detectors: dict[str, str] | None = None
    """Names by id, in order of creation."""


class Lease(msgspec.Struct, frozen=True):
    """Who may host a detector."""

    actor: str
    epoch: int


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """What a directory needs to know."""

    data: Path
    snapshots_kept: int
    lock_wait_s: float
    service_pid: int | None = None
    """The process that whoever finds the folder in use is to look for; None for the directory's own."""


class Directory:
    """Tokens, catalogue, leases. Every change is on the disk before it is answered, or it is not made.

    Epochs and versions are numbers of one opening (kept on the disk) and of one count within it, so that they
    grow over restarts though only the opening is written down.
    """

    def __init__(self, settings: DirectorySettings, *, files: Files | None = None) -> None:
        self._files = files or RealFiles()
        self._detectors_folder = settings.data / "detectors"
        self._lock = FolderLock(settings.data, pid=settings.service_pid)
        self._lock_wait_s = settings.lock_wait_s
        self._store = SnapshotStore(
            settings.data / "directory", kept=settings.snapshots_kept, files=self._files
        )
        self._kept = Kept()
        self._leases: dict[str, Lease] = {}
        self._opening = 0
        self._granted = 0
        self._tokens_version = 0
        self._detectors_version = 0

    def open(self) -> Opened:
        """Take hold of the data folder and read what is kept. Raises StorageError, FolderInUse among them."""
        self._acquire()
        try:
            return self._open()
        except BaseException:
            self._lock.release()
            raise

    def _open(self) -> Opened:
        loaded = self._store.load()
        if loaded.snapshot is not None:
            if loaded.snapshot.version > STATE_VERSION:
                raise NewerFormat(
                    f"the directory was saved by a newer program, with version {loaded.snapshot.version}; "
                    f"this one knows versions up to {STATE_VERSION}"
                )
            self._kept = msgspec.msgpack.decode(loaded.snapshot.body, type=Kept)
        assert self._store.epoch is not None, "loading settles the epoch"
        self._opening = self._store.epoch * _EPOCHS_PER_OPENING
        self._tokens_version = self._detectors_version = self._opening + 1
        # Saved at once, so that the next opening has a later epoch even if nothing changes during this one.
        self._save(self._kept)
        remarks = list(map(str, loaded.damage))
        for detector_id in self._kept.struck:
            try:
                self.purge_detector(detector_id)
            except StorageError as error:
                # Files that nobody needs any more must not keep the service from starting.
                remarks.append(str(error))
        return Opened(tuple(remarks))

    def close(self) -> None:
        """Let go of the data folder."""
        self._lock.release()

    def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Give what is new since the versions that a front end has seen."""
        kept = self._kept
        return Changes(
            tokens_version=self._tokens_version,
            detectors_version=self._detectors_version,
            tokens=None
            if tokens_seen == self._tokens_version
            else {token.digest: token_id for token_id, token in kept.tokens.items()},
            detectors=None if detectors_seen == self._detectors_version else kept.detectors,
        )

    def add_token(self, token_id: str, digest: bytes, hint: str) -> int:
        """Keep a token; the version of the tokens that has it."""
        if token_id not in self._kept.tokens:
            tokens = {**self._kept.tokens, token_id: KeptToken(digest, hint)}
            self._save(msgspec.structs.replace(self._kept, tokens=tokens))
            self._tokens_version += 1
        return self._tokens_version

    def revoke_token(self, token_id: str) -> int | None:
        """Forget a token; the version that has it no more, None where there was none."""
        if token_id not in self._kept.tokens:
            return None
        tokens = {kept_id: token for kept_id, token in self._kept.tokens.items() if kept_id != token_id}
        self._save(msgspec.structs.replace(self._kept, tokens=tokens))
        self._tokens_version += 1
        return self._tokens_version

    def create_detector(self, detector_id: str, name: str) -> int:
        """Enter a detector; the version of the catalogue that has it."""
        if detector_id not in self._kept.detectors:
            detectors = {**self._kept.detectors, detector_id: name}
            self._save(msgspec.structs.replace(self._kept, detectors=detectors))
            self._detectors_version += 1
        return self._detectors_version

    def delete_detector(self, detector_id: str) -> int | None:
        """Strike a detector out; the version that has it no more, None where there was none.

        Its files stay until `purge_detector`, which the next opening sees to if nobody does before.
        """
        if detector_id not in self._kept.detectors:
            return None
        detectors = {
            kept_id: name for kept_id, name in self._kept.detectors.items() if kept_id != detector_id
        }
        struck = self._kept.struck | {detector_id}
        self._save(msgspec.structs.replace(self._kept, detectors=detectors, struck=struck))
        self._leases.pop(detector_id, None)
        self._detectors_version += 1
        return self._detectors_version

    def purge_detector(self, detector_id: str) -> None:
        """Remove the files of a detector that was struck out and that no actor hosts."""
        if detector_id not in self._kept.struck:
            return
        SnapshotStore(self._detectors_folder / detector_id, files=self._files).destroy()
        self._save(msgspec.structs.replace(self._kept, struck=self._kept.struck - {detector_id}))

    def lease(self, detector_id: str, actor: str) -> int | None:
        """Grant a detector to an actor: an epoch later than all before, None where there is no such detector.

        A lease holds until the next one for the same detector.
        """
        if detector_id not in self._kept.detectors:
            return None
        self._granted += 1
        assert self._granted < _EPOCHS_PER_OPENING
        lease = Lease(actor, self._opening + self._granted)
        self._leases[detector_id] = lease
        return lease.epoch

    def _save(self, kept: Kept) -> None:
        """Make `kept` what is kept, on the disk first."""
        self._store.save(msgspec.msgpack.encode(kept), version=STATE_VERSION)
        self._kept = kept

    def _acquire(self) -> None:
        give_up_s = time.monotonic() + self._lock_wait_s
        while True:
            try:
                self._lock.acquire()
            except FolderInUse:
                if time.monotonic() >= give_up_s:
                    raise
                time.sleep(0.05)
            else:
                return


@contextmanager
def opened_offline(data: Path) -> Iterator[Directory]:
    """Give the directory of a data folder that no service is using, for as long as the context lasts.

    Raises FolderInUse at once where one does.
    """
    directory = Directory(DirectorySettings(data, snapshots_kept=3, lock_wait_s=0))
    directory.open()
    try:
        yield directory
    finally:
        directory.close()


def mint_offline(data: Path) -> MintedToken:
    """Mint a token on a data folder that no service is using. Raises FolderInUse, StorageError."""
    minted = mint()
    with opened_offline(data) as directory:
        directory.add_token(minted.id, digest_of(minted.token), minted.hint)
    return minted
