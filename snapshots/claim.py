"""How an owner takes a folder over: no earlier owner answers any more, and what it leaves is read to its end.

README.md has the argument; it rests on the order of the calls here.
"""

import contextlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from snapshots.damage import Damage
from snapshots.errors import Fenced, NothingUsable, StorageError
from snapshots.files import Files, OpenFile
from snapshots.names import Listing, aside_names, listing, segment_name
from snapshots.records import HEADER_BYTES, epoch_of
from snapshots.saving import set_aside
from snapshots.survey import Finding, Survey, survey

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Claimed:
    """A folder that is ours: its claim, open and empty, and what was found."""

    epoch: int
    claim: OpenFile
    found: Survey
    damage: tuple[Damage, ...]


def claim_folder(folder: Path, epoch: int | None, files: Files, *, missing_is_empty: bool) -> Claimed:
    """Take a folder over, and read it. Raises Fenced, what `survey` refuses, and OSError."""
    names = listing(files.names(folder))
    if not names.ever_had_a_snapshot and not missing_is_empty:
        raise NothingUsable(f"{folder} holds no snapshot that can be used: there is none")
    if epoch is None:
        epoch = _latest_epoch(folder, names, files) + 1
    if names.epoch >= epoch:
        raise _fenced(folder, names, epoch)
    if missing_is_empty:
        files.make_folder(folder)
    claim = _make_claim(folder, epoch, files)
    try:
        found, damage = _read(folder, epoch, files, missing_is_empty=missing_is_empty)
    except BaseException:
        with contextlib.suppress(OSError):
            claim.close()
        raise
    return Claimed(epoch, claim, found, damage)


def check_owner(folder: Path, epoch: int, own: Path, files: Files) -> None:
    """Raise Fenced where a later owner has claimed a folder, or where it was removed. Raises OSError."""
    names = files.names(folder)
    latest = listing(names).epoch
    if latest > epoch:
        raise Fenced(f"{folder} is owned by epoch {latest}, later than {epoch}")
    if own.name not in names:
        raise Fenced(f"{own}, by which epoch {epoch} owns the folder, was removed")


def _make_claim(folder: Path, epoch: int, files: Files) -> OpenFile:
    try:
        claim = files.create(folder / segment_name(epoch, 1))
    except FileExistsError:
        raise Fenced(f"{folder} is owned by epoch {epoch} already") from None
    try:
        # From here on no earlier owner answers: each looks for this name before it does.
        files.sync_folder(folder)
    except BaseException:
        with contextlib.suppress(OSError):
            claim.close()
        raise
    return claim


def _read(
    folder: Path, epoch: int, files: Files, *, missing_is_empty: bool
) -> tuple[Survey, tuple[Damage, ...]]:
    _remove_unfinished(folder, epoch, files)
    found = _survey(folder, epoch, files, missing_is_empty=missing_is_empty)
    if found.snapshot is not None and found.snapshot.epoch > epoch:
        raise Fenced(f"{folder} has a snapshot by epoch {found.snapshot.epoch}, later than {epoch}")
    damage = _clear_up(found, epoch, files)
    if found.refusal is not None:
        raise found.refusal
    return found, damage


def _survey(folder: Path, epoch: int, files: Files, *, missing_is_empty: bool) -> Survey:
    attempt = 1
    while True:
        names = _before(_listed(folder, epoch, files), epoch)
        try:
            return survey(folder, names, files, missing_is_empty=missing_is_empty)
        except FileNotFoundError:
            # The owner before this one is still removing what its last snapshot made needless.
            if attempt == _ATTEMPTS:
                raise
        attempt += 1


def _remove_unfinished(folder: Path, epoch: int, files: Files) -> None:
    """Take the files away that earlier owners are writing, so that those cannot give them their names."""
    for name, writer in _listed(folder, epoch, files).unfinished.items():
        if writer < epoch:
            with contextlib.suppress(FileNotFoundError):
                files.remove(folder / name)
    # What was removed must not come back after a crash, nor what is found now go away.
    files.sync_folder(folder)


def _clear_up(found: Survey, epoch: int, files: Files) -> tuple[Damage, ...]:
    """Set aside what does not fit, and make durable what was read."""
    damage = tuple(_set_aside(finding, epoch, files) for finding in found.findings)
    if found.refusal is None:
        for path in found.silent:
            # An earlier owner that is still alive may write to it. Nobody may ever read that: it has the
            # cut of another time.
            with contextlib.suppress(FileNotFoundError):
                files.remove(path)
        if found.unsynced is not None:
            # The owner before this one may have died before its sync, or of it; what it wrote counts from now
            # on, so it must be on the disk before anything comes after it.
            begin, end = found.unsynced.begin, found.unsynced.end
            files.write_again(found.unsynced.path, begin, files.read(found.unsynced.path)[begin:end])
    if damage or found.silent:
        files.sync_folder(found.folder)
    return damage


def _set_aside(finding: Finding, epoch: int, files: Files) -> Damage:
    path = finding.path
    names = (path.with_name(name) for name in aside_names(path.name, finding.suffix))
    if finding.copy_from is not None:
        data = files.read(path)[finding.copy_from :]
        aside = set_aside(path, data, names, epoch=epoch, files=files)
        return Damage(aside, f"{path.name}: {finding.reason}")
    taken = set(files.names(path.parent))
    aside = next(islice((name for name in names if name.name not in taken), 1))
    files.rename(path, aside)
    return Damage(aside, finding.reason)


def _listed(folder: Path, epoch: int, files: Files) -> Listing:
    names = listing(files.names(folder))
    if names.epoch > epoch:
        raise _fenced(folder, names, epoch)
    return names


def _before(names: Listing, epoch: int) -> Listing:
    """Leave our own claim out."""
    segments = {place: name for place, name in names.segments.items() if place[0] < epoch}
    return Listing(names.snapshots, segments, names.unfinished, names.set_aside, names.damaged_snapshots)


def _latest_epoch(folder: Path, names: Listing, files: Files) -> int:
    told = (epoch_of(files.read_start(folder / name, HEADER_BYTES)) for name in names.snapshots.values())
    return max(names.epoch, *(epoch for epoch in told if epoch is not None), 0)


def _fenced(folder: Path, names: Listing, epoch: int) -> StorageError:
    return Fenced(f"{folder} is owned by epoch {names.epoch}, and this is epoch {epoch}")
