"""One budget for the memory that callers occupy in a front end: bodies, requests and answers together."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

SMALL_BYTES_MAX: Final = 64 * 1024
"""Work up to this size finds room where larger work finds none."""

UNREAD_S: Final = 4.0
"""An answer of which nothing is read for this long is dropped with its connection if room is needed.

Systems tell what their programs have read in steps of up to 128 KiB, so a caller who reads 64 KB in a second
shows it every two seconds."""

QUEUE, BYTES, MEMORY, READING, ANSWERS = THROTTLED = ("queue", "bytes", "memory", "reading", "answers")
"""Why a request gets 1401."""
SLOTS, STARTING_UP, BUSY = EXPIRED = ("slots", "starting", "busy")
"""What a request waited for that was not sent to its detector by its deadline."""

_SCAN_S: Final = 0.1
"""The interval between two searches for answers that nobody reads."""
_LOOK_S: Final = 0.25
"""The interval at which waiting answers have that search repeated."""
_PUBLIC_SHARE: Final = 16
"""The share of answers to callers without a token, beside the budget, is 1 / _PUBLIC_SHARE of it."""


@dataclass(eq=False)
class MemoryBudget:
    """Keeps what callers make a front end hold within `bytes_max` bytes.

    New work may take three quarters of it, and answers one eighth more, so that work under way always ends.
    The last eighth is for small requests: nobody who holds the rest keeps them out. Past that, new work is
    refused before anything is done for it. An answer that is there is delivered to everyone who reads it.
    """

    bytes_max: int
    clock_s: Callable[[], float] = time.monotonic
    bodies: int = 0
    """Bytes of bodies that are being read, or for which a handler waits."""
    requests: int = 0
    """Bytes of the requests for detectors that wait or are in flight, each twice: sending it copies it."""
    answers: int = 0
    """Bytes of answers, from their arrival in this process until the system has taken them."""
    wanted: int = 0
    """Bytes of answers that wait for room. They are kept free of new work."""
    public: int = 0
    """Bytes of answers to callers without a token."""
    refused: int = 0
    """How much work was refused since `take_counts`."""
    throttled: Counter[str] = field(default_factory=Counter)
    """How often this front end had no room for a request since `take_throttled`, by cause: THROTTLED. The
    limits of a detector's queue count, too."""
    expired: Counter[str] = field(default_factory=Counter)
    """How many requests were not sent by their deadline since `take_expired`, by cause: EXPIRED."""
    dropped: int = 0
    """How many connections were closed because of unread answers since `take_counts`."""
    _work_bytes_max: int = field(init=False)
    _answers_bytes_max: int = field(init=False)
    _waiting: "deque[AnswerRoom]" = field(default_factory=deque)
    """The answers that wait for room, longest first."""
    _unread: "dict[UnreadAnswer, None]" = field(default_factory=dict)
    """The answers that are being sent, longest without progress first."""
    _unread_public: "dict[UnreadAnswer, None]" = field(default_factory=dict)
    _scanned_s: float = -_SCAN_S
    _looking: asyncio.TimerHandle | None = None
    _most_bytes: int = 0
    """The peak since the last `take_fallen`."""

    def __post_init__(self) -> None:
        self._work_bytes_max = self.bytes_max // 4 * 3
        self._answers_bytes_max = self.bytes_max // 8 * 7

    @property
    def held(self) -> int:
        """The bytes that count."""
        return self.bodies + self.requests + self.answers

    def has_room(self, bytes_: int) -> bool:
        """Whether new work may take that many bytes without anybody's loss."""
        return self.bodies + self.requests + self.answers + self.wanted + bytes_ <= self._work_bytes_max

    def find_room(self, bytes_: int, *, is_small: bool) -> bool:
        """Return whether new work may take that many bytes; answers that nobody reads are dropped for it.

        `is_small` says that the work is a small request with a small answer.
        """
        if self.has_room(bytes_):
            return True
        if self._drop_unread(bytes_):
            self._changed()
        if self.has_room(bytes_) or (is_small and self.held + bytes_ <= self.bytes_max):
            return True
        self.refused += 1
        return False

    def change_bodies(self, more_bytes: int) -> None:
        """Count that many bytes of bodies more; fewer if negative."""
        self.bodies += more_bytes
        self._changed()

    def change_requests(self, more_bytes: int) -> None:
        """Count that many bytes of requests more; fewer if negative."""
        self.requests += more_bytes
        self._changed()

    def hold_answer(self, bytes_: int) -> None:
        """Count that many bytes of answers more, for which there is room."""
        self.answers += bytes_
        self._most_bytes = max(self._most_bytes, self.held)

    def answer(self, bytes_: int, come: Callable[[], None]) -> "AnswerRoom":
        """Call `come` as soon as there is room for an answer, whose bytes count from then until its release.

        If it is the only answer, it comes whatever its size.
        """
        room = AnswerRoom(self, come)
        room.wanted = bytes_
        self.wanted += bytes_
        self._waiting.append(room)
        self._go_on()
        return room

    def render(self) -> "AnswerRoom":
        """Return the room for an answer that is made piece by piece. It has none yet."""
        return AnswerRoom(self)

    def sending(
        self, connection: asyncio.WriteTransport, *, is_public: bool, unread_bytes: Callable[[], int]
    ) -> "UnreadAnswer":
        """Count what is unsent on a connection until it is released: its caller has not read it.

        `unread_bytes` returns what the caller's system has not taken yet, wherever it is.
        Public answers are those to callers without a token. They have a little room of their own, and the
        oldest goes as soon as it is used up.
        """
        unread = UnreadAnswer(self, connection, unread_bytes, self.clock_s(), is_public=is_public)
        if is_public:
            self.public += unread.bytes
            self._unread_public[unread] = None
            while self.public > self.bytes_max // _PUBLIC_SHARE and len(self._unread_public) > 1:
                self._drop(next(iter(self._unread_public)))
        else:
            self.hold_answer(unread.bytes)
            self._unread[unread] = None
        return unread

    def take_counts(self) -> dict[str, int]:
        """Return what was refused and dropped since the last call."""
        counts = {"no_room": self.refused, "unread": self.dropped}
        self.refused = self.dropped = 0
        return {cause: count for cause, count in counts.items() if count}

    def take_throttled(self) -> Counter[str]:
        """Return how often there was no room for a request since the last call, by cause."""
        taken, self.throttled = self.throttled, Counter()
        return taken

    def take_expired(self) -> Counter[str]:
        """Return how many requests were not sent by their deadline since the last call, by cause."""
        taken, self.expired = self.expired, Counter()
        return taken

    def take_fallen(self) -> int:
        """Return by how many bytes the memory has fallen below its peak since the last call."""
        most, self._most_bytes = self._most_bytes, self.held
        return max(0, most - self.held)

    def _changed(self) -> None:
        self._most_bytes = max(self._most_bytes, self.held)
        if self._waiting:
            self._go_on()

    def _go_on(self) -> None:
        """Call for the answers for which there is room."""
        if not self._fits(self._waiting[0].wanted):
            self._drop_unread(0)
        for room in list(self._waiting):
            if self._fits(room.wanted):
                self._waiting.remove(room)
                # Do not count what an answer takes beyond its share: other requests would be refused for it.
                room.enter(min(room.wanted, max(0, self._answers_bytes_max - self.held)))
        if self._waiting and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        self._changed()

    def _fits(self, bytes_: int) -> bool:
        return self.held + bytes_ <= self._answers_bytes_max or not self.answers

    def _drop_unread(self, bytes_: int) -> bool:
        """Close connections that read nothing, the longest first, until new work has that much room.

        Returns whether any connection was closed.
        """
        now_s = self.clock_s()
        if now_s - self._scanned_s < _SCAN_S:
            return False
        self._scanned_s = now_s
        before = self.dropped
        for unread in list(self._unread):
            if self.has_room(bytes_):
                break
            if unread.progresses(now_s):
                del self._unread[unread]
                self._unread[unread] = None
            elif now_s - unread.since_s >= UNREAD_S:
                self._drop(unread)
        return self.dropped > before

    def _drop(self, unread: "UnreadAnswer") -> None:
        self.dropped += 1
        # Not `release`, which would call for waiting answers during the search.
        self._forget(unread)
        unread.connection.abort()

    def _forget(self, unread: "UnreadAnswer") -> None:
        if unread.is_public:
            self.public -= unread.bytes
            self._unread_public.pop(unread, None)
        else:
            self.answers -= unread.bytes
            self._unread.pop(unread, None)
        unread.bytes = 0


@dataclass(slots=True, eq=False)
class AnswerRoom:
    """The room of one answer in the budget."""

    _budget: MemoryBudget
    _come: Callable[[], None] = lambda: None
    wanted: int = 0
    """The bytes that it waits for."""
    bytes: int = 0
    """The bytes that it has."""

    def enter(self, bytes_: int) -> None:
        """Take so much of the room that it waited for, and come."""
        self._budget.wanted -= self.wanted
        self.bytes, self.wanted = bytes_, 0
        self._budget.hold_answer(self.bytes)
        self._come()

    def grow(self, bytes_: int) -> bool:
        """Take that many bytes more; return whether they were there."""
        if not self._budget.find_room(bytes_, is_small=self.bytes + bytes_ <= SMALL_BYTES_MAX):
            self._budget.throttled[ANSWERS] += 1
            return False
        self.bytes += bytes_
        self._budget.hold_answer(bytes_)
        return True

    def release(self) -> None:
        """Give the room back, or wait no more."""
        budget = self._budget
        if self.wanted:
            budget._waiting.remove(self)  # noqa: SLF001 -- both are parts of one thing
            budget.wanted -= self.wanted
            self.wanted = 0
        budget.answers -= self.bytes
        self.bytes = 0
        budget._changed()  # noqa: SLF001


@dataclass(eq=False)
class UnreadAnswer:
    """What is unsent on a connection, because its caller has not read it."""

    _budget: MemoryBudget
    connection: asyncio.WriteTransport
    _unread_bytes: Callable[[], int]
    since_s: float
    """When something was read last, as far as that is known."""
    is_public: bool

    def __post_init__(self) -> None:
        self.bytes = self.connection.get_write_buffer_size()
        """What counts: the system takes an answer in parts, but all of it is kept until its end."""
        self._left = self._unread_bytes()

    def progresses(self, now_s: float) -> bool:
        """Return whether something was read since the last look."""
        left = self._unread_bytes()
        if left >= self._left:
            return False
        self._left, self.since_s = left, now_s
        return True

    def release(self) -> None:
        """Count it no more: all is sent, or the caller is gone."""
        self._budget._forget(self)  # noqa: SLF001 -- both are parts of one thing
        self._budget._changed()  # noqa: SLF001
