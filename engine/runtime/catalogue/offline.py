"""Opening an unused data folder, copying one that may be in use, and restoring backups."""

import shutil
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.runtime.catalogue.catalogue import Catalogue
from engine.runtime.catalogue.catalogue_state import UNFINISHED_COPY, recovered_state
from engine.runtime.contract.catalogue_changes import Made
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import MintedToken, mint
from snapshots.backup import copy_folder
from snapshots.data_folder.identity import begin_folder
from snapshots.data_folder.lock import FolderLock
from snapshots.errors import NothingUsable, StorageError
from snapshots.files import Files, RealFiles, storage_errors
from snapshots.format.file_names import listing
from snapshots.inspection import inspect_folder, read_only
from snapshots.repair import move_aside, write_folder

_COPIES_AT_ONCE: Final = 16


@contextmanager
def opened_offline(data: Path) -> Iterator[Catalogue]:
    """Open the directory of a data folder that no service uses, for the duration of the context.

    Creates the folder if it is missing. Raises FolderInUse at once if a service uses it.
    """
    most = sys.maxsize
    settings = RuntimeSettings(data=data, folder_id=begin_folder(data), detectors_max=most, tokens_max=most)
    directory = Catalogue(settings, lock=FolderLock(data))
    directory.open()
    try:
        yield directory
    finally:
        directory.close()


def mint_offline(data: Path) -> MintedToken:
    """Mint a token in a data folder that no service uses. Raises FolderInUse, StorageError."""
    minted = mint()
    with opened_offline(data) as directory:
        directory.add_token(minted.id, minted.stored, Made.now())
    return minted


@dataclass(frozen=True, slots=True)
class Copied:
    """The outcome of a copy."""

    detectors: int
    file_bytes: int
    damage: tuple[str, ...]
    """Why a recovery would refuse a folder, one text for each. Folders without a snapshot are not copied."""


def copy_data_folder(
    source: Path, target: Path, files: Files | None = None, *, is_backup: bool = False
) -> Copied:
    """Copy a data folder to a new or empty folder, durably. The source may be in use.

    A backup may come from a stranger, so nothing in it may be a symbolic link. In the data folder of a
    service, `detectors` may lead to another disk.

    Each detector is copied as of some moment during the call. The copy has no folder id, because it is
    another folder. The catalogue gets its name last, so an interrupted copy has no catalogue; a failed copy
    is removed. Raises StorageError, FolderInUse.
    """
    files = files or RealFiles()
    if not (source / "directory").is_dir():
        raise StorageError(f"{source} is no data folder: it has no folder `directory`")
    if is_backup and (source / "detectors").is_symlink():
        raise StorageError(f"{source / 'detectors'} is a symbolic link, and must not be")
    if target.resolve().is_relative_to(source.resolve()):
        raise StorageError(f"{target} is in {source}, which is to be copied")
    with storage_errors(f"{source} cannot be copied to {target}"):
        files.make_folder(target)
        _refuse_used(target, files)
        with FolderLock(target):
            # Another copy may have been made before this one got the lock.
            _refuse_used(target, files)
            try:
                return _copy(source, target, files)
            except (Exception, KeyboardInterrupt):
                for name in (UNFINISHED_COPY, "detectors", "directory"):
                    shutil.rmtree(target / name, ignore_errors=True)
                raise


def _refuse_used(target: Path, files: Files) -> None:
    """Raise StorageError if a folder holds anything but the lock file that a failed copy leaves."""
    names = set(files.names(target)) - {"lock"}
    if UNFINISHED_COPY in names:
        raise StorageError(f"{target} holds a copy that was interrupted: remove it")
    if names:
        raise StorageError(f"{target} is not empty: name a new or empty folder")


def _copy(source: Path, target: Path, files: Files) -> Copied:
    unfinished, detectors = target / UNFINISHED_COPY, target / "detectors"
    copied: dict[str, int] = {}
    missing: set[str] = set()
    unusable: dict[str, str] = {}
    while True:
        # The catalogue is copied first: each detector in it has a folder, unless it is deleted meanwhile.
        shutil.rmtree(unfinished, ignore_errors=True)
        catalogue_bytes = copy_folder(source / "directory", unfinished, files)
        named = recovered_state(read_only(unfinished)).detectors.keys()
        gone = set()
        for detector_id, done in _copy_detectors(
            source / "detectors", detectors, named - copied.keys(), files
        ):
            if isinstance(done, int):
                copied[detector_id] = done
            elif detector_id not in missing:
                # The detector may be under removal; the next catalogue then lacks it.
                gone.add(detector_id)
            else:
                unusable[detector_id] = str(done)
        # A directory reopened meanwhile has granted later epochs than the copied catalogue knows.
        if not gone and _epoch(source / "directory") == _epoch(unfinished):
            break
        missing |= gone
    for detector_id in copied.keys() - named:
        shutil.rmtree(detectors / detector_id)
        del copied[detector_id]
    if copied:
        files.sync_folder(detectors)
    files.rename(unfinished, target / "directory")
    files.sync_folder(target)
    folders = [target / "directory", *(detectors / detector_id for detector_id in sorted(copied))]
    refusals = {folder: inspect_folder(folder).refusal for folder in folders}
    damage = [f"{folder}: {reason}" for folder, reason in refusals.items() if reason]
    damage += [reason for detector_id, reason in unusable.items() if detector_id in named]
    return Copied(len(copied), catalogue_bytes + sum(copied.values()), tuple(damage))


def _copy_detectors(
    source: Path, target: Path, ids: Iterable[str], files: Files
) -> Iterator[tuple[str, int | NothingUsable]]:
    """Copy the folders of detectors; yield for each the bytes copied, or why there is nothing to copy."""

    def copy_one(detector_id: str) -> tuple[str, int | NothingUsable]:
        try:
            return detector_id, copy_folder(source / detector_id, target / detector_id, files)
        except NothingUsable as error:
            return detector_id, error

    # The file system merges concurrent syncs.
    with ThreadPoolExecutor(_COPIES_AT_ONCE) as threads:
        yield from threads.map(copy_one, ids)


def _epoch(folder: Path) -> int:
    return listing(RealFiles().names(folder)).epoch


def restore_detector(source: Path, data: Path, detector_id: str, new_id: str | None = None) -> str:
    """Bring one detector of a backup into a data folder that no service uses; return its id there.

    It keeps its id unless a new one is given. An existing detector of that id is replaced only if it is
    damaged; its files are moved to `damaged/detectors`. Raises StorageError, FolderInUse.
    """
    files = RealFiles()
    folder = source / "detectors" / detector_id
    names = recovered_state(read_only(source / "directory")).detectors
    if detector_id not in names:
        raise StorageError(f"{source} has no detector with the id {detector_id!r:.80}")
    if (source / "detectors").is_symlink() or folder.is_symlink():
        raise StorageError(f"{folder} is reached by a symbolic link, and must not be")
    if not (data / "directory").is_dir():
        raise StorageError(f"{data} is no data folder: it has no folder `directory`")
    stored = read_only(folder)
    assert stored.snapshot is not None, "a folder begins with one"
    found = listing(files.names(folder))
    pages = [folder / name for name in found.pages.values()]
    wanted = new_id or detector_id
    target = data / "detectors" / wanted
    with opened_offline(data) as directory, storage_errors(f"{target} cannot be restored"):
        known = wanted in (directory.changes(0, 0).detectors.whole or {})
        if known and inspect_folder(target).refusal is None:
            raise StorageError(
                f"{data} has a detector {wanted} that is whole: give the restored one a new id"
            )
        aside = (data / "detectors").resolve().parent / "damaged" / "detectors"
        files.make_folder(aside)
        new = aside / f"{wanted}.unfinished"
        records = [(record.version, record.payload) for record in stored.records]
        # Later leases have later epochs.
        content = (stored.snapshot, records, pages)
        write_folder(new, *content, epoch=directory.epoch, is_due=bool(found.dues), files=files)
        if target.exists():
            move_aside(target, aside, files)
        files.rename(new, target)
        files.sync_folder(target.parent)
        files.sync_folder(aside)
        directory.enter_fork(wanted, names[detector_id])
    return wanted
