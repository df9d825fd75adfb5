"""A connection between two processes, and the messages that it carries in both directions, in frames.

Each batch or ask has a number, which its answer repeats. Notes are not answered.

A frame is the length of its payload (u32, little-endian), a byte for the kind, and the payload. A connecting
process first sends the token (empty for a Unix socket), and waits for the welcome. Both frames name the
protocols that their sender speaks, so their format must never change.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from engine.evaluation.wire.events import Answer
from engine.runtime.contract.requests.calls import Crash, Took
from engine.runtime.contract.requests.operations import Operation

Payload = bytes | bytearray
"""The bytes of several messages."""


class Batch(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Execute operations on the activation of an epoch, if the worker still has it."""

    number: int
    epoch: int
    operations: list[Operation]


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """The caller no longer waits for the answer to a batch or ask."""

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
    """The answers to the first operations of a Batch, at least one.

    If there are fewer answers than operations, the next operation crashed, or there was no room for more.
    Later operations were not started.
    """

    number: int
    answers: list[Answer]
    crash: Crash | None = None
    took: Took | None = None
    """None if it was not measured."""


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The result of an Ask, as msgpack."""

    number: int
    result: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """The batch or ask raised an exception, encoded by `encode_failure`."""

    number: int
    failure: bytes


class Moved(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The worker no longer has the detector. Nothing of the batch was started."""

    number: int


class Announced(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The answers to a Batch are ready, but so large that they are sent only on Fetch."""

    number: int
    bytes: int


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Send the announced answers to a Batch."""

    number: int


class Confirm(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The caller still waits for the answers to these batches and asks."""

    numbers: list[int]


class Unknown(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """A batch or ask to be confirmed is not in progress: it was lost, or its answer was."""

    number: int


Request = Batch | Withdraw | Ask | Note | Fetch | Confirm
"""The messages of the connecting end."""
Response = Answered | Returned | Failed | Moved | Note | Announced | Unknown
"""The messages of the accepting end."""
Message = Request | Response

ANNOUNCED_BYTES: Final = 256 * 1024
"""Answers above this size are announced."""

encoder: Final = msgspec.msgpack.Encoder()
requests: Final = msgspec.msgpack.Decoder(list[Request])
responses: Final = msgspec.msgpack.Decoder(list[Response])
encode: Final[Callable[[Sequence[Message]], Payload]] = encoder.encode
"""Encodes messages as the payload of a frame."""


HEADER: Final = struct.Struct("<IB")

TOKEN: Final = 1
"""The token of the listener and the protocols spoken, from the process that connects."""
WELCOME: Final = 2
"""The welcome after the right token; the payload names the protocols that the listener speaks."""
MESSAGES: Final = 3
"""Several messages, encoded by `encode`."""

PROTOCOLS: Final = struct.Struct("<HH")
"""The oldest and the current protocol that a process speaks."""

FRAME_BYTES_MAX: Final = 1 << 30
"""The maximum size of a payload. A larger length means that the peer does not speak this protocol."""

_READ_BYTES: Final = 64 * 1024
_JOINED_BYTES_MAX: Final = 16 * 1024
"""Up to this size, joining header and payload is cheaper than sending two pieces."""

Frame = tuple[int, Payload]

_FRAME_MESSAGES_MAX: Final = 1_000

_FRAME_BYTES: Final = 4 * 1024 * 1024
"""A frame ends once it holds this many bytes of bodies, so it is at most one body larger."""


class Garbage(Exception):
    """The received bytes are not a frame."""


class FrameReader:
    """Splits a byte stream, received in pieces of any size, into frames.

    The receiver fills `room()` and reports the number of bytes to `received`. A payload larger than the usual
    buffer gets its own buffer and is never copied.
    """

    def __init__(self, *kinds: int) -> None:
        self._kinds = kinds
        self._view = memoryview(bytearray(_READ_BYTES))
        self._held = 0
        """The number of bytes in use, from the start of the buffer."""
        self._long: bytearray | None = None
        self._long_kind = 0
        self._long_held = 0

    def room(self) -> memoryview:
        """Return the buffer for the next bytes, never empty. Valid until the next `received`."""
        if self._long is not None:
            return memoryview(self._long)[self._long_held :]
        return self._view[self._held :]

    def received(self, count: int) -> list[Frame]:
        """Note that a number of bytes was written to `room()`; return the complete frames.

        Raises Garbage; the reader is unusable afterwards.
        """
        if self._long is None:
            self._held += count
            return self._taken_apart()
        self._long_held += count
        if self._long_held < len(self._long):
            return []
        frame = self._long_kind, self._long
        self._long = None
        return [frame]

    def _taken_apart(self) -> list[Frame]:
        frames: list[Frame] = []
        begin, held = 0, self._held
        while held - begin >= HEADER.size:
            length, kind = HEADER.unpack_from(self._view, begin)
            if kind not in self._kinds or length > FRAME_BYTES_MAX:
                raise Garbage(f"a frame of kind {kind} and {length} bytes")
            body = begin + HEADER.size
            if body + length <= held:
                frames.append((kind, bytes(self._view[body : body + length])))
                begin = body + length
                continue
            if HEADER.size + length > _READ_BYTES:
                self._long = bytearray(length)
                self._long_kind, self._long_held = kind, held - body
                self._long[: held - body] = self._view[body:held]
                begin = held
            break
        self._held = held - begin
        if begin and self._held:
            self._view[: self._held] = bytes(self._view[begin:held])
        return frames


def pieces(kind: int, payload: Payload) -> tuple[Payload, ...]:
    """Return the pieces to send for a frame, in order."""
    assert len(payload) <= FRAME_BYTES_MAX, "the sender checks the bound"
    header = HEADER.pack(len(payload), kind)
    if len(payload) <= _JOINED_BYTES_MAX:
        return (header + payload,)
    return header, payload


class Link(asyncio.BufferedProtocol):
    """Sends messages, batched per iteration of the loop, and hands over the received ones.

    While the peer does not read, nothing more is encoded. With `back_pressure`, nothing more is read from the
    peer either, so that a peer that does not read its answers cannot send more requests. Set `take` and
    `lost` before the first message.
    """

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any], *, back_pressure: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._decoder = decoder
        self._back_pressure = back_pressure
        self.take: Callable[[Sequence[Any]], None] = lambda _: None
        """Called with the received messages."""
        self.lost: Callable[[], None] = lambda: None
        """Called once when the connection has ended."""
        self._reader = FrameReader(MESSAGES)
        self._transport: asyncio.Transport | None = None
        self._outgoing: deque[Message] = deque()
        self._writable = True
        self._flush_planned = False

    @property
    def waiting(self) -> int:
        """The number of messages that wait for the peer to read."""
        return len(self._outgoing)

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, message: Message, *, at_once: bool = False) -> None:
        """Send a message, together with others or at once; does nothing if the peer is gone."""
        self._outgoing.append(message)
        if at_once:
            self._flush()
        elif not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Send what is queued, then end the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def end_if_unacknowledged(self, within_s: float) -> None:
        """From now on, end the connection if the peer's machine does not acknowledge sent data in time.

        A machine acknowledges even for busy or stopped processes, but not if it is gone or cut off.
        """
        own = None if self._transport is None else self._transport.get_extra_info("socket")
        if own is not None and own.family != socket.AF_UNIX:
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(within_s * 1_000))

    # -- called by the loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for _, payload in self._reader.received(nbytes):
                self.take(self._decoder.decode(payload))
        except (Garbage, msgspec.MsgspecError):
            # The stream is out of step, so no later message can be read.
            self.abort()

    def pause_writing(self) -> None:
        self._writable = False
        if self._back_pressure and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable = True
        if self._back_pressure and self._transport is not None:
            self._transport.resume_reading()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- the end is what matters
        self._transport = None
        self._outgoing.clear()
        self.lost()

    def _flush(self) -> None:
        self._flush_planned = False
        while self._outgoing and self._writable:
            transport = self._transport
            if transport is None or transport.is_closing():
                self._outgoing.clear()
                return
            for piece in pieces(MESSAGES, encode(self._next())):
                transport.write(piece)

    def _next(self) -> list[Message]:
        messages: list[Message] = []
        bytes_ = 0
        while self._outgoing and len(messages) < _FRAME_MESSAGES_MAX and bytes_ < _FRAME_BYTES:
            message = self._outgoing.popleft()
            messages.append(message)
            bytes_ += _bytes_of(message)
        return messages


def _bytes_of(message: Message) -> int:
    """Return a message's approximate size: that of its potentially long fields."""
    match message:
        case Batch():
            return sum(len(operation.payload) for operation in message.operations)
        case Answered():
            return bytes_of(message.answers)
    return 0


def bytes_of(answers: Sequence[Answer]) -> int:
    """Return the approximate size of answers: that of their results."""
    return sum([len(getattr(answer, "result", b"")) for answer in answers])
