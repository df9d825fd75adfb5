"""What a front end in a process of its own and the process that hosts the detectors say to each other.

Each ask bears a number, which its answer repeats. Notes are for whoever started the front end and for the
front end itself; nothing answers them.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from engine.evaluation.wire.events import Answer
from engine.language.diagnostics import Entry
from engine.runtime.contract.operations import Operation
from engine.runtime.transport.frames import Payload


class Call(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Have a detector carry out an operation."""

    number: int
    detector_id: str
    operation: Operation
    request_id: str = ""
    """For the log."""


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Nobody waits for the answer to that ask any more."""

    number: int


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Call a method of Hosting other than `call`. The arguments are msgpack, an array."""

    number: int
    method: str
    arguments: msgspec.Raw


class Note(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Something to be known, by its name."""

    name: str
    body: bytes = b""


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The answer to a Call."""

    number: int
    answer: Answer


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """What an Ask gave, as msgpack."""

    number: int
    result: msgspec.Raw


class Refusing(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The ask raised a Refusal."""

    number: int
    entries: tuple[Entry, ...]


class Unavailable(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The ask raised a DetectorUnavailable."""

    number: int
    code: int
    message: str
    retry_after_s: float | None


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The ask raised something else; the log over there has the whole of it."""

    number: int
    text: str


FromFront = Call | Withdraw | Ask | Note
ToFront = Answered | Returned | Refusing | Unavailable | Failed | Note
Message = FromFront | ToFront

encoder: Final = msgspec.msgpack.Encoder()
from_front: Final = msgspec.msgpack.Decoder(list[FromFront])
to_front: Final = msgspec.msgpack.Decoder(list[ToFront])


def encode(messages: Sequence[Message]) -> Payload:
    """Give messages as the payload of a frame."""
    return encoder.encode(messages)
