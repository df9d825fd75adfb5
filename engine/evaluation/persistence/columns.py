"""Converts columns of numbers, keys and entries of memories to bytes and back; conditions, too.

A column of numbers is a byte string of little-endian 64-bit integers, or doubles. Stamps are two columns:
times in microseconds, and event numbers. Keys are scalars. Integers beyond 64 bits have an extension type, so
keys of any size survive. Long texts as keys have another one, with their digest.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any, Final

import msgpack
import msgspec

from engine.evaluation.facts.values import LONG_TEXT, part_of_key, scalar_of, slice_key_of
from engine.evaluation.operators.interface import Memory
from engine.evaluation.operators.table import parts_of
from engine.evaluation.paths import Filter, Path
from engine.evaluation.stamps import EVENT, NEVER, NUMBER_BITS, stamp_of
from engine.language.condition import Compare, Condition, Keyed
from engine.language.json.writer import condition_to_document
from engine.language.nodes import Node, TermNode
from engine.language.validation.document import condition_from_stored

BIG_INTEGER: Final = 1
"""The extension type of an integer beyond 64 bits, as decimal digits."""

LONG_TEXT_TYPE: Final = 2
"""The extension type of a long text as a key, as its SHA-256."""

ANY_TEXT: Final = "surrogatepass"
"""Keys of callers in the same process may be texts with surrogates."""

AT_ONCE: Final = 512
"""The maximum number of keys, or numbers, in a piece."""

_ARRAY_16_FROM: Final = 16
_BIN_32: Final = Struct(">BI")
_BIN_32_TYPE: Final = 0xC6

_CODES: Final = {"integers": "q", "doubles": "d"}


def packer() -> Any:
    """Return a packer of documents."""
    return msgpack.Packer(default=_pack_big, unicode_errors=ANY_TEXT)


def unpack(data: bytes) -> Any:
    """Unpack a document."""
    return msgpack.unpackb(data, ext_hook=_unpack_extension, strict_map_key=False, unicode_errors=ANY_TEXT)


class EntryColumns:
    """The entries of one memory in some slices."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._slices, self._lengths = array("q"), array("q")
        """The numbers of the slices that have entries, and the length of each entry."""
        self._columns: list[list[Any]] = [[] for _ in memory.columns]

    def add_stamps(self, first: int, stamps: Sequence[int]) -> None:
        """Add stamps as the entries of consecutive slices, beginning with `first`; NEVER means no entry."""
        self._slices.extend([place for place, stamp in enumerate(stamps, first) if stamp != NEVER])
        self._columns[0] += [stamp for stamp in stamps if stamp != NEVER]

    def add(self, slice_number: int, entry: Any) -> int:
        """Add an entry, and return its length."""
        self._slices.append(slice_number)
        parts = self._memory.parts(entry)
        for column, part in zip(self._columns, parts, strict=True):
            column.extend(part)
        if self._memory.is_record:
            self._lengths.append(len(parts[0]))
        return len(parts[0])

    def __bool__(self) -> bool:
        """Return whether there are entries."""
        return bool(self._slices)

    def packed(self) -> Iterator[bytes]:
        """Yield an array of the slices, the lengths of records, and each column."""
        pack = packer()
        yield pack.pack_array_header(2 + len(self._columns))
        yield from numbers(self._slices)
        yield from numbers(self._lengths)
        for kind, column in zip(self._memory.columns, self._columns, strict=True):
            if kind == "keys":
                yield from keys(column, several=False)
            elif kind == "scalars":
                yield from scalars_packed(column)
            elif kind == "stamps":
                yield from stamps_packed(column)
            else:
                yield from numbers(column, _CODES[kind])


def entries_in(memory: Memory, saved: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the slices of saved entries, with the entries."""
    slices, lengths = map(numbers_unpacked, saved[:2])
    columns: list[Any] = []
    for kind, column in zip(memory.columns, saved[2:], strict=True):
        if kind == "keys":
            columns.append(keys_unpacked(column, several=False))
        elif kind == "scalars":
            columns.append(column)
        elif kind == "stamps":
            columns.append(stamps_unpacked(column))
        else:
            columns.append(numbers_unpacked(column, _CODES[kind]))
    if not memory.is_record:
        yield from zip(slices, columns[0], strict=True)
        return
    for number, (first, end) in zip(slices, pairwise(accumulate(lengths, initial=0)), strict=True):
        yield number, memory.entry_of(*[column[first:end] for column in columns])


# -- numbers ------------------------------------------------------------------------------------------------


def numbers(
    column: Sequence[Any], code: str = "q", of: Callable[[Sequence[Any]], Iterable[Any]] = iter
) -> Iterator[bytes]:
    """Yield a column in pieces: the numbers `of` its elements, 64-bit integers or, with code `d`, doubles."""
    yield _BIN_32.pack(_BIN_32_TYPE, len(column) * 8)
    for first in range(0, len(column), AT_ONCE):
        yield numbers_packed(array(code, of(column[first : first + AT_ONCE])))


def numbers_packed(column: Iterable[int] | Iterable[float]) -> bytes:
    """Return numbers as little-endian 64-bit integers, or doubles if they are in an array of doubles."""
    column = column if isinstance(column, array) else array("q", column)
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def numbers_unpacked(data: bytes, kind: str = "q") -> Any:
    """Return an array of the numbers: 64-bit integers, or doubles if `kind` is `d`."""
    column = array(kind, data)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def stamps_packed(column: Sequence[int]) -> Iterator[bytes]:
    """Yield an array of two columns: the times of stamps, and their event numbers."""
    yield packer().pack_array_header(2)
    yield from numbers(column, of=lambda some: [stamp >> NUMBER_BITS for stamp in some])
    yield from numbers(column, of=lambda some: [stamp & EVENT for stamp in some])


def stamps_unpacked(columns: list[bytes]) -> list[int]:
    """Undo `stamps_packed`."""
    return list(map(stamp_of, *map(numbers_unpacked, columns)))


# -- keys ---------------------------------------------------------------------------------------------------


def keys(column: Sequence[Any], *, several: bool) -> Iterator[bytes]:
    """Yield an array of keys in pieces. If a slice has `several` keys, each element is an array itself."""
    packed = packer()
    yield packed.pack_array_header(len(column))
    for first in range(0, len(column), AT_ONCE):
        some = column[first : first + AT_ONCE]
        portion = packed.pack(
            [list(map(_scalar, key)) for key in some]
            if several
            else [key if type(key) is str else _scalar(key) for key in some]
        )
        # The portion is packed as an array, without its header.
        yield portion[1 if len(some) < _ARRAY_16_FROM else 3 :]


def scalars_packed(column: Sequence[Any]) -> Iterator[bytes]:
    """Yield an array of texts, numbers and booleans, unchanged, in pieces."""
    packed = packer()
    yield packed.pack_array_header(len(column))
    for first in range(0, len(column), AT_ONCE):
        yield b"".join(map(packed.pack, column[first : first + AT_ONCE]))


def keys_unpacked(column: list[Any], *, several: bool) -> list[Any]:
    """Undo `keys`."""
    if several:
        return [tuple([part_of_key(_key(part)) for part in key]) for key in column]
    # Nearly all keys are texts, which need no conversion.
    return column if {*map(type, column)} <= {str} else list(map(_key, column))


def _key(value: Any) -> Any:
    return value if type(value) is tuple else slice_key_of(value)


def _scalar(key: Any) -> Any:
    """Return one part of a key in packed form."""
    if type(key) is bytes:
        return scalar_of(key)
    if type(key) is not tuple:
        return key
    if key[0] == LONG_TEXT:
        return msgpack.ExtType(LONG_TEXT_TYPE, bytes.fromhex(key[1]))
    return scalar_of(key)


def _pack_big(value: object) -> msgpack.ExtType:
    assert isinstance(value, int), value
    return msgpack.ExtType(BIG_INTEGER, str(value).encode())


def _unpack_extension(code: int, data: bytes) -> int | tuple[str, str]:
    if code == LONG_TEXT_TYPE:
        return (LONG_TEXT, data.hex())
    assert code == BIG_INTEGER, code
    return int(data)


# -- conditions and paths -----------------------------------------------------------------------------------

_SHORT_BYTES: Final = 1024
_READ_LATELY: Final = 1024
"""This many short conditions are cached after they are read, which takes a few megabytes."""


def condition_bytes(condition: Condition) -> bytes:
    """Return a condition as JSON."""
    return msgspec.json.encode(condition_to_document(condition))


def stored_condition(data: bytes) -> Condition:
    """Return a condition that was validated when it was stored. Later, lower limits do not apply."""
    return _read_lately(data) if len(data) <= _SHORT_BYTES else _read(data)


def _read(data: bytes) -> Condition:
    return condition_from_stored(_decoder.decode(data))


_decoder: Final = msgspec.json.Decoder(float_hook=float)
"""For numbers near the ends of a double's range, Python takes less time than the decoder."""

# A document repeats the conditions of its rules, and a process often reactivates the same detectors.
_read_lately: Final = lru_cache(_READ_LATELY)(_read)


def part_bytes(part: Node) -> bytes:
    """Return a part as JSON: a condition, or a term in a comparison with 0."""
    whole: Any = part
    return condition_bytes(Compare(whole, "eq", 0) if isinstance(part, TermNode) else whole)


def stored_part(data: bytes) -> Node:
    """Return a part from its JSON; see `requirements.py`."""
    condition = stored_condition(data)
    if isinstance(condition, Keyed):
        return condition
    [part] = parts_of(condition)
    return part


def path_document(path: Path) -> list[Any]:
    """Return a path: each key as its name, or as [name, condition as JSON, birth] if it has a `where`."""
    return [
        step if isinstance(step, str) else [step.fact, condition_bytes(step.where), step.birth]
        for step in path
    ]


def stored_path(saved: list[Any]) -> Path:
    """Undo `path_document`."""
    return tuple(
        [step if type(step) is str else Filter(step[0], stored_condition(step[1]), step[2]) for step in saved]
    )
