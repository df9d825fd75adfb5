"""A connection between two processes that carries messages both ways."""

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from engine.runtime.transport.frames import MESSAGES, FrameReader, Garbage, pieces
from engine.runtime.transport.messages import Answered, Batch, Message, bytes_of, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FRAME_MESSAGES_MAX: Final = 1_000
_FRAME_BYTES: Final = 4 * 1024 * 1024
"""A frame ends once it holds this many bytes of bodies, so it is at most one body larger."""


class Link(asyncio.BufferedProtocol):
    """Sends messages, batched per turn of the loop, and hands over the received ones.

    While the peer does not read, nothing more is encoded. With `back_pressure`, nothing more is read from it
    either: a peer that does not read its answers must not send more requests. Set `take` and `lost` before
    the first message.
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
        """Whether the connection is open."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, message: Message, *, at_once: bool = False) -> None:
        """Send a message, with the others of this turn or at once; does nothing if the peer is gone."""
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
        """From now on, end the connection if the peer's machine does not acknowledge what was sent.

        A machine acknowledges for processes that are busy or stopped. One that is gone or cut off does not.
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
    """Return a message's approximate size: the size of its only long fields."""
    match message:
        case Batch():
            return sum(len(operation.payload) for operation in message.operations)
        case Answered():
            return bytes_of(message.answers)
    return 0
