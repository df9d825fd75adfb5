"""The broker's end of the connection that carries batches to a worker."""

import asyncio
from collections import deque
from typing import Final, cast

from engine.runtime.contract.errors import ActorDied
from engine.runtime.contract.failures import decode_failure
from engine.runtime.transport.frames import (
    BATCH,
    FAILURE,
    FRAME_BYTES_MAX,
    REPLY,
    WELCOME,
    Address,
    Frame,
    FrameReader,
    Garbage,
    Payload,
    pieces,
)

_CONNECT_S: Final = 5.0


class NotSent(Exception):
    """Nothing of the batch was sent, so it may be sent another way."""


class BatchConnection(asyncio.BufferedProtocol):
    """Sends batches and returns their replies, which arrive in the order of sending.

    If a caller is cancelled, its reply is received and dropped, so that the connection stays in step.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._welcomed: asyncio.Future[None] = loop.create_future()
        self._lost: asyncio.Future[None] = loop.create_future()
        self._answers: deque[asyncio.Future[Frame]] = deque()
        self._writable = asyncio.Event()
        self._writable.set()

    @classmethod
    async def to(cls, address: Address, *, within_s: float = _CONNECT_S) -> "BatchConnection":
        """Connect to a worker. Raises OSError."""
        loop = asyncio.get_running_loop()
        connection: BatchConnection | None = None
        try:
            async with asyncio.timeout(within_s):
                if isinstance(address.place, str):
                    _, connection = await loop.create_unix_connection(cls, address.place)
                else:
                    _, connection = await loop.create_connection(cls, *address.place)
                await connection.introduce(address.token)
        except BaseException:
            if connection is not None:
                await connection.close()
            raise
        return connection

    @property
    def usable(self) -> bool:
        """Whether the connection is open."""
        return not self._lost.done() and self._transport is not None and not self._transport.is_closing()

    async def introduce(self, token: bytes) -> None:
        """Send the token and wait for the welcome. Raises ConnectionResetError if the token is wrong."""
        assert self._transport is not None, "it is connected"
        self._transport.write(token)
        await self._welcomed

    async def ask(self, request: Payload, kind: int = BATCH) -> Payload:
        """Send an encoded batch or call, and return the encoded reply.

        Raises what the worker raised, NotSent, and ActorDied if the connection ends before the reply: then it
        is unknown whether the request was executed.
        """
        if len(request) > FRAME_BYTES_MAX:
            raise NotSent(f"{len(request)} bytes are too many for a frame")
        # Wait for the data of a cancelled caller to go first, so that at most one batch is buffered.
        await self._writable.wait()
        if not self.usable:
            raise NotSent("the connection has ended")
        transport = cast("asyncio.Transport", self._transport)
        answer: asyncio.Future[Frame] = self._loop.create_future()
        self._answers.append(answer)
        for piece in pieces(kind, request):
            transport.write(piece)
        kind, payload = await answer
        if kind == FAILURE:
            raise decode_failure(payload)
        return payload

    async def close(self) -> None:
        """End the connection at once; pending requests raise ActorDied."""
        if self._transport is not None:
            self._transport.abort()
            await asyncio.shield(self._lost)

    # -- called by the loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return the buffer for the next bytes."""
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over the complete replies."""
        try:
            for frame in self._reader.received(nbytes):
                self._take(frame)
        except Garbage:
            # The stream is out of step, so no later reply can be read.
            cast("asyncio.Transport", self._transport).abort()

    def pause_writing(self) -> None:
        """Hold back further batches: the worker does not read fast enough."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let batches through again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all pending requests."""
        self._writable.set()
        self._lost.set_result(None)
        why = f"its connection broke: {exc}" if exc is not None else "its connection ended"
        if not self._welcomed.done():
            self._welcomed.set_exception(ConnectionResetError(why))
            # The caller that connected may be gone; this marks the exception as retrieved.
            self._welcomed.exception()
        while self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_exception(ActorDied(why))

    def _take(self, frame: Frame) -> None:
        kind, _ = frame
        if kind == WELCOME and not self._welcomed.done():
            self._welcomed.set_result(None)
        elif kind in (REPLY, FAILURE) and self._answers:
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_result(frame)
        else:
            raise Garbage(f"a frame of kind {kind}, which nothing asked for")
