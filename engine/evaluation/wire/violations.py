"""The violations of a type by a decoded body, each with its place."""

from collections.abc import Iterator
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from engine.language.diagnostics import Entry, Refusal, did_you_mean, json_type, quoted

VIOLATIONS_MAX: Final = 32
"""The maximum number of reported violations of a body, so that the reply cannot exceed a hostile body."""

MORE_DEFECTS: Final = Entry(1001, "body: it has more defects than these")
"""The last entry if there are more."""

_NAME_CHARS_SHOWN: Final = 80

_NAMES: Final[dict[Any, str]] = {kind: json_type(kind()) for kind in (str, bool, int, float, dict, list)}
_UNBOUNDED: Final = msgspec.Meta()


def shape_refusal(document: object, type_: Any, complaint: str, place: str = "") -> Refusal:
    """Return the Refusal with the violations by plain values, which are at a place in the body.

    `complaint` is the decoder's own message.
    """
    # A body can have a hundred thousand violations; the search stops after the reported ones.
    violations = list(islice(_violations(document, type_, place), VIOLATIONS_MAX + 1))
    # If the search finds nothing, the decoder's own message is reported.
    shown = [Entry(1001, violation) for violation in (violations or [complaint])[:VIOLATIONS_MAX]]
    if len(violations) > VIOLATIONS_MAX:
        shown.append(MORE_DEFECTS)
    return Refusal(*shown)


def _violations(value: object, type_: Any, place: str) -> Iterator[str]:
    """Yield every violation of a type by a value, in document order."""
    where = f"{place}: " if place else "body: "
    [*types] = _alternatives(type_)
    kinds = [kind for kind, _ in types]
    if isinstance(value, dict) and isinstance(kinds[0], type) and issubclass(kinds[0], msgspec.Struct):
        yield from _struct_violations(value, kinds[0], place)
    elif isinstance(value, list) and kinds[0] is list:
        [element] = _members_of(type_, list) or ()
        if (most := types[0][1].max_length) is not None and len(value) > most:
            yield f"{where}expected at most {most} elements, got {len(value)}"
        for index, member in enumerate(value):
            yield from _violations(member, element, f"{place}[{index}]")
    elif isinstance(value, dict) and kinds[0] is dict and (members := _members_of(type_, dict)):
        yield from _mapping_violations(value, members, types[0][1], place)
    elif not any(_fits(value, kind, meta) for kind, meta in types):
        names = sorted({_name_of(kind) for kind in kinds})
        if json_type(value) not in names:
            yield f"{where}expected {' or '.join(names)}, got {json_type(value)}"
        elif said := [meta.extra["expected"] for _, meta in types if meta.extra and "expected" in meta.extra]:
            yield f"{where}expected {said[0]}, got {_said(value)}"
        else:
            yield f"{where}the value is out of bounds"


def _struct_violations(value: dict[str, object], type_: Any, place: str) -> Iterator[str]:
    members = {field.encode_name: field for field in msgspec.structs.fields(type_)}
    missing = [name for name in members if name not in value]
    prefix = f"{place}." if place else ""
    for name, member in value.items():
        if name in members:
            yield from _violations(member, members[name].type, prefix + name)
        elif type_.__struct_config__.forbid_unknown_fields:
            shown = name[:_NAME_CHARS_SHOWN]
            yield f"{prefix}{shown}: unknown member{did_you_mean(shown, missing)}"
    for name in missing:
        if members[name].required:
            yield f"{prefix}{name}: missing"


def _members_of(type_: Any, kind: type) -> tuple[Any, ...] | None:
    """Return the type arguments of a mapping or an array; None if it has none."""
    if get_origin(type_) is kind:
        return get_args(type_)
    inner = [type_.__origin__] if get_origin(type_) is Annotated else get_args(type_)
    return next(filter(None, (_members_of(each, kind) for each in inner)), None)


def _mapping_violations(
    value: dict[str, object], members: tuple[Any, ...], meta: msgspec.Meta, place: str
) -> Iterator[str]:
    name_type, value_type = members
    if not _fits(value, dict, meta):
        yield f"{place}: expected at most {meta.max_length} members, got {len(value)}"
    for name, member in value.items():
        yield from _violations(name, name_type, f"{place}: the name {quoted(name[:_NAME_CHARS_SHOWN])}")
        yield from _violations(member, value_type, f"{place}.{name[:_NAME_CHARS_SHOWN]}")


def _alternatives(type_: Any, meta: msgspec.Meta = _UNBOUNDED) -> Iterator[tuple[Any, msgspec.Meta]]:
    """Yield the classes that a value may have, or its Literal, each with its bounds."""
    if get_origin(type_) is Annotated:
        yield from _alternatives(type_.__origin__, type_.__metadata__[0])
    elif get_origin(type_) in (Union, UnionType):
        for each in get_args(type_):
            yield from _alternatives(each, meta)
    elif get_origin(type_) is Literal:
        yield type_, meta
    elif type_ is not msgspec.UnsetType:
        yield get_origin(type_) or type_, meta


def _name_of(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return json_type(get_args(kind)[0])
    return _NAMES.get(kind, "an object")


def _fits(value: object, kind: Any, meta: msgspec.Meta) -> bool:
    try:
        msgspec.convert(value, Annotated[kind, meta] if kind in _NAMES else kind)
    except msgspec.ValidationError:
        # A raw text may be anything.
        return kind is msgspec.Raw
    return True


def _said(value: object) -> str:
    """Describe a value for a message; a string by its length, because it may contain control characters."""
    if isinstance(value, str):
        count = len(value)
        return f"{count} character{'s' * (count > 1)}" if value else "an empty string"
    if isinstance(value, int | float):
        return str(value)[:_NAME_CHARS_SHOWN]
    return json_type(value)
