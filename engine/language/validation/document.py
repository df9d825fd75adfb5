"""JSON documents to conditions, with every defect and its place; and conditions back to documents."""

from typing import Final, assert_never

from engine.language.condition import (
    All,
    Any,
    Condition,
    FactArg,
    Historically,
    HistoricallyFor,
    InRelation,
    Keyed,
    Leaf,
    LeafValue,
    Not,
    Once,
    OnceWithin,
    Ref,
    Scalar,
    Since,
    SinceWithin,
)
from engine.language.diagnostics import UNREADABLE, ConditionError, Entry, Source
from engine.language.json.reader import JsonReader, NotJson
from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.language.validation.size import check_size, check_text_size, json_levels_max, too_deep
from engine.language.validation.validator import judge

_UNBOUNDED: Final = Limits(text_bytes_max=2**62, nodes_max=2**62, depth_max=2**62)


def condition_from_document(document: object, limits: Limits = DEFAULT_LIMITS) -> Condition:
    """Give the condition that a decoded JSON document is.

    Raises ConditionError: 1303 alone where the document is too large or too deep; else every 1301 and 1302 in
    the order of the document, each with its place.
    """
    return judge(document, limits)


def condition_from_stored(document: object) -> Condition:
    """Give the condition of a document that was judged when it was stored, whatever the bounds are now."""
    return judge(document, _UNBOUNDED, is_stored=True)


def condition_from_json(text: str | bytes, limits: Limits = DEFAULT_LIMITS) -> Condition:
    """Give the condition that a JSON text is.

    Raises ConditionError as `condition_from_document` does, and 1300 with line, column and caret where the
    text is not JSON. Too long and too deep come first.
    """
    if isinstance(text, bytes):
        text = _decoded(text, limits)
    check_text_size(text, limits)
    source = Source(text)
    reader = JsonReader(text, limits)
    refusal: ConditionError | None = None
    try:
        document = reader.read()
    except NotJson as error:
        check_size(error.partial, limits)
        refusal = source.refusal(error.offset, error.sentence)
    else:
        check_size(document, limits)
    # What holds no condition can be nested too: brackets within brackets, say.
    if reader.depth > json_levels_max(limits):
        raise too_deep(limits)
    if refusal:
        raise refusal
    return judge(document, limits, source)


def condition_to_document(condition: Condition) -> dict[str, object]:
    """Give the JSON document of a condition, its members in the order in which the interface lists them.

    It is the document that was given: nothing is filled in, and numbers keep their type.
    """
    match condition:
        case Leaf(fact, op, value):
            return {"leaf": {"fact": fact, "op": op, "value": _value_to_document(value)}}
        case Ref(fact, op, reference):
            return {"ref": {"fact": fact, "op": op, "reference": reference}}
        case InRelation(relation, args):
            return {"in_relation": {"args": [_argument_to_document(a) for a in args], "relation": relation}}
        case All(members):
            return {"all": [condition_to_document(member) for member in members]}
        case Any(members):
            return {"any": [condition_to_document(member) for member in members]}
        case Not(inner):
            return {"not": condition_to_document(inner)}
        case Once(inner):
            return {"once": condition_to_document(inner)}
        case Historically(inner):
            return {"historically": condition_to_document(inner)}
        case Since(left, right):
            return {"since": {"left": condition_to_document(left), "right": condition_to_document(right)}}
        case OnceWithin(inner, window_secs):
            return {"once_within": {"inner": condition_to_document(inner), "window_secs": window_secs}}
        case HistoricallyFor(inner, window_secs, boundary):
            content = {"inner": condition_to_document(inner), "window_secs": window_secs}
            return {"historically_for": content if boundary is None else {**content, "boundary": boundary}}
        case SinceWithin(left, right, window_secs):
            both = {"left": condition_to_document(left), "right": condition_to_document(right)}
            return {"since_within": {**both, "window_secs": window_secs}}
        case Keyed(inner, key):
            return {"keyed": {"inner": condition_to_document(inner), "key": key}}
        case _:
            assert_never(condition)


def _value_to_document(value: LeafValue) -> object:
    return list(value) if isinstance(value, tuple) else value


def _argument_to_document(argument: FactArg | Scalar) -> object:
    return {"fact": argument.fact} if isinstance(argument, FactArg) else argument


def _decoded(text: bytes, limits: Limits) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        readable = text[: error.start].decode()
        check_text_size(readable + "." * (len(text) - error.start), limits)
        source = Source(readable)
        sentence = "expected UTF-8, got other bytes"
        raise ConditionError(Entry(UNREADABLE, source.pointing(len(readable), sentence))) from None
