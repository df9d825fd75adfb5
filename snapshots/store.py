"""A folder for its owner: recovers it, appends to its journal, and saves snapshots."""

import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Final

from snapshots.errors import Fenced, NoRoom, StorageError, SyncFailed, WriteFailed
from snapshots.files import Files, RealFiles, storage_errors, wall_clock_us
from snapshots.format import pages
from snapshots.format.file_names import listing, page_name, snapshot_name
from snapshots.format.segments import Segment
from snapshots.takeover.claim import Claim, claim_folder
from snapshots.takeover.recovered import Recovered, recovered
from snapshots.write.due_marks import DueMarks
from snapshots.write.journal import Journal
from snapshots.write.retention import trim
from snapshots.write.snapshot_writer import SnapshotWriter

SEGMENT_BYTES_MAX: Final = 64 * 1024 * 1024


class Store:
    """A folder, owned by one epoch: by default the one after the latest.

    An owner calls `recover` once. From then on it appends, syncs, calls `check_owner`, and only then answers.
    All methods are for one thread, except that `save_page` and `save` may run on another, one at a time.

    Once a record cannot be written or synced, `broken` is set and the store refuses everything, because only
    the next owner can find out what is on the disk.

    With `reads_without_room`, an owner may answer from recovered records before its header is on the disk, as
    long as the disk is too full for the header. These answers include everything that an earlier owner has
    answered, but perhaps also a last record that it wrote and never answered, and that may disappear.
    """

    def __init__(
        self,
        folder: Path,
        *,
        epoch: int | None = None,
        snapshots_kept: int = 3,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        reads_without_room: bool = False,
        files: Files | None = None,
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        assert snapshots_kept >= 1
        assert epoch is None or epoch >= 1, "epoch 0 is the creation of the folder"
        self.folder = folder
        self.epoch = epoch
        self.broken: StorageError | None = None
        self._snapshots_kept = snapshots_kept
        self._segment_bytes_max = segment_bytes_max
        self._unless_no_room = suppress(NoRoom) if reads_without_room else nullcontext()
        self._files = files or RealFiles()
        self._now_us = now_us
        self._journal: Journal | None = None
        self._claim: Claim | None = None
        """This epoch's claim, from `recover` to `close`."""
        self._lock = threading.Lock()
        """Guards the attributes below, which `save` shares with the other methods."""
        self._segments = list[Segment]()
        """The segments in order of epoch and number; the current one is the last."""
        self._earlier: dict[str, int] = {}
        """The epochs of earlier segments, by name. Only snapshots older than the newest need them."""
        self._obsolete: frozenset[Path] = frozenset()
        """Files that the recovery found and that are no longer needed."""
        self._continues = False
        """Whether the journal after the snapshot has records of an earlier epoch."""
        self._earlier_parts: list[tuple[int, int]] = []
        """The last record and the length of each part of the journal after the newest snapshot and before
        the current segment."""
        self._snapshot_sequence = 0
        self.segments_read = 0
        """The number of segments that the recovery has read and no snapshot has replaced yet."""
        self.dues: DueMarks | None = None
        """The marks that say when something is due, from `recover` on."""
        self._saved_us: int | None = None
        """When this owner saved the newest snapshot; None if another owner did."""

    def recover(self) -> Recovered:
        """Claim the folder, so that no earlier owner answers any more, and return its contents.

        Raises Fenced if a later owner or this epoch has claimed it; NothingUsable, Damaged and Hole, as will
        every later attempt, if needed files are missing or damaged; NewerFormat; StorageError.
        """
        assert self._journal is None, "a store recovers once"
        with storage_errors(f"{self.folder} cannot be read"):
            claimed = claim_folder(self.folder, self.epoch, self._files, now_us=self._now_us())
        plan = claimed.plan
        self.epoch = claimed.epoch
        self._claim = claimed.claim
        journal = Journal(
            self.folder,
            claimed.epoch,
            sequence=plan.sequence,
            after=plan.epoch,
            first_file=claimed.segment,
            segment_bytes_max=self._segment_bytes_max,
            files=self._files,
        )
        self._segments = plan.segments
        self._earlier = plan.earlier
        self._obsolete = frozenset(plan.obsolete)
        self.dues = DueMarks(self.folder, claimed.epoch, claimed.dues, self._files)
        self.segments_read = self.segment_count - len(plan.earlier)
        # From here on, `close` closes the journal's file, too.
        self._journal = journal
        self._continues = bool(plan.ranges)
        if plan.ranges:
            # The header is written with the first record, or before the first answer if that comes earlier.
            self._next_segment(journal)
            with self._unless_no_room:
                journal.reserve(0)
        self._earlier_parts.append((plan.sequence, plan.journal_bytes))
        assert plan.snapshot is not None, "a plan without a snapshot is refused"
        self._snapshot_sequence = plan.snapshot.sequence
        return recovered(plan, self._files, claimed.damage, released=claimed.released)

    @property
    def sequence(self) -> int:
        """The last record, appended or recovered."""
        return self._recovered().sequence

    @property
    def unsynced(self) -> bool:
        """Whether any record was appended since the last sync."""
        return self._recovered().unsynced

    @property
    def journal_bytes(self) -> int:
        """The length of the records that a recovery would read after the newest snapshot."""
        journal = self._recovered()
        with self._lock:
            return journal.bytes_ + sum(bytes_ for _, bytes_ in self._earlier_parts)

    @property
    def snapshot_sequence(self) -> int:
        """The last record that the newest snapshot includes."""
        return self._snapshot_sequence

    @property
    def snapshot_us(self) -> int | None:
        """When the newest snapshot was saved, in microseconds since 1970; None if unknown.

        For a snapshot of another owner, this is when its file was written.
        """
        if self._saved_us is None:
            # A later owner may have removed the file meanwhile.
            with suppress(OSError):
                return self._files.changed_us(self.folder / snapshot_name(self._snapshot_sequence))
        return self._saved_us

    @property
    def segment_count(self) -> int:
        """The number of segments, including earlier owners' and obsolete ones."""
        with self._lock:
            obsolete = listing(path.name for path in self._obsolete).segments
            return len(self._earlier) + len(self._segments) + len(obsolete)

    def append(self, payload: bytes, *, version: int) -> int:
        """Write a record and return its sequence. It is on the disk after the next `sync`.

        Raises WriteFailed; the store is then broken.
        """
        journal = self._usable()
        if journal.needs_segment:
            self._next_segment_if_possible(journal)
        with _Breaking(self):
            return journal.append(payload, version)

    def sync(self) -> None:
        """Return once all records are on the disk. Raises SyncFailed; the store is then broken."""
        journal = self._usable()
        with _Breaking(self):
            journal.sync()

    def check_owner(self) -> None:
        """Raise Fenced if a later owner may have read the folder. Otherwise synced records may be answered.

        Raises StorageError if that is unknown.
        """
        journal = self._usable()
        if self._continues:
            # The answer may depend on an earlier epoch's records, which only this epoch's header makes last.
            with self._unless_no_room:
                self._settle(journal)
        self._check(Claim.check_unread)

    def missing(self) -> Path | None:
        """Return the current segment if its file is gone or has been replaced.

        No other owner does that. Unless a snapshot is saved, its records are lost with this process. Raises
        StorageError if that is unknown.
        """
        journal = self._usable()
        with storage_errors(f"{self.folder} cannot be read"):
            return journal.missing()

    def reserve(self, bytes_: int) -> None:
        """Reserve disk space for a record with this payload length. Raises NoRoom, with nothing changed."""
        journal = self._usable()
        if journal.needs_segment:
            self._next_segment_if_possible(journal)
        journal.reserve(bytes_)

    def begin_snapshot(self, *, goes_on: bool = True) -> int:
        """Sync, begin a new segment, and return the last record that a snapshot taken now includes.

        Without `goes_on`, no segment is begun: the owner leaves once the snapshot is saved. Raises NoRoom or
        StorageError if impossible, and the journal continues; SyncFailed, and the store is then broken.
        """
        journal = self._usable()
        with _Breaking(self):
            journal.sync()
        # Only a segment's header records which earlier epoch this one, and so its snapshot, continues.
        self._settle(journal)
        if goes_on:
            self._next_segment(journal)
        return journal.sequence

    def save_page(self, body: bytes, *, version: int, sequence: int, expires_us: int) -> None:
        """Save a page that belongs to the snapshot of this record and to later ones. Call it before `save`.

        The page is kept until it expires. Raises what `save` raises, with nothing changed.
        """
        writer = self._writer()
        with storage_errors(f"{self.folder} cannot be written"):
            writer.save_page(body, version=version, sequence=sequence, expires_us=expires_us)
        with self._lock:
            # It may have replaced an obsolete page of this number.
            self._obsolete -= {self.folder / page_name(sequence)}

    def page(self, sequence: int) -> pages.Page | None:
        """Return the page that was saved with that record; None if it is gone. Raises StorageError."""
        with storage_errors(f"{self.folder} cannot be read"):
            try:
                return pages.decode(self._files.read(self.folder / page_name(sequence)))
            except FileNotFoundError:
                return None

    def save(self, chunks: Iterable[bytes], *, version: int, sequence: int) -> int:
        """Save the snapshot for which `begin_snapshot` returned this record; return its size in bytes.

        Then remove what it makes obsolete. Raises Fenced, NoRoom and StorageError; the folder is then as
        usable as before, the journal continues, and another snapshot may be begun.
        """
        writer = self._writer()
        assert sequence <= self._recovered().synced, "a snapshot includes only records that are on the disk"
        with storage_errors(f"{self.folder} cannot be written"):
            file_bytes = writer.save_snapshot(chunks, version=version, sequence=sequence)
        with self._lock:
            self._snapshot_sequence = max(self._snapshot_sequence, sequence)
            self.segments_read = 0
            self._saved_us = self._now_us()
            self._earlier_parts = [part for part in self._earlier_parts if part[0] > sequence]
            # It may have replaced a damaged snapshot of this number.
            self._obsolete -= {self.folder / snapshot_name(sequence)}
            segments, earlier = list(self._segments), self._earlier
        removed = trim(
            self.folder,
            segments,
            earlier,
            self._obsolete,
            snapshots_kept=self._snapshots_kept,
            files=self._files,
            now_us=self._now_us(),
        )
        with self._lock:
            gone = {path.name for path in removed}
            self._earlier = {name: epoch for name, epoch in earlier.items() if name not in gone}
            self._segments = [segment for segment in self._segments if segment.path not in removed]
            self._obsolete -= removed
        return file_bytes

    def close_earlier_segments(self) -> None:
        """Write the current segment's header. Then damage of what the newest snapshot includes is harmless.

        For an owner that seldom writes: until there is a header, the end of the previous segment is unknown.
        Raises NoRoom, with nothing changed; StorageError, and the store is then broken.
        """
        journal = self._usable()
        with _Breaking(self):
            journal.write_header()

    def release(self) -> None:
        """Close the files. If all records are on the disk, remove the claim, which tells the next owner so.

        If this epoch wrote no header, the claim stays, because later records of an earlier owner may count.
        """
        journal, claim = self._recovered(), self._claim
        if claim is not None and self.broken is None and journal.settled and not journal.unsynced:
            claim.give_up()
        self.close()

    def close(self) -> None:
        """Close the files without a sync. The store then refuses everything."""
        self.broken = self.broken or StorageError("it was closed")
        if self._journal is not None:
            self._journal.close()
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.close()

    def _recovered(self) -> Journal:
        assert self._journal is not None, "a store recovers before anything else"
        return self._journal

    def _usable(self) -> Journal:
        if self.broken is not None:
            raise type(self.broken)(f"{self.folder} takes nothing more: {self.broken}")
        return self._recovered()

    def _writer(self) -> SnapshotWriter:
        self._usable()
        assert self.epoch is not None
        return SnapshotWriter(self.folder, self.epoch, self._files, self._check_latest)

    def _check_latest(self) -> None:
        self._check(Claim.check_latest)

    def _check(self, check: Callable[[Claim], None]) -> None:
        claim = self._claim
        if claim is None:
            # The store was closed while another thread was saving.
            raise StorageError(f"{self.folder} takes nothing more: {self.broken}")
        try:
            with storage_errors(f"{self.folder} cannot be read"):
                check(claim)
        except Fenced as error:
            self.broken = error
            raise

    def _settle(self, journal: Journal) -> None:
        if journal.segment is None:
            self._next_segment(journal)
        with _Breaking(self):
            journal.settle()

    def _next_segment_if_possible(self, journal: Journal) -> None:
        """Begin a new segment; continue in the full one if a new one is impossible now.

        The first segment is always possible, because the recovery has created its file.
        """
        try:
            self._next_segment(journal)
        except SyncFailed:
            raise
        except StorageError:
            pass

    def _next_segment(self, journal: Journal) -> None:
        closed_bytes, last = journal.bytes_, journal.sequence
        with _Breaking(self):
            segment = journal.next_segment()
        if segment is not None:
            with self._lock:
                self._segments.append(segment)
                self._earlier_parts.append((last, closed_bytes))


class _Breaking:
    """Notes in a store that a write or a sync failed."""

    __slots__ = ("_store",)

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, WriteFailed | SyncFailed):
            self._store.broken = error
