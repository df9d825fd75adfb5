"""One connection: reads its requests one after another, passes them to the application, and closes."""

import asyncio
import logging
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from hypercorn.config import Config

from api.server.exchange import App, Exchange, connection_scope, refusal
from api.server.limits import (
    READ_BUFFER,
    STATE,
    UNCOUNTED_BYTES,
    ConnectionLimit,
    IdleTimeout,
    RequestBounds,
    Slot,
)
from api.server.requests import RequestError, RequestReader, request_id
from api.server.sender import Sender

_log = logging.getLogger(__name__)

HEAD_S = 15.0
"""The timeouts of the first byte of a request, and of its head after the first byte."""

QUIET_S = 1.0
"""How long a connection may be idle before it is closed at shutdown.

A caller who uses it more often is told by a response; others notice the close before they use it again.
"""

DISCARD_S = 10.0
"""How long the rest of a refused body may take to arrive before the deadline of its request."""

DISCARD_S_MIN = 1.0
"""The same after the deadline."""

LET_GO_S = 60.0
"""How long a request may keep running after its connection ended before it is cancelled."""

_LATE_BYTES_MAX: Final = 1024 * 1024
"""How much is read and dropped after the last request."""
_FIRST_BYTES: Final = 1024 * 1024
"""The maximum size of the first read; no more than some 128 KiB can have arrived by then."""
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(asyncio.BufferedProtocol):
    """Serves the requests on one connection.

    Hypercorn creates it instead of its own `TCPServer`, with the streams of a connection, and awaits it.
    Hypercorn's class waits forever for callers who do not read responses, and keeps a closed connection for
    the whole of `keep_alive_timeout`.

    Speaks only HTTP/1.1: it ignores offers to upgrade, and refuses HTTP/2.
    """

    def __init__(  # noqa: PLR0917 -- as Hypercorn passes them
        self,
        limit: ConnectionLimit,
        app: App,
        bounds: RequestBounds,
        _wrapped_app: object,
        loop: asyncio.AbstractEventLoop,
        config: Config,
        _context: object,
        state: Mapping[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._limit = limit
        self._ahead = limit.ahead
        self._heads = limit.heads
        self._ahead_bytes = 0
        """The bytes of this connection that count as read ahead."""
        self._app = app
        self._loop = loop
        self._config = config
        self._state = state
        self._streams = reader, writer
        self._transport = cast("asyncio.Transport", writer.transport)
        self._sender = Sender(loop, self._transport, limit.memory)
        self._bounds = bounds
        self._reader = RequestReader(bounds.head_bytes_max)
        self._idle = IdleTimeout(loop, self._end_idle)
        self._slot: Slot
        self._scope: dict[str, Any]
        self._task: asyncio.Task[Any] | None = None
        self._has_taken_over = False
        """Whether this object has replaced the streams as the transport's protocol."""

        self._exchange: Exchange | None = None
        """The request in progress."""
        self._requests = 0
        self._changed: asyncio.Future[None] | None = None
        """What `_serve` waits for between requests."""
        self._is_amid_head = False
        self._is_reading = True
        self._waits_turn = False
        """Whether the bytes read last wait to be parsed while other connections have their turns."""
        self._is_at_eof = False
        """Whether the caller has closed its sending half."""
        self._is_lost = False
        """Whether the connection is closed."""
        self._late_bytes = 0
        self._letting_go: asyncio.TimerHandle | None = None
        self._is_abandoned = False

    def __await__(self) -> Generator[Any, None, None]:
        return self.run().__await__()

    async def run(self) -> None:
        """Serve until either side ends the connection."""
        self._task = asyncio.current_task()
        self._slot = self._sender.caller = self._limit.enter(self._transport.abort, self._end_if_quiet)
        self._wait(HEAD_S)
        try:
            with suppress(OSError):
                data = await self._streams[0].read(_FIRST_BYTES)
                if data and not self._transport.is_closing():
                    self._take_over(data)
                    # Free the first bytes, which may be many: a connection may be kept for hours.
                    del data
                    await self._serve()
        except asyncio.CancelledError:
            # No code awaits this task, so asyncio would log the cancellation.
            if self._is_abandoned:
                _log.error("cancelled a request that ran on for %g s after its connection ended", LET_GO_S)
        finally:
            await self._let_go()

    def _take_over(self, data: bytes) -> None:
        """Replace the streams, which have read some data, as the protocol of the transport."""
        transport = self._transport
        self._scope = connection_scope(transport, self._config.root_path)
        self._is_at_eof = self._streams[0].at_eof()
        with suppress(RuntimeError):
            # Paused, because the transport chooses its way of reading by the protocol when reading begins.
            transport.pause_reading()
            transport.set_protocol(self)
            self._has_taken_over = True
            self._sender.bound()
            transport.resume_reading()
        self._data_received(data)

    async def _serve(self) -> None:
        state = {**self._state, STATE: self._slot}
        turns = self._limit.requests
        while True:
            exchange = self._exchange
            if exchange is not None:
                await turns.begin(is_first=self._requests == 1)
                begun_s = self._loop.time()
                await exchange.run(self._app, exchange.scope(self._scope, state))
                if exchange.is_complete and not exchange.body_is_whole:
                    await self._discard_body(exchange, begun_s + self._bounds.deadline_s - self._loop.time())
                self._exchange = None
                self._go_on_after(exchange)
            elif (self._is_at_eof and not self._waits_turn) or self._is_lost:
                return
            else:
                await self._change()

    async def _discard_body(self, exchange: Exchange, left_s: float) -> None:
        """Drop the rest of a body whose request is answered, until it ends, times out or is disconnected.

        Closing the connection at once might keep the caller from reading the response.
        """
        self._wait(min(DISCARD_S, max(DISCARD_S_MIN, left_s)))
        self._regulate()
        while not (exchange.body_is_whole or self._sender.is_over or self._is_at_eof or self._is_lost):
            await self._change()
        self._idle.stop()

    def _go_on_after(self, exchange: Exchange) -> None:
        if self._letting_go is not None:
            self._letting_go.cancel()
            self._letting_go = None
        if self._sender.is_over:
            return
        self._slot.set_idle()
        if exchange.closes or not (exchange.is_complete and exchange.body_is_whole):
            self._end()
            return
        self._wait(self._config.keep_alive_timeout)
        self._advance()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- the size is ours
        """Return the buffer for the transport's next read."""
        return self._ahead.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that the transport has read."""
        self._data_received(bytes(READ_BUFFER[:nbytes]))

    def _turn_has_come(self) -> None:
        """Called when it is this connection's turn to parse a long read."""
        self._waits_turn = False
        self._advance()
        self._tell()

    def _data_received(self, data: bytes) -> None:
        # Reading takes much less time than parsing, and the loop reads all connections in one iteration.
        if len(data) > UNCOUNTED_BYTES and not self._waits_turn:
            self._waits_turn = not self._limit.turns.take(self._turn_has_come, len(data))
        exchange = self._exchange
        is_late = exchange is not None and exchange.body_is_whole and exchange.closes
        if is_late or self._sender.is_over:
            self._late_bytes += len(data)
            if self._late_bytes > _LATE_BYTES_MAX and self._sender.is_over:
                self._sender.close()
        else:
            self._reader.add(data)
        if self._waits_turn:
            self._regulate()
        elif self._reader.unread_bytes:
            self._advance()

    def _advance(self) -> None:
        """Parse what has arrived, as far as the request in progress allows."""
        reader = self._reader
        try:
            while reader.unread_bytes and not self._sender.is_over:
                exchange = self._exchange
                if exchange is None:
                    if not self._begin():
                        break
                elif not exchange.body_is_whole:
                    body, is_whole = reader.read_body()
                    exchange.feed(body, is_whole=is_whole)
                    if exchange.is_complete:
                        self._note_dropped(exchange)
                elif exchange.closes:
                    reader.drop()
                else:
                    break
        except RequestError as error:
            self._refuse(error.status)
        self._regulate()

    def _note_dropped(self, exchange: Exchange) -> None:
        if exchange.dropped_bytes > self._bounds.discard_bytes_max:
            self._end()
        if exchange.body_is_whole:
            self._tell()

    def _begin(self) -> bool:
        """Begin the next request if its head has arrived."""
        head = self._reader.read_head()
        if head is None:
            if self._reader.unread_bytes and not self._is_amid_head:
                self._wait(HEAD_S)
                self._is_amid_head = True
            return False
        self._idle.stop()
        self._is_amid_head = False
        self._requests += 1
        exchange = self._exchange = Exchange(head, request_id(head.fields), self, self._sender)
        if head.expects_continue and not (self._reader.unread_bytes or exchange.body_is_whole):
            self._sender.send(_CONTINUE)
        if self._is_at_eof:
            self._disconnect(exchange)
        self._tell()
        return True

    def _regulate(self) -> None:
        """Pause or resume reading: a caller who sends faster than the application receives must wait."""
        exchange = self._exchange
        held = self._reader.unread_bytes + (0 if exchange is None else exchange.waiting_bytes)
        if held > UNCOUNTED_BYTES or self._ahead_bytes:
            self._count(held)
        # Reading a head continues until it is complete, or loses its memory.
        has_room = exchange is None or held < self._ahead.connection_bytes_max or self._sender.is_over
        reads = has_room and not self._waits_turn
        if reads != self._is_reading and not self._transport.is_closing():
            self._is_reading = reads
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _count(self, held: int) -> None:
        counted = held if held > UNCOUNTED_BYTES else 0
        self._ahead.change(counted - self._ahead_bytes)
        self._ahead_bytes = counted
        self._heads.hold(self._lose_head, counted if self._is_amid_head and not self._waits_turn else 0)

    def _lose_head(self) -> None:
        """Called when the memory of an unfinished head is given to other connections."""
        self._reader.drop()
        self._end_idle()

    def body_taken(self) -> None:
        """Called when the application has received all of a body that had arrived."""
        if self._ahead_bytes or not self._is_reading:
            self._regulate()

    def _refuse(self, status: int) -> None:
        """Answer that this is not HTTP, and end the connection, because what follows cannot be parsed."""
        exchange = self._exchange
        self._reader.drop()
        if exchange is None or not exchange.is_started:
            self._sender.send(refusal(status, exchange))
        if exchange is not None:
            exchange.disconnect()
        self._end()

    def eof_received(self) -> bool:
        """Called when the caller has closed its sending half. True keeps ours open; TLS cannot do that."""
        self._is_at_eof = True
        if self._exchange is not None:
            self._disconnect(self._exchange)
        self._tell()
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, _: Exception | None) -> None:
        """Called when the connection is closed."""
        self._is_lost = True
        if self._exchange is not None:
            self._disconnect(self._exchange)
        self._tell()
        self._sender.resume()

    def _disconnect(self, exchange: Exchange) -> None:
        exchange.disconnect()
        if self._letting_go is None:
            self._letting_go = self._loop.call_later(LET_GO_S, self._abandon)

    async def _change(self) -> None:
        """Wait until a request has arrived, or the connection is closed or half closed."""
        self._changed = self._loop.create_future()
        await self._changed

    def _tell(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    @property
    def is_last(self) -> bool:
        """Whether the response in progress is the last on the connection."""
        return self._limit.leaving or self._requests >= self._config.keep_alive_max_requests

    def pause_writing(self) -> None:
        """Called when too much is unsent."""
        self._sender.pause()

    def resume_writing(self) -> None:
        """Called when most of it is sent."""
        self._sender.resume()

    def _wait(self, within_s: float) -> None:
        """Wait for a request, or for the rest of its head."""
        self._is_amid_head = False
        self._idle.wait(min(within_s, QUIET_S) if self._limit.ending else within_s)

    def _end_if_quiet(self) -> None:
        self._idle.shorten(QUIET_S)

    def _end_idle(self) -> None:
        if self._sender.has_sent:
            self._end()
        else:
            self._sender.close()

    def _end(self) -> None:
        if not self._sender.is_over:
            self._slot.set_idle()
            self._sender.end()
            self._regulate()
            self._tell()

    def _abandon(self) -> None:
        assert self._task is not None, "its task runs"
        self._is_abandoned = True
        self._task.cancel()

    async def _let_go(self) -> None:
        self._idle.cancel()
        if self._letting_go is not None:
            self._letting_go.cancel()
        try:
            with suppress(asyncio.CancelledError, OSError):
                self._sender.close()
                if not self._has_taken_over:
                    await self._streams[1].wait_closed()
                while self._has_taken_over and not self._is_lost:
                    await self._change()
        finally:
            self._slot.leave()
            self._count(0)
            # Also when cancelled: no other code would close the connection.
            self._sender.abort()
