"""Tells keywords from names where a word can be either, by the words after it."""

from collections.abc import Collection, Sequence
from typing import Protocol

from engine.language.forms.form import Shape
from engine.language.forms.shapes import CALLS, PREFIXES
from engine.language.text.lexical.names import contextual_keywords
from engine.language.text.lexical.operator_words import terminals_of, words_of
from engine.language.text.lexical.words import COMPARISON_TERMINALS, LITERALS, NAMES

_ARGUMENTS = NAMES | LITERALS | {"COMMA", "CLOSE"}
_CONDITION = NAMES | {"PER", "ALL", "ANY"}
"""The terminals that, like those of prefixes, begin a condition and never follow the name of a predicate."""
_WINDOWED = PREFIXES - {Shape.PREFIX}
_AFTER_AGGREGATES = {"WITHIN", *COMPARISON_TERMINALS}
"""The terminals that follow the parentheses of an aggregate, and never those of a relation."""


class Typed(Protocol):
    """A token: a string with its terminal."""

    @property
    def type(self) -> str:
        """The terminal."""


def is_keyword(tokens: Sequence[Typed], index: int, expected: Collection[str]) -> bool:
    """Return whether the word at an index is one of the contextual keywords, and used as one.

    `expected` holds the terminals that the grammar expects there. The tokens before the word have their
    final terminals; those after it may be names as yet. Reads as far as the next parenthesis.
    """
    word = str(tokens[index])
    if word not in contextual_keywords() or word.upper() not in expected:
        return False
    following = _terminal(tokens, index + 1)
    if word in words_of(CALLS):
        return following == "LPAR" and (
            not _is_call(tokens, index + 1) or _after_call(tokens, index + 1) in _AFTER_AGGREGATES
        )
    if word == "where" and _terminal(tokens, index - 2) == "LPAR":
        # Between the parentheses of an aggregate nothing else can follow the fact.
        return True
    match following:
        case "LPAR":
            return not _is_call(tokens, index + 1)
        case "NOT":
            # At the end of the text, `in` may still follow.
            return _terminal(tokens, index + 2) not in {"IN", ""}
        case "WITHIN" | "FOR":
            return word in words_of(_WINDOWED)
        case _:
            return following in _CONDITION or following in terminals_of(PREFIXES, additions=False)


def _terminal(tokens: Sequence[Typed], index: int) -> str:
    """Return the terminal at an index. Past the end, give an empty string."""
    if index >= len(tokens):
        return ""
    return tokens[index].type


def _is_call(tokens: Sequence[Typed], index: int) -> bool:
    """Return whether a parenthesis encloses the arguments of a relation, and not a condition.

    If the text ends too early to tell, it counts as a relation.
    """
    first, second = _terminal(tokens, index + 1), _terminal(tokens, index + 2)
    return first in {"RPAR", "", *LITERALS} or (first in NAMES and second in {"COMMA", "RPAR", ""})


def _after_call(tokens: Sequence[Typed], index: int) -> str:
    """Return the terminal after the parenthesis that ends the arguments of a relation."""
    index += 1
    while _terminal(tokens, index) in _ARGUMENTS:
        index += 1
    return _terminal(tokens, index + 1)
