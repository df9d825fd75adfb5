"""Bodies with conditions: a condition to parse without storing it, or many rules to put."""

import json
import re
from dataclasses import replace
from functools import partial
from typing import Any, Final, NoReturn

import msgspec

from api.schema.messages.catalogue import given
from api.schema.messages.rules import ConditionToParse, RulesToPut, RuleToPut
from engine.evaluation.kernel.costs import estimate_of
from engine.evaluation.rule_book.rule_messages import condition_messages
from engine.evaluation.rules import Labels
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.events import encode_entries
from engine.evaluation.wire.violations import MORE_DEFECTS, VIOLATIONS_MAX
from engine.language.diagnostics import Entry, Refusal
from engine.language.json.writer import condition_to_document, json_bytes
from engine.language.limits import Limits
from engine.language.text.parser import parse
from engine.language.text.printer import format as canonical_text
from engine.language.validation.document import condition_from_json
from engine.runtime.contract.requests.operations import Operation, PutRule, put_rules

_NOT_JSON: Final = 1000
_WRONG_SHAPE: Final = 1001

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{},:]', re.DOTALL)
"""A string or a punctuation mark of JSON. An unterminated string is one token, too: otherwise each quote in
it would start another attempt, and the search would take quadratic time."""
_OTHER_KINDS: Final = {b"[": "an array", b"n": "null", b"t": "a boolean", b"f": "a boolean"}
_NESTED: Final = 2
"""How many objects and arrays enclose a rule."""


class _Rest(ConditionToParse):
    """The body without its condition."""

    condition: Any


def parse_condition(body: bytes, limits: Limits) -> tuple[bytes, bytes]:
    """Return the condition, its text and its cost as JSON, and the messages; takes up to a second.

    Raises Refusal.
    """
    source = _condition_in(body, limits)
    match source[:1]:
        case b'"':
            condition = parse(decode(source, str, limits), limits)
        case b"{":
            condition = condition_from_json(source, limits)
        case first:
            kind = _OTHER_KINDS.get(first, "a number")
            raise Refusal(Entry(_WRONG_SHAPE, f"condition: expected a string or an object, got {kind}"))
    cost = estimate_of(condition)
    estimate = {
        "event_ns": cost.event_ns,
        "memories": [{"per": per, "entries_max": most} for per, most in cost.memories.items()],
    }
    result = msgspec.json.encode(
        {
            "condition": condition_to_document(condition),
            "text": canonical_text(condition),
            "estimate": estimate,
        }
    )
    return result, encode_entries(condition_messages(condition, ()))


def _condition_in(body: bytes, limits: Limits) -> bytes:
    """Return the JSON of the member `condition`.

    The validator of conditions checks its depth and numbers, so the limits of bodies apply only to the rest.
    The body is JSON exactly if both parts are.
    """
    start, end = _span(body)
    rest = body[:start] + b"null" + body[end:] if start < end else body
    decode(rest, _Rest, limits)
    source = body[start:end].strip(b" \t\r\n")
    _check_grammar(source)
    return source


def _span(body: bytes) -> tuple[int, int]:
    """Return the span of the last top-level member `condition`, an empty one if there is none."""
    depth = 0
    start = end = 0
    is_wanted = False
    before = b""
    for token in _TOKEN.finditer(body):
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]" | b"," if depth == 1 and is_wanted:
                end = token.start()
                is_wanted = False
                depth -= token[0] != b","
            case b"}" | b"]":
                depth -= 1
            case b":" if depth == 1 and before == b'"condition"':
                start = end = token.end()
                is_wanted = True
        before = token[0]
    return start, end


def _check_grammar(source: bytes) -> None:
    """Raise Refusal 1000 unless this is grammatical JSON, whatever its numbers, surrogates and depth."""
    try:
        # Numbers are not converted, which could take long.
        json.loads(source.decode(), parse_int=_skipped, parse_float=_skipped, parse_constant=_refuse_constant)
    except RecursionError:
        return
    except ValueError:
        raise Refusal(Entry(_NOT_JSON, "the body is not JSON: the condition is malformed")) from None


def _skipped(_: str) -> None:
    pass


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


class _Apart(RulesToPut, forbid_unknown_fields=True):
    """The body with its rules as JSON, which are decoded one by one: together they may be too large."""

    rules: list[msgspec.Raw]  # type: ignore[assignment]


def put_rules_operation(body: bytes, limits: Limits) -> Operation:
    """Return the operation of a body. Raises Refusal."""
    around = replace(limits, event_values_max=limits.body_values_max)
    apart = decode(body, _Apart, around, apart=partial(_not_deep, limits.body_depth_max), has_raw=True)
    rules: list[PutRule] = []
    defects: list[Entry] = []
    for place, raw in enumerate(apart.rules):
        try:
            rule = decode(bytes(raw), RuleToPut, limits, f"rules[{place}]", _NESTED)
        except Refusal as refusal:
            defects += refusal.entries
            if len(defects) > VIOLATIONS_MAX:
                raise Refusal(*defects[:VIOLATIONS_MAX], MORE_DEFECTS) from None
            continue
        members = (rule.name, rule.condition, rule.notify, rule.shadow, given(rule.draftOf), rule.description)
        labels = _labels(rule.labels) if rule.labels else "{}"
        acting = (rule.timed, rule.every_secs, given(rule.every_by))
        rules.append(PutRule(*members, labels, *acting, rule.enabled, given(rule.history)))
    if defects:
        raise Refusal(*defects)
    return put_rules(rules, prune=apart.prune, dry_run=apart.dryRun, details=apart.details)


def _not_deep(depth_max: int, apart: _Apart) -> int:
    """Return how many objects and arrays are in rules with too few of them to exceed the depth."""
    counts = (raw.count(b"{") + raw.count(b"[") for raw in map(bytes, apart.rules))
    return sum(count for count in counts if count <= depth_max - _NESTED)


def _labels(labels: Labels) -> str:
    try:
        return msgspec.json.encode(labels).decode()
    except OverflowError:
        # The labels have an integer of more than 64 bits.
        return json_bytes(labels).decode()
