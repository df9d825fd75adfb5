"""Builds the JSON document of a text, with spans: one method for each rule of the grammar."""

import json
from typing import Any, NamedTuple

from engine.language.json.spans import SpannedArray, SpannedObject
from engine.language.operators import COMPARISONS, LARGEST, OPERATORS
from engine.language.text.durations import UNITS_MS, duration_seconds
from engine.language.text.names import from_backquotes

_OPERATOR_NAMES = {"=": "eq"} | {operator.text: operator.name for operator in OPERATORS.values()}
_COMPARISON_NAMES = {"=": "eq"} | {text: name for name, text in COMPARISONS.items()}


class Part(NamedTuple):
    """A name, a literal or a window, and the offset at which it begins in the text."""

    value: object
    offset: int


class Operand(NamedTuple):
    """The fact between the parentheses of an aggregate, and the condition after its `where`."""

    fact: Part
    where: SpannedObject | None = None


class Transformer:
    """One method for each rule of the grammar. None of them changes its arguments."""

    def any_of(self, members: list[SpannedObject]) -> SpannedObject:
        """`a or b`, `any(a, b)`."""
        return _condition("any", _array(members))

    def all_of(self, members: list[SpannedObject]) -> SpannedObject:
        """`a and b`, `all(a, b)`."""
        return _condition("all", _array(members))

    def since(self, parts: list[SpannedObject]) -> SpannedObject:
        """`a since b`."""
        left, right = parts
        return _form("since", left=left, right=right)

    def since_within(self, parts: list[Any]) -> SpannedObject:
        """`a since within 8h b`."""
        left, window, right = parts
        return _form("since_within", left=left, right=right, window_secs=window)

    def prefix(self, parts: list[Any]) -> SpannedObject:
        """`not a`, `once a`, `historically a`, `previous a`, `earlier a`."""
        word, inner = parts
        return _condition(str(word), inner)

    def windowed(self, parts: list[Any]) -> SpannedObject:
        """`once within 10m a`, `earlier within 5m a`."""
        word, window, inner = parts
        return _form(f"{word}_within", inner=inner, window_secs=window)

    def historically_for(self, parts: list[Any]) -> SpannedObject:
        """`historically for 5m a`, `historically for 5m strong a`."""
        window, *boundary, inner = parts
        given = {"boundary": boundary[0]} if boundary else {}
        return _form("historically_for", inner=inner, window_secs=window, **given)

    def keyed(self, parts: list[Any]) -> SpannedObject:
        """`per NAME a`, `per NAME where w a`."""
        key, *filtered, inner = parts
        given = {"where": filtered[1]} if filtered else {}
        return _form("keyed", inner=inner, key=key, **given)

    def count(self, parts: list[Any]) -> SpannedObject:
        """`count(a) within 10m >= 5`, `count(a) >= 5`."""
        word, inner, *compared = parts
        return _form(str(word), inner=inner, **_comparison(*compared))

    def aggregate(self, parts: list[Any]) -> SpannedObject:
        """`distinct(x) within 1h > 20`, `sum(x where a) > 1000`, `avg(x) > 0.3 * y`."""
        word, (fact, where), *compared = parts
        given = {} if where is None else {"where": where}
        return _form(str(word), fact=fact, **given, **_comparison(*compared))

    def operand(self, parts: list[Any]) -> Operand:
        """`x`, `x where a` between the parentheses of an aggregate."""
        fact, *filtered = parts
        return Operand(fact, filtered[1] if filtered else None)

    def span(self, parts: list[Part]) -> Part | None:
        """`within 10m`, or nothing."""
        return parts[0] if parts else None

    def comparison(self, tokens: list[Any]) -> str:
        """`>=`, `==` and so on."""
        (token,) = tokens
        return _COMPARISON_NAMES[token]

    def scaled(self, parts: list[Any]) -> Part:
        """`0.3 * x`."""
        times, _, name = parts
        return Part(_object(fact=name, times=times), times.offset)

    def leaf(self, parts: list[Any]) -> SpannedObject:
        """`x == 1`, `x in [1]`, `x contains "a"`, `x matches "a"`."""
        fact, op, value = parts
        return _form("leaf", fact=fact, op=op, value=value)

    def ref(self, parts: list[Any]) -> SpannedObject:
        """`x == y`, `x in y`."""
        fact, op, reference = parts
        return _form("ref", fact=fact, op=op, reference=reference)

    def between(self, parts: list[Part]) -> SpannedObject:
        """`x between 1 and 2`."""
        fact, low, high = parts
        return self.leaf([fact, "between", Part(_literals([low, high]), low.offset)])

    def inequality(self, parts: list[Any]) -> SpannedObject:
        """`x > 1`, `x >= 1`, `x < 1`, `x <= 1`."""
        fact, sign, bound = parts
        open_end = Part(LARGEST if sign.startswith(">") else -LARGEST, bound.offset)
        ends = [bound, open_end] if sign.startswith(">") else [open_end, bound]
        range_ = self.leaf([fact, "between", Part(_literals(ends), bound.offset)])
        is_strict = not sign.endswith("=")
        return self.all_of([range_, self.leaf([fact, "neq", bound])]) if is_strict else range_

    def in_relation(self, parts: list[Part]) -> SpannedObject:
        """`rel(a, "b", 3)`."""
        relation, *arguments = parts
        return _form("in_relation", args=_literals(arguments), relation=relation)

    def fact(self, parts: list[Part]) -> Part:
        """A name as an argument of a relation."""
        (name,) = parts
        return Part(_object(fact=name), name.offset)

    def operator(self, tokens: list[Any]) -> str:
        """`==`, `not in` and so on."""
        return _OPERATOR_NAMES[" ".join(tokens)]

    def word(self, tokens: list[Any]) -> str:
        """`strong`, `weak`, `>` and so on."""
        (token,) = tokens
        return str(token)

    def plain(self, tokens: list[Any]) -> Part:
        """A name without backquotes."""
        (token,) = tokens
        return Part(str(token), token.start_pos)

    def backquoted(self, tokens: list[Any]) -> Part:
        """A name in backquotes."""
        (token,) = tokens
        return Part(from_backquotes(token), token.start_pos)

    def scalar(self, tokens: list[Any]) -> Part:
        """`"…"`, `5`, `1e3`, `true`, `false`."""
        (token,) = tokens
        return Part(json.loads(token), token.start_pos)

    def verbatim(self, tokens: list[Any]) -> Part:
        """`'…'`."""
        (token,) = tokens
        return Part(token[1:-1], token.start_pos)

    def duration(self, tokens: list[Any]) -> Part:
        """`10m`."""
        (token,) = tokens
        return Part(duration_seconds(*split_duration(token)), token.start_pos)

    def array(self, parts: list[Any]) -> Part:
        """`[1, 2]`."""
        bracket, *elements, _ = parts
        return Part(_literals(elements), bracket.start_pos)


def split_duration(token: str) -> tuple[str, str]:
    """Split a duration into its number and its unit."""
    unit = token.lstrip("-+.0123456789eE")
    assert unit in UNITS_MS
    return token.removesuffix(unit), unit


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


def _array(members: list[SpannedObject]) -> SpannedArray:
    return SpannedArray(list[object](members))


def _literals(parts: list[Part]) -> SpannedArray:
    return SpannedArray([part.value for part in parts], [part.offset for part in parts])


def _comparison(window: Part | None, op: str, value: Part) -> dict[str, object]:
    """Return what an aggregate has besides what it is computed from."""
    return ({"window_secs": window} if window else {}) | {"op": op, "value": value}
