"""Replies to the batches of operations on a detector, as bytes between worker and front end."""

import secrets
import traceback
from typing import NamedTuple, Self

import msgspec

from engine.evaluation.wire.events import Answer
from engine.runtime.contract.requests.operations import READS, Operation
from engine.runtime.process.log_records import bounded


class Crash(msgspec.Struct, frozen=True):
    """An operation raised an unexpected exception. The caller gets `reference`; the log has both."""

    reference: str
    detail: str
    lost: bool = True
    """Whether the detector is lost with it. Not after a read, which has changed nothing."""

    @classmethod
    def of(cls, operation: Operation, error: Exception) -> Self:
        """Return what to say of an exception that an operation has raised."""
        # Without memory, nothing that the process still holds can be relied upon.
        harmless = operation.kind in READS and not isinstance(error, MemoryError)
        trace = bounded("".join(traceback.format_exception(error)))
        return cls(secrets.token_hex(6), trace, lost=not harmless)


class Took(NamedTuple):
    """Where the time of a batch went in its worker, in seconds."""

    waited_s: float
    """From its arrival to its answers, without the two below: behind other batches, mostly."""
    evaluated_s: float
    """The execution of its operations, with those of the batches that were joined with it."""
    synced_s: float
    """Making all of them durable."""


class Reply(msgspec.Struct):
    """The result of a batch: the answers of its first operations, in order.

    There are fewer answers than operations if the next operation crashed, or if the answers have reached the
    size limit. The operations after it were not started.
    """

    answers: list[Answer]
    crash: Crash | None = None
    journal_bytes: int = 0
    """The size of the journal after the newest snapshot."""
    unsaved: bool = False
    """Whether some data is in neither the journal nor a snapshot."""
    unsynced: bool = False
    """Whether some data in the journal may not be synced."""
    no_room: str | None = None
    """Why writes were refused; empty if they were not, None if the batch had none."""
    missing: str | None = None
    """A file of the journal that was removed or replaced; the detector must be saved at once."""
    took: Took | None = None
    """None if that was not measured."""
    newest_firing: int = 0
    """The number of the newest firing of the feed that is durable; 0 if there is none."""
    last_firing: int = 0
    """That of the newest one, durable or not."""
