"""The messages between a front-end process and the broker's process.

Each call or ask has a number, which its answer repeats. Notes are not answered; they are for the front end
or for the process that started it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from engine.evaluation.wire.events import Answer
from engine.language.diagnostics import Entry
from engine.runtime.contract.operations import Operation
from engine.runtime.transport.frames import Payload


class Call(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Execute an operation on a detector."""

    number: int
    detector_id: str
    operation: Operation
    request_id: str = ""
    """The id of the HTTP request, for the log."""


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Nobody waits for that answer any more."""

    number: int


class Ask(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Call a method of Broker other than `call`. The arguments are a msgpack array."""

    number: int
    method: str
    arguments: msgspec.Raw


class Note(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A notice, identified by its name."""

    name: str
    body: bytes = b""


class Answered(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The answer to a Call."""

    number: int
    answer: Answer


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The result of an Ask, as msgpack."""

    number: int
    result: msgspec.Raw


class Refusing(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The call or ask raised a Refusal."""

    number: int
    entries: tuple[Entry, ...]


class Unavailable(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The call or ask raised a DetectorUnavailable."""

    number: int
    code: int
    message: str
    retry_after_s: float | None


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The call or ask raised another exception; the broker's log has its traceback."""

    number: int
    text: str


FromFront = Call | Withdraw | Ask | Note
ToFront = Answered | Returned | Refusing | Unavailable | Failed | Note
Message = FromFront | ToFront

encoder: Final = msgspec.msgpack.Encoder()
from_front: Final = msgspec.msgpack.Decoder(list[FromFront])
to_front: Final = msgspec.msgpack.Decoder(list[ToFront])


def encode(messages: Sequence[Message]) -> Payload:
    """Encode messages as the payload of a frame."""
    return encoder.encode(messages)
