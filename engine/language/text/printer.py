"""Formats conditions as canonical text, which reads back as the same condition."""

import json
import re
from decimal import Decimal
from typing import Any, Final, assert_never, cast

from engine.language import condition as language
from engine.language import terms
from engine.language.condition import Condition, FactArg, LeafValue, Scalar, ScaledFact
from engine.language.durations import EXACT, UNITS_MS, duration_seconds
from engine.language.forms.form import PREFIXES, Shape
from engine.language.forms.table import FORM_OF
from engine.language.forms.terms import TERM_FORM_OF
from engine.language.literals import is_number
from engine.language.nodes import TermNode
from engine.language.operators import COMPARISONS, LARGEST, OPERATORS
from engine.language.terms import Term
from engine.language.text.lexical import WORD, contextual_keywords, in_backquotes, keywords
from engine.language.text.sugar import (
    ARITHMETIC,
    alternatives_of,
    are_of_one_term,
    is_scalar,
    reads_otherwise,
    sugar_of,
)

_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)
"""Invisible characters and those that move others; they are written as escapes.

The list is fixed, because Python's notion of printable characters changes between versions, and a canonical
text must not change.
"""

_PLAIN_WORD: Final = re.compile(WORD)
_PLAIN_NAME: Final = re.compile(rf"\$?{WORD}(?:\.{WORD})*")

# Precedence, loosest first. A part gets parentheses if its place requires a tighter precedence.
_OR, _AND, _INFIX, _PREFIX = range(4)
_SUM, _PRODUCT = range(2)

_SIGNS = dict(zip(ARITHMETIC, "+-*/", strict=True))


def format(condition: Condition) -> str:  # noqa: A001  (the inverse of parse is called format)
    """Return the canonical text of a valid condition, on one line and with only the necessary parentheses.

    A name in backquotes is written as it is, including any line breaks.
    """
    return _text(condition, _OR)


def format_term(term: Term | TermNode) -> str:
    """Return the canonical text of a valid term."""
    return _term(cast("Term", term))


def name_text(name: str) -> str:
    """Return the name of a fact as in texts, in backquotes if it needs them."""
    return _spelled(name, _PLAIN_NAME)


def _relation_text(name: str) -> str:
    """Return the name of a relation as in texts. Names with dots or `$` need backquotes, too."""
    return _spelled(name, _PLAIN_WORD)


def _spelled(name: str, plain: re.Pattern[str]) -> str:
    return name if plain.fullmatch(name) and name.lower() not in keywords() else in_backquotes(name)


def duration_text(window_secs: float) -> str:
    """Return the text of a window: in the largest unit that makes it an integer, otherwise in seconds.

    The text reads back as the same window, whatever its size and precision.
    """
    seconds = Decimal(repr(window_secs))
    milliseconds = EXACT.multiply(seconds, Decimal(1000))
    for unit, unit_ms in UNITS_MS.items():
        fits = 0 < seconds < 1 if unit == "ms" else seconds != 0
        amount, rest = EXACT.divmod(milliseconds, Decimal(unit_ms))
        text = str(int(amount))
        if fits and not rest and duration_seconds(text, unit) == window_secs:
            return text + unit
    return f"{window_secs}s"


def _text(condition: Condition, required: int) -> str:
    precedence, text = _written(condition)
    return f"({text})" if precedence < required else text


def _written(condition: Condition) -> tuple[int, str]:
    """Return the precedence of the text of a condition, and the text."""
    match condition:
        case language.Leaf():
            return _PREFIX, _leaf(condition)
        case language.Ref(fact, "eq", reference) if fact == reference:
            return _PREFIX, f"exists {name_text(fact)}"
        case language.Not(language.Ref(fact, "eq", reference)) if fact == reference:
            return _PREFIX, f"missing {name_text(fact)}"
        case language.Ref(fact, "in" | "nin" as op, "network"):
            # Without backquotes, this would be read as `in network`.
            return _PREFIX, f"{name_text(fact)} {OPERATORS[op].text} `network`"
        case language.Ref(fact, op, reference):
            return _PREFIX, f"{name_text(fact)} {OPERATORS[op].text} {name_text(reference)}"
        case language.InRelation(relation, args):
            return _PREFIX, f"{_relation_text(relation)}({', '.join(map(_argument, args))})"
        case language.All(members):
            comparison = comparison_text(members) or _range_of_term(members)
            return (_PREFIX, comparison) if comparison else _group("all", " and ", members, _AND)
        case language.InNetwork(fact, networks):
            return _PREFIX, f"{name_text(fact)} in network {_networks(networks)}"
        case language.Anywhere(inner):
            return _PREFIX, f"anywhere ({_text(inner, _OR)})"
        case language.Some(fact, inner):
            return _PREFIX, f"some {name_text(fact)} ({_text(inner, _OR)})"
        case language.Any(members) if (found := alternatives_of(members)) is not None:
            fact, word, texts = found
            return _PREFIX, f"{name_text(fact)} {word} {_literal(tuple(texts))}"
        case language.Any(members):
            listed = _list_of_term(members)
            return (_PREFIX, listed) if listed else _group("any", " or ", members, _OR)
        case language.Compare(left, op, right):
            text = f"{_term(left)} {COMPARISONS[op]} {_term(right)}"
            return _PREFIX, f"compare({text})" if reads_otherwise(condition) else text
        case language.Keyed(inner, key, where):
            filtered = f"where {_where(where)} " if where else ""
            return _PREFIX, f"per {name_text(key)} {filtered}{_text(inner, _PREFIX)}"
        case language.Not(inner):
            return _PREFIX, f"not {_text(inner, _PREFIX)}"
        case _:
            return _operator(condition)


def _operator(node: Any) -> tuple[int, str]:
    """Return the precedence and the text of an operator, by the shape of its form."""
    form = FORM_OF[type(node)]
    word = form.word
    match form.shape:
        case Shape.PREFIX:
            return _PREFIX, f"{word} {_text(node.inner, _PREFIX)}"
        case Shape.PREFIX_WITHIN:
            return _PREFIX, f"{word} within {_window(node)} {_text(node.inner, _PREFIX)}"
        case Shape.PREFIX_FOR:
            boundary = f" {node.boundary}" if node.boundary else ""
            return _PREFIX, f"{word} for {_window(node)}{boundary} {_text(node.inner, _PREFIX)}"
        case Shape.INFIX:
            return _INFIX, f"{_text(node.left, _PREFIX)} {word} {_text(node.right, _PREFIX)}"
        case Shape.INFIX_WITHIN:
            within = f"{word} within {_window(node)}"
            return _INFIX, f"{_text(node.left, _PREFIX)} {within} {_text(node.right, _PREFIX)}"
        case Shape.CALL_OF_CONDITION:
            return _PREFIX, f"{word}({_text(node.inner, _OR)}){_compared(node)}"
        case Shape.CALL_SINCE:
            counted = f"{word}({_text(node.inner, _OR)}) since {_reset(node.reset)}"
            return _PREFIX, f"{counted} {COMPARISONS[node.op]} {_amount(node.value)}"
        case Shape.CALL_OF_FACT:
            return _PREFIX, f"{word}({_filtered(node)}){_compared(node)}"
        case _:
            raise AssertionError(node)


def _group(word: str, joint: str, members: tuple[Condition, ...], precedence: int) -> tuple[int, str]:
    """Return the text of an `all` or `any`: joined, or as a call if there is only one member."""
    if len(members) == 1:
        return _PREFIX, f"{word}({_text(members[0], _OR)})"
    return precedence, joint.join(_text(member, precedence + 1) for member in members)


def _where(where: Condition) -> str:
    """Return the text of the `where` of a `per`.

    A condition follows, so a comparison of terms at the end gets parentheses: otherwise, in
    `x == count (a == 1)`, the count would be a name.
    """
    last = _last(where)
    is_open = isinstance(last, language.Compare) and not reads_otherwise(last)
    return f"({_text(where, _OR)})" if is_open else _text(where, _PREFIX)


def _reset(reset: Condition) -> str:
    """Return the text of the condition that resets a count.

    A comparison follows, so a relation at the end that is named like a term gets parentheses.
    """
    last = _last(reset)
    is_open = isinstance(last, language.InRelation) and last.relation in contextual_keywords()
    return f"({_text(reset, _OR)})" if is_open else _text(reset, _PREFIX)


def _last(node: Any) -> Condition:
    """Return the condition with which the text of a prefix ends, or any other condition unchanged."""
    while isinstance(node, language.Not | language.Keyed) or FORM_OF[type(node)].shape in PREFIXES:
        node = node.inner
    return cast("Condition", node)


def _window(node: Any) -> str:
    """Return the window, or both bounds in brackets if there is a minimum age."""
    window, min_secs = duration_text(node.window_secs), getattr(node, "min_secs", None)
    return window if min_secs is None else f"[{duration_text(min_secs)}, {window}]"


def _compared(aggregate: Any) -> str:
    return f"{_windowed(aggregate)} {COMPARISONS[aggregate.op]} {_amount(aggregate.value)}"


def _filtered(node: Any) -> str:
    """Return `x` or `x where a`."""
    filtered = f" where {_text(node.where, _OR)}" if node.where else ""
    return f"{name_text(node.fact)}{filtered}"


def _earlier(term: terms.AggregateTerm) -> str:
    return "earlier " if term.earlier else ""


def _windowed(node: Any) -> str:
    return "" if node.window_secs is None else f" within {duration_text(node.window_secs)}"


def _amount(value: float | ScaledFact) -> str:
    """Return the number, the fact, or the product of both with which an aggregate is compared."""
    if not isinstance(value, ScaledFact):
        return _literal(value)
    return name_text(value.fact) if value.times is None else f"{value.times!r} * {name_text(value.fact)}"


def _networks(networks: tuple[str, ...] | language.NetworksOf) -> str:
    if isinstance(networks, language.NetworksOf):
        return _relation_text(networks.relation)
    return _literal(networks[0] if len(networks) == 1 else networks)


def _range_of_term(members: tuple[Condition, ...]) -> str | None:
    """Return `t between a and b` if the members of an `all` mean that; otherwise None."""
    match members:
        case (language.Compare(term, "gte", low), language.Compare(_, "lte", high)):
            if are_of_one_term(members) and is_scalar(low) and is_scalar(high):
                return f"{_term(term)} between {_literal(low)} and {_literal(high)}"
    return None


def _list_of_term(members: tuple[Condition, ...]) -> str | None:
    """Return `t in [a, b]` if the members of an `any` mean that; otherwise None."""
    if not are_of_one_term(members):
        return None
    values = [member.right for member in members if member.op == "eq" and is_scalar(member.right)]
    return f"{_term(members[0].left)} in {_literal(tuple(values))}" if len(values) == len(members) else None


def _term(term: Term, required: int = _SUM) -> str:
    """Return the text of a term, in parentheses if its place requires a tighter precedence."""
    match term:
        case terms.Add() | terms.Sub():
            precedence, text = _SUM, _chain(term, _SUM)
        case terms.Mul() | terms.Div():
            precedence, text = _PRODUCT, _chain(term, _PRODUCT)
        case terms.Fact(fact):
            return name_text(fact)
        case terms.Abs(operand):
            return f"abs({_term(operand)})"
        case terms.Age(inner):
            return f"age({format(cast('Condition', inner))})"
        case terms.Now():
            return "now()"
        case terms.Clock(part, zone):
            return f"{part}({'' if zone is None else _literal(zone)})"
        case terms.Prev(fact) | terms.Length(fact) | terms.Time(fact):
            return f"{TERM_FORM_OF[type(term)].name}({name_text(fact)})"
        case terms.Last():
            return f"last({_filtered(term)})"
        case terms.CountTerm(inner):
            return f"{_earlier(term)}count({format(cast('Condition', inner))}){_windowed(term)}"
        case terms.AggregateTerm():
            return f"{_earlier(term)}{TERM_FORM_OF[type(term)].name}({_filtered(term)}){_windowed(term)}"
        case _:
            return _literal(term)
    return f"({text})" if precedence < required else text


def _chain(term: terms.Add | terms.Sub | terms.Mul | terms.Div, precedence: int) -> str:
    first, *others = term.operands
    # `a + b + c` is one sum, so a sum in the first place of a sum needs parentheses; a difference does not.
    joins = type(first) is type(term) and isinstance(term, terms.Add | terms.Mul)
    texts = [_term(first, precedence + joins), *(_term(operand, precedence + 1) for operand in others)]
    return f" {_SIGNS[type(term)]} ".join(texts)


def _leaf(leaf: language.Leaf) -> str:
    fact = name_text(leaf.fact)
    match leaf.op, leaf.value:
        case "matches", str() as pattern if (found := sugar_of(pattern)) is not None:
            word, text = found
            return f"{fact} {word} {_literal(text)}"
        case "between", (low, high):
            if high == LARGEST:
                return f"{fact} >= {_literal(low)}"
            if low == -LARGEST:
                return f"{fact} <= {_literal(high)}"
            return f"{fact} between {_literal(low)} and {_literal(high)}"
        case op, value:
            return f"{fact} {OPERATORS[op].text} {_literal(value)}"


def comparison_text(members: tuple[Condition, ...]) -> str | None:
    """Return `x > n` or `x < n` if the members of an `all` mean that; otherwise None."""
    match members:
        case (
            language.Leaf(fact, "between", (low, high)),
            language.Leaf(same_fact, "neq", other),
        ) if same_fact == fact:
            if not is_number(other):
                return None
            if high == LARGEST and low == other:
                return f"{name_text(fact)} > {_literal(low)}"
            if low == -LARGEST and high == other:
                return f"{name_text(fact)} < {_literal(high)}"
    return None


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
