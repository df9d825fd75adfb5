"""Claims a folder: earlier owners no longer answer, and everything that they have answered is read.

README.md has the proof, which depends on the order of the calls here.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from snapshots.errors import ClaimRemoved, Fenced, NewerFormat, NothingUsable, StorageError
from snapshots.files import Files, OpenFile, close_and_remove, storage_errors, write_all
from snapshots.format.file_names import (
    CLAIM_NUMBER,
    FIRST_NUMBER,
    Listing,
    aside_names,
    listing,
    segment_name,
    unfinished_name,
)
from snapshots.format.snapshot_file import HEADER_BYTES, epoch_of
from snapshots.takeover.planner import list_and_plan
from snapshots.takeover.recovered import Damage, Flaw, RecoveryPlan


class Claim:
    """The file that shows which epoch owns a folder. It stays open until its owner closes it."""

    def __init__(self, folder: Path, epoch: int, files: Files) -> None:
        """Create the file. Raises FileExistsError if the epoch has claimed the folder already; OSError."""
        self._folder = folder
        self._epoch = epoch
        self._path = folder / segment_name(epoch, CLAIM_NUMBER)
        self._file = files.create(self._path)
        self._files = files

    def check_unread(self) -> None:
        """Raise Fenced if a later owner may have begun to read the folder. Raises OSError.

        A later owner removes this claim before it reads, so as long as the claim exists, it will find
        everything written so far. This very file must have the name: the name may have been reused, and the
        file may have another name elsewhere (`cp -al`).
        """
        if not self._file.is_named(self._path):
            # If there is a later owner, its error is more informative.
            self.check_latest()
            raise self._removed()

    def check_latest(self) -> None:
        """Raise Fenced if a later owner has claimed the folder, or this claim is gone. Raises OSError."""
        names = listing(self._files.names(self._folder))
        if names.epoch <= self._epoch and self._epoch not in names.claims:
            # A listing made during a change may lack both the removed file and the new one.
            names = listing(self._files.names(self._folder))
        if names.epoch > self._epoch:
            raise Fenced(f"{self._folder} is owned by epoch {names.epoch}, later than {self._epoch}")
        if self._epoch not in names.claims:
            raise self._removed()

    def _removed(self) -> StorageError:
        return ClaimRemoved(f"{self._path}, which owns the folder, was removed")

    def close(self) -> None:
        """Close the file. The claim stays."""
        with contextlib.suppress(OSError):
            self._file.close()

    def give_up(self) -> None:
        """Remove the claim if it is still this one. Everything its owner wrote must be on the disk."""
        with contextlib.suppress(OSError):
            if self._file.is_named(self._path):
                self._files.remove(self._path)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A folder that this epoch owns, and the recovery to make."""

    epoch: int
    claim: Claim
    segment: OpenFile
    """The epoch's first segment, empty."""
    plan: RecoveryPlan
    damage: tuple[Damage, ...]
    released: bool
    """Whether the last owner that wrote gave the folder up, with everything on the disk."""
    dues: tuple[str, ...]
    """The due marks."""


def claim_folder(folder: Path, epoch: int | None, files: Files, *, now_us: int) -> Claimed:
    """Claim a folder, and plan its recovery. Raises Fenced, the plan's refusal, StorageError, OSError."""
    found = files.names(folder)
    names = listing(found)
    if not names.ever_had_a_snapshot:
        raise NothingUsable(f"{folder} holds no snapshot that can be used: there is none")
    if epoch is None:
        epoch = _latest_epoch(folder, names, files) + 1
    if names.epoch >= epoch:
        raise _fenced(folder, names, epoch)
    with contextlib.ExitStack() as unless_claimed:
        claim, segment = _make_claim(folder, epoch, files, unless_claimed)
        untouched = _clear_away(folder, epoch, names, found, files)
        released = untouched is not None
        plan = _plan(folder, epoch, files, untouched, now_us)
        if plan.snapshot is not None and plan.snapshot.epoch > epoch:
            raise Fenced(f"{folder} has a snapshot by epoch {plan.snapshot.epoch}, later than {epoch}")
        if isinstance(plan.refusal, NewerFormat):
            raise plan.refusal
        with storage_errors(f"{folder} cannot be written"):
            damage = tuple(set_aside(flaw, epoch, files) for flaw in plan.flaws)
        if damage:
            _sync(folder, files)
        if plan.refusal is not None:
            raise plan.refusal
        if plan.unsynced is not None and not released:
            # The previous owner may have died before its sync, or because of it. Its last records count from
            # now on, so they must be on the disk before anything follows them.
            begin, end = plan.unsynced.begin, plan.unsynced.end
            records = plan.read(plan.unsynced.path, files)[begin:end]
            with storage_errors(f"{plan.unsynced.path} cannot be written again and synced"):
                files.write_again(plan.unsynced.path, begin, records)
        unless_claimed.pop_all()
        dues = tuple((untouched or names).dues.values())
        return Claimed(epoch, claim, segment, plan, damage, released, dues)


def _make_claim(
    folder: Path, epoch: int, files: Files, unless_claimed: contextlib.ExitStack
) -> tuple[Claim, OpenFile]:
    """Create the claim and the first segment, so that one sync is enough for both names."""
    path = folder / segment_name(epoch, FIRST_NUMBER)
    try:
        claim = Claim(folder, epoch, files)
        unless_claimed.callback(claim.close)
        segment = files.create(path)
        unless_claimed.callback(close_and_remove, segment, path, files)
    except FileExistsError:
        raise Fenced(f"{folder} is owned by epoch {epoch} already") from None
    except OSError:
        with storage_errors(f"{folder} cannot be written"):
            raise
    # From now on, earlier owners rename no snapshot, because each looks for later claims first.
    _sync(folder, files)
    return claim, segment


def _sync(folder: Path, files: Files) -> None:
    """Sync a folder. Raises StorageError."""
    with storage_errors(f"{folder} cannot be synced"):
        files.sync_folder(folder)


def _clear_away(
    folder: Path, epoch: int, before: Listing, found: Sequence[str], files: Files
) -> Listing | None:
    """Remove earlier owners' unfinished files and claims; if there were none, return the folder's listing.

    From then on, earlier owners can neither rename anything nor answer, because each looks for its claim
    first. Nothing else is removed before there is a new snapshot: a file that is empty now may soon have
    records, which a later owner than this one may have read.
    """
    names = _listed(folder, epoch, files, before, found)
    unfinished = [name for name, writer in names.unfinished.items() if writer < epoch]
    claims = [name for claimed, name in names.claims.items() if claimed < epoch]
    for name in (*unfinished, *claims):
        with storage_errors(f"{folder} cannot be written"), contextlib.suppress(FileNotFoundError):
            files.remove(folder / name)
    seen, now = ((one.snapshots, one.segments, one.pages) for one in (before, names))
    if unfinished or seen != now:
        # After a crash, removed files must not come back, and files found now must still be there. Names from
        # before the claim were synced with it.
        _sync(folder, files)
    return None if unfinished or claims else names


def _plan(folder: Path, epoch: int, files: Files, names: Listing | None, now_us: int) -> RecoveryPlan:
    """Plan the recovery. `names` is a listing of the folder after which no other owner can save, or None."""
    listings = iter([names])
    return list_and_plan(
        folder, lambda: next(listings, None) or _listed(folder, epoch, files), files, now_us
    )[1]


def _listed(
    folder: Path, epoch: int, files: Files, before: Listing | None = None, found: Sequence[str] = ()
) -> Listing:
    """List the folder, without this epoch's own segment. Raises Fenced.

    `before` is the listing before the claim, and `found` are its names.
    """
    claim, segment = segment_name(epoch, CLAIM_NUMBER), segment_name(epoch, FIRST_NUMBER)
    now = files.names(folder)
    if before is not None and {*now} == {*found, claim, segment}:
        return before
    names = listing(now)
    if names.epoch > epoch:
        raise _fenced(folder, names, epoch)
    names.segments.pop((epoch, FIRST_NUMBER), None)
    return names


def _latest_epoch(folder: Path, names: Listing, files: Files) -> int:
    epochs = (epoch_of(files.read_start(folder / name, HEADER_BYTES)) for name in names.snapshots.values())
    return max([names.epoch, *(epoch for epoch in epochs if epoch is not None)])


def _fenced(folder: Path, names: Listing, epoch: int) -> StorageError:
    return Fenced(f"{folder} is owned by epoch {names.epoch}, and this is epoch {epoch}")


def set_aside(flaw: Flaw, epoch: int, files: Files) -> Damage:
    """Copy the bytes that do not fit to the first free name, unless there is such a copy. Raises OSError.

    The file itself stays, because another process may have replaced it. The caller syncs the folder.
    """
    path = flaw.path
    data = files.read(path)[flaw.copy_from :]
    taken = set(files.names(path.parent))
    for name in aside_names(path.name, flaw.suffix):
        copy = path.with_name(name)
        if name not in taken:
            unfinished = path.with_name(unfinished_name(name, epoch))
            file = files.create(unfinished)
            try:
                write_all(file, data)
                file.sync()
            finally:
                file.close()
            files.rename(unfinished, copy)
            break
        if files.read(copy) == data:
            break
    return Damage(copy, f"{path.name}: {flaw.reason}")
