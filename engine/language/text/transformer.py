"""Builds the JSON document of a text, with spans: one method for each rule of the grammar."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import lark
from lark import Token, v_args

from engine.language.json.spans import SpannedArray, SpannedObject
from engine.language.operators import COMPARISONS, LARGEST, OPERATORS
from engine.language.text.lexical.durations import UNITS_MS, duration_seconds
from engine.language.text.lexical.names import from_backquotes

_OPERATOR_NAMES = {"=": "eq"} | {operator.text: operator.name for operator in OPERATORS.values()}
_COMPARISON_NAMES = {"=": "eq"} | {text: name for name, text in COMPARISONS.items()}


class Part(NamedTuple):
    """A name, a literal or a window, and the offset at which it begins in the text."""

    value: object
    offset: int


class AggregateOperand(NamedTuple):
    """The fact between the parentheses of an aggregate, and the condition after its `where`."""

    fact: Part
    where: SpannedObject | None = None


@v_args(inline=True)
class Transformer(lark.Transformer[Any, Any]):
    """One method for each rule of the grammar. None of them changes its arguments."""

    def any_of(self, *members: SpannedObject) -> SpannedObject:
        """`a or b`, `any(a, b)`."""
        return _condition("any", SpannedArray([*members]))

    def all_of(self, *members: SpannedObject) -> SpannedObject:
        """`a and b`, `all(a, b)`."""
        return _condition("all", SpannedArray([*members]))

    def infix(self, left: SpannedObject, word: Token, right: SpannedObject) -> SpannedObject:
        """`a since b`."""
        return _form(str(word), left=left, right=right)

    def infix_within(
        self, left: SpannedObject, word: Token, window: Part, right: SpannedObject
    ) -> SpannedObject:
        """`a since within 8h b`."""
        return _form(f"{word}_within", left=left, right=right, window_secs=window)

    def prefix(self, word: Token, inner: SpannedObject) -> SpannedObject:
        """`not a`, `once a`."""
        return _condition(str(word), inner)

    def prefix_within(self, word: Token, window: Part, inner: SpannedObject) -> SpannedObject:
        """`once within 10m a`."""
        return _form(f"{word}_within", inner=inner, window_secs=window)

    def prefix_for(self, word: Token, window: Part, *rest: Any) -> SpannedObject:
        """`historically for 5m a`, `historically for 5m strong a`."""
        *boundary, inner = rest
        given = {"boundary": boundary.pop()} if boundary else {}
        return _form(f"{word}_for", inner=inner, window_secs=window, **given)

    def keyed(self, key: Part, *rest: Any) -> SpannedObject:
        """`per NAME a`, `per NAME where w a`."""
        *filtered, inner = rest
        given = {"where": filtered[1]} if filtered else {}
        return _form("keyed", inner=inner, key=key, **given)

    def call_of_condition(self, word: Token, inner: SpannedObject, *compared: Any) -> SpannedObject:
        """`count(a) within 10m >= 5`, `count(a) >= 5`."""
        return _form(str(word), inner=inner, **_comparison(*compared))

    def call_of_fact(self, word: Token, over: AggregateOperand, *compared: Any) -> SpannedObject:
        """`sum(x) within 1h > 20`, `sum(x where a) > 1000`, `avg(x) > 0.3 * y`."""
        given = {} if over.where is None else {"where": over.where}
        return _form(str(word), fact=over.fact, **given, **_comparison(*compared))

    def operand(self, fact: Part, *filtered: Any) -> AggregateOperand:
        """`x`, `x where a` between the parentheses of an aggregate."""
        return AggregateOperand(fact, filtered[1] if filtered else None)

    def span(self, window: Part | None = None) -> Part | None:
        """`within 10m`, or nothing."""
        return window

    def comparison(self, token: Token) -> str:
        """`>=`, `==` and so on."""
        return _COMPARISON_NAMES[token]

    def scaled(self, times: Part, _: Token, name: Part) -> Part:
        """`0.3 * x`."""
        return Part(_object(fact=name, times=times), times.offset)

    def leaf(self, fact: Part, op: str, value: Part) -> SpannedObject:
        """`x == 1`, `x in [1]`, `x contains "a"`, `x matches "a"`."""
        return _form("leaf", fact=fact, op=op, value=value)

    def ref(self, fact: Part, op: str, reference: Part) -> SpannedObject:
        """`x == y`, `x in y`."""
        return _form("ref", fact=fact, op=op, reference=reference)

    def between(self, fact: Part, low: Part, high: Part) -> SpannedObject:
        """`x between 1 and 2`."""
        return self.leaf(fact, "between", Part(_literals([low, high]), low.offset))

    def inequality(self, fact: Part, sign: str, bound: Part) -> SpannedObject:
        """`x > 1`, `x >= 1`, `x < 1`, `x <= 1`."""
        open_end = Part(LARGEST if sign.startswith(">") else -LARGEST, bound.offset)
        ends = [bound, open_end] if sign.startswith(">") else [open_end, bound]
        range_ = self.leaf(fact, "between", Part(_literals(ends), bound.offset))
        is_strict = not sign.endswith("=")
        return self.all_of(range_, self.leaf(fact, "neq", bound)) if is_strict else range_

    def in_relation(self, relation: Part, *arguments: Part) -> SpannedObject:
        """`rel(a, "b", 3)`."""
        return _form("in_relation", args=_literals(arguments), relation=relation)

    def fact(self, name: Part) -> Part:
        """A name as an argument of a relation."""
        return Part(_object(fact=name), name.offset)

    def operator(self, *tokens: Token) -> str:
        """`==`, `not in` and so on."""
        return _OPERATOR_NAMES[" ".join(tokens)]

    def word(self, token: Token) -> str:
        """`strong`, `weak`, `>` and so on."""
        return str(token)

    def plain(self, token: Token) -> Part:
        """A name without backquotes."""
        return _part(str(token), token)

    def backquoted(self, token: Token) -> Part:
        """A name in backquotes."""
        return _part(from_backquotes(token), token)

    def scalar(self, token: Token) -> Part:
        """`"…"`, `5`, `1e3`, `true`, `false`."""
        return _part(json.loads(token), token)

    def verbatim(self, token: Token) -> Part:
        """`'…'`."""
        return _part(token[1:-1], token)

    def duration(self, token: Token) -> Part:
        """`10m`."""
        return _part(duration_seconds(*split_duration(token)), token)

    def array(self, bracket: Token, *rest: Any) -> Part:
        """`[1, 2]`."""
        return _part(_literals(rest[:-1]), bracket)


def split_duration(token: str) -> tuple[str, str]:
    """Split a duration into its number and its unit."""
    unit = token.lstrip("-+.0123456789eE")
    assert unit in UNITS_MS
    return token.removesuffix(unit), unit


def offset_of(token: Token) -> int:
    """Return the offset at which a token of a text begins."""
    assert token.start_pos is not None
    return token.start_pos


def _condition(name: str, content: object) -> SpannedObject:
    return SpannedObject({name: content})


def _form(name: str, **members: object) -> SpannedObject:
    """Return a condition whose content is an object of these members."""
    return _condition(name, _object(**members))


def _object(**members: object) -> SpannedObject:
    """Return an object. The members given as parts have spans."""
    parts = {name: member for name, member in members.items() if isinstance(member, Part)}
    values = members | {name: part.value for name, part in parts.items()}
    return SpannedObject(values, {name: part.offset for name, part in parts.items()})


def _part(value: object, token: Token) -> Part:
    """Return what begins with a token."""
    return Part(value, offset_of(token))


def _literals(parts: Sequence[Part]) -> SpannedArray:
    return SpannedArray([part.value for part in parts], [part.offset for part in parts])


def _comparison(window: Part | None, op: str, value: Part) -> dict[str, object]:
    """Return the members of an aggregate that say what its number is compared with."""
    return ({"window_secs": window} if window else {}) | {"op": op, "value": value}
