"""Brings one detector back from a backup."""

from pathlib import Path

from engine.runtime.catalogue.catalogue_state import recovered_state
from engine.runtime.catalogue.offline.opened import opened_offline
from snapshots.errors import StorageError
from snapshots.files import Files, RealFiles, storage_errors
from snapshots.format.file_names import listing
from snapshots.inspection import inspect_folder, read_only
from snapshots.repair import move_aside, write_folder


def restore_detector(
    source: Path, data: Path, detector_id: str, new_id: str | None = None, files: Files | None = None
) -> str:
    """Bring one detector of a backup into a data folder that no service uses; return its id there.

    It gets its own id, or a new one. A detector that has the id is replaced only if it is damaged; its files
    are moved to `damaged/detectors`. Raises StorageError, FolderInUse.
    """
    files = files or RealFiles()
    folder = source / "detectors" / detector_id
    names = recovered_state(read_only(source / "directory")).detectors
    if detector_id not in names:
        raise StorageError(f"{source} has no detector with the id {detector_id!r:.80}")
    if (source / "detectors").is_symlink() or folder.is_symlink():
        raise StorageError(f"{folder} is reached by a symbolic link, and must not be")
    if not (data / "directory").is_dir():
        raise StorageError(f"{data} is no data folder: there is no folder {data / 'directory'}")
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
