"""Decodes JSON from callers: typed, bounded, and with every violation of its type reported."""

import functools
import gc
import json
import re
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import accumulate, islice
from typing import Annotated, Any, Final, TypeVar

import msgspec

from engine.language.diagnostics import Entry, Refusal, did_you_mean, json_type
from engine.language.limits import DEFAULT_LIMITS, Limits

T = TypeVar("T")

VIOLATIONS_MAX: Final = 32
"""How many violations of one body are reported, so that the reply cannot exceed a hostile body."""

_NAME_CHARS_SHOWN: Final = 80

_LARGE_BYTES: Final = 1 << 16

_NUMBER: Final = re.compile(rb"-?([0-9]+)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NOT_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_AS_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Brackets as steps in depth, one signed byte each."""
_PAIR: Final = b"\x01\xff"
_PASSES: Final = 6
_DIGITS: Final = b"0123456789"


def decode(
    body: bytes,
    type_: type[T],
    limits: Limits = DEFAULT_LIMITS,
    *,
    narrow: type[T] | None = None,
    nesting_at_most: Callable[[T, bytes], int] = lambda _, body: containers_in(body),
) -> T:
    """Decode a JSON body as a value of a type.

    Raises Refusal 1000 if the body is not JSON, nests too deep, contains too many values, an integer of too
    many digits or a number outside the range of a double. Raises Refusal 1001 with every violation if the
    body does not fit the type.

    `narrow` is a type that most bodies fit, and of which more is known; it is tried first. `nesting_at_most`
    gives an upper bound for the depth of a value and its body. If the bound is within the limit, the depth is
    not computed.
    """
    check_count(body, limits.body_values_max)
    try:
        with without_collector(body):
            value: T | None = None
            if narrow is not None:
                with suppress(msgspec.ValidationError):
                    value = _decoder(narrow).decode(body)  # type: ignore[arg-type]  # a type is hashable
            if value is None:
                value = _decoder(type_).decode(body)  # type: ignore[arg-type]  # as above
    except msgspec.ValidationError as error:
        document = _untyped(body)
        _check_depth(body, limits.body_depth_max)
        check_digits(body, limits.digits_max)
        # The decoder checks all duplicates of a member. The document has only the last, and that one counts.
        if (value_of_last := converted(document, type_)) is not None:
            return value_of_last
        raise shape_refusal(document, type_, str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(body, error) from None
    if nesting_at_most(value, body) > limits.body_depth_max:
        _check_depth(body, limits.body_depth_max)
    check_digits(body, limits.digits_max)
    return value


def containers_in(body: bytes) -> int:
    """Return how many arrays and objects a body has at most."""
    return body.count(b"{") + body.count(b"[")


def without_collector(body: bytes) -> AbstractContextManager[None]:
    """Suspend garbage collection: it would scan the values of a large body again and again."""
    return nullcontext() if len(body) < _LARGE_BYTES or not gc.isenabled() else _without_collector()


@contextmanager
def _without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@functools.cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def converted(document: object, type_: type[T]) -> T | None:
    """Convert plain values to a type, or give None if they do not fit it."""
    try:
        return msgspec.convert(document, type_)
    except msgspec.ValidationError:
        return None


def _untyped(body: bytes) -> object:
    """Decode a body without a type. Raises Refusal 1000 if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise _unreadable(body, error) from None


def _unreadable(body: bytes, error: Exception) -> Refusal:
    """Return the Refusal for a body that is not JSON. Some of the decoder's own messages would mislead."""
    match error:
        case RecursionError():
            reason = "it is nested too deeply"
        case UnicodeDecodeError():
            reason = f"byte {_invalid_at(body)} is not valid UTF-8"
        case _ if "truncated" in str(error) and _breaks_off_at_a_surrogate(body):
            reason = "a string holds half of a surrogate pair"
        case _:
            reason = str(error).removeprefix("JSON is malformed: ").split(" - at ")[0].lower()
    return Refusal(Entry(1000, f"the body is not JSON: {reason}"))


def _invalid_at(body: bytes) -> int:
    """Return the offset of the first byte that is not UTF-8. The decoder counts within a string."""
    try:
        body.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _breaks_off_at_a_surrogate(body: bytes) -> bool:
    """Return whether an unpaired surrogate, not truncation, stopped the decoder."""
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def check_count(body: bytes, values_max: int) -> None:
    """Raise Refusal 1000 if the decoded body would take too much memory."""
    # A value and the separator after it take at least two bytes.
    if len(body) > 2 * values_max and _values_at_most(body) > values_max:
        bare = _without_strings(body)
        # Empty arrays and objects that are written without blanks hold no value.
        if _values_at_most(bare) - bare.count(b"[]") - bare.count(b"{}") > values_max:
            raise too_many_values(values_max)


def too_many_values(values_max: int) -> Refusal:
    """Return the Refusal for a body with too many values."""
    return Refusal(Entry(1000, f"the body holds more than {values_max} values"))


def _values_at_most(body: bytes) -> int:
    return 1 + body.count(b",") + body.count(b"[") + body.count(b"{")


def _check_depth(body: bytes, depth_max: int) -> None:
    if containers_in(body) > depth_max and _deeper_than(body, depth_max):
        raise Refusal(Entry(1000, f"the body is nested more than {depth_max} deep"))


def check_digits(body: bytes, digits_max: int) -> None:
    """Raise Refusal 1000 if valid JSON has an integer of too many digits."""
    # A cheap test that ordinary bodies pass comes first.
    if _has_digits(body, digits_max):
        for number in _NUMBER.finditer(_without_strings(body)):
            whole, fraction, exponent = number.groups()
            if fraction is None and exponent is None and len(whole) > digits_max:
                raise Refusal(Entry(1000, f"the body holds an integer of more than {digits_max} digits"))


def _has_digits(body: bytes, digits_max: int) -> bool:
    """Return whether there are more than `digits_max` digits in a row.

    Such a run covers one of the visited places, so only their surroundings are searched.
    """
    for place in range(digits_max, len(body), digits_max + 1):
        if body[place] in _DIGITS:
            before, after = body[place - digits_max : place], body[place + 1 : place + 1 + digits_max]
            around = len(before) - len(before.rstrip(_DIGITS)) + len(after) - len(after.lstrip(_DIGITS))
            if around >= digits_max:
                return True
    return False


def _deeper_than(body: bytes, depth_max: int) -> bool:
    """Return whether valid JSON nests deeper than `depth_max`."""
    brackets = _without_strings(body).translate(_AS_STEPS, _NOT_BRACKETS)
    # Removing the innermost pairs a few times is cheap and leaves little of most bodies.
    taken = min(_PASSES, depth_max)
    for _ in range(taken):
        if not brackets:
            return False
        brackets = brackets.replace(_PAIR, b"\0").translate(None, b"\0")
    return max(accumulate(array("b", brackets)), default=0) > depth_max - taken


def _without_strings(body: bytes) -> bytes:
    """Return valid JSON without its strings. Every unescaped quote starts or ends one."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(body.split(b'"')[::2])


def shape_refusal(document: object, type_: type, complaint: str) -> Refusal:
    """Return the Refusal with the violations of plain values. `complaint` is the decoder's own message."""
    # A body can have a hundred thousand violations; the search stops after those that are reported.
    found = _violations(document, msgspec.inspect.type_info(type_), "")
    violations = list(islice(found, VIOLATIONS_MAX + 1))
    # If the search finds nothing, the decoder's own message is reported.
    shown = [Entry(1001, violation) for violation in (violations or [complaint])[:VIOLATIONS_MAX]]
    if len(violations) > VIOLATIONS_MAX:
        shown.append(Entry(1001, "body: it has more defects than these"))
    return Refusal(*shown)


def _violations(value: object, expected: Any, place: str) -> Iterator[str]:
    """Yield every violation of msgspec's description of a type by a value, in document order."""
    info = msgspec.inspect
    where = f"{place}: " if place else "body: "
    match expected:
        case info.Metadata(type=inner, extra=extra):
            for violation in _violations(value, inner, place):
                if extra and "expected" in extra and json_type(value) in _types(inner):
                    yield f"{where}expected {extra['expected']}, got {_said(value)}"
                    return
                yield violation
        case info.StructType():
            if isinstance(value, dict):
                yield from _struct_violations(value, expected, place)
            else:
                yield f"{where}expected an object, got {json_type(value)}"
        case info.ListType(item_type=item):
            if isinstance(value, list):
                for index, member in enumerate(value):
                    yield from _violations(member, item, f"{place}[{index}]")
            else:
                yield f"{where}expected an array, got {json_type(value)}"
        case info.DictType():
            if not isinstance(value, dict):
                yield f"{where}expected an object, got {json_type(value)}"
        case _ if not _fits(value, expected):
            kinds = sorted({name for name in _types(expected) if name})
            if json_type(value) in kinds:
                yield f"{where}the value is out of bounds"
            else:
                yield f"{where}expected {' or '.join(kinds)}, got {json_type(value)}"


def _struct_violations(value: dict[str, object], expected: Any, place: str) -> Iterator[str]:
    members = {field.encode_name: field for field in expected.fields}
    missing = [name for name in members if name not in value]
    prefix = f"{place}." if place else ""
    for name, member in value.items():
        if name in members:
            yield from _violations(member, members[name].type, prefix + name)
        elif expected.forbid_unknown_fields:
            shown = name[:_NAME_CHARS_SHOWN]
            yield f"{prefix}{shown}: unknown member{did_you_mean(shown, missing)}"
    for name in missing:
        if members[name].required:
            yield f"{prefix}{name}: missing"


def _fits(value: object, expected: Any) -> bool:
    try:
        msgspec.convert(value, _rebuilt(expected), strict=True)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def _rebuilt(expected: Any) -> Any:
    """Return the Python type that msgspec described. Only plain types reach this."""
    info = msgspec.inspect
    match expected:
        case info.StrType(min_length=least, max_length=most, pattern=pattern):
            meta = msgspec.Meta(min_length=least, max_length=most, pattern=pattern)
            return _annotated(str, meta) if (least, most, pattern) != (None, None, None) else str
        case info.BoolType():
            return bool
        case info.IntType() | info.FloatType():
            base: type = int if isinstance(expected, info.IntType) else float
            bounds = {name: getattr(expected, name) for name in ("gt", "ge", "lt", "le")}
            return _annotated(base, msgspec.Meta(**bounds)) if set(bounds.values()) != {None} else base
        case info.UnionType(types=types):
            rebuilt = [_rebuilt(member) for member in types if not isinstance(member, info.RawType)]
            return functools.reduce(lambda left, right: left | right, rebuilt)
        case info.DictType():
            return dict
        case info.NoneType():
            return None
        case _:
            return Any


def _annotated(base: type, meta: msgspec.Meta) -> Any:
    return Annotated[base, meta]


def _types(expected: Any) -> list[str]:
    info = msgspec.inspect
    match expected:
        case info.Metadata(type=inner):
            return _types(inner)
        case info.StrType():
            return ["a string"]
        case info.BoolType():
            return ["a boolean"]
        case info.IntType() | info.FloatType():
            return ["a number"]
        case info.DictType() | info.StructType():
            return ["an object"]
        case info.ListType():
            return ["an array"]
        case info.UnionType(types=types):
            return [name for member in types for name in _types(member)]
        case _:
            return []


def _said(value: object) -> str:
    """Describe a value for a message; a string by its length, since it may contain control characters."""
    if isinstance(value, str):
        return f"{len(value)} characters" if value else "an empty string"
    return json_type(value)
