"""Functions and operators of other languages, and what to write instead in this one."""

from typing import Final

from engine.language.condition import Leaf, Not, Ref
from engine.language.diagnostics import enumerated, quoted
from engine.language.forms.form import Shape
from engine.language.forms.shapes import CALLS
from engine.language.forms.table import FORMS, derived, first_form
from engine.language.text.lexical.operator_words import words_of
from engine.language.text.printer import format as text_of
from engine.language.validation.networks import pattern_of_network

PRESENT: Final = {
    *("exists", "exist", "has", "present", "defined", "is_set", "isset", "is_present"),
    *("is_not_null", "isnotnull", "not_null", "notnull"),
}
ABSENT: Final = {"missing", "absent", "undefined", "is_null", "isnull", "is_missing", "not_exists", "is_none"}
_PREFIX: Final = {"startswith", "starts_with", "begins_with", "beginswith", "prefix"}
_SUFFIX: Final = {"endswith", "ends_with", "suffix"}
_PART: Final = {"contains", "contain", "includes", "substring", "instr"}
_PATTERN: Final = {"match", "matches", "regex", "regexp", "rlike", "re_match", "regex_match"}
_WILDCARDS: Final = {"like": "", "ilike": "(?i)"}
_FOLDED: Final = {
    "icontains": ("", ""),
    "istartswith": ("^", ""),
    "iendswith": ("", "$"),
    "iequals": ("^", "$"),
}
"""Operators that ignore case, with the anchors of their patterns."""
NETWORK: Final = {
    *("cidr", "cidrmatch", "cidr_match", "in_network", "in_subnet", "ip_in", "subnet", "network"),
}
_RULE: Final = {"rule", "rules", "use", "matched", "fired"}
_BEFORE: Final = {"prev", "lag", "last", "before", "changed", "delta", "diff"}
_VALUES: Final = {
    *("length", "len", "lower", "upper", "tolower", "toupper", "trim", "abs", "round", "floor", "ceil"),
    *("min", "max", "now", "time", "hour", "minute", "day", "weekday", "month", "clock", "age", "compare"),
    *("if", "case", "coalesce", "iif", "date", "concat", "split"),
}
OPERATORS: Final = (
    PRESENT | ABSENT | _PREFIX | _SUFFIX | _PART | _PATTERN | _WILDCARDS.keys() | _FOLDED.keys()
)
"""The words that are operators between a fact and a value in other languages."""
_ESCAPED: Final = frozenset(r"\.+*?()[]{}^$|")
_ANY_TEXT: Final = {"*": ".*", "%": ".*", "?": "."}
"""What the wildcards of patterns in other languages are in a regular expression."""


@derived
def words_before() -> frozenset[str]:
    """Return the words that look for the value before, here or elsewhere."""
    return frozenset({*_BEFORE, *(form.word for form in FORMS.values() if form.looks_before)})


@derived
def aggregate_names() -> frozenset[str]:
    """Return the names of aggregates, here and elsewhere."""
    return frozenset(
        name for form in FORMS.values() if form.shape in CALLS for name in (form.word, *form.synonyms)
    )


def instead_of(word: str, fact: str, value: str, *, is_negated: bool = False) -> str | None:
    """Return what to write instead of a function or an operator, or None if there is none of that name.

    `fact` and `value` are what it is asked of; the value is a text.
    """
    word = word.lower()
    if word in PRESENT | ABSENT:
        present = Ref(fact, "eq", fact)
        if (word in ABSENT) is is_negated:
            return f"that a fact is there is written {quoted(text_of(present))}"
        return f"that a fact is missing is written {quoted(text_of(Not(present)))}"
    leaf = _leaf(word, fact, value)
    if leaf is not None:
        expression = ", with a regular expression" if word in _PATTERN else ""
        return f"write {quoted(text_of(Not(leaf) if is_negated else leaf))}{expression}"
    if word in NETWORK:
        return "a network is matched as text, or send its addresses as a relation"
    if word in _RULE:
        return "a rule cannot ask another rule; repeat its condition here"
    if word in words_before():
        example = f'{first_form(Shape.PREFIX, looks_before=True).word} x == "a"'
        return f"no condition compares with the value before; name the values, as in {quoted(example)}"
    if word in _VALUES:
        return "facts are compared as they are; send the computed value as a field of its own"
    if word in aggregate_names():
        counts = [f"`{call}(a == 1) within 10m >= 5`" for call in words_of({Shape.CALL_OF_CONDITION})]
        of_facts = [f"`{call}(x)`" for call in words_of({Shape.CALL_OF_FACT})]
        return f"{enumerated([*counts, *of_facts], 'and')} are compared with a number"
    return None


def _leaf(word: str, fact: str, value: str) -> Leaf | None:
    """Return the predicate that says the same, if there is one."""
    if word in _PART:
        return Leaf(fact, "contains", value)
    pattern = _pattern(word, value)
    return None if pattern is None else Leaf(fact, "matches", pattern)


def _pattern(word: str, value: str) -> str | None:
    """Return the regular expression that says the same, if there is one."""
    if word in _PATTERN:
        return value
    if word in _PREFIX:
        return f"^{_escaped(value)}"
    if word in _SUFFIX:
        return f"{_escaped(value)}$"
    if word in _WILDCARDS:
        parts = (_ANY_TEXT.get(char) or _escaped(char) for char in value)
        return f"{_WILDCARDS[word]}^{''.join(parts)}$"
    if word in _FOLDED:
        start, end = _FOLDED[word]
        return f"(?i){start}{_escaped(value)}{end}"
    return pattern_of_network(value) if word in NETWORK else None


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in _ESCAPED else char for char in text)
