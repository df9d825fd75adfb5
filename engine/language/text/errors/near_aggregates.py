"""Suggestions for texts that are nearly an aggregate, or nearly a `per … where`."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from engine.language.diagnostics import enumerated
from engine.language.forms.form import Content, Shape
from engine.language.forms.shapes import CALLS, INFIXES
from engine.language.forms.table import first_form
from engine.language.text.lexical.words import (
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
    # Before the last `where` come its name and its "per" or parenthesis.
    after = before[::-1].index("WHERE")
    return before[-after - 3] == "PER"


def is_compared(before: Sequence[str]) -> bool:
    """Return whether these terminals end with the comparison of an aggregate with a number or a fact."""
    terminals = [*before]
    while terminals and terminals[-1] in {*NAMES, "NUMBER", "STAR"}:
        terminals.pop()
    match terminals:
        case [*_, "RPAR" | "NUMBER" | "DURATION", comparison]:
            return comparison in COMPARISON_TERMINALS
        case _:
            return False
