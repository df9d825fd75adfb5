"""The body of a detector's snapshot: the limits in force, and the detector.

It is one msgpack document: `[limits by name, version of the state, the detector]`. The detector is encoded
as engine.evaluation.persistence.saved describes. Stored answers are in pages beside the snapshots.

In version 3, the stored answers took the place of the state's version, which was 3. Versions 1 and 2 consist
of the detector alone, with a state of the same version.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import msgpack
import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.persistence import saved
from engine.evaluation.persistence.capturing import Captured, capture
from engine.evaluation.persistence.figures import figures_of
from engine.evaluation.persistence.packing import packed
from engine.language.limits import Limits
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from engine.runtime.detector.persistence.journal_entries import EarlierAnswer, limits_document, limits_from
from snapshots.errors import NewerFormat

T = TypeVar("T")

SNAPSHOT_VERSION: Final = 4

LIMITS_STORED_FROM: Final = 3
"""The first version that contains the limits in force."""

STATE_VERSION_STORED_FROM: Final = 4
"""The first version that contains the version of the state."""

_PARTS: Final = 3
_TURN_S: Final = 0.0005
"""How long a thread packs before it sleeps, and how long it sleeps, so that other threads can run."""


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

    A thread that does not release the interpreter holds it for 5 ms after another one asks for it.
    """
    turn_over_s = clock_s() + _TURN_S
    for piece in made:
        yield piece
        if clock_s() >= turn_over_s:
            sleep(_TURN_S)
            turn_over_s = clock_s() + _TURN_S


def detector_from(body: bytes, version: int, answers: IdempotencyCache, default_limits: Limits) -> Detector:
    """Return the detector of a snapshot's body, and store the answers that an older body contains.

    The detector takes the timestamps of events as they are. `default_limits` are for bodies too old to
    contain limits. Raises NewerFormat.
    """
    assert 1 <= version <= SNAPSHOT_VERSION, f"a body of version {version}, which is unknown"
    document = saved.unpack(body)
    limits, state_version = default_limits, version
    if version >= LIMITS_STORED_FROM:
        stored_limits, second, document = document
        limits = limits_from(stored_limits)
        if version < STATE_VERSION_STORED_FROM:
            for answer in msgspec.convert(second, list[EarlierAnswer]):
                answers.keep(answer.current(), answer.answered_at_us)
        else:
            state_version = second
    if state_version > saved.STATE_VERSION:
        raise NewerFormat(
            f"the detector's state was saved by a newer program, with version {state_version}; "
            f"this one knows versions up to {saved.STATE_VERSION}"
        )
    detector = Detector(limits=limits)
    saved.load(detector, document, state_version)
    saved.load_figures(detector, document)
    return detector
