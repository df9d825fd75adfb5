"""Conditions to canonical text, which reads back as the same condition."""

import json
import re
from typing import Any, assert_never

from engine.language import condition as language
from engine.language.condition import Condition, FactArg, LeafValue, Scalar, ScaledFact
from engine.language.forms.form import Shape
from engine.language.forms.table import FORM_OF
from engine.language.operators import COMPARISONS, LARGEST, OPERATORS
from engine.language.text.lexical.durations import duration_text
from engine.language.text.lexical.names import name_text, relation_text

_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
"""Invisible characters and those that move others; they are written as escapes.

The list is fixed: Python's notion of printable characters changes between versions, a canonical text
must not.
"""

# Precedence, loosest first. A part gets parentheses if its place requires a tighter one than it has.
_OR, _AND, _INFIX, _PREFIX = range(4)


def format(condition: Condition) -> str:  # noqa: A001  (the inverse of parse is called format)
    """Return the canonical text of a valid condition, on one line and with only the necessary parentheses.

    A name in backquotes is written as it is, including any line breaks.
    """
    return _text(condition, _OR)


def _text(condition: Condition, required: int) -> str:
    precedence, text = _written(condition)
    return f"({text})" if precedence < required else text


def _written(condition: Condition) -> tuple[int, str]:
    """Return the precedence of the text of a condition, and the text."""
    match condition:
        case language.Leaf():
            return _PREFIX, _leaf(condition)
        case language.Ref(fact, op, reference):
            return _PREFIX, f"{name_text(fact)} {OPERATORS[op].text} {name_text(reference)}"
        case language.InRelation(relation, args):
            return _PREFIX, f"{relation_text(relation)}({', '.join(map(_argument, args))})"
        case language.All(members):
            comparison = comparison_text(members)
            return (_PREFIX, comparison) if comparison else _group("all", " and ", members, _AND)
        case language.Any(members):
            return _group("any", " or ", members, _OR)
        case language.Keyed(inner, key, where):
            filtered = f"where {_text(where, _PREFIX)} " if where else ""
            return _PREFIX, f"per {name_text(key)} {filtered}{_text(inner, _PREFIX)}"
        case language.Not(inner):
            return _PREFIX, f"not {_text(inner, _PREFIX)}"
        case _:
            return _operator(condition)


def _operator(node: Any) -> tuple[int, str]:
    """Return the same for an operator, by the shape of its form."""
    form = FORM_OF[type(node)]
    word = form.word
    match form.shape:
        case Shape.PREFIX:
            return _PREFIX, f"{word} {_text(node.inner, _PREFIX)}"
        case Shape.PREFIX_WITHIN:
            return _PREFIX, f"{word} within {duration_text(node.window_secs)} {_text(node.inner, _PREFIX)}"
        case Shape.PREFIX_FOR:
            boundary = f" {node.boundary}" if node.boundary else ""
            window = f"{duration_text(node.window_secs)}{boundary}"
            return _PREFIX, f"{word} for {window} {_text(node.inner, _PREFIX)}"
        case Shape.INFIX:
            return _INFIX, f"{_text(node.left, _PREFIX)} {word} {_text(node.right, _PREFIX)}"
        case Shape.INFIX_WITHIN:
            window = duration_text(node.window_secs)
            return _INFIX, f"{_text(node.left, _PREFIX)} {word} within {window} {_text(node.right, _PREFIX)}"
        case Shape.CALL_OF_CONDITION:
            return _PREFIX, f"{word}({_text(node.inner, _OR)}){_compared(node)}"
        case Shape.CALL_OF_FACT:
            filtered = f" where {_text(node.where, _OR)}" if node.where else ""
            return _PREFIX, f"{word}({name_text(node.fact)}{filtered}){_compared(node)}"
        case _:
            raise AssertionError(node)


def _group(word: str, joint: str, members: tuple[Condition, ...], precedence: int) -> tuple[int, str]:
    """Return the text of an `all` or `any`: joined, or as a call if there is only one member."""
    if len(members) == 1:
        return _PREFIX, f"{word}({_text(members[0], _OR)})"
    return precedence, joint.join(_text(member, precedence + 1) for member in members)


def _compared(aggregate: Any) -> str:
    window = "" if aggregate.window_secs is None else f" within {duration_text(aggregate.window_secs)}"
    return f"{window} {COMPARISONS[aggregate.op]} {_amount(aggregate.value)}"


def _amount(value: float | ScaledFact) -> str:
    """Return the number, the fact, or the number times the fact that an aggregate is compared with."""
    if not isinstance(value, ScaledFact):
        return _literal(value)
    return name_text(value.fact) if value.times is None else f"{value.times!r} * {name_text(value.fact)}"


def _leaf(leaf: language.Leaf) -> str:
    fact = name_text(leaf.fact)
    match leaf.op, leaf.value:
        case "between", (low, high):
            if high == LARGEST:
                return f"{fact} >= {_literal(low)}"
            if low == -LARGEST:
                return f"{fact} <= {_literal(high)}"
            return f"{fact} between {_literal(low)} and {_literal(high)}"
        case op, value:
            return f"{fact} {OPERATORS[op].text} {_literal(value)}"


def comparison_text(members: tuple[Condition, ...]) -> str | None:
    """Return `x > n` or `x < n` if the members of an `all` mean that, otherwise None."""
    match members:
        case (
            language.Leaf(fact, "between", (low, high)),
            language.Leaf(same_fact, "neq", other),
        ) if same_fact == fact:
            if not _is_number(other):
                return None
            if high == LARGEST and low == other:
                return f"{name_text(fact)} > {_literal(low)}"
            if low == -LARGEST and high == other:
                return f"{name_text(fact)} < {_literal(high)}"
    return None


def _is_number(value: LeafValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _argument(argument: FactArg | Scalar) -> str:
    return name_text(argument.fact) if isinstance(argument, FactArg) else _literal(argument)


def _literal(value: LeafValue) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _string(value)
        case tuple():
            return f"[{', '.join(map(_literal, value))}]"
        case _:
            assert_never(value)


def _string(value: str) -> str:
    """Return a string literal: in single quotes if that saves escapes, as in most regular expressions."""
    if ("\\" in value or '"' in value) and "'" not in value and not _HIDDEN.search(value):
        return f"'{value}'"
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
