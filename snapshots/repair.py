"""Makes a folder usable again from what a recovery can trust, and moves the damaged one aside.

The caller holds the lock of the data folder, and no service uses it.
"""

import itertools
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from snapshots.errors import Damaged, NewerFormat, NothingUsable, StorageError
from snapshots.files import Files, RealFiles, storage_errors, write_all
from snapshots.format.file_names import listing, snapshot_name
from snapshots.format.segments import HEADER_BYTES, MARK, decode_record_header, payload_of
from snapshots.format.snapshot_file import Snapshot, encode
from snapshots.inspection import inspect_folder
from snapshots.store import Store
from snapshots.takeover.planner import list_and_plan
from snapshots.write.due_marks import mark_folder

_MARK = re.compile(re.escape(MARK))


@dataclass(frozen=True, slots=True)
class Kept:
    """The usable contents of a refused folder. `skipped` is the number of unreadable records."""

    folder: Path
    refusal: str
    epoch: int
    """The latest epoch that the folder has had."""
    snapshot: Snapshot
    records: tuple[tuple[int, bytes], ...]
    """Version and payload of each record after the snapshot."""
    pages: tuple[Path, ...]
    last: int
    """The number of the last kept record."""
    skipped: int
    newest: int
    """The last record that the newest snapshot includes, usable or not."""


class _KeptFiles(RealFiles):
    """Files of which a snapshot that cannot be read counts as damaged: an older one may do."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        """Why a recovery refuses those that cannot be read."""

    def read(self, path: Path) -> bytes:
        try:
            return super().read(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            if not listing([path.name]).snapshots:
                raise
            reason = f"it cannot be read: {error.strerror}"
            self.refusals.append(f"{path}: {reason}")
            raise Damaged(reason) from error


def what_can_be_kept(folder: Path, *, after_damage: bool = False) -> Kept | None:
    """Return what can be kept of a folder; None if no recovery would refuse it.

    Keeps the records up to the damage; with `after_damage` also whole ones after it, for records that do not
    depend on earlier ones. Raises StorageError, and NothingUsable without a usable snapshot.
    """
    files = _KeptFiles()
    with storage_errors(f"{folder} cannot be read"):
        names, plan = list_and_plan(folder, lambda: listing(files.names(folder)), files, 0, thorough=True)
        refusals = [*dict.fromkeys(files.refusals), *([str(plan.refusal)] if plan.refusal else [])]
        if not refusals:
            return None
        if isinstance(plan.refusal, NewerFormat):
            raise plan.refusal
        snapshot = plan.snapshot
        if snapshot is None:
            raise NothingUsable(
                f"{folder}: no snapshot can be used, so nothing can be kept: restore a backup"
            )
        void = {path.name for path in plan.obsolete} - {flaw.path.name for flaw in plan.flaws}
        records: list[tuple[int, bytes]] = []
        last, skipped = snapshot.sequence, 0
        for (epoch, _), name in names.segments.items():
            if epoch < snapshot.epoch or name in void:
                continue
            fence = plan.first_fenced(epoch)
            for sequence, version, payload in _whole_records(files.read(folder / name), scan=after_damage):
                if sequence <= last or (fence is not None and sequence >= fence):
                    continue
                if sequence > last + 1 and not after_damage:
                    break
                skipped += sequence - last - 1
                records.append((version, payload))
                last = sequence
    fenced = {flaw.path.name for flaw in plan.flaws if flaw.suffix == "fenced"}
    numbers = {number for number, name in names.snapshots.items() if name not in fenced}
    return Kept(
        folder=folder,
        refusal="; ".join(refusals),
        epoch=names.epoch,
        snapshot=snapshot,
        records=tuple(records),
        pages=tuple(plan.pages),
        last=last,
        skipped=skipped,
        newest=max(numbers | names.damaged_snapshots),
    )


def _whole_records(data: bytes, *, scan: bool) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, version and payload of records before the first defect; with `scan`, also after it."""
    offset: int | None = HEADER_BYTES
    while offset is not None and offset < len(data):
        header = decode_record_header(data, offset)
        payload = payload_of(data, offset, header) if header else None
        if header is not None and payload is not None:
            yield header.sequence, header.version, payload
            offset += header.bytes_
        elif scan:
            found = _MARK.search(data, offset + 1)
            offset = found.start() if found else None
        else:
            return


def repair(kept: Kept, aside: Path, files: Files | None = None) -> Path:
    """Replace the damaged folder by a new one with the kept contents; return the path of the moved old one.

    `aside` is a folder beside it, on the same file system. If this is killed, the next call of
    `finish_repairs` puts a folder without a successor back. Raises StorageError; then nothing has changed.
    """
    files = files or RealFiles()
    folder = kept.folder
    with storage_errors(f"{folder} cannot be repaired"):
        files.make_folder(aside)
        new = aside / f"{folder.name}.unfinished"
        content = (kept.snapshot, kept.records, kept.pages)
        is_due = bool(listing(files.names(folder)).dues)
        write_folder(new, *content, epoch=kept.epoch + 1, is_due=is_due, files=files)
        old = move_aside(folder, aside, files)
        try:
            files.rename(new, folder)
        except OSError:
            files.rename(old, folder)
            raise
        files.sync_folder(folder.parent)
        files.sync_folder(aside)
    return old


def move_aside(folder: Path, aside: Path, files: Files) -> Path:
    """Move a folder to the first free name in `aside`, and return the new path. Raises OSError."""
    files.make_folder(aside)
    old = next(path for path in _names_for(aside, folder.name) if not path.exists())
    files.rename(folder, old)
    return old


def write_folder(
    new: Path,
    snapshot: Snapshot,
    records: Iterable[tuple[int, bytes]],
    pages: Iterable[Path],
    *,
    epoch: int,
    is_due: bool,
    files: Files,
) -> None:
    """Write a folder as if an owner of this epoch had released it; replace an unfinished one.

    `is_due` says whether something may be due in it. Raises StorageError, OSError.
    """
    shutil.rmtree(new, ignore_errors=True)
    files.make_folder(new)
    # Epoch 0, no owner's, so that the snapshot counts whatever epochs its old data folder has had.
    content = {snapshot_name(snapshot.sequence): encode(replace(snapshot, epoch=0))}
    for name, data in (content | {path.name: files.read(path) for path in pages}).items():
        file = files.create(new / name)
        try:
            write_all(file, data)
            file.sync()
        finally:
            file.close()
    files.sync_folder(new)
    store = Store(new, epoch=epoch, files=files)
    try:
        store.recover()
        for version, payload in records:
            store.append(payload, version=version)
        store.sync()
        store.check_owner()
        store.release()
    finally:
        store.close()
    if is_due:
        mark_folder(new, files, epoch=epoch)
    files.sync_folder(new)
    refusal = inspect_folder(new, files).refusal
    if refusal is not None:
        raise StorageError(f"{new} was written and cannot be read: {refusal}")


def finish_repairs(parent: Path, aside: Path) -> None:
    """Put back each folder without a successor that a killed repair moved aside. Raises StorageError."""
    files = RealFiles()
    with storage_errors(f"{parent} cannot be repaired"):
        for name in files.names(aside):
            folder = parent / name.removesuffix(".unfinished")
            if not name.endswith(".unfinished"):
                continue
            taken = list(itertools.takewhile(Path.exists, _names_for(aside, folder.name)))
            if taken and not folder.exists():
                files.rename(taken[-1], folder)
                files.sync_folder(parent)
                files.sync_folder(aside)


def _names_for(aside: Path, name: str) -> Iterator[Path]:
    return (aside / f"{name}.damaged-{number}" for number in itertools.count(1))
