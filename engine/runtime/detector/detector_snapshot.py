"""What a detector's snapshot holds: the limits in force, and the detector.

It is one msgpack document: `[limits by name, version of the state, the detector]`, the last as
engine.evaluation.persistence.saved has it. The answers that are kept for repeats stand in pages beside the
snapshots.

Version 3 had the answers in place of the version of the state, which was 3. Versions 1 and 2 were the
detector alone, with a state of that version.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgpack
import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.persistence import saved
from engine.evaluation.persistence.capturing import Captured, capture
from engine.evaluation.persistence.packing import packed
from engine.language.limits import Limits
from engine.runtime.detector.idempotency import IdempotencyCache
from engine.runtime.detector.journal_entries import EarlierAnswer, limits_document, limits_from
from snapshots.errors import NewerFormat

SNAPSHOT_VERSION: Final = 4

LIMITS_TOLD_FROM: Final = 3
"""The first version that tells the limits in force."""

STATE_VERSION_TOLD_FROM: Final = 4
"""The first version that tells the version of the state."""

_PARTS: Final = 3
_TURN_S: Final = 0.0005
"""How long a thread packs before it lets others have their turn, and how long that is."""


@dataclass(frozen=True, slots=True)
class DetectorSnapshot:
    """All that a snapshot of a detector holds, as it was at one moment."""

    limits: Limits
    detector: Captured


def take_snapshot(detector: Detector) -> DetectorSnapshot:
    """Give what a snapshot holds, between two events."""
    return DetectorSnapshot(detector.limits, capture(detector))


def empty_snapshot() -> bytes:
    """Give the body of a detector that has just been made."""
    return b"".join(pieces(take_snapshot(Detector())))


def pieces(kept: DetectorSnapshot) -> Iterator[bytes]:
    """Give a snapshot's body of SNAPSHOT_VERSION, in pieces that are each made within a millisecond."""
    packer = msgpack.Packer()
    yield packer.pack_array_header(_PARTS) + packer.pack(limits_document(kept.limits))
    yield packer.pack(saved.STATE_VERSION)
    yield from packed(kept.detector)


def paced(
    made: Iterable[bytes], clock_s: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[bytes]:
    """Give what is made, and let other threads have their turn at least every millisecond.

    One that does not let go by itself holds the interpreter for 5 ms whenever another wants it.
    """
    turn_over_s = clock_s() + _TURN_S
    for piece in made:
        yield piece
        if clock_s() >= turn_over_s:
            sleep(_TURN_S)
            turn_over_s = clock_s() + _TURN_S


def detector_from(body: bytes, version: int, answers: IdempotencyCache, default_limits: Limits) -> Detector:
    """Give the detector of a snapshot's body, and keep the answers that an older one holds.

    The detector takes events as they are stamped. `default_limits` are for bodies too old to tell theirs.
    Raises NewerFormat.
    """
    assert 1 <= version <= SNAPSHOT_VERSION, f"a body of version {version}, which is unknown"
    document = saved.unpack(body)
    limits, state_version = default_limits, version
    if version >= LIMITS_TOLD_FROM:
        told, second, document = document
        limits = limits_from(told)
        if version < STATE_VERSION_TOLD_FROM:
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
    return detector
