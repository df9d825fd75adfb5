"""Defects planted in the store one at a time, each with the check that must notice it."""

import inspect
import random
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from snapshots import store
from snapshots.format import segment_reader
from snapshots.format.segments import decode_record_header, payload_of
from snapshots.takeover import claim, journal_scan, planner
from snapshots.write import snapshot_writer
from snapshots.write.journal import Journal
from tests.crash.model.history import Owner
from tests.crash.store.corruption import Changed, folder_of_segments, long_folder, small_folder
from tests.crash.store.crash_images import Images
from tests.crash.store.file_faults import FileFaults
from tests.crash.store.interleaving import (
    Interleavings,
    Script,
    drawn,
    first_script,
    glance,
    second_script,
    switches,
    third_script,
)
from tests.crash.store.runs import RUNS


def crash_images() -> None:
    for run in RUNS.values():
        Images(64).of(run)


def faults() -> None:
    for run in RUNS.values():
        FileFaults(16).of(run)


def flipped_bits() -> None:
    Changed().flip_bits(*small_folder())


def sectors_of_zeros() -> None:
    Changed().zero_every_sector(*long_folder())


def missing_files() -> None:
    Changed().remove_every_file(*folder_of_segments())


def two_owners() -> None:
    interleavings = Interleavings()
    scripts = [first_script, second_script]
    schedules = list(switches(interleavings.lengths(scripts), 2))
    for schedule in interleavings.chance.sample(schedules, 300):
        interleavings.run(scripts, schedule)


def three_owners(*later: Script) -> None:
    # With this seed a few hundred schedules show the defects; with others it takes up to a few thousand.
    interleavings = Interleavings(random.Random(2))
    scripts = [first_script, *(later or (second_script, third_script))]
    lengths = interleavings.lengths(scripts)
    for _ in range(4_000):
        interleavings.run(scripts, drawn(lengths, interleavings.chance))


@dataclass(frozen=True)
class Defect:
    """A piece of code, its defective replacement, and the check that must notice."""

    where: Any
    name: str
    old: str
    new: str
    noticed_by: Callable[[], None]
    source: Callable[..., Any] | None = None
    """The function itself, if `where` only imports it."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the defect."""
        function = self.source or inspect.getattr_static(self.where, self.name)
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{self.old!r} stands once in {self.name}"
        namespace: dict[str, Any] = {}
        code = compile(source.replace(self.old, self.new), f"<planted in {self.name}>", "exec")
        exec(code, inspect.unwrap(function).__globals__, namespace)
        with patch.object(self.where, self.name, namespace[function.__name__]):
            yield


_CLAIMED = """        claim, segment = _make_claim(folder, epoch, files, unless_claimed)
"""
_CLEARED = """        untouched = _clear_away(folder, epoch, names, found, files)
        released = untouched is not None
"""
_PLANNED = "        plan = _plan(folder, epoch, files, untouched, now_us)\n"
_PLANNED_FIRST = _PLANNED.replace("untouched", "None")

DEFECTS: dict[str, Defect] = {
    "records are not synced": Defect(Journal, "sync", "self._sync(self._current)", "pass", crash_images),
    "an answer does not wait for the sync": Defect(
        Owner, "answer", "self.store.sync()", "pass", crash_images
    ),
    "a new segment's name is not synced": Defect(
        Journal, "_created", "self._files.sync_folder(self._folder)", "pass", crash_images
    ),
    "the names of a claim and its first segment are not synced": Defect(
        claim, "_make_claim", "_sync(folder, files)", "pass", crash_images
    ),
    "a segment is left before it is synced": Defect(
        Journal, "next_segment", "self.sync()", "self.synced = self.sequence", crash_images
    ),
    "a snapshot gets its name before it is synced": Defect(
        snapshot_writer.SnapshotWriter,
        "_save",
        "file.sync()",
        "self._files.rename(unfinished, self._folder / name); file.sync(); self._files.create(unfinished)",
        crash_images,
    ),
    "a snapshot's name is not synced": Defect(
        snapshot_writer.SnapshotWriter,
        "_save",
        "self._files.sync_folder(self._folder)",
        "pass",
        crash_images,
    ),
    "what the last owner left unsynced is taken for synced": Defect(
        store,
        "claim_folder",
        "if plan.unsynced is not None and not released:",
        "if False:",
        crash_images,
        claim.claim_folder,
    ),
    "a failed sync is tried again": Defect(
        Journal,
        "_sync",
        """raise SyncFailed(f"{path} cannot be synced after offset {current.bytes_}: {error}") from error""",
        "current.file.sync_data()",
        faults,
    ),
    "marks are not looked at": Defect(
        planner._Planner,
        "_check_marked_segments",
        "if has_content or",
        "if True or",
        missing_files,
    ),
    "payloads are not checked": Defect(
        segment_reader,
        "payload_of",
        "zlib.crc32(payload) != header.payload_checksum or ",
        "",
        flipped_bits,
        payload_of,
    ),
    "headers of records are not checked": Defect(
        segment_reader,
        "decode_record_header",
        "if checksum != zlib.crc32(memoryview(data)[offset:end]):",
        "if False:",
        flipped_bits,
        decode_record_header,
    ),
    "every record that does not fit is taken for torn": Defect(
        segment_reader, "_look", "zeros > header.blank_sectors", "True", flipped_bits
    ),
    "nobody asks later records whether it was synced": Defect(
        segment_reader, "classify", "if witness is not None:", "if False:", sectors_of_zeros
    ),
    "gaps in the numbers are passed over": Defect(
        journal_scan, "_scan", "if segment.first > begin:", "if False:", missing_files
    ),
    "an owner looks for later ones before it appends": Defect(
        Owner,
        "batch",
        "return self.append(*sizes).answer()",
        "self.store.check_owner(); self.append(*sizes); self.store.sync(); "
        "self.history.answer(self.view); return self",
        two_owners,
    ),
    "a claim is made after the folder was read": Defect(
        store,
        "claim_folder",
        _CLAIMED + _CLEARED + _PLANNED,
        _PLANNED_FIRST + _CLAIMED + _CLEARED,
        two_owners,
        claim.claim_folder,
    ),
    "a claim is removed after the folder was read": Defect(
        store,
        "claim_folder",
        _CLEARED + _PLANNED,
        _PLANNED_FIRST + _CLEARED,
        two_owners,
        claim.claim_folder,
    ),
    "earlier owners keep their claims": Defect(
        claim, "_clear_away", "if claimed < epoch", "if False", two_owners
    ),
    "nobody looks for the claim": Defect(
        claim.Claim, "check_unread", "if not self._file.is_named(self._path):", "if False:", two_owners
    ),
    "an answer without a record comes before the header": Defect(
        store.Store,
        "check_owner",
        "if self._continues:",
        "if False:",
        partial(three_owners, second_script, glance),
    ),
    "an owner releases its folder with records that are not synced": Defect(
        store.Store, "release", " and not journal.unsynced", "", crash_images
    ),
    "an owner without a header of its own releases its folder": Defect(
        store.Store, "release", " and journal.settled", "", crash_images
    ),
    "what fenced owners write counts": Defect(
        planner._Planner, "_choose_history", "history = {epoch}", "history = {epoch, *after}", three_owners
    ),
}
