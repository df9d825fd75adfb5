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
    """The fact between the parentheses of an aggregate, and the condition behind its `where`."""

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
        return _condition("since", SpannedObject({"left": left, "right": right}))

    def since_within(self, parts: list[Any]) -> SpannedObject:
        """`a since within 8h b`."""
        left, window, right = parts
        return _condition(
            "since_within",
            SpannedObject(
                {"left": left, "right": right, "window_secs": window.value}, {"window_secs": window.offset}
            ),
        )

    def negation(self, parts: list[SpannedObject]) -> SpannedObject:
        """`not a`."""
        return _condition("not", *parts)

    def once(self, parts: list[SpannedObject]) -> SpannedObject:
        """`once a`."""
        return _condition("once", *parts)

    def once_within(self, parts: list[Any]) -> SpannedObject:
        """`once within 10m a`."""
        window, inner = parts
        return _condition("once_within", _windowed(inner, window))

    def historically(self, parts: list[SpannedObject]) -> SpannedObject:
        """`historically a`."""
        return _condition("historically", *parts)

    def historically_for(self, parts: list[Any]) -> SpannedObject:
        """`historically for 5m a`, `historically for 5m strong a`."""
        window, *boundary, inner = parts
        content = _windowed(inner, window)
        if boundary:
            (content["boundary"],) = boundary
        return _condition("historically_for", content)

    def keyed(self, parts: list[Any]) -> SpannedObject:
        """`per NAME a`, `per NAME where w a`."""
        key, *filtered, inner = parts
        content = SpannedObject({"inner": inner, "key": key.value}, {"key": key.offset})
        if filtered:
            _, content["where"] = filtered
        return _condition("keyed", content)

    def prefixed_word(self, parts: list[Any]) -> SpannedObject:
        """`previous a`, `earlier a`."""
        word, inner = parts
        return _condition(str(word), inner)

    def earlier_within(self, parts: list[Any]) -> SpannedObject:
        """`earlier within 5m a`."""
        _, window, inner = parts
        return _condition("earlier_within", _windowed(inner, window))

    def count(self, parts: list[Any]) -> SpannedObject:
        """`count(a) within 10m >= 5`, `count(a) >= 5`."""
        word, inner, *compared = parts
        return _condition(str(word), _compared(SpannedObject({"inner": inner}), *compared))

    def aggregate(self, parts: list[Any]) -> SpannedObject:
        """`distinct(x) within 1h > 20`, `sum(x where a) > 1000`, `avg(x) > 0.3 * y`."""
        word, (fact, where), *compared = parts
        content = SpannedObject({"fact": fact.value}, {"fact": fact.offset})
        if where is not None:
            content["where"] = where
        return _condition(str(word), _compared(content, *compared))

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
        offsets = {"fact": name.offset, "times": times.offset}
        return Part(SpannedObject({"fact": name.value, "times": times.value}, offsets), times.offset)

    def leaf(self, parts: list[Any]) -> SpannedObject:
        """`x == 1`, `x in [1]`, `x contains "a"`, `x matches "a"`."""
        return _leaf(*parts)

    def ref(self, parts: list[Any]) -> SpannedObject:
        """`x == y`, `x in y`."""
        fact, op, reference = parts
        return _condition(
            "ref",
            SpannedObject(
                {"fact": fact.value, "op": op, "reference": reference.value},
                {"fact": fact.offset, "reference": reference.offset},
            ),
        )

    def between(self, parts: list[Part]) -> SpannedObject:
        """`x between 1 and 2`."""
        fact, low, high = parts
        return _leaf(fact, "between", Part(_literals([low, high]), low.offset))

    def inequality(self, parts: list[Any]) -> SpannedObject:
        """`x > 1`, `x >= 1`, `x < 1`, `x <= 1`."""
        fact, sign, bound = parts
        open_end = Part(LARGEST if sign.startswith(">") else -LARGEST, bound.offset)
        ends = [bound, open_end] if sign.startswith(">") else [open_end, bound]
        range_ = _leaf(fact, "between", Part(_literals(ends), bound.offset))
        is_strict = not sign.endswith("=")
        return self.all_of([range_, _leaf(fact, "neq", bound)]) if is_strict else range_

    def in_relation(self, parts: list[Part]) -> SpannedObject:
        """`rel(a, "b", 3)`."""
        relation, *arguments = parts
        return _condition(
            "in_relation",
            SpannedObject(
                {"args": _literals(arguments), "relation": relation.value}, {"relation": relation.offset}
            ),
        )

    def fact(self, parts: list[Part]) -> Part:
        """A name as an argument of a relation."""
        (name,) = parts
        return Part(SpannedObject({"fact": name.value}, {"fact": name.offset}), name.offset)

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

    def string(self, tokens: list[Any]) -> Part:
        """`"…"`."""
        (token,) = tokens
        return Part(json.loads(token), token.start_pos)

    def verbatim(self, tokens: list[Any]) -> Part:
        """`'…'`."""
        (token,) = tokens
        return Part(token[1:-1], token.start_pos)

    def number(self, tokens: list[Any]) -> Part:
        """`5`, `1e3`."""
        (token,) = tokens
        return Part(json.loads(token), token.start_pos)

    def duration(self, tokens: list[Any]) -> Part:
        """`10m`."""
        (token,) = tokens
        return Part(duration_seconds(*split_duration(token)), token.start_pos)

    def truth(self, tokens: list[Any]) -> Part:
        """`true`, `false`."""
        (token,) = tokens
        return Part(json.loads(token), token.start_pos)

    def array(self, parts: list[Any]) -> Part:
        """`[1, 2]`."""
        bracket, *elements, _ = parts
        return Part(_literals(elements), bracket.start_pos)


def split_duration(token: str) -> tuple[str, str]:
    """Split a duration into its number and its unit."""
    unit = token.lstrip("-+.0123456789eE")
    assert unit in UNITS_MS
    return token.removesuffix(unit), unit


def _condition(member: str, content: object) -> SpannedObject:
    return SpannedObject({member: content})


def _array(members: list[SpannedObject]) -> SpannedArray:
    return SpannedArray(list[object](members))


def _literals(parts: list[Part]) -> SpannedArray:
    return SpannedArray([part.value for part in parts], [part.offset for part in parts])


def _windowed(inner: SpannedObject, window: Part) -> SpannedObject:
    return SpannedObject({"inner": inner, "window_secs": window.value}, {"window_secs": window.offset})


def _compared(content: SpannedObject, window: Part | None, op: str, value: Part) -> SpannedObject:
    """Return the content of an aggregate, complete with its comparison."""
    if window:
        content["window_secs"], content.offsets["window_secs"] = window
    content["op"] = op
    content["value"], content.offsets["value"] = value
    return content


def _leaf(fact: Part, op: str, value: Part) -> SpannedObject:
    return _condition(
        "leaf",
        SpannedObject(
            {"fact": fact.value, "op": op, "value": value.value},
            {"fact": fact.offset, "value": value.offset},
        ),
    )
