"""What workers send to front ends and the scheduler: replies, activations, reports, and addresses."""

import secrets
import traceback
from collections.abc import Callable
from typing import Final, NamedTuple, Optional, Self

import msgspec

from engine.evaluation.wire.events import Answer
from engine.runtime.contract.requests.operations import READS, Operation
from engine.runtime.process.log_records import bounded


class Crash(msgspec.Struct, frozen=True):
    """An operation raised an unexpected exception. `reference` links the caller's message with the log."""

    reference: str
    detail: str
    lost: bool = True
    """Whether the detector is lost too. A crash in a read loses nothing."""

    @classmethod
    def of(cls, operation: Operation, error: Exception) -> Self:
        """Describe an exception that an operation has raised."""
        # After running out of memory, nothing in the process is reliable.
        harmless = operation.kind in READS and not isinstance(error, MemoryError)
        trace = bounded("".join(traceback.format_exception(error)))
        return cls(secrets.token_hex(6), trace, lost=not harmless)


class Took(NamedTuple):
    """How a batch's time in its worker was spent, in seconds."""

    waited_s: float
    """Time from arrival to answers without the two below: mostly waiting for other batches."""
    evaluated_s: float
    """Execution of its operations and of those of the batches executed with it."""
    synced_s: float
    """Time to make all of them durable."""


class Reply(msgspec.Struct):
    """The result of a batch: the answers of its first operations, in order.

    There are fewer answers than operations if the next operation crashed, or if the answers have reached the
    size limit. Later operations were not started.
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
    """Why writes were refused; empty if they were accepted, None if the batch had none."""
    missing: str | None = None
    """A journal file that was removed or replaced; the detector must be saved at once."""
    took: Took | None = None
    """None if it was not measured."""
    newest_firing: int = 0
    """The number of the newest durable firing in the feed; 0 if there is none."""
    last_firing: int = 0
    """The number of the newest firing, durable or not."""


class Activated(msgspec.Struct, frozen=True):
    """The result of an activation. `damage` names the damaged files that were set aside."""

    damage: tuple[str, ...] = ()
    records: int = 0
    """The number of journal records replayed."""
    diverged: str | None = None
    """The journal records whose replay fires other rules than originally; None if there are none."""
    read_only: str | None = None
    """Why the detector is read-only; None if it is writable."""


class Held(msgspec.Struct, frozen=True):
    """An activation in a worker, complete or in progress, as reported to the scheduler."""

    detector_id: str
    epoch: int
    activating: bool = False
    room_wanted: bool = False
    """Whether the worker was told that another detector waits for the slot."""
    at_risk: bool = False
    """Whether the death of the process would lose acknowledged changes."""
    problem: str | None = None
    """The problem that was reported last; empty if it is over, None if there was none."""
    newest_firing: int = 0
    """The number of the newest durable firing in its feed."""


class Ended(msgspec.Struct, frozen=True):
    """The end of an activation: the worker no longer has the detector."""

    reason: str | None = None
    """Why the activation failed, and its state must not answer any more; None after a regular end."""
    hung: bool = False
    """Whether a call may still be running in the process, which must then end."""
    resident_bytes: int = 0
    alone: bool = False
    """Whether the detector takes so much that it needs a worker of its own."""
    journal: bool = False
    """Whether its journal may have events that are in no snapshot."""
    due_us: int | None = 0
    """When the next tick is due, in microseconds since 1970; None if never, 0 if unknown."""


class Report(msgspec.Struct, frozen=True):
    """Changes of an active detector, reported by its worker to the scheduler."""

    epoch: int
    counts: dict[str, int] = {}
    """Increments, by the names in `COUNTERS`."""
    used: bool = False
    """Whether it has served requests since the last such report. At most ten are sent a second."""
    problem: str | None = None
    """Why it cannot be saved or written; empty once it can be again, None if unchanged."""
    removed: str | None = None
    """What happened to its files while it was active."""
    stays: bool = False
    """Whether it cannot release its slot now, although another detector waits for it."""
    at_risk: bool | None = None
    """Whether the death of the process would lose acknowledged changes; None if unchanged."""
    newest_firing: int = 0
    """The number of the newest durable firing in its feed; 0 if there is none, or it is not reported."""
    ended: Ended | None = None


REPORT: Final = "report"
"""The name of the note that carries a report."""

MAKE_ROOM: Final = "make room"
"""The name of the note that tells a worker whether another detector waits for the slot of an activation."""


def make_room_note(term: int, epoch: int, *, wanted: bool = True) -> bytes:
    """Return the body of the note MAKE_ROOM from the scheduler of a term."""
    return f"{term} {epoch} {wanted:d}".encode()


LEFT: Final = "left"
"""The name of the note that tells front ends that the activation of an epoch is over: unanswered batches were
not started."""

encode_report: Final[Callable[[Report], bytes]] = msgspec.msgpack.Encoder().encode
decode_report: Final = msgspec.msgpack.Decoder(Report).decode


class Address(msgspec.Struct, frozen=True):
    """The address of a process's listener, and the token that it requires."""

    place: str | tuple[str, int]
    """The path of a Unix socket, or IP address and port."""
    token: bytes = b""
    """Empty for a Unix socket, whose permissions protect it."""
    tls: bool = False
    """Whether the connection is encrypted."""
    node: str = ""
    """The Ray node of the process."""
    far: Optional["Address"] = None
    """The address for callers on other nodes, if it differs."""

    def seen_from(self, node: str) -> "Address":
        """Return the address for callers on a Ray node."""
        return self if self.far is None or node == self.node else self.far

    @property
    def host(self) -> str:
        """The host that callers on other nodes use; empty if there is none."""
        place = (self.far or self).place
        return "" if isinstance(place, str) else place[0]

    def __repr__(self) -> str:
        """Omit the token, which is a secret."""
        return f"Address({self.place!r})"


class Route(msgspec.Struct, frozen=True):
    """The worker in which a detector is active, and the epoch of that activation."""

    worker: str
    address: Address
    epoch: int
