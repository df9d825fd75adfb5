"""What the grammar's rules build: the JSON document of each sentence, with the places of its parts."""

import json
import sys
from typing import Any, NamedTuple

from engine.language.json.spans import LocatedArray, LocatedObject
from engine.language.text.durations import UNITS_MS, duration_seconds
from engine.language.text.names import from_backquotes

LARGEST = sys.float_info.max
"""The end of a `between` that has no end of its own: the largest double."""

_OPS = {
    "==": "eq",
    "=": "eq",
    "!=": "neq",
    "in": "in",
    "not in": "nin",
    "contains": "contains",
    "matches": "matches",
}


class Part(NamedTuple):
    """A name, a literal or a window, and the offset in the text at which it begins."""

    value: object
    offset: int


class Sentences:
    """Builds documents, one method for each rule of the grammar; none changes what it is given."""

    def any_of(self, members: list[LocatedObject]) -> LocatedObject:
        """`a or b`, `any(a, b)`."""
        return _condition("any", _array(members))

    def all_of(self, members: list[LocatedObject]) -> LocatedObject:
        """`a and b`, `all(a, b)`."""
        return _condition("all", _array(members))

    def since(self, parts: list[LocatedObject]) -> LocatedObject:
        """`a since b`."""
        left, right = parts
        return _condition("since", LocatedObject({"left": left, "right": right}))

    def since_within(self, parts: list[Any]) -> LocatedObject:
        """`a since within 8h b`."""
        left, window, right = parts
        return _condition(
            "since_within",
            LocatedObject(
                {"left": left, "right": right, "window_secs": window.value}, {"window_secs": window.offset}
            ),
        )

    def negation(self, parts: list[LocatedObject]) -> LocatedObject:
        """`not a`."""
        return _condition("not", *parts)

    def once(self, parts: list[LocatedObject]) -> LocatedObject:
        """`once a`."""
        return _condition("once", *parts)

    def once_within(self, parts: list[Any]) -> LocatedObject:
        """`once within 10m a`."""
        window, inner = parts
        return _condition("once_within", _windowed(inner, window))

    def historically(self, parts: list[LocatedObject]) -> LocatedObject:
        """`historically a`."""
        return _condition("historically", *parts)

    def historically_for(self, parts: list[Any]) -> LocatedObject:
        """`historically for 5m a`, `historically for 5m strong a`."""
        window, *boundary, inner = parts
        content = _windowed(inner, window)
        if boundary:
            (content["boundary"],) = boundary
        return _condition("historically_for", content)

    def keyed(self, parts: list[Any]) -> LocatedObject:
        """`per NAME a`."""
        key, inner = parts
        return _condition("keyed", LocatedObject({"inner": inner, "key": key.value}, {"key": key.offset}))

    def leaf(self, parts: list[Any]) -> LocatedObject:
        """`x == 1`, `x in [1]`, `x contains "a"`, `x matches "a"`."""
        return _leaf(*parts)

    def ref(self, parts: list[Any]) -> LocatedObject:
        """`x == y`, `x in y`."""
        fact, op, reference = parts
        return _condition(
            "ref",
            LocatedObject(
                {"fact": fact.value, "op": op, "reference": reference.value},
                {"fact": fact.offset, "reference": reference.offset},
            ),
        )

    def between(self, parts: list[Part]) -> LocatedObject:
        """`x between 1 and 2`."""
        fact, low, high = parts
        return _between(fact, low, high, low.offset)

    def at_least(self, parts: list[Part]) -> LocatedObject:
        """`x >= 1`."""
        fact, _, low = parts
        return _between(fact, low, Part(LARGEST, low.offset), low.offset)

    def at_most(self, parts: list[Part]) -> LocatedObject:
        """`x <= 1`."""
        fact, _, high = parts
        return _between(fact, Part(-LARGEST, high.offset), high, high.offset)

    def above(self, parts: list[Part]) -> LocatedObject:
        """`x > 1`."""
        fact, _, low = parts
        return self.all_of([self.at_least(parts), _leaf(fact, "neq", low)])

    def below(self, parts: list[Part]) -> LocatedObject:
        """`x < 1`."""
        fact, _, high = parts
        return self.all_of([self.at_most(parts), _leaf(fact, "neq", high)])

    def in_relation(self, parts: list[Part]) -> LocatedObject:
        """`rel(a, "b", 3)`."""
        relation, *arguments = parts
        return _condition(
            "in_relation",
            LocatedObject(
                {"args": _literals(arguments), "relation": relation.value}, {"relation": relation.offset}
            ),
        )

    def fact(self, parts: list[Part]) -> Part:
        """A name among the arguments of a relation."""
        (name,) = parts
        return Part(LocatedObject({"fact": name.value}, {"fact": name.offset}), name.offset)

    def operator(self, tokens: list[Any]) -> str:
        """`==`, `not in` and the like."""
        return _OPS[" ".join(tokens)]

    def word(self, tokens: list[Any]) -> str:
        """`strong`, `weak`."""
        (token,) = tokens
        return str(token)

    def plain(self, tokens: list[Any]) -> Part:
        """A name as it is."""
        (token,) = tokens
        return Part(str(token), token.start_pos)

    def backquoted(self, tokens: list[Any]) -> Part:
        """A name between backquotes."""
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
    """Give the number and the unit of a duration."""
    unit = token.lstrip("-+.0123456789eE")
    assert unit in UNITS_MS
    return token.removesuffix(unit), unit


def _condition(member: str, content: object) -> LocatedObject:
    return LocatedObject({member: content})


def _array(members: list[LocatedObject]) -> LocatedArray:
    return LocatedArray(list[object](members))


def _literals(parts: list[Part]) -> LocatedArray:
    return LocatedArray([part.value for part in parts], [part.offset for part in parts])


def _windowed(inner: LocatedObject, window: Part) -> LocatedObject:
    return LocatedObject({"inner": inner, "window_secs": window.value}, {"window_secs": window.offset})


def _leaf(fact: Part, op: str, value: Part) -> LocatedObject:
    return _condition(
        "leaf",
        LocatedObject(
            {"fact": fact.value, "op": op, "value": value.value},
            {"fact": fact.offset, "value": value.offset},
        ),
    )


def _between(fact: Part, low: Part, high: Part, offset: int) -> LocatedObject:
    return _leaf(fact, "between", Part(_literals([low, high]), offset))
