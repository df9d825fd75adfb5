"""One connection under Hypercorn: cut when silent, stalled or one too many, and let go of when it ends."""

import asyncio
import logging
from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final

from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.typing import AppWrapper, ConnectionState, LifespanState
from hypercorn.utils import parse_socket_addr

from api.server.connection_limit import STATE, Crowd, Place, Ways
from api.server.http1 import JOINED_BYTES_MAX, REPLY, PlainHttp

_log = logging.getLogger(__name__)

HEAD_S = 15.0
"""How long the head of a request may take: from the beginning of a connection, and from its first byte."""

QUIET_S = 1.0
"""How long a connection stays idle before it is closed where the service ends.

A caller who uses it more often than that is told by a reply. Others can see that it is closed before they use
it again."""

_LAST_LOOK_S: Final = 0.02
"""Before an idle connection is closed: what has come by now may not have been read yet."""

STALLED_S = 15.0
"""Between two looks at a connection that does not take what is sent to it."""

LET_GO_S = 60.0
"""From the end of a connection until what still runs for it is cancelled; nothing should by then."""

LINGER_S = 1.0
"""From when the last reply is with the system until the connection is closed where the caller does not."""

_PAST_BYTES_MAX: Final = 1024 * 1024
"""What is read in that time, to be dropped."""
_TAKEN_BYTES_MIN: Final = 16 * 1024
"""What must be taken between two looks, where so much is left."""
_HEAD: Final = b"HTTP/1.1 "
_READ_BYTES: Final = 64 * 1024
_UNSENT_BYTES: Final = 64 * 1024
"""So much is left to the transport before a sender waits for it. Its own bound."""


class _StallWatch:
    """Aborts a connection that takes next to nothing of what is sent to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._timer = loop.call_later(STALLED_S, self._look, transport.get_write_buffer_size())

    def _look(self, left_before: int) -> None:
        left = self._transport.get_write_buffer_size()
        if left_before - left < min(_TAKEN_BYTES_MIN, left_before) or not left:
            self._transport.abort()
        else:
            self._timer = self._loop.call_later(STALLED_S, self._look, left)

    def end(self) -> None:
        """Let the connection be."""
        self._timer.cancel()


class PromptServer:
    """One connection, with a place in the crowd, let go of as soon as its caller has closed it.

    It stands in for Hypercorn's own class. That of 0.17 and 0.18 keeps a connection that was closed, with its
    socket and tasks, until it has been idle for the whole of `keep_alive_timeout`: a caller who opens one for
    each request then uses up the descriptors. Nor does it ever let go of one whose caller takes no replies.
    And it begins with three tasks, where most of what a silent connection costs can wait for the first byte;
    and it writes the head of a reply and its body one after the other, each in a call to the system that
    wakes the caller.
    """

    def __init__(  # noqa: PLR0917 -- as Hypercorn passes them
        self,
        crowd: Crowd,
        app: AppWrapper,
        loop: asyncio.AbstractEventLoop,
        config: Config,
        context: WorkerContext,
        state: LifespanState,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._crowd = crowd
        self._app = app
        self._loop = loop
        self._config = config
        self._context = context
        self._state = state
        self._reader = reader
        self._writer = writer
        self._protocol: PlainHttp
        self._place: Place
        self._head = b""
        """The head of a reply, held back for its body to come with it in the same round of the loop."""
        self._flushing: asyncio.Handle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._idle_since_s = 0.0
        self._amid_head = False
        self._end_watch: _StallWatch | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._end_linger: asyncio.TimerHandle | None = None
        self._replied = False
        self._ended = False
        """Whether the last reply was sent, and nothing that comes is read any more but to be dropped."""
        self._abandoned = False

    def __await__(self) -> Generator[Any, None, None]:
        return self.run().__await__()

    async def run(self) -> None:
        """Serve until either side ends it."""
        self._place = self._crowd.enter(Ways(self._writer.transport.abort, self._end_if_quiet))
        self._wait(HEAD_S)
        try:
            with suppress(OSError):
                if data := await self._reader.read(_READ_BYTES):
                    self._begin_head()
                    await self._serve(data)
        except asyncio.CancelledError:
            # Nobody waits for what becomes of this task, and asyncio would log that it was cancelled.
            if self._abandoned:
                _log.error("cancelled: what ran on for %g s after the end of its connection", LET_GO_S)
        finally:
            await self._let_go()

    async def _serve(self, data: bytes) -> None:
        socket = self._writer.get_extra_info("socket")
        # The caller may have gone by now; then this raises what the end of a connection raises.
        client = parse_socket_addr(socket.family, socket.getpeername())
        server = parse_socket_addr(socket.family, socket.getsockname())
        async with TaskGroup(self._loop) as task_group:
            state = ConnectionState({**self._state, STATE: self._place})
            self._protocol = PlainHttp(
                self._app,
                self._config,
                self._context,
                task_group,
                state,
                ssl=False,
                client=client,
                server=server,
                send=self._send,
            )
            state[REPLY] = self._protocol.reply
            self._protocol.is_over = self._is_over
            self._protocol.is_last = self._is_last
            self._protocol.send_at_once = self._write
            await self._protocol.initiate()
            with suppress(OSError):
                # What comes once it is over is nobody's, and nobody would ever give leave to read it.
                while data and not self._is_over():
                    await self._protocol.handle(RawData(data))
                    if self._idle is not None and not self._amid_head and self._protocol.is_amid:
                        self._begin_head()
                    data = await self._reader.read(_READ_BYTES)
                await self._read_past(len(data))
            self._stop_waiting()
            task = asyncio.current_task()
            assert task is not None, "it has the task of its connection"
            self._end_timer = self._loop.call_later(LET_GO_S, self._abandon, task)
            await self._protocol.handle(Closed())

    async def _send(self, event: Event) -> None:
        """Do what the protocol asks for."""
        if isinstance(event, RawData):
            await self._send_bytes(event.data)
            return
        self._flush()
        match event:
            case Closed():
                self._end()
            case Updated(idle=True):
                self._place.rest()
                self._wait(self._config.keep_alive_timeout)
            case Updated():
                self._stop_waiting()

    async def _send_bytes(self, data: bytes) -> None:
        if data.startswith(_HEAD) and not self._head:
            self._head = data
            self._flushing = self._loop.call_soon(self._flush)
            return
        if len(data) > JOINED_BYTES_MAX:
            self._flush()
        await self._write(data)

    async def _write(self, data: bytes) -> None:
        """Send, or do nothing where nobody is there any more: that is for the reader to tell, in its turn."""
        transport = self._writer.transport
        data = self._held_back() + data
        if not data or self._is_over():
            # Of a reply whose length was said, the end is nothing.
            return
        self._replied = True
        with suppress(OSError, RuntimeError):
            self._writer.write(data)
            if transport.get_write_buffer_size() > _UNSENT_BYTES:
                watch = _StallWatch(self._loop, transport)
                try:
                    await self._writer.drain()
                finally:
                    watch.end()

    def _held_back(self) -> bytes:
        """Give the head that is held back, for whoever sends it."""
        head, self._head = self._head, b""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        return head

    def _flush(self) -> None:
        """Send the head without its body, which has not come, or is too large to be copied behind it."""
        head = self._held_back()
        if head and not self._writer.transport.is_closing():
            with suppress(OSError, RuntimeError):
                self._writer.write(head)

    def _wait(self, within_s: float) -> None:
        """Begin to wait for a request, or for more of its head."""
        self._stop_waiting()
        self._amid_head = False
        self._idle_since_s = self._loop.time()
        if self._crowd.ending:
            within_s = min(within_s, QUIET_S)
        self._idle = self._loop.call_later(within_s, self._look_last)

    def _begin_head(self) -> None:
        """Take note of the first bytes of a head: it is from now on that it may take so long."""
        self._wait(HEAD_S)
        self._amid_head = True

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_if_quiet(self) -> None:
        """End the connection once it has been idle for a little while, if it is idle."""
        if self._idle is not None:
            self._idle.cancel()
            left_s = self._idle_since_s + QUIET_S - self._loop.time()
            self._idle = self._loop.call_later(max(0.0, left_s), self._look_last)

    def _look_last(self) -> None:
        if self._idle is not None:
            self._idle = self._loop.call_later(_LAST_LOOK_S, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._idle is not None:
            self._stop_waiting()
            if self._replied:
                self._end()
            else:
                self._begin_close()

    def _is_last(self) -> bool:
        return self._crowd.leaving

    def _is_over(self) -> bool:
        return self._ended or self._writer.transport.is_closing()

    def _send_end(self) -> None:
        """Say that nothing comes after what was sent."""
        self._ended = True
        self._flush()
        if self._end_watch is None:
            self._end_watch = _StallWatch(self._loop, self._writer.transport)
        with suppress(OSError, RuntimeError):
            self._writer.write_eof()

    def _end(self) -> None:
        """Say so, and close when the caller has, or a little later.

        To close where something is unread, or still comes, has the system drop what the caller has yet to
        take of the last reply (RFC 9112, 9.6).
        """
        if not self._is_over():
            self._place.rest()
            self._send_end()
            self._linger()

    def _linger(self) -> None:
        self._end_linger = self._loop.call_later(LINGER_S, self._close_if_sent)

    def _close_if_sent(self) -> None:
        if self._writer.transport.get_write_buffer_size():
            self._linger()
        else:
            self._begin_close()

    async def _read_past(self, bytes_: int) -> None:
        """Drop what comes behind the last reply, until the caller closes; after so many bytes already."""
        while bytes_ <= _PAST_BYTES_MAX and (data := await self._reader.read(_READ_BYTES)):
            bytes_ += len(data)

    def _begin_close(self) -> None:
        """Close once everything is sent. The end of it is what the reader hears."""
        self._send_end()
        with suppress(OSError, RuntimeError):
            self._writer.close()

    async def _close(self) -> None:
        self._begin_close()
        with suppress(OSError, RuntimeError):
            await self._writer.wait_closed()

    def _abandon(self, task: "asyncio.Task[None]") -> None:
        self._abandoned = True
        task.cancel()

    async def _let_go(self) -> None:
        self._stop_waiting()
        if self._end_linger is not None:
            self._end_linger.cancel()
        try:
            with suppress(asyncio.CancelledError):
                await self._close()
        finally:
            self._place.leave()
            if self._end_timer is not None:
                self._end_timer.cancel()
            # Where this is cancelled, too: nobody will look after the connection any more.
            self._writer.transport.abort()
            if self._end_watch is not None:
                self._end_watch.end()
