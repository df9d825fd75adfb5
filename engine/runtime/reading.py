"""What folders of a data folder mean to somebody who only looks: the catalogue, and detectors at their end."""

from engine.evaluation.detector import Detector
from engine.language.limits import DEFAULT_LIMITS
from engine.runtime import register
from engine.runtime.answers import Answers
from engine.runtime.recovery import restore
from engine.runtime.register import RECORD_VERSION, STATE_VERSION, Kept
from snapshots.errors import NewerFormat
from snapshots.store import Recovered


def catalogue_of(recovered: Recovered) -> Kept:
    """Give what the directory's folder keeps. Raises NewerFormat."""
    snapshot = recovered.snapshot
    assert snapshot is not None, "a folder begins with one"
    if snapshot.version > STATE_VERSION:
        raise NewerFormat(
            f"the directory was saved by a newer program, with version {snapshot.version}; "
            f"this one knows versions up to {STATE_VERSION}"
        )
    kept = register.kept_from(snapshot.body)
    for record in recovered.records:
        if record.version > RECORD_VERSION:
            raise NewerFormat(
                f"{record.path} at {record.offset}: the record is of a newer program, with version "
                f"{record.version}; this one knows versions up to {RECORD_VERSION}"
            )
        kept = register.changed(kept, register.decode(record.payload))
    return kept


def detector_of(recovered: Recovered) -> Detector:
    """Give the detector that a folder holds, where its last record leaves it.

    Raises NewerFormat, and Poisoned at a record that cannot be taken.
    """
    return restore(recovered, Answers(0, 0), DEFAULT_LIMITS).detector
