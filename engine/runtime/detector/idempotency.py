"""The answers to evaluations that had an idempotency key, kept compactly for whoever repeats them.

An answer takes 28 bytes: 16 of a digest of its key, 8 of a digest of its request, and the place of its result
among the different results, of which most detectors give few. Answers are kept in generations, each of a
quarter of the time that an answer is kept; a generation is forgotten as a whole, when its last answer is old
enough. So an answer is kept at least for its time, and at most for a quarter of that longer.

What was answered since the last snapshot makes up the next *page*, which goes to a file of its own beside
that snapshot: no snapshot repeats what an earlier page has.
"""

import hashlib
import struct
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from engine.evaluation.wire.events import Done
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import TOO_MANY_WAIT
from engine.runtime.contract.operations import Operation

PAGE_VERSION: Final = 1

_ROW: Final = struct.Struct("<16s8s4s")
"""The digest of a key, the digest of the request, and the place of the result."""
_KEY_BYTES: Final = 16
REQUEST_DIGEST_BYTES: Final = 8
_PLACE_BYTES: Final = 4

_GENERATIONS: Final = 4
_BUCKETS: Final = 8192
"""In a generation. A bucket is searched from its beginning, some fifty rows in a microsecond."""

_ROW_COST_BYTES: Final = 32
"""A row, and the room that its bucket keeps to grow."""
_BUCKET_COST_BYTES: Final = 160
_RESULT_COST_BYTES: Final = 300
"""What a result takes beside its bytes: two objects, a pair of them, and a place in a dict and in a list."""


class CachedAnswer(NamedTuple):
    """The answer to one evaluation, and what a repeat of it is known by."""

    key: bytes
    request: bytes
    result: bytes
    messages: bytes


class Page(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of answers as a file has it: different results, and rows of them in order of time."""

    results: tuple[tuple[bytes, bytes], ...]
    pieces: tuple[tuple[int, int, bytes], ...]
    """The times of the first and the last answer of each piece, in microseconds, and its rows."""


class _Results:
    """Different results with their messages, each stored once, by its place."""

    def __init__(self) -> None:
        self.all: list[tuple[bytes, bytes]] = []
        self._places: dict[tuple[bytes, bytes], bytes] = {}
        self.size_bytes = 0

    def place(self, result: bytes, messages: bytes) -> bytes:
        pair = result, messages
        place = self._places.get(pair)
        if place is None:
            place = self._places[pair] = len(self.all).to_bytes(_PLACE_BYTES, "little")
            self.all.append(pair)
            self.size_bytes += len(result) + len(messages) + _RESULT_COST_BYTES
        return place

    def at(self, place: bytes | bytearray) -> tuple[bytes, bytes]:
        return self.all[int.from_bytes(place, "little")]


class _Generation:
    """The answers of a stretch of time, in buckets by their keys."""

    def __init__(self, begun_us: int) -> None:
        self.begun_us = begun_us
        self.newest_us = begun_us
        self.results = _Results()
        self.rows = 0
        self.rows_bytes = 0
        self._buckets: dict[int, bytearray] = {}

    def put(self, key: bytes, rest: bytes) -> None:
        number = (key[0] | key[1] << 8) % _BUCKETS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = bytearray()
            self.rows_bytes += _BUCKET_COST_BYTES
        bucket += key + rest
        self.rows += 1
        self.rows_bytes += _ROW_COST_BYTES

    def find(self, key: bytes) -> bytearray | None:
        """Give what stands behind a key: the digest of its request, and the place of its result."""
        bucket = self._buckets.get((key[0] | key[1] << 8) % _BUCKETS)
        if bucket is None:
            return None
        at = bucket.find(key)
        while at >= 0 and at % _ROW.size:
            # It begins within a row, by chance.
            at = bucket.find(key, at + 1)
        return bucket[at + _KEY_BYTES : at + _ROW.size] if at >= 0 else None

    def __iter__(self) -> Iterator[CachedAnswer]:
        for bucket in self._buckets.values():
            for key, request, place in _ROW.iter_unpack(bytes(bucket)):
                yield CachedAnswer(key, request, *self.results.at(place))


class _Piece:
    """Rows of one generation, in order of time."""

    def __init__(self, generation: _Generation, at_us: int) -> None:
        self.generation = generation
        self.begun_us = self.newest_us = at_us
        self.rows = bytearray()


class _Unpaged:
    """The answers since a snapshot was begun, in order."""

    def __init__(self) -> None:
        self.results = _Results()
        self.rows_bytes = 0
        self.pieces: list[_Piece] = []

    def put(self, generation: _Generation, answer: CachedAnswer, at_us: int) -> None:
        if not self.pieces or self.pieces[-1].generation is not generation:
            self.pieces.append(_Piece(generation, at_us))
        piece = self.pieces[-1]
        piece.rows += answer.key + answer.request + self.results.place(answer.result, answer.messages)
        piece.newest_us = max(piece.newest_us, at_us)
        self.rows_bytes += _ROW.size

    def page(self) -> Page:
        pieces = ((piece.begun_us, piece.newest_us, bytes(piece.rows)) for piece in self.pieces)
        return Page(tuple(self.results.all), tuple(pieces))


class PendingPage(NamedTuple):
    """What the next page holds; it does not change any more."""

    stretches: tuple[_Unpaged, ...]
    expires_us: int
    """When nobody may ask for any of it any more."""

    def body(self) -> bytes:
        """Give the page's body, of PAGE_VERSION."""
        return msgspec.msgpack.encode([stretch.page() for stretch in self.stretches])


class IdempotencyCache:
    """Answers by key, each for at least `kept_us`; in memory no more than `bytes_max` and one answer."""

    def __init__(self, kept_us: int, bytes_max: int) -> None:
        self._kept_us = kept_us
        self._bytes_max = bytes_max
        self._generations: deque[_Generation] = deque()
        """The oldest first."""
        self._stretches: list[_Unpaged] = [_Unpaged()]
        """What no page has; all but the last are in one that is being written, or could not be."""

    def __len__(self) -> int:
        return sum(generation.rows for generation in self._generations)

    def __iter__(self) -> Iterator[CachedAnswer]:
        """Give what is kept, the oldest generation first, in no order within one."""
        for generation in self._generations:
            yield from generation

    @property
    def size_bytes(self) -> int:
        """What they take in memory, roughly."""
        parts: tuple[_Generation | _Unpaged, ...] = (*self._generations, *self._stretches)
        return sum([part.rows_bytes + part.results.size_bytes for part in parts])

    def find(self, key: bytes, operation: Operation, now_us: int) -> Done | None:
        """Give the answer that an operation had before, None where it is to be carried out now.

        `key` is the digest of its key. Raises Refusal 1006 where that was used for something else, and 1401
        where no more is kept.
        """
        self.expire(now_us)
        for generation in reversed(self._generations):
            rest = generation.find(key)
            if rest is not None:
                if rest[:REQUEST_DIGEST_BYTES] != request_digest(operation.kind, operation.payload):
                    raise Refusal(Entry(1006, "Idempotency-Key: it was used with another request"))
                return Done(*generation.results.at(rest[REQUEST_DIGEST_BYTES:]))
        if self._generations and self.size_bytes >= self._bytes_max:
            said = (
                f"the answers to {len(self)} evaluations are kept for their idempotency keys, "
                "which is the limit; nothing of this one was evaluated"
            )
            raise Refusal(Entry(TOO_MANY_WAIT, said))
        return None

    def keep(self, answer: CachedAnswer, at_us: int) -> None:
        """Keep an answer that was given at a time."""
        generation = self._generation_of(at_us, at_us)
        place = generation.results.place(answer.result, answer.messages)
        generation.put(answer.key, answer.request + place)
        self._stretches[-1].put(generation, answer, at_us)

    def expire(self, now_us: int) -> None:
        """Forget the generations of which every answer was kept long enough."""
        generations = self._generations
        if generations and generations[-1].newest_us > now_us:
            # The clock was set back. How old they are is not known; as old as now they do not stay for ever.
            for generation in generations:
                generation.newest_us = min(generation.newest_us, now_us)
                generation.begun_us = min(generation.begun_us, now_us)
        while generations and generations[0].newest_us < now_us - self._kept_us:
            generations.popleft()

    def begin_page(self, now_us: int) -> PendingPage | None:
        """Give what no page has yet, for the next one; None where there is no such answer.

        It counts as without a page until `page_written`.
        """
        stretches = tuple(stretch for stretch in self._stretches if stretch.pieces)
        if not stretches:
            return None
        newest_us = max(piece.newest_us for stretch in stretches for piece in stretch.pieces)
        self._stretches = [*stretches, _Unpaged()]
        return PendingPage(stretches, min(newest_us, now_us) + self._kept_us)

    def page_written(self, page: PendingPage) -> None:
        """Take note that a page is on the disk. For another thread than that of the other methods, too."""
        self._stretches = self._stretches[len(page.stretches) :]

    def load_page(self, body: bytes, version: int) -> None:
        """Keep the answers of a page too."""
        assert version == PAGE_VERSION, f"a page of version {version}, which is unknown"
        for page in msgspec.msgpack.decode(body, type=list[Page]):
            for begun_us, newest_us, rows in page.pieces:
                generation = self._generation_of(begun_us, newest_us)
                places = [generation.results.place(*pair) for pair in page.results]
                for key, request, place in _ROW.iter_unpack(rows):
                    generation.put(key, request + places[int.from_bytes(place, "little")])

    def _generation_of(self, begun_us: int, newest_us: int) -> _Generation:
        """Give the generation for answers of that time, the newest there is or a new one."""
        last = self._generations[-1] if self._generations else None
        if last is None or newest_us - last.begun_us > self._kept_us // _GENERATIONS:
            last = _Generation(begun_us)
            self._generations.append(last)
        last.newest_us = max(last.newest_us, newest_us)
        return last


def key_digest(key: str) -> bytes:
    """Give what stands for an idempotency key."""
    return hashlib.blake2b(key.encode(), digest_size=_KEY_BYTES).digest()


def request_digest(kind: str, payload: bytes) -> bytes:
    """Give what tells a repeat of an operation from another one under the same key."""
    return hashlib.sha256(kind.encode() + b"\0" + payload).digest()[:REQUEST_DIGEST_BYTES]
