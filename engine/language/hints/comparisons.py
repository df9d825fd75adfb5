"""Comparisons of terms that are never or always true, and how to write their terms with a window."""

import math
from typing import Any, Final

from engine.language.condition import Compare
from engine.language.diagnostics import json_type, quoted
from engine.language.forms.terms import TERM_FORM_OF
from engine.language.nodes import TermNode
from engine.language.operators import COMPARED, MIRRORED
from engine.language.terms import Abs, Age, AggregateTerm, Clock, CountTerm, Length, Term, terms_in
from engine.language.text.printer import format as text_of
from engine.language.text.printer import format_term

_PARTS: Final = {"hour": (0, 23), "minute": (0, 59), "weekday": (1, 7), "day": (1, 31), "month": (1, 12)}


def truth_of_comparison(node: Compare) -> tuple[bool, str] | None:
    """Return whether a comparison is never or always true, and why; None if it is neither."""
    text = quoted(text_of(node))
    left, right = node.left, node.right
    if not isinstance(left, TermNode) and not isinstance(right, TermNode):
        truth = _truth_within(left, left, node.op, right) is True
        return truth, f"{text} is {'always' if truth else 'never'} true: it compares two constants"
    if _equal_terms(left, right):
        if node.op in {"eq", "gte", "lte"}:
            return None
        return False, f"{text} is never true: both sides are the same"
    for term, op, other in ((left, node.op, right), (right, MIRRORED[node.op], left)):
        if isinstance(other, TermNode) or not isinstance(term, TermNode):
            continue
        if isinstance(other, bool) and op not in {"eq", "neq"}:
            return False, f"{text} is never true: booleans have no order; write `==` or `!=`"
        limits = _limits(term)
        if limits is None:
            continue
        found = _truth_within(*limits, op, other)
        if found is False or (found is True and isinstance(term, CountTerm)):
            return found, f"{text} is {'always' if found else 'never'} true: {_what(term)}"
    return None


def about_comparison(node: Compare) -> str | None:
    """Return a hint about a comparison that is true whenever its terms have values."""
    left, right = node.left, node.right
    text = quoted(text_of(node))
    if _equal_terms(left, right):
        return f"{text} only asks whether there is a value: both sides are the same"
    for term, op, other in ((left, node.op, right), (right, MIRRORED[node.op], left)):
        if isinstance(term, TermNode) and not isinstance(other, TermNode):
            limits = _limits(term)
            if limits is not None and _truth_within(*limits, op, other) is True:
                return f"{text} is true wherever there is a value: {_what(term)}"
    return None


def _equal_terms(left: Term, right: Term) -> bool:
    return Compare(left, "eq", 0) == Compare(right, "eq", 0)


def _limits(term: TermNode) -> tuple[Any, Any] | None:
    """Return the least and the greatest value that a term can have; None if unknown."""
    match term:
        case Clock("clock"):
            return "00:00", "23:59"
        case Clock(part):
            return _PARTS[part]
        case CountTerm() | Length() | Age() | Abs():
            return 0, math.inf
        case _:
            return None


def _truth_within(low: Any, high: Any, op: str, other: Any) -> bool | None:
    """Return the comparison's truth for all values from `low` to `high`; None if it differs among them."""
    if json_type(low) != json_type(other):
        return op == "neq"
    if op in {"eq", "neq"}:
        is_other = not low <= other <= high
        return op == "neq" if is_other else None if low != high else op == "eq"
    compare = COMPARED[op]
    at_ends = {compare(low, other), compare(high, other)}
    return at_ends.pop() if len(at_ends) == 1 else None


def _what(term: TermNode) -> str:
    """Return a sentence about the possible values of a term."""
    name = quoted(format_term(term))
    match term:
        case Clock("clock"):
            return f'{name} is a text from "00:00" to "23:59"'
        case Clock(part):
            low, high = _PARTS[part]
            return f"{name} is a number from {low} to {high}"
        case _:
            return f"{name} is a number and never less than 0"


def windowed_term(node: Compare) -> str:
    """Return how to write the first term without a window with one; empty if there is none.

    The previous value, as in `prev(x)`, has no form with a window.
    """
    for side in (node.left, node.right):
        for term in terms_in(side):
            if isinstance(term, AggregateTerm) and term.window_secs is None:
                return f"{TERM_FORM_OF[type(term)].name}(…) within 30d"
            if isinstance(term, Age):
                return "once within [5m, 30d] …"
    return ""
