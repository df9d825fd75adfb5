"""The front end's end of the connection on which batches travel to an actor."""

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
    """Nothing of the batch was sent: it may go another way."""


class BatchConnection(asyncio.BufferedProtocol):
    """Sends batches, and hands each answer to whoever sent the batch: answers come in the order of sending.

    A caller that is cancelled leaves the connection in step: its answer is waited for, and dropped.
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
        """Give a connection to an actor that has welcomed it. Raises OSError."""
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
        """Whether it has not ended."""
        return not self._lost.done() and self._transport is not None and not self._transport.is_closing()

    async def introduce(self, token: bytes) -> None:
        """Say the token, and come back when it was welcome. Raises ConnectionResetError where it is not."""
        assert self._transport is not None, "it is connected"
        self._transport.write(token)
        await self._welcomed

    async def ask(self, request: Payload, kind: int = BATCH) -> Payload:
        """Give the encoded reply to an encoded batch or call.

        Raises what the actor raised; NotSent; and ActorDied where the connection ends with the request under
        way, when nobody knows whether it was carried out.
        """
        if len(request) > FRAME_BYTES_MAX:
            raise NotSent(f"{len(request)} bytes are too many for a frame")
        # What an earlier caller left behind goes first: no more than one batch is ever held here.
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
        """End it at once; what is under way ends with ActorDied."""
        if self._transport is not None:
            self._transport.abort()
            await asyncio.shield(self._lost)

    # -- what the loop calls ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Give the place for what comes next."""
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on the answers that are whole now."""
        try:
            for frame in self._reader.received(nbytes):
                self._take(frame)
        except Garbage:
            # No answer can be told from another any more.
            cast("asyncio.Transport", self._transport).abort()

    def pause_writing(self) -> None:
        """Hold back further batches: the actor does not read as fast as they come."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let batches through again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everyone who waits."""
        self._writable.set()
        self._lost.set_result(None)
        why = f"its connection broke: {exc}" if exc is not None else "its connection ended"
        if not self._welcomed.done():
            self._welcomed.set_exception(ConnectionResetError(why))
            # Whoever connected may have gone; then nobody is left to be told.
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
