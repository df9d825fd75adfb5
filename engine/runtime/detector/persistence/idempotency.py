"""Answers to evaluations with an idempotency key, stored compactly so that a retry can be answered.

An answer takes 32 bytes: 16 for the digest of its key, 8 for the digest of its request, 4 for the index of
its result, and 4 for the lateness of its event. The index refers to a list without duplicates, which is
short for most detectors because results exclude the lateness, which differs from event to event. Answers are
grouped in generations of a quarter of the retention time. A generation is dropped as a whole when its newest
answer expires, so an answer is stored for its retention time and at most a quarter longer.

The answers since the last snapshot form the next *page*, a file beside that snapshot. No snapshot repeats
earlier pages.
"""

import hashlib
import struct
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from engine.evaluation.events.outcomes import with_lateness, without_lateness
from engine.evaluation.wire.events import Done
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import TOO_MANY_WAIT
from engine.runtime.contract.requests.operations import Operation

PAGE_VERSION: Final = 2

_ROW: Final = struct.Struct("<16s8s4sI")
"""The digest of a key, the digest of the request, the index of the result, and the lateness in µs."""
_KEY_BYTES: Final = 16
REQUEST_DIGEST_BYTES: Final = 8
_PLACE_BYTES: Final = 4

_GENERATIONS: Final = 4
_BUCKETS: Final = 8192
"""Buckets per generation. A bucket is searched linearly, about fifty rows per microsecond."""

_ROW_COST_BYTES: Final = 35
"""A row, and the usual spare capacity of its bucket."""
_BUCKET_COST_BYTES: Final = 160
_RESULT_COST_BYTES: Final = 300
"""The overhead of a result: two objects, a tuple, an entry in a dict, and one in a list."""


class CachedAnswer(NamedTuple):
    """The answer to one evaluation, with the digests of its key and request."""

    key: bytes
    request: bytes
    result: bytes
    messages: bytes


class Page(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive answers as stored in a file: results without duplicates, and rows in order of time."""

    results: tuple[tuple[bytes, bytes], ...]
    pieces: tuple[tuple[int, int, bytes], ...]
    """For each piece, the times of its first and last answer in microseconds, and its rows."""


class _Results:
    """Distinct results without lateness, each stored once and referred to by its index."""

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

    def at(self, place: bytes | bytearray, late_us: int) -> tuple[bytes, bytes]:
        result, messages = self.all[int.from_bytes(place, "little")]
        return result, with_lateness(messages, late_us)


class _Generation:
    """The answers of a period, in buckets by their keys."""

    def __init__(self, begun_us: int) -> None:
        self.begun_us = begun_us
        self.newest_us = begun_us
        self.results = _Results()
        self.rows = 0
        self.rows_bytes = 0
        self._buckets: dict[int, bytearray] = {}

    def put(self, key: bytes, request: bytes, place: bytes, late_us: int) -> None:
        number = (key[0] | key[1] << 8) % _BUCKETS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = bytearray()
            self.rows_bytes += _BUCKET_COST_BYTES
        bucket += _ROW.pack(key, request, place, late_us)
        self.rows += 1
        self.rows_bytes += _ROW_COST_BYTES

    def find(self, key: bytes) -> tuple[bytes, bytes, int] | None:
        """Return the value of a key: the digest of its request, the index of its result, and the lateness."""
        bucket = self._buckets.get((key[0] | key[1] << 8) % _BUCKETS)
        if bucket is None:
            return None
        at = bucket.find(key)
        while at >= 0 and at % _ROW.size:
            # Skip an accidental match that does not start a row.
            at = bucket.find(key, at + 1)
        return _ROW.unpack_from(bucket, at)[1:] if at >= 0 else None

    def __iter__(self) -> Iterator[CachedAnswer]:
        for bucket in self._buckets.values():
            for key, request, place, late_us in _ROW.iter_unpack(bytes(bucket)):
                yield CachedAnswer(key, request, *self.results.at(place, late_us))


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

    def put(self, generation: _Generation, answer: CachedAnswer, late_us: int, at_us: int) -> None:
        """Add an answer, whose messages are without the lateness."""
        if not self.pieces or self.pieces[-1].generation is not generation:
            self.pieces.append(_Piece(generation, at_us))
        piece = self.pieces[-1]
        place = self.results.place(answer.result, answer.messages)
        piece.rows += _ROW.pack(answer.key, answer.request, place, late_us)
        piece.newest_us = max(piece.newest_us, at_us)
        self.rows_bytes += _ROW.size

    def page(self) -> Page:
        pieces = ((piece.begun_us, piece.newest_us, bytes(piece.rows)) for piece in self.pieces)
        return Page(tuple(self.results.all), tuple(pieces))


class PendingPage(NamedTuple):
    """The contents of the next page, immutable."""

    stretches: tuple[_Unpaged, ...]
    expires_us: int
    """The time at which all of its answers have expired."""

    def body(self) -> bytes:
        """Encode the page, of PAGE_VERSION."""
        return msgspec.msgpack.encode([stretch.page() for stretch in self.stretches])


class IdempotencyCache:
    """Answers by key, each stored for at least `retention_us`; at most `bytes_max` plus one answer."""

    def __init__(self, retention_us: int, bytes_max: int) -> None:
        self._retention_us = retention_us
        self._bytes_max = bytes_max
        self._generations: deque[_Generation] = deque()
        """The generations, the oldest first."""
        self._stretches: list[_Unpaged] = [_Unpaged()]
        """The answers in no page. All stretches but the last are in a pending or failed page."""

    def __len__(self) -> int:
        return sum(generation.rows for generation in self._generations)

    def __iter__(self) -> Iterator[CachedAnswer]:
        """Yield the stored answers, oldest generation first, in no order within a generation."""
        for generation in self._generations:
            yield from generation

    @property
    def size_bytes(self) -> int:
        """The approximate size in memory."""
        parts: tuple[_Generation | _Unpaged, ...] = (*self._generations, *self._stretches)
        return sum([part.rows_bytes + part.results.size_bytes for part in parts])

    def find(self, key: bytes, operation: Operation, now_us: int) -> Done | None:
        """Return the stored answer of an operation; None if the operation must be executed.

        `key` is the digest of its key. Raises Refusal 1006 if the key was used with another request, and 1401
        if the cache is full.
        """
        self.expire(now_us)
        for generation in reversed(self._generations):
            found = generation.find(key)
            if found is not None:
                request, place, late_us = found
                if request != request_digest(operation.kind, operation.payload):
                    raise Refusal(Entry(1006, "Idempotency-Key: it was used with another request"))
                return Done(*generation.results.at(place, late_us))
        if self._generations and self.size_bytes >= self._bytes_max:
            message = f"request not evaluated: limit of {len(self)} stored answers for idempotency keys"
            raise Refusal(Entry(TOO_MANY_WAIT, message))
        return None

    def keep(self, answer: CachedAnswer, at_us: int) -> None:
        """Store an answer that was given at a time."""
        generation = self._generation_of(at_us, at_us)
        common, late_us = without_lateness(answer.messages)
        answer = answer._replace(messages=common)
        place = generation.results.place(answer.result, common)
        generation.put(answer.key, answer.request, place, late_us)
        self._stretches[-1].put(generation, answer, late_us, at_us)

    def expire(self, now_us: int) -> None:
        """Drop the generations whose answers have all expired."""
        generations = self._generations
        if generations and generations[-1].newest_us > now_us:
            # The clock was set back, so ages are unknown. Treat the answers as given now, so that they expire
            # eventually.
            for generation in generations:
                generation.newest_us = min(generation.newest_us, now_us)
                generation.begun_us = min(generation.begun_us, now_us)
        while generations and generations[0].newest_us < now_us - self._retention_us:
            generations.popleft()

    def begin_page(self, now_us: int) -> PendingPage | None:
        """Return the answers that are in no page yet as the next page; None if there are none.

        They still count as in no page until `page_written`.
        """
        stretches = tuple(stretch for stretch in self._stretches if stretch.pieces)
        if not stretches:
            return None
        newest_us = max(piece.newest_us for stretch in stretches for piece in stretch.pieces)
        self._stretches = [*stretches, _Unpaged()]
        return PendingPage(stretches, min(newest_us, now_us) + self._retention_us)

    def page_written(self, page: PendingPage) -> None:
        """Note that a page is on the disk. Callable from a different thread than the other methods."""
        self._stretches = self._stretches[len(page.stretches) :]

    def load_page(self, body: bytes) -> None:
        """Add the answers of a page of PAGE_VERSION."""
        for page in msgspec.msgpack.decode(body, type=list[Page]):
            for begun_us, newest_us, rows in page.pieces:
                generation = self._generation_of(begun_us, newest_us)
                places = [generation.results.place(*pair) for pair in page.results]
                for key, request, number, late_us in _ROW.iter_unpack(rows):
                    generation.put(key, request, places[int.from_bytes(number, "little")], late_us)

    def _generation_of(self, begun_us: int, newest_us: int) -> _Generation:
        """Return the generation for answers of a period: the newest one, or a new one."""
        last = self._generations[-1] if self._generations else None
        if last is None or newest_us - last.begun_us > self._retention_us // _GENERATIONS:
            last = _Generation(begun_us)
            self._generations.append(last)
        last.newest_us = max(last.newest_us, newest_us)
        return last


def key_digest(key: str) -> bytes:
    """Return the digest of an idempotency key."""
    return hashlib.blake2b(key.encode(), digest_size=_KEY_BYTES).digest()


def request_digest(kind: str, payload: bytes) -> bytes:
    """Return a digest that shows whether two operations with the same key are the same request."""
    return hashlib.sha256(kind.encode() + b"\0" + payload).digest()[:REQUEST_DIGEST_BYTES]
