"""The words of the text language: names, keywords, and contextual keywords."""

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple, Protocol

from engine.language.forms.form import CALLS, PREFIXES, Shape
from engine.language.forms.table import FORMS, derived
from engine.language.forms.terms import AGGREGATE_WORDS, TERM_WORDS
from engine.language.json.spans import SpannedObject
from engine.language.operators import COMPARISONS, INEQUALITIES, OPERATORS
from engine.language.text.sugar import SUGAR

_KEYWORDS = frozenset(
    {
        *("and", "or", "not", "in", "contains", "matches", "between"),
        *("within", "for", "per", "strong", "weak", "all", "any", "true", "false", "null"),
    }
)
"""The keywords that are not words of operators."""

_OF_PREDICATES = frozenset({"network", "exists", "missing", "some", "anywhere", *SUGAR})
"""The contextual keywords of predicates."""

WORD: Final = "[A-Za-z_@][A-Za-z0-9_@-]*"
"""The pattern of a name, or of a part between dots, that needs no backquotes."""


@derived
def keywords() -> frozenset[str]:
    """Return the words that are never names without backquotes."""
    return _KEYWORDS | {form.word for form in FORMS.values() if form.shape and not form.is_addition}


@derived
def contextual_keywords() -> frozenset[str]:
    """Return the words that are keywords only where the grammar expects them, and names elsewhere."""
    of_forms = {form.word for form in FORMS.values() if form.shape and form.is_addition}
    return frozenset({"where", "compare", *_OF_PREDICATES, *TERM_WORDS, *of_forms})


def is_reserved(word: str) -> bool:
    """Return whether a word is a keyword in any letter case, so that it needs backquotes as a name."""
    return word.lower() in keywords()


def in_backquotes(name: str) -> str:
    """Spell a name in backquotes. Backquotes inside it are doubled."""
    return "`" + name.replace("`", "``") + "`"


def from_backquotes(text: str) -> str:
    """Return the name in backquotes."""
    return text[1:-1].replace("``", "`")


# -- words --------------------------------------------------------------------------------------------------

END = "$END"
"""The terminal at the end of the text."""
NAMES = frozenset({"WORD", "PATH", "BACKQUOTED"})
LITERALS = frozenset({"STRING", "VERBATIM", "NUMBER", "TRUE", "FALSE", "OPEN"})
"""The terminals that begin a literal."""
DURATIONS = frozenset({"NUMBER", "DURATION"})
ARITHMETIC_TERMINALS = frozenset({"PLUS", "MINUS", "STAR", "SLASH"})

OPERATOR_TERMINALS = {operator.text: operator.terminal for operator in OPERATORS.values()} | INEQUALITIES
"""The terminals of the operators of predicates, by their texts."""
COMPARISON_TERMINALS = frozenset(OPERATOR_TERMINALS[text] for text in COMPARISONS.values())
"""The terminals of the operators of aggregates."""


class Word(NamedTuple):
    """A token of the text: its terminal, its text, its offset."""

    terminal: str
    text: str
    offset: int


class Part(NamedTuple):
    """A name, a literal, a term or a window, and its offset in the text."""

    value: Any
    offset: int


class Ages(NamedTuple):
    """The minimum and maximum age of the events that count."""

    least: Part
    greatest: Part


class Filtered(NamedTuple):
    """The fact in the parentheses of an aggregate or `last`, and the condition after its `where`."""

    fact: Part
    where: SpannedObject | None = None

    @property
    def members(self) -> dict[str, object]:
        """The members of the document."""
        return {"fact": self.fact} | ({} if self.where is None else {"where": self.where})


def words_of(shapes: AbstractSet[Shape]) -> list[str]:
    """Return the words of the forms of these shapes, in the order of the table."""
    return [*dict.fromkeys(form.word for form in FORMS.values() if form.shape in shapes)]


def terminals_of(shapes: AbstractSet[Shape]) -> frozenset[str]:
    """Return the terminals of these words."""
    return frozenset(map(str.upper, words_of(shapes)))


# -- contextual keywords ------------------------------------------------------------------------------------

_ARGUMENTS = NAMES | LITERALS | {"COMMA", "CLOSE"}
_CONDITION = NAMES | LITERALS - {"OPEN"} | {"PER", "ALL", "ANY"}
"""The terminals that, like those of prefixes, begin a condition and never follow the name of a predicate."""
_WINDOWED = PREFIXES - {Shape.PREFIX}
_AFTER_TERMS = {
    "WITHIN",
    "IN",
    "BETWEEN",
    "CONTAINS",
    "MATCHES",
    *ARITHMETIC_TERMINALS,
    *COMPARISON_TERMINALS,
}
"""The terminals that may follow the parentheses of a term, correct or not, but never those of a relation."""
_OF_CONDITIONS = {"count", "age", "abs"}
"""The words of terms whose parentheses may look like those of a condition."""


class Typed(Protocol):
    """A token: a string with its terminal."""

    @property
    def type(self) -> str:
        """The terminal."""


def is_keyword(
    tokens: Sequence[Typed], index: int, expected: Collection[str], juxtaposes: Callable[[], bool]
) -> bool:
    """Return whether the word at an index is a contextual keyword that is used as a keyword.

    `expected` has the terminals that the grammar expects there. `juxtaposes` returns whether a condition
    could follow directly if the word were a name, as in `per k where x == NAME (…)`. Tokens before the word
    have their final terminals; those after it may still be names. Reads up to the next parenthesis.
    """
    word = str(tokens[index])
    if word not in contextual_keywords() or word.upper() not in expected:
        return False
    following = _terminal(tokens, index + 1)
    if word in SUGAR:
        # Only operators can follow a name, unless it is a key or ends the predicate after `where`.
        return not juxtaposes()
    if word in {"exists", "missing", "some"}:
        return following in NAMES and not _is_sugar(tokens, index + 1)
    if word == "anywhere":
        return following == "LPAR" and not _is_call(tokens, index + 1)
    if word == "network":
        return following in NAMES | LITERALS
    is_call = word in TERM_WORDS or word == "compare" or word in words_of(CALLS)
    if is_call and following != "LPAR":
        return False
    if "PER" not in expected and word != "where":
        # Here, a term is expected, and no relation.
        is_term = is_call or _is_aggregate(tokens, index + 1)
        is_clear = word in TERM_WORDS - _OF_CONDITIONS and _is_filled(tokens, index + 1)
        return is_term and (is_clear or not (_may_end_where(tokens, index) and juxtaposes()))
    if is_call:
        return not _is_call(tokens, index + 1) or (
            word != "compare" and _after_call(tokens, index + 1) in _AFTER_TERMS
        )
    if word == "where" and _terminal(tokens, index - 2) == "LPAR":
        # In the parentheses of an aggregate, nothing else can follow the fact.
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
            begins = following in _CONDITION or following in terminals_of(PREFIXES)
            return begins and not _is_sugar(tokens, index + 1)


def _is_sugar(tokens: Sequence[Typed], index: int) -> bool:
    """Return whether the word at an index is a text operator followed by its operand."""
    return str(tokens[index]) in SUGAR and _terminal(tokens, index + 1) in LITERALS


def _terminal(tokens: Sequence[Typed], index: int) -> str:
    """Return the terminal at an index; empty beyond the end."""
    if index >= len(tokens):
        return ""
    return tokens[index].type


def _is_call(tokens: Sequence[Typed], index: int) -> bool:
    """Return whether a parenthesis encloses the arguments of a relation, not a condition.

    If the text ends too early to tell, it counts as a relation.
    """
    first, second = _terminal(tokens, index + 1), _terminal(tokens, index + 2)
    return first in {"RPAR", "", "OPEN"} or (first in NAMES | LITERALS and second in {"COMMA", "RPAR", ""})


def _is_filled(tokens: Sequence[Typed], index: int) -> bool:
    """Return whether a parenthesis encloses the argument of a term about a fact, not a condition."""
    return _is_call(tokens, index) or str(tokens[index + 2]) == "where"


def _is_aggregate(tokens: Sequence[Typed], index: int) -> bool:
    """Return whether an aggregate begins at an index, which may be beyond the end."""
    return _terminal(tokens, index + 1) == "LPAR" and str(tokens[index]) in AGGREGATE_WORDS


def _may_end_where(tokens: Sequence[Typed], index: int) -> bool:
    """Return whether the word at an index, as a name, would be the whole operand of a predicate."""
    before = _terminal(tokens, index - 1)
    return before in COMPARISON_TERMINALS or (before == "STAR" and _terminal(tokens, index - 2) == "NUMBER")


def _after_call(tokens: Sequence[Typed], index: int) -> str:
    """Return the terminal after the parenthesis that ends the arguments of a relation.

    For `not in`, it is that of `in`.
    """
    index += 1
    while _terminal(tokens, index) in _ARGUMENTS:
        index += 1
    after = _terminal(tokens, index + 1)
    return _terminal(tokens, index + 2) if after == "NOT" else after
