"""Explains near misses: text that is nearly an aggregate or a term."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from engine.language.diagnostics import enumerated
from engine.language.forms.form import CALLS, INFIXES, Content, Shape
from engine.language.forms.table import first_form
from engine.language.forms.terms import PARTS, TERM_WORDS
from engine.language.text.lexical import (
    ARITHMETIC_TERMINALS,
    COMPARISON_TERMINALS,
    END,
    LITERALS,
    NAMES,
    OPERATOR_TERMINALS,
    Word,
    terminals_of,
    words_of,
)

_PREDICATE_ENDS = {*NAMES, *LITERALS, "CLOSE", "RPAR"}


def about_aggregates(words: Sequence[Word], failed: int, accepted: AbstractSet[str]) -> Iterator[str]:
    """Yield suggestions for the word at index `failed`, the most likely first."""
    word = words[failed]
    before = [one.terminal for one in words[:failed]]
    compares = word.terminal == "WITHIN" or word.terminal in COMPARISON_TERMINALS
    if word.terminal == "WITHIN" and {"AND", END} & accepted and is_compared(before):
        yield "the window precedes the comparison, as in `count(a == 1) within 10m > 5`"
    match before:
        case [*_, "LPAR", _] if "WHERE" in accepted and word.terminal in OPERATOR_TERMINALS.values():
            name = words[failed - 3].text
            yield f'"{name}" takes a fact; conditions follow "where", as in `{name}(x where a == 1)`'
        case [*_, counter, "LPAR", _] if counter in terminals_of({Shape.CALL_OF_CONDITION}):
            if word.terminal == "RPAR" or word.text == "where":
                name, values = counter.lower(), first_form(Shape.CALL_OF_FACT, Content.COUNT).word
                yield (
                    f'"{name}" takes a condition, as in `{name}(a == 1)`; '
                    f'"{values}" counts the values of a fact'
                )
        case [*_, "WORD", "LPAR", name, "RPAR", "SINCE", _, _, _] if compares and name in NAMES:
            if words[failed - 8].text in words_of({Shape.CALL_SINCE}):
                name = words[failed - 8].text
                yield f'"{name}" takes a condition, as in `{name}(a == 1) since b == 2 >= 5`'
        case [*_, "WORD", "LPAR", _, "RPAR"] if compares:
            numbers = enumerated([f'"{call}"' for call in words_of(CALLS)], "and")
            yield f"a relation is true or false; {numbers} give numbers"


def is_after_where(words: Sequence[Word], index: int) -> bool:
    """Return whether a connective follows a predicate somewhere after the `where` of a `per`."""
    if words[index].terminal not in {"AND", "OR"} | terminals_of(INFIXES):
        return False
    before = [word.terminal for word in words[:index]]
    if "WHERE" not in before or before[-1] not in _PREDICATE_ENDS:
        return False
    # The last `where` is preceded by its name and by its "per" or parenthesis.
    after = before[::-1].index("WHERE")
    return before[-after - 3] == "PER"


def is_compared(before: Sequence[str]) -> bool:
    """Return whether terminals end with a comparison of an aggregate with a number or a fact."""
    terminals = [*before]
    while terminals and terminals[-1] in {*NAMES, "NUMBER", "STAR"}:
        terminals.pop()
    match terminals:
        case [*_, "RPAR" | "NUMBER" | "DURATION", comparison]:
            return comparison in COMPARISON_TERMINALS
        case _:
            return False


# -- terms --------------------------------------------------------------------------------------------------

_OF_CONDITIONS: Final = {"COUNT", "AGE"}
_OF_FACTS: Final = {word.upper() for word in TERM_WORDS - {"now", *PARTS}} - _OF_CONDITIONS


def about_terms(before: Sequence[Word], word: Word, accepted: AbstractSet[str]) -> Iterator[str]:
    """Yield suggestions for a word that cannot be read, the most likely first."""
    match before:
        case [*_, Word("WORD", name)] if name.upper() in _OF_FACTS and word.terminal in NAMES:
            yield f"`{name}` takes its fact in parentheses, as in `{name}({word.text})`"
        case [*_, Word(terminal, name), Word("LPAR")] if terminal in _OF_FACTS and "PATH" in accepted:
            if word.terminal == "RPAR":
                yield f"`{name}` takes a fact, as in `{name}(x)`"
        case [*_, Word("AGE"), Word("LPAR")] | [*_, Word("AGE"), Word("LPAR"), _] if word.terminal == "RPAR":
            yield "`age` takes a condition, as in `age(a == 1)`"
    follows_term = accepted >= COMPARISON_TERMINALS and "CONTAINS" not in accepted
    is_end = word.terminal in {END, "AND", "OR", "RPAR", "COMMA"}
    if follows_term and is_end and "WITHIN" not in accepted and not _ends_with_name(before):
        yield "compare it, as in `x + y > 5`"
    if follows_term and word.terminal == "NOT":
        yield "`not` stands before the whole, as in `not hour() in [1, 2]`"
    if word.terminal == "NUMBER" and word.text.startswith("-") and "MINUS" in accepted:
        yield f"between two terms, `-` has blanks around it, as in `x - {word.text[1:]}`"
    if "NUMBER" in accepted and word.terminal in ARITHMETIC_TERMINALS:
        if word.terminal == "MINUS":
            yield "`-` stands between two terms, as in `0 - x`"
        elif word.terminal == "PLUS":
            yield "numbers are written as in JSON"
        elif word.terminal == "SLASH" and "PATH" not in accepted:
            yield "a regular expression stands in single quotes, as in `x matches '^a'`"


def _ends_with_name(before: Sequence[Word]) -> bool:
    """Return whether a single name, in parentheses of its own, precedes."""
    match before:
        case [*others, Word("LPAR"), Word(terminal), Word("RPAR")] if terminal in NAMES:
            return not others or others[-1].text not in TERM_WORDS
        case _:
            return False
