"""Operations on relations, and the tuples in the parts of a body: JSON, NDJSON or CSV."""

import csv
import io
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from engine.evaluation.wire.bodies import check_digits, decode
from engine.evaluation.wire.decoding import BLANKS
from engine.language.condition import Scalar
from engine.language.diagnostics import Entry, Refusal, json_type, quoted
from engine.language.limits import Limits

TuplesForm: TypeAlias = Literal["json", "ndjson", "csv"]
CellType: TypeAlias = Literal["string", "number", "boolean"]
Tuples: TypeAlias = list[tuple[Scalar, ...]]

_Sent: TypeAlias = tuple[Scalar, ...] | Scalar
_TUPLE: Final = msgspec.json.Decoder(_Sent)
_NUMBER: Final = msgspec.json.Decoder(int | float)
_BOOLEANS: Final = {"true": True, "false": False}
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_EXPECTED: Final = "expected a string, a number or a boolean"


class TuplesPart(msgspec.Struct, frozen=True, array_like=True):
    """A part of a body, cut between two tuples."""

    form: TuplesForm
    body: bytes
    """An array of tuples in JSON; in the other forms, whole lines."""
    first: int = 0
    """The index of its first tuple in JSON; in the other forms, the number of lines before it."""
    types: tuple[CellType, ...] = ()
    """The types of CSV cells; if empty, all are strings."""
    header: bool = False
    """Whether the first line of CSV is a header, which is skipped."""
    place: str = "tuples"
    """The member of the JSON body that holds the array."""


class StagedTuples(msgspec.Struct, frozen=True, array_like=True):
    """The payload of `stage_tuples`, as msgpack: a part of a relation that is being uploaded."""

    upload: str
    """The id of the upload, chosen by its sender."""
    number: int
    """The number of the part, from 0."""
    part: TuplesPart


class PutRelation(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of `put_relation`: an upload replaces a relation."""

    name: str
    upload: str
    parts: int
    """The number of staged parts."""


class ChangeRelation(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of `change_relation`. The tuples to add and to remove are arrays in JSON."""

    name: str
    add: msgspec.Raw = msgspec.Raw(b"[]")
    remove: msgspec.Raw = msgspec.Raw(b"[]")


class NamedRelation(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of `relation` and `delete_relation`. Only `relation` uses `after` and `limit`."""

    name: str
    after: int = 0
    limit: int = 0


def tuples_in(part: TuplesPart, limits: Limits) -> Tuples:
    """Return the tuples of a part. A scalar becomes a tuple of one.

    Raises Refusal 1000 or 1001, with the place of the first tuple that cannot be read.
    """
    if part.form == "csv":
        return [values for _, values in _rows(part, limits)]
    body = part.body
    if part.form == "json":
        return [_as_tuple(value) for value in _array(part, body, limits)]
    try:
        check_digits(body, limits.digits_max)
        return [_as_tuple(_TUPLE.decode(line)) for line in body.split(b"\n") if line.strip(BLANKS)]
    except (ValueError, RecursionError, Refusal):
        return [values for _, values in _lines(part, limits)]


def place_in(part: TuplesPart, index: int, limits: Limits) -> str:
    """Return the place in the body of a tuple of a valid part, given its index in the part."""
    match part.form:
        case "json":
            return f"{part.place}[{part.first + index}]"
        case "ndjson":
            numbered: Iterator[tuple[int, Any]] = _lines(part, limits)
        case "csv":
            numbered = _rows(part, limits)
    return next(f"line {number}" for at, (number, _) in enumerate(numbered) if at == index)


def _as_tuple(value: Any) -> tuple[Scalar, ...]:
    return value if type(value) is tuple else (value,)


def _array(part: TuplesPart, body: bytes, limits: Limits) -> list[Any]:
    """Return the tuples and scalars of an array. Raises Refusal."""
    place = part.place
    try:
        return decode(body, list[_Sent], limits, place)
    except Refusal:
        # The type is a union, so the decoder's message would name neither type.
        values = decode(body, list[Any], limits, place)
    return [_checked(value, f"{place}[{part.first + index}]") for index, value in enumerate(values)]


def _checked(value: Any, place: str) -> _Sent:
    """Return a decoded array as a tuple, or a scalar as it is. Raises Refusal 1001."""
    if isinstance(value, (str, int, float)):
        return value
    if not isinstance(value, list):
        message = f"{place}: {_EXPECTED}, or an array of them, got {json_type(value)}"
        raise Refusal(Entry(1001, message))
    for index, member in enumerate(value):
        if not isinstance(member, (str, int, float)):
            raise Refusal(Entry(1001, f"{place}[{index}]: {_EXPECTED}, got {json_type(member)}"))
    return tuple(value)


def _lines(part: TuplesPart, limits: Limits) -> Iterator[tuple[int, tuple[Scalar, ...]]]:
    """Yield the number of each line that is not blank, and its tuple. Raises Refusal."""
    for number, line in enumerate(part.body.split(b"\n"), part.first + 1):
        if not line.strip(BLANKS):
            continue
        place = f"line {number}"
        try:
            value = decode(line, Any, limits)
        except Refusal as refusal:
            raise Refusal(
                *[
                    Entry(entry.code, f"{place}: {entry.message.replace('the body', 'it')}")
                    for entry in refusal.entries
                ]
            ) from None
        yield number, _as_tuple(_checked(value, place))


def _rows(part: TuplesPart, limits: Limits) -> Iterator[tuple[int, tuple[Scalar, ...]]]:
    """Yield each CSV row's last line number and cells. Blank lines are skipped."""
    body = part.body.removeprefix(_BYTE_ORDER_MARK) if not part.first else part.body
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        number = part.first + body.count(b"\n", 0, error.start) + 1
        raise Refusal(Entry(1000, f"line {number}: it is not valid UTF-8")) from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    types, passes_over = part.types, part.header and not part.first
    plain = all(one == "string" for one in types)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise Refusal(Entry(1001, f"line {part.first + reader.line_num}: {error}")) from None
        if cells is None:
            return
        if not cells:
            continue
        if passes_over:
            passes_over = False
            continue
        number = part.first + reader.line_num
        if types and len(cells) != len(types):
            message = f"line {number}: expected {len(types)} cells, as types has, got {len(cells)}"
            raise Refusal(Entry(1001, message))
        if plain:
            yield number, tuple(cells)
        else:
            typed = zip(cells, types, strict=True)
            yield number, tuple([_cell(*pair, limits, f"line {number}") for pair in typed])


def _cell(cell: str, type_: CellType, limits: Limits, place: str) -> Scalar:
    """Return the value of a cell. Raises Refusal 1001."""
    if type_ == "string":
        return cell
    if type_ == "number" and len(cell) > limits.digits_max:
        digits = cell.strip().removeprefix("-")
        if digits.isdigit() and len(digits) > limits.digits_max:
            raise Refusal(Entry(1001, f"{place}: expected a number of at most {limits.digits_max} digits"))
    try:
        if type_ == "number":
            number: Scalar = _NUMBER.decode(cell)
            return number
        return _BOOLEANS[cell]
    except (ValueError, KeyError):
        wanted = "a number" if type_ == "number" else "true or false"
        raise Refusal(Entry(1001, f"{place}: expected {wanted}, got {quoted(cell)}")) from None
