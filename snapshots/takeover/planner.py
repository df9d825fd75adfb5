"""Plans a recovery: chooses the snapshot, the pages and the valid records, or refuses.

Only reads and decides. README.md has the rules and the reasons.
"""

from collections.abc import Callable
from pathlib import Path

from snapshots.errors import Damaged, Hole, NewerFormat, NothingUsable, StorageError
from snapshots.files import Files
from snapshots.format import pages
from snapshots.format.file_names import Listing, mark_name, segment_name
from snapshots.format.snapshot_file import Snapshot, decode
from snapshots.takeover.journal_scan import (
    Headerless,
    check_headerless_were_unsynced,
    judge_headerless,
    read_headers,
    scan_journal,
)
from snapshots.takeover.recovered import Flaw, RecoveryPlan

_ATTEMPTS = 5


def list_and_plan(
    folder: Path,
    list_names: Callable[[], Listing],
    files: Files,
    now_us: int,
    *,
    thorough: bool = False,
) -> tuple[Listing, RecoveryPlan]:
    """List a folder and plan its recovery; retry if files disappear. Raises OSError.

    Files disappear while an earlier owner removes what its last snapshot has made obsolete. With `thorough`,
    segments replaced by the newest snapshot are read, too.
    """
    attempt = 1
    while True:
        names, plan = list_names(), RecoveryPlan(folder)
        try:
            _Planner(plan, names, files, thorough=thorough).run(now_us)
        except _SegmentGone as error:
            # A listing made during a change may have a new mark, but not yet its segment.
            if attempt < _ATTEMPTS:
                attempt += 1
                continue
            plan.refusal = error
        except StorageError as error:
            plan.refusal = error
        except FileNotFoundError:
            if attempt < _ATTEMPTS:
                attempt += 1
                continue
            raise
        return names, plan


class _SegmentGone(Hole):
    """A written segment is missing."""


class _Planner:
    def __init__(self, plan: RecoveryPlan, names: Listing, files: Files, *, thorough: bool) -> None:
        self._thorough = thorough
        self._plan = plan
        self._names = names
        self._files = files
        self._fenced: set[str] = set()
        self._newest: Snapshot | None = None

    def run(self, now_us: int) -> None:
        plan = self._plan
        headerless = self._read_headers()
        self._choose_snapshot()
        self._choose_pages(now_us)
        history = self._choose_history()
        self._check_marked_segments(history)
        judge_headerless(plan, headerless, history)
        scan_journal(plan, self._files)
        check_headerless_were_unsynced(plan, headerless, history)
        self._check_snapshots_are_covered()

    def _read_headers(self) -> list[Headerless]:
        """Read the headers of all segments, or only of those that the newest snapshot does not replace.

        If that snapshot is whole and no later owner has fenced it off, it includes all records of earlier
        owners that count.
        """
        plan, segments = self._plan, self._names.segments
        newest = self._newest_snapshot()
        epoch = 0 if newest is None or self._thorough else newest.epoch
        later = {place: name for place, name in segments.items() if place[0] >= epoch}
        earlier = {place: name for place, name in segments.items() if place[0] < epoch}
        headerless = read_headers(plan, later, self._files)
        fence = plan.first_fenced(epoch)
        if newest is None or fence is None or newest.sequence < fence:
            plan.earlier = {name: place[0] for place, name in earlier.items()}
            return headerless
        return read_headers(plan, earlier, self._files) + headerless

    def _newest_snapshot(self) -> Snapshot | None:
        """Return the newest snapshot; None if it cannot be used, and `_choose_snapshot` says why."""
        snapshots = self._names.snapshots
        if not snapshots:
            return None
        sequence = max(snapshots)
        try:
            newest = self._read_snapshot(snapshots[sequence], sequence)
        except (Damaged, NewerFormat):
            return None
        self._newest = newest
        return newest

    def _choose_snapshot(self) -> None:
        plan, names = self._plan, self._names
        for sequence in sorted(names.snapshots, reverse=True):
            name = names.snapshots[sequence]
            try:
                snapshot = self._read_snapshot(name, sequence)
            except Damaged as error:
                plan.set_aside(plan.folder / name, "damaged", str(error))
                continue
            except NewerFormat as error:
                raise NewerFormat(f"{plan.folder / name} cannot be used: {error}") from error
            if self._is_fenced(name, snapshot.epoch, sequence):
                self._fenced.add(name)
                continue
            plan.snapshot = snapshot
            plan.sequence = sequence
            plan.epoch = snapshot.epoch
            return
        reasons = "; ".join(f"{flaw.path}: {flaw.reason}" for flaw in plan.flaws)
        if not reasons:
            reasons = "all were set aside before" if names.damaged_snapshots else "there is none"
        raise NothingUsable(f"{plan.folder} holds no snapshot that can be used: {reasons}")

    def _read_snapshot(self, name: str, sequence: int) -> Snapshot:
        if self._newest is not None and self._newest.sequence == sequence:
            return self._newest
        snapshot = decode(self._files.read(self._plan.folder / name))
        if snapshot.sequence != sequence:
            raise Damaged(f"its header names number {snapshot.sequence}")
        return snapshot

    def _is_fenced(self, name: str, epoch: int, sequence: int) -> bool:
        """Whether a later owner took over before the last record that a file covers. If so, set it aside."""
        fence = self._plan.first_fenced(epoch)
        if fence is None or sequence < fence:
            return False
        reason = f"it is by epoch {epoch}, which was fenced off before record {fence}"
        self._plan.set_aside(self._plan.folder / name, "fenced", reason)
        return True

    def _choose_pages(self, now_us: int) -> None:
        """Choose the pages that the snapshot needs; the journal has the contents of later pages.

        A damaged page is set aside and reported. It is no reason to refuse, because its contents expire soon.
        """
        plan = self._plan
        for sequence, name in self._names.pages.items():
            path = plan.folder / name
            try:
                header = self._page_header(path, sequence)
                if header.expires_us < now_us or sequence > plan.sequence:
                    plan.obsolete.append(path)
                elif not self._is_fenced(name, header.epoch, sequence):
                    pages.decode(self._files.read(path))
                    plan.pages.append(path)
            except Damaged as error:
                plan.set_aside(path, "damaged", str(error))
            except NewerFormat as error:
                raise NewerFormat(f"{path} cannot be used: {error}") from error

    def _page_header(self, path: Path, sequence: int) -> pages.PageHeader:
        header = pages.decode_header(self._files.read_start(path, pages.HEADER_BYTES))
        if header.sequence != sequence:
            raise Damaged(f"its header names number {header.sequence}")
        return header

    def _choose_history(self) -> set[int]:
        """Return the epochs of the folder's history, and drop the segments of all others.

        Each owner recorded whose records its own continue. An owner whose records no later one continues was
        fenced off before it answered anything, so its records are void.
        """
        plan = self._plan
        after = {segment.epoch: segment.after for segment in plan.segments}
        epoch = max([plan.epoch, *after])
        history = {epoch}
        while epoch in after:
            epoch = after[epoch]
            history.add(epoch)
        plan.obsolete += [segment.path for segment in plan.segments if segment.epoch not in history]
        plan.segments = [segment for segment in plan.segments if segment.epoch in history]
        return history

    def _check_marked_segments(self, history: set[int]) -> None:
        """Report written but empty segments as torn; raise Hole if a written one is gone.

        Only segments that may have valid records matter.
        """
        plan, latest = self._plan, max(history)
        for place, first in self._names.marks.items():
            epoch, number = place
            name = self._names.segments.get(place)
            has_content = name is not None and plan.small.get(name) != b""
            if has_content or epoch < plan.epoch or first <= plan.sequence:
                continue
            fence = plan.first_fenced(epoch)
            if (epoch < latest and epoch not in history) or (fence is not None and fence <= first):
                continue
            mark = mark_name(epoch, number, first)
            if name is None:
                raise _SegmentGone(
                    f"{plan.folder / segment_name(epoch, number)} is gone, with the records from {first} on: "
                    f"{mark} records that it was written"
                )
            # A crash may leave this if no part of the segment was synced.
            reason = f"at offset 0, it is empty, and {mark} shows that record {first} was written"
            plan.flaws.append(Flaw(plan.folder / name, "torn", reason))

    def _check_snapshots_are_covered(self) -> None:
        """Raise Hole if a damaged snapshot included records that are nowhere else."""
        # A fenced owner's snapshot does not count, whatever its number.
        numbers = {number for number, name in self._names.snapshots.items() if name not in self._fenced}
        newest = max(numbers | self._names.damaged_snapshots)
        if newest > self._plan.sequence:
            raise Hole(
                f"{self._plan.folder} once had a snapshot of record {newest}, and without that the last "
                f"record that can be read is {self._plan.sequence}"
            )
