"""One end of the connection between a front-end process and the broker's process."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from engine.runtime.broker.messages import Message, encode
from engine.runtime.transport.frames import MESSAGES, FrameReader, Garbage, pieces

_FRAME_MESSAGES_MAX: Final = 1_000
_FRAME_BYTES: Final = 4 * 1024 * 1024
"""A frame ends once it holds this many bytes of bodies, so it is at most one body larger."""


class MessageLink(asyncio.BufferedProtocol):
    """Sends messages, batched per turn of the loop, and hands over the received ones.

    While the peer does not read, nothing more is encoded. With `heeds`, nothing more is read from it either:
    a peer that does not take answers must not ask more.
    """

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[Any],
        take: Callable[[Sequence[Any]], None],
        lost: Callable[[], None],
        *,
        heeds: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._decoder = decoder
        self._take = take
        self._lost = lost
        self._heeds = heeds
        self._reader = FrameReader(frozenset({MESSAGES}))
        self._transport: asyncio.Transport | None = None
        self._outgoing: deque[Message] = deque()
        self._writable = True
        self._flush_planned = False

    @classmethod
    async def over(cls, end: socket.socket, *arguments: Any, **options: Any) -> "MessageLink":
        """Connect over one end of a Unix socket pair; the other arguments are those of the class."""
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: cls(*arguments, **options), sock=end)
        return link

    @property
    def waiting(self) -> int:
        """The number of messages that wait for the peer to read."""
        return len(self._outgoing)

    def send(self, message: Message) -> None:
        """Send a message; does nothing if the peer is gone."""
        self._outgoing.append(message)
        if not self._flush_planned:
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

    # -- called by the loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return the buffer for the next bytes."""
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over the complete messages."""
        try:
            for _, payload in self._reader.received(nbytes):
                self._take(self._decoder.decode(payload))
        except (Garbage, msgspec.MsgspecError):
            # The stream is out of step, so no later message can be read.
            self.abort()
            raise

    def pause_writing(self) -> None:
        """Stop sending."""
        self._writable = False
        if self._heeds:
            cast("asyncio.Transport", self._transport).pause_reading()

    def resume_writing(self) -> None:
        """Send what was held back."""
        self._writable = True
        if self._heeds:
            cast("asyncio.Transport", self._transport).resume_reading()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- the end is what matters
        """Report the loss."""
        self._transport = None
        self._outgoing.clear()
        self._lost()

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
    """Return a message's approximate size: the size of its only long field."""
    match message:
        case _ if hasattr(message, "operation"):
            return len(message.operation.payload)
        case _ if hasattr(message, "answer"):
            return len(getattr(message.answer, "result", b""))
    return 0
