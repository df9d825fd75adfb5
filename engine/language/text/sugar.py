"""Words that abbreviate regular expressions, as in `x startswith "a"`; and comparisons written as one.

For each text, a word has one pattern, and a pattern comes from at most one word and text: the example means
`x matches '(?s)^a'`.
"""

import re
from typing import Final, NamedTuple, TypeGuard

from engine.language import condition as language
from engine.language import terms
from engine.language.condition import Compare, Condition, Scalar
from engine.language.literals import is_number
from engine.language.terms import Term


class Sugar(NamedTuple):
    """The pattern of a word: the parts before and after the text."""

    before: str
    after: str
    has_wildcards: bool = False


SUGAR: Final = {
    "startswith": Sugar("(?s)^", ""),
    "endswith": Sugar("(?s)", "$"),
    "icontains": Sugar("(?i)", ""),
    "istartswith": Sugar("(?i)^", ""),
    "iendswith": Sugar("(?i)", "$"),
    "iequals": Sugar("(?i)^", "$"),
    "like": Sugar("(?s)^", "$", has_wildcards=True),
    "ilike": Sugar("(?si)^", "$", has_wildcards=True),
}
"""The words in the order of the documentation."""

_SPECIAL: Final = re.compile(r"[\\.+*?()\[\]{}^$|]")
_IN_PATTERN: Final = re.compile(r"\\([\\.+*?()\[\]{}^$|])|(\.\*?)|([^\\.+*?()\[\]{}^$|]+)")
"""An escaped special character, a wildcard, or other characters."""
_WILDCARDS: Final = {"*": ".*", "?": "."}
_IN_TEXT: Final = re.compile(r"\\([*?\\])|([*?])|(\\|[^*?\\]+)")
"""The same in a text with wildcards."""


def pattern_of(word: str, text: str) -> str:
    """Return the pattern of a word for a text."""
    sugar = SUGAR[word]
    if not sugar.has_wildcards:
        return f"{sugar.before}{escaped(text)}{sugar.after}"
    parts = [
        _WILDCARDS[found[2]] if found[2] else escaped(found[1] or found[3])
        for found in _IN_TEXT.finditer(text)
    ]
    return f"{sugar.before}{''.join(parts)}{sugar.after}"


def sugar_of(pattern: str) -> tuple[str, str] | None:
    """Return the word and the text of a pattern; None if there are none."""
    for word, sugar in SUGAR.items():
        if pattern.startswith(sugar.before) and pattern.endswith(sugar.after):
            inside = pattern[len(sugar.before) : len(pattern) - len(sugar.after)]
            text = _text_of(inside, has_wildcards=sugar.has_wildcards)
            if text is not None and pattern_of(word, text) == pattern:
                return word, text
    return None


def alternatives_of(members: tuple[Condition, ...]) -> tuple[str, str, list[str]] | None:
    """Return the fact, the word and the texts of an `any` that means `x icontains ["a", "b"]`; else None."""
    words: dict[tuple[str, str], None] = {}
    texts = []
    for member in members:
        match member:
            case language.Leaf(fact, "matches", str() as pattern) if (found := sugar_of(pattern)) is not None:
                words[fact, found[0]] = None
                texts.append(found[1])
            case _:
                return None
    if len(words) != 1:
        return None
    ((fact, word),) = words
    return fact, word, texts


def escaped(text: str) -> str:
    """Return the regular expression for exactly this text."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def _text_of(inside: str, *, has_wildcards: bool) -> str | None:
    """Return the text for the inside of a pattern; None if there is none."""
    parts: list[str] = []
    at = 0
    while at < len(inside):
        found = _IN_PATTERN.match(inside, at)
        if found is None or (found[2] and not has_wildcards):
            return None
        if found[2]:
            parts.append("*" if found[2] == ".*" else "?")
        elif has_wildcards and found[1] and found[1] in r"*?\\":
            parts.append(f"\\{found[1]}")
        else:
            parts.append(found[1] or found[3])
        at = found.end()
    return "".join(parts)


# -- comparisons of terms -----------------------------------------------------------------------------------

ARITHMETIC = (terms.Add, terms.Sub, terms.Mul, terms.Div)


def reads_otherwise(compare: Compare) -> bool:
    """Return whether a comparison without `compare(…)` would be read as another member, or not at all."""
    match compare.left, compare.right:
        case terms.Fact(), terms.Fact() | str() | bool():
            return compare.op in {"eq", "neq"}
        case terms.Fact(), int() | float():
            return True
        case ((terms.CountTerm() | terms.SumTerm() | terms.AvgTerm()), str() | int() | float()):
            return True
        case ((terms.SumTerm() | terms.AvgTerm()), terms.Fact()):
            return True
        case ((terms.SumTerm() | terms.AvgTerm()), terms.Mul((times, terms.Fact()))) if is_number(times):
            return True
        case left, _:
            return begins_earlier(left)


def begins_earlier(term: Term) -> bool:
    """Return whether the text of a term begins with `earlier`, which would be read as the prefix."""
    while isinstance(term, ARITHMETIC):
        term = term.operands[0]
    return isinstance(term, terms.AggregateTerm) and term.earlier is not None


def are_of_one_term(members: tuple[Condition, ...]) -> TypeGuard[tuple[Compare, ...]]:
    """Return whether all members compare the same term, which is not a name and can begin a predicate."""
    match members[0]:
        case Compare(term) if not isinstance(term, terms.Fact) and not begins_earlier(term):
            # Compare whole conditions, because `True == 1` in Python.
            first = Compare(term, "eq", 0)
            return all(
                isinstance(member, Compare) and Compare(member.left, "eq", 0) == first for member in members
            )
    return False


def is_scalar(term: Term) -> TypeGuard[Scalar]:
    """Return whether a term is a constant."""
    return isinstance(term, str | int | float)
