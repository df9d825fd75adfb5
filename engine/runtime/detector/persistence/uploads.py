"""Uploads of relations, in parts that take effect together once the last one has arrived."""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from engine.evaluation.detector import Detector
from engine.evaluation.relations.builder import RelationBuilder
from engine.evaluation.relations.stored import StoredRelation, TupleRefused
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import STARTING, TOO_MANY_WAIT
from engine.runtime.contract.requests.tuples import (
    ChangeRelation,
    StagedTuples,
    TuplesPart,
    place_in,
    tuples_in,
)

FORGOTTEN_US: Final = 60_000_000
"""An upload without a new part for this long is dropped: its caller is gone."""

_staged: Final = msgspec.msgpack.Decoder(StagedTuples)
_change: Final = msgspec.json.Decoder(ChangeRelation)


@dataclass(eq=False, slots=True)
class _Upload:
    builder: RelationBuilder
    touched_us: int
    tuples: int = 0
    """The number of tuples received, duplicates included."""
    payloads: list[bytes] = field(default_factory=list)
    bytes_: int = 0


class Uploads:
    """The uploads of one detector. They are in memory only, until they are complete.

    Then all parts are journaled, followed by the entry that installs the relation.
    """

    def __init__(self) -> None:
        self._all: dict[str, _Upload] = {}
        self.installed: list[bytes] = []
        """The parts of installed uploads that are not journaled yet."""

    def __len__(self) -> int:
        return len(self._all)

    def bytes_of(self, upload: str) -> int:
        """Return how many bytes an upload will add to the journal."""
        found = self._all.get(upload)
        return found.bytes_ if found else 0

    def stage(self, detector: Detector, payload: bytes, now_us: int = 0) -> None:
        """Store the next part of an upload, a StagedTuples.

        Raises Refusal 1000 and 1001 for its tuples, 1400, 1401 if all uploads together are too large, and
        1501 if an earlier part is missing. The upload is then dropped.
        """
        staged = _staged.decode(payload)
        upload = self._all.pop(staged.upload, None)
        if staged.number == 0:
            upload = _Upload(RelationBuilder(detector.limits), now_us)
        if upload is None or staged.number != len(upload.payloads):
            raise _lost()
        part, limits = staged.part, detector.limits
        self._forget(now_us)
        held = sum(one.bytes_ for one in self._all.values()) + upload.bytes_
        if held + len(payload) > 2 * limits.relation_body_bytes_max:
            message = "too much is being uploaded to this detector at once; nothing was changed"
            raise Refusal(Entry(TOO_MANY_WAIT, message))
        tuples = tuples_in(part, limits)
        try:
            upload.builder.add(tuples)
        except TupleRefused as refused:
            place = place_in(part, refused.index - upload.tuples, limits)
            raise Refusal(Entry(1001, f"{place}: {refused.reason}")) from None
        upload.tuples += len(tuples)
        upload.payloads.append(payload)
        upload.bytes_ += len(payload)
        upload.touched_us = now_us
        self._all[staged.upload] = upload

    def install(self, detector: Detector, name: str, upload: str, parts: int, time_ms: int) -> StoredRelation:
        """Replace a relation by an upload, and return it.

        Raises Refusal 1001 for the name, 1400, and 1501 if a part is missing.
        """
        found = self._all.pop(upload, None)
        if found is None and not parts:
            found = _Upload(RelationBuilder(detector.limits), 0)
        if found is None or len(found.payloads) != parts:
            raise _lost()
        relation = found.builder.built(time_ms)
        detector.install_relation(name, relation)
        self.installed += found.payloads
        return relation

    def drop(self, upload: str) -> None:
        """Drop an upload if it exists."""
        self._all.pop(upload, None)

    def clear(self) -> None:
        """Drop all uploads, complete ones too."""
        self._all.clear()
        self.installed.clear()

    def _forget(self, now_us: int) -> None:
        for upload in [one for one, held in self._all.items() if held.touched_us + FORGOTTEN_US < now_us]:
            del self._all[upload]


def _lost() -> Refusal:
    message = (
        "the detector has been restarted or moved during the upload, or it took too long; nothing was changed"
    )
    return Refusal(Entry(STARTING, message))


def change_relation(detector: Detector, payload: bytes, time_ms: int) -> tuple[str, StoredRelation]:
    """Execute a ChangeRelation, and return the relation. Raises Refusal 1000, 1001, 1203 and 1400."""
    change, limits = _change.decode(payload), detector.limits
    add, remove = (
        tuples_in(TuplesPart("json", bytes(raw), place=member), limits)
        for member, raw in (("add", change.add), ("remove", change.remove))
    )
    try:
        return change.name, detector.change_relation(change.name, add, remove, time_ms=time_ms)
    except TupleRefused as refused:
        # The tuples to remove come first.
        at = refused.index - len(remove)
        place = f"add[{at}]" if at >= 0 else f"remove[{refused.index}]"
        raise Refusal(Entry(1001, f"{place}: {refused.reason}")) from None
