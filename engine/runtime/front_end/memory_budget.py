"""The budget for a front end's memory held for callers: bodies, requests and answers together."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

SMALL_BYTES_MAX: Final = 64 * 1024
"""Work up to this size may use the room that is reserved for small requests."""

UNREAD_S: Final = 4.0
"""If room is needed, an answer of which nothing was read for this long is dropped with its connection.

Operating systems acknowledge what programs have read in steps of up to 128 KiB, so the progress of a caller
who reads 64 KB a second shows every two seconds."""

QUEUE, BYTES, MEMORY, READING, ANSWERS = THROTTLED = ("queue", "bytes", "memory", "reading", "answers")
"""The causes of 1401."""
SLOTS, STARTING_UP, BUSY = EXPIRED = ("slots", "starting", "busy")
"""The causes for which a request was not sent to its detector by its deadline."""

_SCAN_S: Final = 0.1
"""The interval between two searches for answers that nobody reads."""
_LOOK_S: Final = 0.25
"""The interval at which that search is repeated while answers wait."""
_PUBLIC_SHARE: Final = 16
"""Answers to callers without a token may take 1 / _PUBLIC_SHARE of the budget, in addition to it."""


@dataclass(eq=False)
class MemoryBudget:
    """Limits the memory that callers occupy in a front end to `bytes_max` bytes.

    New work may take three quarters of it, and answers one eighth more, so that work in progress can always
    finish. The last eighth is reserved for small requests, so that large ones never keep them out. Beyond
    that, new work is refused before it begins. A complete answer is delivered to every caller who reads it.
    """

    bytes_max: int
    clock_s: Callable[[], float] = time.monotonic
    bodies: int = 0
    """Bytes of bodies that are being read, or for which a handler waits."""
    requests: int = 0
    """Bytes of requests for detectors, waiting or in flight, each twice because sending copies it."""
    answers: int = 0
    """Bytes of answers, from their arrival in this process until the operating system has taken them."""
    wanted: int = 0
    """Bytes of answers that wait for room. New work may not take that room."""
    public: int = 0
    """Bytes of answers to callers without a token."""
    refused: int = 0
    """How much work was refused since `take_counts`."""
    throttled: Counter[str] = field(default_factory=Counter)
    """How often there was no room for a request since `take_throttled`, by cause (THROTTLED), including the
    limits of detectors' queues."""
    expired: Counter[str] = field(default_factory=Counter)
    """How many requests were not sent by their deadline since `take_expired`, by cause (EXPIRED)."""
    dropped: int = 0
    """How many connections were closed because of unread answers since `take_counts`."""
    _work_bytes_max: int = field(init=False)
    _answers_bytes_max: int = field(init=False)
    _waiting: "deque[AnswerRoom]" = field(default_factory=deque)
    """The answers that wait for room, longest-waiting first."""
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
        """The bytes in use."""
        return self.bodies + self.requests + self.answers

    def has_room(self, bytes_: int) -> bool:
        """Whether new work may take that many bytes without dropping answers."""
        return self.bodies + self.requests + self.answers + self.wanted + bytes_ <= self._work_bytes_max

    def find_room(self, bytes_: int, *, is_small: bool) -> bool:
        """Return whether new work may take that many bytes, if necessary after dropping unread answers.

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
        """Change the bytes of bodies by a difference."""
        self.bodies += more_bytes
        self._changed()

    def change_requests(self, more_bytes: int) -> None:
        """Change the bytes of requests by a difference."""
        self.requests += more_bytes
        self._changed()

    def hold_answer(self, bytes_: int) -> None:
        """Add to the bytes of answers, for which there must be room."""
        self.answers += bytes_
        self._most_bytes = max(self._most_bytes, self.held)

    def answer(self, bytes_: int, admitted: Callable[[], None]) -> "AnswerRoom":
        """Call `admitted` as soon as there is room for an answer, which counts from then until its release.

        The only answer is admitted whatever its size.
        """
        room = AnswerRoom(self, admitted)
        room.wanted = bytes_
        self.wanted += bytes_
        self._waiting.append(room)
        self._admit()
        return room

    def sending(
        self, connection: asyncio.WriteTransport, *, is_public: bool, unread_bytes: Callable[[], int]
    ) -> "UnreadAnswer":
        """Count the unsent bytes of a connection, which its caller has not read, until they are released.

        `unread_bytes` returns how much the caller's system has not acknowledged yet, wherever that is.
        Public answers go to callers without a token. They have a little room of their own; once it is used
        up, the oldest is dropped.
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
        """Return how much was refused and dropped since the last call."""
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
            self._admit()

    def _admit(self) -> None:
        """Admit the waiting answers for which there is room."""
        if not self._fits(self._waiting[0].wanted):
            self._drop_unread(0)
        for room in list(self._waiting):
            if self._fits(room.wanted):
                self._waiting.remove(room)
                # The excess of a single large answer does not count: it would cause refusals of requests.
                room.enter(min(room.wanted, max(0, self._answers_bytes_max - self.held)))
        if self._waiting and self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        self._changed()

    def _fits(self, bytes_: int) -> bool:
        return self.held + bytes_ <= self._answers_bytes_max or not self.answers

    def _drop_unread(self, bytes_: int) -> bool:
        """Close connections that read nothing, longest first, until new work has that much room.

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
        # Not `release`, which would admit waiting answers during the search.
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
    """The room that one answer takes in the budget."""

    _budget: MemoryBudget
    _admitted: Callable[[], None] = lambda: None
    wanted: int = 0
    """The bytes that it waits for."""
    bytes: int = 0
    """The bytes that it has."""

    def enter(self, bytes_: int) -> None:
        """Stop waiting: take that many bytes, and call back."""
        self._budget.wanted -= self.wanted
        self.bytes, self.wanted = bytes_, 0
        self._budget.hold_answer(self.bytes)
        self._admitted()

    def grow(self, bytes_: int) -> bool:
        """Take more bytes; return False if there is no room for them."""
        if not self._budget.find_room(bytes_, is_small=self.bytes + bytes_ <= SMALL_BYTES_MAX):
            self._budget.throttled[ANSWERS] += 1
            return False
        self.bytes += bytes_
        self._budget.hold_answer(bytes_)
        return True

    def release(self) -> None:
        """Give the room back, or stop waiting for it."""
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
    """The unsent bytes of a connection, which its caller has not read."""

    _budget: MemoryBudget
    connection: asyncio.WriteTransport
    _unread_bytes: Callable[[], int]
    since_s: float
    """When bytes were last read, as far as known."""
    is_public: bool

    def __post_init__(self) -> None:
        self.bytes = self.connection.get_write_buffer_size()
        """The bytes that count: an answer is sent in parts, but kept whole until its end."""
        self._left = self._unread_bytes()

    def progresses(self, now_s: float) -> bool:
        """Return whether bytes were read since the last call."""
        left = self._unread_bytes()
        if left >= self._left:
            return False
        self._left, self.since_s = left, now_s
        return True

    def release(self) -> None:
        """Stop counting it: everything is sent, or the caller is gone."""
        self._budget._forget(self)  # noqa: SLF001 -- both are parts of one thing
        self._budget._changed()  # noqa: SLF001
