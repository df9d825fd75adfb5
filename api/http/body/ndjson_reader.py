"""The lines of a body that is still coming: read ahead by no more than one batch of them."""

import asyncio
from typing import Final

from api.http.body.memory import BodyMemory
from api.http.request.asgi import CallerGone, Message, Receive
from engine.evaluation.wire.lines import BLANKS
from engine.language.diagnostics import Entry, Refusal

LINES_MAX: Final = 1_000
"""Of a batch."""
_BATCH_BYTES: Final = 1024 * 1024
"""From so many bytes on a batch is full."""
_OVERDUE: Final = 1502


class NdjsonReader:
    """The lines of one body, for one task that reads and one that takes what has come so far.

    What is held is a batch at most, a line that has not ended, and what is left of the last message; while
    that is not taken, nothing more is received. A line of more than `line_bytes_max` bytes is not held: None
    stands in its place.
    """

    def __init__(self, receive: Receive, line_bytes_max: int, patience_s: float, memory: BodyMemory) -> None:
        self.ended = False
        """Whether the body was read to its end."""
        self._receive = receive
        self._line_bytes_max = line_bytes_max
        self._patience_s = patience_s
        self._ready: list[bytes | None] = []
        self._ready_bytes = 0
        self._partial = bytearray()
        self._too_long = False
        """Whether the line that has not ended is."""
        self._rest = b""
        self._at = 0
        """How far the rest of the last message has been split."""
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._given_up = False
        self._claim = memory.claim(None, self.lose)
        self._lost: Exception | None = None
        """Why what was held is gone."""
        self._over: Exception | None = None
        """Why no more lines are given, though more may come."""
        self._heard_s = asyncio.get_running_loop().time()

    @property
    def held_bytes(self) -> int:
        """How much is held at the moment."""
        return self._ready_bytes + len(self._partial) + len(self._rest) - self._at

    @property
    def is_lost(self) -> bool:
        """Whether what was held was dropped."""
        return self._lost is not None

    @property
    def patience_left_s(self) -> float:
        """For how long a line may still be waited for."""
        return self._heard_s + self._patience_s - asyncio.get_running_loop().time()

    async def read(self) -> None:
        """Read for as long as the caller is there. Raises CallerGone at the end of the connection."""
        while True:
            await self._room.wait()
            # Nothing of it is kept here: an error would keep this frame.
            self._come(await self._receive())

    async def take(self) -> list[bytes | None]:
        """Give the lines that have come, as soon as there is one, at most a batch; none at the body's end.

        Raises Refusal 1502 where no line comes to its end for as long as patience lasts, and the reason of
        `end` where the body has not ended before.
        """
        self.check()
        while not self._ready:
            if self._given_up:
                raise Refusal(Entry(_OVERDUE, f"no reply was taken for {self._patience_s:g} s"))
            if self.ended:
                return []
            self._news.clear()
            try:
                async with asyncio.timeout_at(self._heard_s + self._patience_s):
                    await self._news.wait()
            except TimeoutError:
                said = f"no line came for {self._patience_s:g} s, and all that came before was answered"
                raise Refusal(Entry(_OVERDUE, said)) from None
            self.check()
        taken, self._ready, self._ready_bytes = self._ready, [], 0
        # What is left is as young as the room that was made for it.
        self._claim.release()
        self._split()
        self._hold()
        # Whoever was not listened to was not silent.
        self._heard_s = asyncio.get_running_loop().time()
        return taken

    def end(self, reason: Exception) -> None:
        """Give no more lines, unless they are the last."""
        self._over = reason
        self._news.set()

    def lose(self, reason: Exception) -> None:
        """Drop what is held, and give nothing more, the last lines of the body not either."""
        # Its traceback would keep the frames of whoever has just received something.
        self._lost = reason.with_traceback(None)
        self.give_up()

    def close(self) -> None:
        """Hold nothing any more."""
        self.give_up()

    def give_up(self) -> None:
        """From now on read past all that comes, so that the end of the connection is heard."""
        self._given_up = True
        self._ready, self._ready_bytes = [], 0
        self._partial.clear()
        self._rest, self._at = b"", 0
        self._claim.release()
        self._room.set()
        self._news.set()

    def _come(self, message: Message) -> None:
        """Take what was received. Raises CallerGone."""
        if message["type"] == "http.disconnect":
            raise CallerGone
        body = message.get("body", b"")
        # Part of a line is no sign of life: who sends a byte now and then could go on for ever.
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
        """Claim the memory of what is held; give up where there is none."""
        self._claim.is_paused = not self._room.is_set()
        held_bytes = self.held_bytes
        if not held_bytes:
            self._claim.release()
            return
        try:
            self._claim.hold(held_bytes)
        except Refusal as refusal:
            self.lose(refusal)

    def check(self) -> None:
        """Raise why nothing more may be answered, where there is such a reason."""
        if self._lost is not None:
            raise self._lost
        if self._over is not None and not self.ended:
            raise self._over

    def _split(self) -> None:
        """Split what was received, as far as there is room for lines."""
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
        self._rest, self._at = rest, at
        if rest or len(self._ready) >= LINES_MAX or self._ready_bytes >= _BATCH_BYTES:
            self._room.clear()
        else:
            self._room.set()

    def _keep(self, part: bytes) -> None:
        """Take the beginning, or more, of a line that has not ended."""
        if len(self._partial) + len(part) > self._line_bytes_max:
            self._too_long = True
            self._partial.clear()
        if not self._too_long:
            self._partial += part

    def _put(self, line: bytes) -> None:
        """Take the end of a line, or a whole one."""
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
