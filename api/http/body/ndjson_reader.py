"""Reads the lines of an NDJSON body that is still arriving, at most one batch ahead."""

import asyncio
import re
from typing import Final

from api.http.body.memory import BodyMemory
from api.schema.envelope import RequestRefusal
from api.server.exchange import CallerGone, Message, Receive
from engine.evaluation.wire.decoding import BLANKS
from engine.language.diagnostics import Entry, Refusal

LINES_MAX: Final = 1_000
"""The maximum number of lines in a batch."""
_BATCH_BYTES: Final = 1024 * 1024
"""The size at which a batch is full."""
_OVERDUE: Final = 1502


class NdjsonReader:
    """The lines of one body, for one task that reads and another that takes the lines.

    Holds at most a batch, an incomplete line, and the rest of the last message. Once a batch is full, nothing
    more is received until it is taken. A line of more than `line_bytes_max` bytes becomes None.
    """

    def __init__(self, receive: Receive, line_bytes_max: int, patience_s: float, memory: BodyMemory) -> None:
        self.ended = False
        """Whether the body was read to its end."""
        self._receive = receive
        self._line_bytes_max = line_bytes_max
        self._blank_lines = re.compile(rb"(?:[ \t\r]{0,%d}\n)++" % line_bytes_max)
        """Matches consecutive blank lines, which are skipped together because there may be very many."""
        self._patience_s = patience_s
        self._ready: list[bytes | None] = []
        self._ready_bytes = 0
        self._partial = bytearray()
        self._too_long = False
        """Whether the incomplete line is above the limit."""
        self._rest = b""
        self._at = 0
        """The position in `_rest` up to which it has been split."""
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._given_up = False
        self._reservation = memory.reserve(None, self.lose)
        self._lost: Exception | None = None
        """The reason given to `lose`."""
        self._over: Exception | None = None
        """The reason given to `end`."""
        self._heard_s = asyncio.get_running_loop().time()

    @property
    def held_bytes(self) -> int:
        """The bytes held now."""
        return self._ready_bytes + len(self._partial) + len(self._rest) - self._at

    @property
    def patience_left_s(self) -> float:
        """How long the next line may still take."""
        return self._heard_s + self._patience_s - asyncio.get_running_loop().time()

    async def read(self) -> None:
        """Read until the connection ends, then raise CallerGone."""
        while True:
            await self._room.wait()
            try:
                # Without a local variable, since the traceback of an error would keep the message alive.
                self._take_message(await self._receive())
            except RequestRefusal as refusal:
                # The body is not what its encoding says.
                self.lose(refusal)

    async def take(self) -> list[bytes | None]:
        """Wait for a line; return all lines that have arrived, at most a batch, none at the end of the body.

        Raises Refusal 1502 if no line is completed within `patience_s`, and the reason given to `end` or
        `lose`.
        """
        self.check()
        while not self._ready:
            if self._given_up:
                raise Refusal(Entry(_OVERDUE, f"no result was read for {self._patience_s:g} s"))
            if self.ended:
                return []
            self._news.clear()
            try:
                async with asyncio.timeout_at(self._heard_s + self._patience_s):
                    await self._news.wait()
            except TimeoutError:
                # On a busy machine, a line may arrive in the same loop iteration in which its time is up.
                if not self._ready and not self.ended and self.patience_left_s <= 0:
                    said = f"no line arrived for {self._patience_s:g} s, and all earlier ones were answered"
                    raise Refusal(Entry(_OVERDUE, said)) from None
            self.check()
        taken, self._ready, self._ready_bytes = self._ready, [], 0
        # Reserve the rest anew, so that its age counts from now.
        self._reservation.release()
        self._split()
        self._hold()
        # Time in which the service did not read does not count against the caller.
        self._heard_s = asyncio.get_running_loop().time()
        return taken

    def excuse(self) -> None:
        """Do not count the time until now against the caller, who waited for the service."""
        self._heard_s = asyncio.get_running_loop().time()

    def end(self, reason: Exception) -> None:
        """Return no more lines, unless the body has ended."""
        self._over = reason
        self._news.set()

    def lose(self, reason: Exception) -> None:
        """Drop the held lines and return no more, even if the body has ended."""
        # The traceback would keep alive the frames that hold the last message.
        self._lost = reason.with_traceback(None)
        self.give_up()

    def give_up(self) -> None:
        """Drop the held lines and all later ones, but keep reading to notice the end of the connection."""
        self._given_up = True
        self._ready, self._ready_bytes = [], 0
        self._partial.clear()
        self._rest, self._at = b"", 0
        self._reservation.release()
        self._room.set()
        self._news.set()

    def _take_message(self, message: Message) -> None:
        """Take a message. Raises CallerGone."""
        if message["type"] == "http.disconnect":
            raise CallerGone
        body = message.get("body", b"")
        # An incomplete line does not count: otherwise a caller could send a byte now and then forever.
        if b"\n" in body:
            self._heard_s = asyncio.get_running_loop().time()
        if not message.get("more_body", False):
            self.ended = True
        if not self._given_up:
            self._rest, self._at = body, 0
            self._split()
            self._hold()
        self._news.set()

    def _hold(self) -> None:
        """Reserve memory for the held bytes; drop them if there is none."""
        self._reservation.is_paused = not self._room.is_set()
        held_bytes = self.held_bytes
        if not held_bytes:
            self._reservation.release()
            return
        try:
            self._reservation.hold(held_bytes)
        except Refusal as refusal:
            self.lose(refusal)

    def check(self) -> None:
        """Raise the reason given to `lose`, or to `end` before the end of the body."""
        if self._lost is not None:
            raise self._lost
        if self._over is not None and not self.ended:
            raise self._over

    def _split(self) -> None:
        """Split the last message until the batch is full."""
        rest, at = self._rest, self._at
        while len(self._ready) < LINES_MAX and self._ready_bytes < _BATCH_BYTES:
            end = rest.find(b"\n", at)
            if end < 0:
                self._keep(rest[at:])
                rest, at = b"", 0
                if self.ended:
                    self._put(b"")
                break
            self._put(rest[at:end])
            at = end + 1
            if blank := self._blank_lines.match(rest, at):
                at = blank.end()
        self._rest, self._at = rest, at
        if rest:
            self._room.clear()
        else:
            self._room.set()

    def _keep(self, part: bytes) -> None:
        """Append to the incomplete line."""
        if len(self._partial) + len(part) > self._line_bytes_max:
            self._too_long = True
            self._partial.clear()
        if not self._too_long:
            self._partial += part

    def _put(self, line: bytes) -> None:
        """Complete a line."""
        if self._partial or self._too_long:
            self._keep(line)
            line = bytes(self._partial)
            self._partial.clear()
        if self._too_long or len(line) > self._line_bytes_max:
            self._too_long = False
            self._ready.append(None)
        elif line.strip(BLANKS):
            self._ready.append(line)
            self._ready_bytes += len(line)
