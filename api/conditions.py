"""The parse of a condition that is stored nowhere: from the body of a request to its result."""

import json
import re
from typing import Final, NoReturn

import msgspec
from engine.language.parser import parse
from engine.language.printer import format as canonical_text

from api.messages import ConditionToParse
from engine.evaluation.bodies import decode
from engine.language.diagnostics import Entry, Refusal
from engine.language.document import condition_from_json, condition_to_document
from engine.language.limits import Limits

_NOT_JSON: Final = 1000
_WRONG_SHAPE: Final = 1001

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},:]', re.DOTALL)


def parse_condition(body: bytes, limits: Limits) -> bytes:
    """Give the result of a parse as JSON. Raises Refusal; may take a while, since texts may be long."""
    source = _condition_in(body, limits)
    match source[:1]:
        case b'"':
            condition = parse(decode(source, str), limits)
        case b"{":
            condition = condition_from_json(source, limits)
        case _:
            found = {b"[": "an array", b"n": "null", b"t": "a boolean", b"f": "a boolean"}
            kind = found.get(source[:1], "a number")
            raise Refusal(Entry(_WRONG_SHAPE, f"condition: expected a string or an object, got {kind}"))
    return msgspec.json.encode(
        {"condition": condition_to_document(condition), "text": canonical_text(condition)}
    )


def _condition_in(body: bytes, limits: Limits) -> bytes:
    """Give the JSON of the member `condition`; its depth and its numbers are for the condition's judge."""
    try:
        return _condition_of(body, bounded_by=len(body))
    except Refusal as refusal:
        if refusal.code != _NOT_JSON:
            raise
        start, end = _span(body) or _give_up(refusal)
        _condition_of(body[:start] + b"{}" + body[end:], bounded_by=limits.body_depth_max)
        if not _is_json(body[start:end]):
            raise
        return body[start:end]


def _condition_of(body: bytes, bounded_by: int) -> bytes:
    raw = decode(body, ConditionToParse, depth_max=bounded_by, digits_max=len(body)).condition
    source = bytes(raw).strip(b" \t\r\n")
    try:
        source.decode()
    except UnicodeDecodeError:
        raise Refusal(Entry(_NOT_JSON, "the body is not JSON: the condition is not valid UTF-8")) from None
    return source


def _give_up(refusal: Refusal) -> NoReturn:
    raise refusal


def _span(body: bytes) -> tuple[int, int] | None:
    """Find the value of the outermost member `condition`, where it begins and where it ends."""
    depth = 0
    start = None
    expects_value = False
    for token in _TOKEN.finditer(body):
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
                if start is not None and depth == 1:
                    return start, token.end()
            case b'"condition"' if depth == 1 and start is None:
                expects_value = True
                continue
            case b":" if depth == 1 and expects_value:
                start = token.end()
        expects_value = False
    return None


def _is_json(source: bytes) -> bool:
    """Tell whether something is JSON by its grammar, though its numbers, surrogates or depth go too far."""
    try:
        json.loads(source, parse_int=_ignored, parse_constant=_refuse_constant)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _ignored(_digits: str) -> None:
    """Numbers of thousands of digits are numbers; their value is not wanted."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
