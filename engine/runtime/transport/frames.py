"""What travels between processes beside Ray: frames, one after another.

A frame is the length of its payload (u32, little-endian), a byte that says what the payload is, and that.
Before the first frame, whoever connects to an actor sends the token, and is welcomed.
"""

import struct
from typing import Final

import msgspec

HEADER: Final = struct.Struct("<IB")

WELCOME: Final = 1
"""The token was right; no payload. The actor's first frame."""
BATCH: Final = 2
"""What `encode_batch` gives."""
REPLY: Final = 3
"""What `encode_reply` or `encode_result` gives: the answer, unless it is this:"""
FAILURE: Final = 4
"""What `encode_failure` gives: the batch or the call raised an exception."""

CALL: Final = 6
"""What `encode_call` gives: a call of one of the actor's other methods."""

BATCHES: Final = frozenset({WELCOME, BATCH, CALL, REPLY, FAILURE})
"""What travels between a front end and an actor."""

MESSAGES: Final = 5
"""Several messages, between a front end in a process of its own and the process that hosts the detectors."""

TOKEN_BYTES: Final = 32

FRAME_BYTES_MAX: Final = 1 << 30
"""No payload is longer. What says that it is was sent by something else."""

_READ_BYTES: Final = 64 * 1024
_JOINED_BYTES_MAX: Final = 16 * 1024
"""Up to here it costs less to copy a payload behind its header than to send the two one by one."""

Payload = bytes | bytearray
Frame = tuple[int, Payload]


class Garbage(Exception):
    """What came is no frame."""


class Address(msgspec.Struct, frozen=True):
    """Where an actor listens, and the token that it lets in."""

    place: str | tuple[str, int]
    """The path of a Unix socket, or host and port."""
    token: bytes

    def __repr__(self) -> str:
        """Leave the token out: whoever has it is let in."""
        return f"Address({self.place!r})"


class FrameReader:
    """Makes frames of bytes that come in pieces of any size.

    Whoever receives puts bytes into `room()` and says how many they were. A payload that is longer than the
    room there usually is gets a buffer of its own, and is never copied.
    """

    def __init__(self, kinds: frozenset[int] = BATCHES, *, bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._kinds = kinds
        self._bytes_max = bytes_max
        self._view = memoryview(bytearray(_READ_BYTES))
        self._held = 0
        """How many bytes of the view are taken, from its start."""
        self._long: bytearray | None = None
        self._long_kind = 0
        self._long_held = 0

    def room(self) -> memoryview:
        """Give the place for what comes next, at least one byte. Good for one `received`."""
        if self._long is not None:
            return memoryview(self._long)[self._long_held :]
        return self._view[self._held :]

    def received(self, count: int) -> list[Frame]:
        """Take note that so many bytes were put into the room; the frames that are whole now.

        Raises Garbage, after which the reader is of no more use.
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
            if kind not in self._kinds or length > self._bytes_max:
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
    """Give what is to be sent for a frame, piece after piece."""
    assert len(payload) <= FRAME_BYTES_MAX, "whoever sends knows the bound"
    header = HEADER.pack(len(payload), kind)
    if len(payload) <= _JOINED_BYTES_MAX:
        return (header + payload,)
    return header, payload
