"""What workers tell front ends and the scheduler: replies to batches, what they have, and where they are."""

import secrets
import traceback
from collections.abc import Callable
from typing import Final, NamedTuple, Optional, Self

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


class Activated(msgspec.Struct, frozen=True):
    """The result of an activation. `damage` names the damaged files that were set aside."""

    damage: tuple[str, ...] = ()
    records: int = 0
    """The number of journal records replayed."""
    diverged: str | None = None
    """The journal records at which other rules fire now than originally; None if there are none."""
    read_only: str | None = None
    """Why the detector is read-only; None if it is not."""


class Held(msgspec.Struct, frozen=True):
    """An activation that a worker has, or has begun, as it tells whoever commands it."""

    detector_id: str
    epoch: int
    activating: bool = False
    room_wanted: bool = False
    """Whether the worker was told that another detector waits for the slot."""
    at_risk: bool = False
    """Whether the death of the process would lose what was answered."""
    problem: str | None = None
    """The problem that was reported last; empty if it is over, None if there was none."""
    newest_firing: int = 0
    """The number of the newest firing of its feed that is durable."""


class Ended(msgspec.Struct, frozen=True):
    """The worker no longer has the detector."""

    reason: str | None = None
    """Why the activation failed, so that its state must not answer; None if it ended regularly."""
    hung: bool = False
    """Whether a call may still run in the process; then the process must end."""
    resident_bytes: int = 0
    alone: bool = False
    """Whether the detector takes so much that it needs a worker of its own."""
    journal: bool = False
    """Whether its journal may have events that are in no snapshot."""
    due_us: int | None = 0
    """When it has to be ticked next, in microseconds since 1970; None if never, 0 if that is not known."""


class Report(msgspec.Struct, frozen=True):
    """What happened to an active detector of a worker, for the scheduler."""

    epoch: int
    counts: dict[str, int] = {}
    """Increments, by the names of `counters`."""
    used: bool = False
    """Whether it has served requests since the last such report, of which there are ten a second at most."""
    problem: str | None = None
    """Why it cannot be saved or written; empty once it can be again, None if that did not change."""
    removed: str | None = None
    """What happened to its files while it was active."""
    stays: bool = False
    """Whether it cannot give its slot up now, although another detector waits for it."""
    at_risk: bool | None = None
    """Whether the death of the process would lose what was answered; None if that did not change."""
    newest_firing: int = 0
    """The number of the newest firing of its feed that is durable; 0 if there is none, or it is not told."""
    ended: Ended | None = None


REPORT: Final = "report"
"""The name of the note that carries a report."""

MAKE_ROOM: Final = "make room"
"""The name of the note to workers that says whether another detector waits for the slot of an activation."""


def make_room_note(term: int, epoch: int, *, wanted: bool = True) -> bytes:
    """Return the body of that note, which a scheduler of a term sends."""
    return f"{term} {epoch} {wanted:d}".encode()


LEFT: Final = "left"
"""The name of the note to front ends that the activation of an epoch is over: batches without an answer
were not started."""

encode_report: Final[Callable[[Report], bytes]] = msgspec.msgpack.Encoder().encode
decode_report: Final = msgspec.msgpack.Decoder(Report).decode


class Address(msgspec.Struct, frozen=True):
    """The address of a process's listener, and the token that it demands."""

    place: str | tuple[str, int]
    """The path of a Unix socket, or IP address and port."""
    token: bytes = b""
    """Empty for a Unix socket, whose permissions decide who connects."""
    tls: bool = False
    """Whether the connection is encrypted."""
    node: str = ""
    """The Ray node of the process."""
    far: Optional["Address"] = None
    """The address for callers on other nodes, if it is another one."""

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
