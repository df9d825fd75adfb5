"""Suggestions for texts that are nearly a term, or nearly a comparison of terms."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from engine.language.forms.terms import PARTS, TERM_WORDS
from engine.language.text.lexical.words import ARITHMETIC, COMPARISON_TERMINALS, END, NAMES, Word

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
    if "NUMBER" in accepted and word.terminal in ARITHMETIC:
        if word.terminal == "MINUS":
            yield "`-` stands between two terms, as in `0 - x`"
        elif word.terminal == "PLUS":
            yield "numbers are written as in JSON"
        elif word.terminal == "SLASH" and "PATH" not in accepted:
            yield "a regular expression stands in single quotes, as in `x matches '^a'`"


def _ends_with_name(before: Sequence[Word]) -> bool:
    """Return whether a name alone stands before, in parentheses of its own."""
    match before:
        case [*others, Word("LPAR"), Word(terminal), Word("RPAR")] if terminal in NAMES:
            return not others or others[-1].text not in TERM_WORDS
        case _:
            return False
