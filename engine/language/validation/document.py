"""Converts JSON documents and JSON texts to conditions."""

from sys import maxsize
from typing import Final

from engine.language.condition import Condition
from engine.language.diagnostics import UNREADABLE, ConditionError, Entry, Source
from engine.language.json.reader import JsonReader, NotJson
from engine.language.limits import DEFAULT_LIMITS, Limits
from engine.language.validation.size import check_size, check_text_size, json_levels_max, too_deep
from engine.language.validation.validator import validated

_UNBOUNDED: Final = Limits(text_bytes_max=maxsize, nodes_max=maxsize, depth_max=maxsize)


def condition_from_document(document: object, limits: Limits = DEFAULT_LIMITS) -> Condition:
    """Return the condition of a decoded JSON document.

    Raises ConditionError: 1303 alone if the document is too large or too deep, otherwise every 1301 and 1302
    in document order, each with its place.
    """
    return validated(document, limits)


def condition_from_stored(document: object) -> Condition:
    """Return the condition of a document that was validated before it was stored. No limits apply."""
    return validated(document, _UNBOUNDED, is_stored=True)


def condition_from_json(text: str | bytes | Source, limits: Limits = DEFAULT_LIMITS) -> Condition:
    """Return the condition of a JSON text.

    Raises ConditionError like `condition_from_document`, and 1300 with line, column and caret if the text is
    not JSON. 1303 takes precedence over 1300.
    """
    if isinstance(text, bytes):
        text = _decoded(text, limits)
    source = text if isinstance(text, Source) else Source(text)
    check_text_size(source.text, limits)
    reader = JsonReader(source.text, limits)
    refusal: ConditionError | None = None
    try:
        document = reader.read()
    except NotJson as error:
        check_size(error.partial, limits)
        refusal = source.refusal(error.offset, error.sentence)
    # Values other than conditions can be nested, too, such as arrays in arrays.
    if reader.depth > json_levels_max(limits):
        raise too_deep(limits)
    if refusal:
        raise refusal
    return validated(document, limits, source)


def _decoded(text: bytes, limits: Limits) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        readable = text[: error.start].decode()
        check_text_size(readable + "." * (len(text) - error.start), limits)
        source = Source(readable)
        sentence = "expected UTF-8, got other bytes"
        raise ConditionError(Entry(UNREADABLE, source.annotated(len(readable), sentence))) from None
