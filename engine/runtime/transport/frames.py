"""Frames, the unit of the protocol between processes beside Ray.

A frame is the length of its payload (u32, little-endian), a byte for the kind, and the payload. On a
listening socket, a process that connects sends the token first (none to a Unix socket) and waits for the
welcome. Both frames name the protocols that their sender speaks, so they must stay as they are in every later
release.
"""

import struct
from typing import Final

HEADER: Final = struct.Struct("<IB")

TOKEN: Final = 1
"""The token of the listener and the protocols spoken, from the process that connects."""
WELCOME: Final = 2
"""The token was right; the payload names the protocols that the listener speaks."""
MESSAGES: Final = 3
"""Several messages, as `messages.encode` gives them."""

PROTOCOLS: Final = struct.Struct("<HH")
"""The oldest and the current protocol that a process speaks."""

FRAME_BYTES_MAX: Final = 1 << 30
"""The maximum size of a payload. A larger length means that the peer does not speak this protocol."""

_READ_BYTES: Final = 64 * 1024
_JOINED_BYTES_MAX: Final = 16 * 1024
"""Up to this size, joining header and payload is cheaper than sending two pieces."""

Payload = bytes | bytearray
Frame = tuple[int, Payload]


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
        """The number of bytes in use, from the start of the view."""
        self._long: bytearray | None = None
        self._long_kind = 0
        self._long_held = 0

    def room(self) -> memoryview:
        """Return the buffer for the next bytes, at least one. Valid until the next `received`."""
        if self._long is not None:
            return memoryview(self._long)[self._long_held :]
        return self._view[self._held :]

    def received(self, count: int) -> list[Frame]:
        """Note that a number of bytes was written to the room; return the frames that are complete.

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
