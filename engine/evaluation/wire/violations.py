"""What is wrong with a decoded body: every violation of its type, each with its place."""

import functools
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from engine.language.diagnostics import Entry, Refusal, did_you_mean, json_type

VIOLATIONS_MAX: Final = 32
"""How many violations of one body are reported, so that the reply cannot exceed a hostile body."""

MORE_DEFECTS: Final = Entry(1001, "body: it has more defects than these")
"""The last entry where there are more."""

_NAME_CHARS_SHOWN: Final = 80


def shape_refusal(document: object, type_: type, complaint: str, place: str = "") -> Refusal:
    """Return the Refusal with the violations of plain values, which stand at a place in the body.

    `complaint` is the decoder's own message.
    """
    # A body can have a hundred thousand violations; the search stops after those that are reported.
    found = _violations(document, msgspec.inspect.type_info(type_), place)
    violations = list(islice(found, VIOLATIONS_MAX + 1))
    # If the search finds nothing, the decoder's own message is reported.
    shown = [Entry(1001, violation) for violation in (violations or [complaint])[:VIOLATIONS_MAX]]
    if len(violations) > VIOLATIONS_MAX:
        shown.append(MORE_DEFECTS)
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
            kinds = sorted(set(_types(expected)))
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
            return _annotated(str, msgspec.Meta(min_length=least, max_length=most, pattern=pattern))
        case info.BoolType():
            return bool
        case info.IntType() | info.FloatType():
            base: type = int if isinstance(expected, info.IntType) else float
            bounds = {name: getattr(expected, name) for name in ("gt", "ge", "lt", "le")}
            return _annotated(base, msgspec.Meta(**bounds))
        case info.UnionType(types=types):
            return functools.reduce(lambda left, right: left | right, map(_rebuilt, types))
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
