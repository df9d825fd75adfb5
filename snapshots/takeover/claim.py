"""How an owner takes a folder over: no earlier owner answers any more, and what it leaves is read to its end.

README.md has the argument; it rests on the order of the calls here.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from snapshots.damage import Damage
from snapshots.errors import ClaimRemoved, Fenced, NewerFormat, NothingUsable, StorageError
from snapshots.files import Files, OpenFile
from snapshots.format.file_names import CLAIM_NUMBER, Listing, aside_names, listing, segment_name
from snapshots.format.snapshot_file import HEADER_BYTES, epoch_of
from snapshots.takeover.survey import Finding, Survey, survey
from snapshots.write.snapshot_writer import set_aside

_ATTEMPTS = 5


class Claim:
    """What says that a folder is an epoch's: a file of its own that is kept open. For its owner to close."""

    def __init__(self, folder: Path, epoch: int, file: OpenFile, files: Files) -> None:
        self._folder = folder
        self._epoch = epoch
        self._path = folder / segment_name(epoch, CLAIM_NUMBER)
        self._file = file
        self._files = files

    def check_unread(self) -> None:
        """Raise Fenced where a later owner may have begun to read the folder.

        Whoever has claimed it since removes this claim before it reads; until then it will find all that was
        written before. It is this very file that is looked for, because its name may have been taken again,
        and under its name, because it may have got another one elsewhere (`cp -al`). Raises OSError.
        """
        if not self._file.is_named(self._path):
            # This tells more, where a later owner has come.
            self.check_latest()
            raise self._removed()

    def check_latest(self) -> None:
        """Raise Fenced where a later owner has claimed the folder, or it was removed. Raises OSError."""
        names = listing(self._files.names(self._folder))
        if names.epoch > self._epoch:
            raise Fenced(f"{self._folder} is owned by epoch {names.epoch}, later than {self._epoch}")
        if self._epoch not in names.claims:
            raise self._removed()

    def _removed(self) -> StorageError:
        return ClaimRemoved(f"{self._path}, which owns the folder, was removed")

    def close(self) -> None:
        """Give the descriptor back."""
        with contextlib.suppress(OSError):
            self._file.close()


@dataclass(frozen=True, slots=True)
class Claimed:
    """A folder that is ours, and what was found in it."""

    epoch: int
    claim: Claim
    found: Survey
    damage: tuple[Damage, ...]


def claim_folder(
    folder: Path, epoch: int | None, files: Files, *, now_us: int, missing_is_empty: bool
) -> Claimed:
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
    with contextlib.ExitStack() as unless_claimed:
        claim = _make_claim(folder, epoch, files, unless_claimed)
        _clear_away(folder, epoch, names, files)
        found = _survey(folder, epoch, files, now_us=now_us, missing_is_empty=missing_is_empty)
        if found.snapshot is not None and found.snapshot.epoch > epoch:
            raise Fenced(f"{folder} has a snapshot by epoch {found.snapshot.epoch}, later than {epoch}")
        if isinstance(found.refusal, NewerFormat):
            raise found.refusal
        damage = tuple(_set_aside(finding, epoch, files) for finding in found.findings)
        if damage:
            files.sync_folder(folder)
        if found.refusal is not None:
            raise found.refusal
        if found.unsynced is not None:
            # The owner before this one may have died before its sync, or of it; what it wrote counts from now
            # on, so it must be on the disk before anything comes after it.
            begin, end = found.unsynced.begin, found.unsynced.end
            files.write_again(found.unsynced.path, begin, files.read(found.unsynced.path)[begin:end])
        unless_claimed.pop_all()
        return Claimed(epoch, claim, found, damage)


def _make_claim(folder: Path, epoch: int, files: Files, unless_claimed: contextlib.ExitStack) -> Claim:
    try:
        file = files.create(folder / segment_name(epoch, CLAIM_NUMBER))
    except FileExistsError:
        raise Fenced(f"{folder} is owned by epoch {epoch} already") from None
    claim = Claim(folder, epoch, file, files)
    unless_claimed.callback(claim.close)
    # From here on no earlier owner begins to give a snapshot its name: each looks for this one before.
    files.sync_folder(folder)
    return claim


def _clear_away(folder: Path, epoch: int, before: Listing, files: Files) -> None:
    """Remove what earlier owners are still writing, and their claims.

    So they can give nothing its name, and answer no more, for each looks for its claim before it does.
    Nothing else is ever removed before there is a new snapshot: a file that has nothing in it now may have
    something by then, which a still later owner has read.
    """
    names = _listed(folder, epoch, files)
    unfinished = [name for name, writer in names.unfinished.items() if writer < epoch]
    for name in (*unfinished, *(name for claimed, name in names.claims.items() if claimed < epoch)):
        with contextlib.suppress(FileNotFoundError):
            files.remove(folder / name)
    seen, now = ((one.snapshots, one.segments, one.pages) for one in (before, names))
    if unfinished or seen != now:
        # What was removed must not come back after a crash, nor what is found now go away. The names from
        # before the claim are on the disk with it.
        files.sync_folder(folder)


def _survey(folder: Path, epoch: int, files: Files, *, now_us: int, missing_is_empty: bool) -> Survey:
    attempt = 1
    while True:
        names = _listed(folder, epoch, files)
        try:
            return survey(folder, names, files, now_us=now_us, missing_is_empty=missing_is_empty)
        except FileNotFoundError:
            # The owner before this one is still removing what its last snapshot made needless.
            if attempt == _ATTEMPTS:
                raise
        attempt += 1


def _set_aside(finding: Finding, epoch: int, files: Files) -> Damage:
    """Keep a copy of what does not fit. The file itself stays: it may be another one by now."""
    path = finding.path
    names = (path.with_name(name) for name in aside_names(path.name, finding.suffix))
    data = files.read(path)[finding.copy_from :]
    aside = set_aside(path, data, names, epoch=epoch, files=files)
    return Damage(aside, f"{path.name}: {finding.reason}")


def _listed(folder: Path, epoch: int, files: Files) -> Listing:
    names = listing(files.names(folder))
    if names.epoch > epoch:
        raise _fenced(folder, names, epoch)
    return names


def _latest_epoch(folder: Path, names: Listing, files: Files) -> int:
    told = (epoch_of(files.read_start(folder / name, HEADER_BYTES)) for name in names.snapshots.values())
    return max([names.epoch, *(epoch for epoch in told if epoch is not None)])


def _fenced(folder: Path, names: Listing, epoch: int) -> StorageError:
    return Fenced(f"{folder} is owned by epoch {names.epoch}, and this is epoch {epoch}")
