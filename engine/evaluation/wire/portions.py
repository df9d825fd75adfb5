"""Splits the body of a long batch into bodies with a few of its events each.

The decoder holds the interpreter until it returns, so a long body is decoded in portions, between which
others get their turn.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from engine.evaluation.wire.bodies import check_count, check_weight, converted, unreadable
from engine.evaluation.wire.msgpack_bodies import (
    check_msgpack,
    check_names,
    check_packed_weight,
    emptied,
    unpackable,
)
from engine.evaluation.wire.violations import VIOLATIONS_MAX, shape_refusal
from engine.language.diagnostics import Entry
from engine.language.limits import Limits

BatchForm = Literal["json", "msgpack"]
"""The format of the body of a batch."""

WHOLE_BYTES_MAX: Final = 1 << 18
"""A body up to this takes the decoder 30 ms at worst, and mostly one."""
PORTION_BYTES: Final = 1 << 16
"""About the size of the portions of longer bodies, if their events are of one size."""

_UNKNOWN: Final = re.compile("unknown field `(.*)`", re.DOTALL)
_PLACED: Final = re.compile(r"events\[(\d+)\]")
_STAND_INS: Final[dict[bytes, object]] = {b"{": {}, b"[": [], b'"': "", b"t": True, b"f": True, b"n": None}


class _Outline(msgspec.Struct, forbid_unknown_fields=True):
    """A batch whose events and context are not decoded."""

    events: list[msgspec.Raw]
    context: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Members(msgspec.Struct):
    """What stands in a body beside its unknown members."""

    events: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    context: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class Portion(NamedTuple):
    """A body with some events of a batch, or with its context."""

    first: int
    """The index in the batch of its first event."""
    body: bytes


class _Format(NamedTuple):
    module: Any
    """Of msgspec."""
    outline: Any
    members: Any
    events: Any
    """Decoders."""


_FORMATS: Final = {
    form: _Format(module, *map(module.Decoder, (_Outline, _Members, list[msgspec.Raw])))
    for form, module in (("json", msgspec.json), ("msgpack", msgspec.msgpack))
}


def is_long(body: bytes, limits: Limits) -> bool:
    """Return whether a body of several events must be decoded in portions."""
    return len(body) > min(WHOLE_BYTES_MAX, limits.event_values_max)


def portions_of(body: bytes, type_: type, limits: Limits, form: BatchForm) -> Iterator[Portion]:
    """Split the body of a batch of a type; its context comes first.

    Raises Refusal 1000 if the body is not JSON, respectively msgpack, or if it, an event or the context has
    too many values, and 1001 if it is no object with an array of events and perhaps a context.
    """
    if form == "json":
        check_count(body, limits.body_values_max)
    else:
        check_msgpack(body, limits)
    outline = _outline_of(body, type_, form)
    if isinstance(outline.context, msgspec.Raw):
        _check_weight(outline.context, limits, form, "context: it")
        yield Portion(0, _body(form, [], outline.context))
    events = outline.events
    # Most events of a batch have about the same size; looking at each would take a third as long as decoding.
    step = max(1, len(events) * PORTION_BYTES // len(body))
    for first in range(0, len(events), step):
        yield from _cut(events[first : first + step], first, limits, form)


def _cut(events: list[msgspec.Raw], first: int, limits: Limits, form: BatchForm) -> Iterator[Portion]:
    """Yield a portion with these events, or halves as long as they are long."""
    body, half = _body(form, events), len(events) // 2
    if half and is_long(body, limits):
        yield from _cut(events[:half], first, limits, form)
        yield from _cut(events[half:], first + half, limits, form)
        return
    if not half:
        _check_weight(events[0], limits, form, f"events[{first}]: it")
    yield Portion(first, body)


def _check_weight(text: msgspec.Raw, limits: Limits, form: BatchForm, place: str) -> None:
    check = check_weight if form == "json" else check_packed_weight
    check(bytes(text), limits.event_values_max, place)


def placed(entries: Sequence[Entry], first: int) -> list[Entry]:
    """Return the entries about a portion with the places that events have in the batch."""
    return [
        Entry(entry.code, _PLACED.sub(lambda found: f"events[{first + int(found[1])}]", entry.message, 1))
        for entry in entries[:VIOLATIONS_MAX]
    ]


def _outline_of(body: bytes, type_: type, form: BatchForm) -> _Outline:
    decoders = _FORMATS[form]
    try:
        try:
            return decoders.outline.decode(body)  # type: ignore[no-any-return]  # its type
        except msgspec.ValidationError as error:
            # Of duplicate members the last counts; the decoder has checked all.
            if form == "msgpack":
                check_names(body)
            found = _members_in(body, form)
            document = found if not isinstance(found, _Members) else _stand_ins(found, form, str(error))
            if not isinstance(found, _Members) or converted(document, type_) is None:
                raise shape_refusal(document, type_, str(error)) from None
            return _Outline(decoders.events.decode(found.events), found.context)
    except (ValueError, RecursionError) as error:
        raise unreadable(body, error) if form == "json" else unpackable(error) from None


def _members_in(body: bytes, form: BatchForm) -> object:
    """Return the members of a body, or what stands for a body that is no object."""
    try:
        return _FORMATS[form].members.decode(body)
    except msgspec.ValidationError:
        return _stand_in(body, form)


def _stand_ins(found: _Members, form: BatchForm, complaint: str) -> dict[str, object]:
    """Return a document with the same defects as a body, apart from those of its events and its context.

    Of the unknown members it has the one that the decoder complains about: there may be very many.
    """
    document: dict[str, object] = {}
    if isinstance(found.events, msgspec.Raw):
        document["events"] = _stand_in(bytes(found.events), form)
    if unknown := _UNKNOWN.search(complaint):
        document[unknown[1]] = None
    return document


def _stand_in(text: bytes, form: BatchForm) -> object:
    """Return a value of the same type that is small."""
    return _STAND_INS.get(text.lstrip()[:1], 0) if form == "json" else emptied(text)


def _body(form: BatchForm, events: list[msgspec.Raw], context: msgspec.Raw | None = None) -> bytes:
    """Return the body of a batch."""
    if form == "json":
        rest = b"" if context is None else b',"context":' + bytes(context)
        return b'{"events":[' + b",".join(events) + b"]" + rest + b"}"
    rest = b"\x81" if context is None else b"\x82\xa7context" + bytes(context)
    return rest + b"\xa6events\xdd" + len(events).to_bytes(4) + b"".join(events)
