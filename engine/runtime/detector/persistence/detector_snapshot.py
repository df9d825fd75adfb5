"""The body of a detector's snapshot: the limits in force, and the detector.

It is one msgpack document: `[limits by name, version of the state, the detector]`. The detector is encoded
as engine.evaluation.persistence.saved describes. Stored answers are in pages beside the snapshots. A fork of
a detector begins with a snapshot, too.
"""

import dataclasses
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgpack

from engine.evaluation.detector import Detector
from engine.evaluation.persistence import saved
from engine.evaluation.persistence.capturing import Captured, capture
from engine.evaluation.persistence.figures import figures_of, load_figures
from engine.evaluation.persistence.packing import packed
from engine.language.limits import Limits
from engine.runtime.detector.persistence.journal_entries import limits_document, limits_from
from snapshots.errors import other_format
from snapshots.files import Files
from snapshots.folders import create_folder
from snapshots.write.due_marks import mark_folder

T = TypeVar("T")

SNAPSHOT_VERSION: Final = 4

_PARTS: Final = 3
_TURN_S: Final = 0.0005
"""How long a thread encodes before it sleeps, and how long it sleeps, so that other threads can run."""


@dataclass(frozen=True, slots=True)
class DetectorSnapshot:
    """The contents of a detector's snapshot, consistent as of one moment."""

    limits: Limits
    detector: Captured


def take_snapshot(detector: Detector) -> DetectorSnapshot:
    """Copy a detector's state, between two events."""
    captured = dataclasses.replace(capture(detector), figures=figures_of(detector))
    return DetectorSnapshot(detector.limits, captured)


def empty_snapshot() -> bytes:
    """Return the snapshot body of a new detector."""
    return b"".join(pieces(take_snapshot(Detector())))


def pieces(snapshot: DetectorSnapshot) -> Iterator[bytes]:
    """Yield a snapshot's body, of SNAPSHOT_VERSION, in pieces that each take less than a millisecond."""
    packer = msgpack.Packer()
    yield packer.pack_array_header(_PARTS) + packer.pack(limits_document(snapshot.limits))
    yield packer.pack(saved.STATE_VERSION)
    yield from packed(snapshot.detector)


def paced(made: Iterable[T], clock_s: Callable[[], float], sleep: Callable[[float], None]) -> Iterator[T]:
    """Yield the pieces, and sleep at least every millisecond so that other threads can run.

    A thread that does not release the interpreter lock keeps it for 5 ms after another thread requests it.
    """
    turn_over_s = clock_s() + _TURN_S
    for piece in made:
        yield piece
        if clock_s() >= turn_over_s:
            sleep(_TURN_S)
            turn_over_s = clock_s() + _TURN_S


def detector_from(body: bytes, version: int) -> Detector:
    """Return the detector of a snapshot's body. It accepts timestamps of events unchecked, for a replay.

    Raises NewerFormat and OlderFormat.
    """
    _check("detector", version, SNAPSHOT_VERSION, SNAPSHOT_VERSION)
    stored_limits, state_version, document = saved.unpack(body)
    _check("detector's state", state_version, saved.OLDEST_VERSION, saved.STATE_VERSION)
    detector = Detector(limits=limits_from(stored_limits))
    saved.load(detector, document, state_version)
    load_figures(detector, document)
    return detector


def _check(what: str, version: int, oldest: int, newest: int) -> None:
    if not oldest <= version <= newest:
        raise other_format(f"the {what} was saved", version, newest, oldest)


def make_fork(folder: Path, source: DetectorSnapshot, files: Files, *, is_due: bool) -> None:
    """Make a detector's folder from the state of another one, durably. Do nothing if it has a snapshot.

    The rules get new ids, and the feed is empty, because the fork has not fired yet. Nothing else has to
    change: state refers to conditions and births, and rules refer to each other by priority. `is_due` says
    whether it will need a tick. Raises StorageError; the folder then belongs to no detector.
    """
    captured = source.detector
    rules = (
        dataclasses.replace(live, rule=dataclasses.replace(live.rule, id=secrets.token_hex(16)))
        for live in captured.rules
    )
    renamed = list(paced(rules, time.monotonic, time.sleep))
    fork = DetectorSnapshot(source.limits, dataclasses.replace(captured, rules=renamed, feed=(0, [])))
    body = paced(pieces(fork), time.monotonic, time.sleep)
    create_folder(folder, body, version=SNAPSHOT_VERSION, files=files)
    if is_due:
        mark_folder(folder, files)
