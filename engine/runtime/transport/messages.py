"""The messages between processes: front ends, scheduler and workers.

Each batch or ask has a number, which its answer repeats. Notes are not answered.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from engine.evaluation.wire.events import Answer
from engine.language.diagnostics import Entry
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.requests.replies import Crash, Took

Payload = bytes | bytearray
"""The bytes of several messages."""


class Batch(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Execute operations on the detector that is active in the worker, if it is still that activation."""

    number: int
    epoch: int
    operations: list[Operation]


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The caller no longer waits for that answer."""

    number: int


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Call a method of the other process. The arguments are a msgpack array."""

    number: int
    method: str
    arguments: msgspec.Raw


class Note(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A notice, identified by its name."""

    name: str
    body: bytes = b""


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The answers to the first operations of a Batch, at least to one.

    If there are fewer answers than operations, the next operation crashed, or there was no room for more. The
    later operations were not started.
    """

    number: int
    answers: list[Answer]
    crash: Crash | None = None
    took: Took | None = None
    """None if that was not measured."""


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The result of an Ask, as msgpack."""

    number: int
    result: msgspec.Raw


class Refusing(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The batch or ask raised a Refusal."""

    number: int
    entries: tuple[Entry, ...]


class Unavailable(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The batch or ask raised a DetectorUnavailable."""

    number: int
    code: int
    message: str
    retry_after_s: float | None


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The batch or ask raised another exception, encoded by `encode_failure`."""

    number: int
    failure: bytes


class Moved(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The worker no longer has the detector. Nothing of the batch was started."""

    number: int


class Announced(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The answers to a Batch are there, and are so large that they are sent only once they are fetched."""

    number: int
    bytes: int


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Send the answers to that Batch, which were announced."""

    number: int


class Confirm(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The caller still waits for the answers to these batches and asks."""

    numbers: list[int]


class Unknown(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """The batch or ask that was to be confirmed is not under way: it was lost, or its answer was."""

    number: int


Request = Batch | Withdraw | Ask | Note | Fetch | Confirm
"""What the connecting end sends."""
Response = Answered | Returned | Refusing | Unavailable | Failed | Moved | Note | Announced | Unknown
"""What the accepting end sends."""
Message = Request | Response

ANNOUNCED_BYTES: Final = 256 * 1024
"""Answers above this size are announced."""

encoder: Final = msgspec.msgpack.Encoder()
requests: Final = msgspec.msgpack.Decoder(list[Request])
responses: Final = msgspec.msgpack.Decoder(list[Response])
encode: Final[Callable[[Sequence[Message]], Payload]] = encoder.encode
"""Encodes messages as the payload of a frame."""
