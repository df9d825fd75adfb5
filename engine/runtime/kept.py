"""What a detector's snapshot holds: the limits in force, the answers kept for repeats, and the detector.

In one msgpack document: `[limits by name, answers, the detector as engine.evaluation.saved has it]`. Up to
version 2 it was the detector alone.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgpack
import msgspec

from engine.evaluation import saved
from engine.evaluation.capturing import Captured, capture
from engine.evaluation.detector import Detector
from engine.evaluation.packing import packed
from engine.language.limits import Limits
from engine.runtime.answers import Answers, KeptAnswer
from engine.runtime.history import limits_document, limits_from

KEPT_VERSION: Final = 3

LIMITS_TOLD_FROM: Final = 3
"""The first version that tells the limits in force."""

_PARTS: Final = 3
_TURN_S: Final = 0.0005
"""How long a thread packs before it lets others have their turn, and how long that is."""


@dataclass(frozen=True, slots=True)
class Kept:
    """All that a snapshot of a detector holds, as it was at one moment."""

    limits: Limits
    answers: list[KeptAnswer]
    detector: Captured


def keep(detector: Detector, answers: Answers) -> Kept:
    """Give what a snapshot holds, between two events."""
    return Kept(detector.limits, answers.all(), capture(detector))


def newborn() -> bytes:
    """Give the body of a detector that has just been made."""
    return b"".join(pieces(keep(Detector(), Answers(0, 0))))


def pieces(kept: Kept) -> Iterator[bytes]:
    """Give a snapshot's body of KEPT_VERSION, in pieces that are each made within a millisecond."""
    packer = msgpack.Packer()
    yield packer.pack_array_header(_PARTS) + packer.pack(limits_document(kept.limits))
    yield packer.pack_array_header(len(kept.answers))
    yield from map(msgspec.msgpack.encode, kept.answers)
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


def detector_from(body: bytes, version: int, answers: Answers, default_limits: Limits) -> Detector:
    """Give the detector of a snapshot's body, and put the answers that it holds to the others.

    The detector takes events as they are stamped. `default_limits` are for bodies too old to tell theirs.
    """
    assert 1 <= version <= KEPT_VERSION, f"a body of version {version}, which is unknown"
    document = saved.unpack(body)
    limits = default_limits
    if version >= LIMITS_TOLD_FROM:
        told, kept, document = document
        limits = limits_from(told)
        answers.restore(msgspec.convert(kept, list[KeptAnswer]))
    detector = Detector(limits=limits)
    saved.load(detector, document, min(version, saved.STATE_VERSION))
    return detector
