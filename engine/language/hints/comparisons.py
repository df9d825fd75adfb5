"""Hints about comparisons of terms: with themselves, and of a part of the time with what it never is."""

from collections.abc import Iterator
from typing import Final

from engine.language.condition import Compare
from engine.language.diagnostics import json_type, quoted
from engine.language.forms.terms import TERM_FORM_OF
from engine.language.terms import AggregateTerm, Clock, terms_in
from engine.language.text.printer import format as text_of

_RANGES: Final = {"hour": (0, 23), "minute": (0, 59), "weekday": (1, 7), "day": (1, 31), "month": (1, 12)}


def about_comparison(node: Compare) -> Iterator[str]:
    """Yield the hints about a comparison."""
    text = quoted(text_of(node))
    if Compare(node.left, "eq", 0) == Compare(node.right, "eq", 0):
        asks = node.op in {"eq", "gte", "lte"}
        verdict = "only asks whether there is a value" if asks else "is never true"
        yield f"{text} {verdict}: both sides are the same"
    for term, other in ((node.left, node.right), (node.right, node.left)):
        if isinstance(term, Clock) and isinstance(other, str | int | float):
            is_number = json_type(other) == "a number"
            if term.part == "clock" and not isinstance(other, str):
                yield f'{text} is never true: `clock()` is a text, as in "08:30"'
            elif term.part != "clock":
                low, high = _RANGES[term.part]
                if not is_number or not low <= float(other) <= high:
                    yield f"{text}: `{term.part}()` is a number from {low} to {high}"


def windowed_term(node: Compare) -> str:
    """Return how the first term without a window is written with one; empty if there is none."""
    for side in (node.left, node.right):
        for term in terms_in(side):
            if isinstance(term, AggregateTerm) and term.window_secs is None:
                return f"{TERM_FORM_OF[type(term)].name}(…) within 30d"
    return ""
