"""What one owner keeps in a folder: snapshots, and a journal of what came after them."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from snapshots.errors import Fenced, NoRoom, NothingUsable, StorageError, SyncFailed, WriteFailed
from snapshots.files import Files, RealFiles
from snapshots.format.file_names import listing, page_name, snapshot_name
from snapshots.format.pages import now_us
from snapshots.takeover.claim import Claim, claim_folder
from snapshots.takeover.recovery import Pages, Records, Recovered
from snapshots.write.journal import NO_ROOM, Journal
from snapshots.write.retention import trim
from snapshots.write.snapshot_writer import save_page, save_snapshot

if TYPE_CHECKING:
    from snapshots.takeover.survey import Segment

SEGMENT_BYTES_MAX: Final = 64 * 1024 * 1024


class Store:
    """A folder, as the one owner with this epoch sees it. Without an epoch it takes the one after the latest.

    An owner calls `recover` once, and then appends, syncs, asks `check_owner`, and only then answers. Its
    methods are for one thread, but for `save`, which may run on another one, one call at a time.

    Where a record cannot be written or synced, `broken` says so and the store takes nothing more: what is on
    the disk is for the next owner to find out.
    """

    def __init__(
        self,
        folder: Path,
        *,
        epoch: int | None = None,
        kept: int = 3,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        files: Files | None = None,
        now_us: Callable[[], int] = now_us,
    ) -> None:
        assert kept >= 1
        assert epoch is None or epoch >= 1, "epoch 0 is that of a folder's birth"
        self.folder = folder
        self.epoch = epoch
        self.broken: StorageError | None = None
        self._kept = kept
        self._segment_bytes_max = segment_bytes_max
        self._files = files or RealFiles()
        self._now_us = now_us
        self._journal: Journal | None = None
        self._claim: Claim | None = None
        """What says that the folder is ours, from `recover` to `close`."""
        self._lock = threading.Lock()
        """Guards what follows, which `save` shares with the others."""
        self._segments: list[Segment] = []
        """In order of epoch and number, the current one last."""
        self._litter: frozenset[Path] = frozenset()
        """What was found and is not needed."""
        self._closed: list[tuple[int, int]] = []
        """What stands before the current segment: the last record of each part, and its bytes."""
        self._snapshot_sequence = 0

    def create(self, body: bytes, *, version: int) -> None:
        """Make the folder with a first snapshot, of record 0 and epoch 0, durably. May be repeated.

        Raises StorageError.
        """
        with self._told("made"):
            self._files.make_folder(self.folder)
            names = listing(self._files.names(self.folder))
            if not names.snapshots:
                if names.segments or names.damaged_snapshots:
                    raise NothingUsable(f"{self.folder} is not new, and holds no snapshot that can be used")
                save_snapshot(
                    self.folder,
                    [body],
                    epoch=0,
                    sequence=0,
                    version=version,
                    files=self._files,
                    check_latest=lambda: None,
                )
            # Whoever began this before may have died before its syncs.
            self._files.sync_folder(self.folder)
            self._files.sync_folder(self.folder.parent)

    def is_newborn(self) -> bool:
        """Whether the folder holds no more than what `create` makes, or less, and nothing was ever added."""
        with self._told("read"):
            names = listing(self._files.names(self.folder))
            paths = [self.folder / name for name in names.segments.values()]
            written = any(self._files.read_start(path, 1) for path in paths)
        return not (written or names.snapshots.keys() - {0} or names.set_aside)

    def recover(self, *, missing_is_empty: bool = False) -> Recovered:
        """Claim the folder, so that no earlier owner answers any more, and read what is there.

        With `missing_is_empty` a folder that never had a snapshot is one with nothing in it, and is made.
        Raises Fenced where a later owner was here, or this epoch; NothingUsable, Damaged and Hole where what
        is needed is not there, which every later attempt will say again; NewerFormat; StorageError.
        """
        assert self._journal is None, "a store recovers once"
        with self._told("read"):
            claimed = claim_folder(
                self.folder,
                self.epoch,
                self._files,
                now_us=self._now_us(),
                missing_is_empty=missing_is_empty,
            )
        found = claimed.found
        self.epoch = claimed.epoch
        self._claim = claimed.claim
        journal = Journal(
            self.folder,
            claimed.epoch,
            sequence=found.sequence,
            after=found.epoch,
            segment_bytes_max=self._segment_bytes_max,
            files=self._files,
        )
        self._segments = found.segments
        self._litter = frozenset(found.litter)
        # From here on `close` has its descriptor to give back, too.
        self._journal = journal
        if found.pieces:
            # Whoever sees what these records made of the state must be right for good.
            self._settle(journal)
        self._closed.append((found.sequence, found.journal_bytes))
        self._snapshot_sequence = found.snapshot.sequence if found.snapshot else 0
        records, pages = Records(found, self._files), Pages(found, self._files)
        return Recovered(found.snapshot, records, claimed.damage, pages)

    @property
    def sequence(self) -> int:
        """The last record, appended or recovered."""
        return self._recovered().sequence

    @property
    def unsynced(self) -> bool:
        """Whether a record was appended since the last sync."""
        return self._recovered().unsynced

    @property
    def journal_bytes(self) -> int:
        """What a recovery would have to read after the newest snapshot."""
        journal = self._recovered()
        with self._lock:
            return journal.bytes_ + sum(
                bytes_ for last, bytes_ in self._closed if last > self._snapshot_sequence
            )

    @property
    def snapshot_sequence(self) -> int:
        """The record for which the newest snapshot stands."""
        return self._snapshot_sequence

    @property
    def segment_count(self) -> int:
        """How many segments there are, those of earlier owners and those that nobody needs included."""
        with self._lock:
            return len(self._segments) + len(self._litter)

    def append(self, payload: bytes, *, version: int) -> int:
        """Write a record, and give its sequence. It is on the disk after the next `sync`.

        Raises WriteFailed, and the store is broken then.
        """
        journal = self._usable()
        if journal.needs_segment:
            self._next_segment_if_can_be(journal)
        with self._breaking():
            return journal.append(payload, version)

    def sync(self) -> None:
        """Come back only when everything appended is on the disk.

        Raises SyncFailed, and the store is broken then.
        """
        journal = self._usable()
        with self._breaking():
            journal.sync()

    def check_owner(self) -> None:
        """Raise Fenced if a later owner may have read the folder; else what was synced may be answered.

        Raises StorageError where that cannot be known.
        """
        self._usable()
        with self._checking() as claim:
            claim.check_unread()

    def missing(self) -> Path | None:
        """Give the segment that records go to where its file is gone, or has been replaced.

        No later owner does that. What is in it lasts no longer than this owner; a snapshot mends that. Raises
        StorageError where it cannot be known.
        """
        journal = self._usable()
        with self._told("read"):
            return journal.missing()

    def reserve(self, bytes_: int) -> None:
        """See to it that a record with a payload of so many bytes finds room.

        Raises NoRoom, and nothing has changed then.
        """
        journal = self._usable()
        if journal.needs_segment:
            self._next_segment_if_can_be(journal)
        journal.reserve(bytes_)

    def begin_snapshot(self) -> int:
        """Sync, close the current segment and begin the next; the record that a snapshot of now stands for.

        Raises NoRoom or StorageError where that cannot be, and the journal goes on; SyncFailed, and the store
        is broken then.
        """
        journal = self._usable()
        with self._breaking():
            journal.sync()
        # Without a segment of this epoch nobody would know what the snapshot comes after.
        self._settle(journal)
        self._next_segment(journal)
        return journal.sequence

    def save_page(self, body: bytes, *, version: int, sequence: int, expires_us: int) -> None:
        """Make a page, which goes with the snapshots of this record and of later ones; before `save`.

        It is there until it has expired. Raises what `save` does, and then it is as if it had not been tried.
        """
        self._usable()
        assert self.epoch is not None
        with self._told("written"):
            save_page(
                self.folder,
                body,
                epoch=self.epoch,
                sequence=sequence,
                version=version,
                expires_us=expires_us,
                files=self._files,
                check_latest=self._check_latest,
            )
        with self._lock:
            # One of this number that nobody needed has been replaced.
            self._litter -= {self.folder / page_name(sequence)}

    def save(self, chunks: Iterable[bytes], *, version: int, sequence: int) -> int:
        """Make the snapshot that stands for a record which `begin_snapshot` gave; its size in bytes.

        Then remove what that makes needless. Raises Fenced, NoRoom and StorageError; what was there is then
        as usable as before, the journal goes on, and another attempt may be made from the beginning.
        """
        journal = self._usable()
        assert self.epoch is not None
        assert sequence <= journal.synced, "a snapshot stands for records that are on the disk"
        with self._told("written"):
            file_bytes = save_snapshot(
                self.folder,
                chunks,
                epoch=self.epoch,
                sequence=sequence,
                version=version,
                files=self._files,
                check_latest=self._check_latest,
            )
        with self._lock:
            self._snapshot_sequence = max(self._snapshot_sequence, sequence)
            self._closed = [part for part in self._closed if part[0] > sequence]
            # A damaged one of this number has been replaced.
            self._litter -= {self.folder / snapshot_name(sequence)}
            segments = list(self._segments)
        removed = trim(
            self.folder, segments, self._litter, kept=self._kept, files=self._files, now_us=self._now_us()
        )
        with self._lock:
            self._segments = [segment for segment in self._segments if segment.path not in removed]
            self._litter -= removed
        return file_bytes

    def close(self) -> None:
        """Give the descriptors back. Nothing is synced, and the store takes nothing more."""
        self.broken = self.broken or StorageError("it was closed")
        if self._journal is not None:
            self._journal.close()
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.close()

    def destroy(self) -> None:
        """Remove the folder and all that is in it. May be repeated where it failed half-way.

        The snapshots go first: without one, what is left is refused. Raises StorageError.
        """
        with self._told("removed"):
            for name in sorted(self._files.names(self.folder), key=lambda name: name.startswith("journal")):
                with contextlib.suppress(FileNotFoundError):
                    self._files.remove(self.folder / name)
            with contextlib.suppress(FileNotFoundError):
                self._files.remove_folder(self.folder)
            with contextlib.suppress(FileNotFoundError):
                self._files.sync_folder(self.folder.parent)

    def _recovered(self) -> Journal:
        assert self._journal is not None, "a store recovers before anything else"
        return self._journal

    def _usable(self) -> Journal:
        if self.broken is not None:
            raise type(self.broken)(f"{self.folder} takes nothing more: {self.broken}")
        return self._recovered()

    def _check_latest(self) -> None:
        with self._checking() as claim:
            claim.check_latest()

    @contextmanager
    def _checking(self) -> Iterator[Claim]:
        claim = self._claim
        if claim is None:
            # It is closed while another thread saves.
            raise StorageError(f"{self.folder} takes nothing more: {self.broken}")
        try:
            with self._told("read"):
                yield claim
        except Fenced as error:
            self.broken = error
            raise

    def _settle(self, journal: Journal) -> None:
        if journal.segment is None:
            self._next_segment(journal)
        with self._breaking():
            journal.settle()

    def _next_segment_if_can_be(self, journal: Journal) -> None:
        """Go on in a new segment, or in the full one where there can be no new one now."""
        try:
            self._next_segment(journal)
        except SyncFailed:
            raise
        except StorageError:
            if journal.segment is None:
                raise

    def _next_segment(self, journal: Journal) -> None:
        closed_bytes, last = journal.bytes_, journal.sequence
        with self._breaking():
            segment = journal.next_segment()
        if segment is not None:
            with self._lock:
                self._segments.append(segment)
                self._closed.append((last, closed_bytes))

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        try:
            yield
        except (WriteFailed, SyncFailed) as error:
            self.broken = error
            raise

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = NoRoom if error.errno in NO_ROOM else StorageError
            raise kind(f"{self.folder} cannot be {what}: {error}") from error
