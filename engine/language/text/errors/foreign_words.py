"""Functions and operators of other languages, and what to write instead in this one."""

from typing import Final

from engine.language.condition import Compare, Condition, InNetwork, Leaf, Not, Ref
from engine.language.diagnostics import enumerated, quoted
from engine.language.forms.form import CALLS, Shape
from engine.language.forms.table import FORMS, derived
from engine.language.terms import Fact, Prev
from engine.language.text.lexical import words_of
from engine.language.text.printer import format as text_of
from engine.language.text.printer import name_text
from engine.language.text.sugar import SUGAR, pattern_of
from engine.language.validation.networks import network_of

PRESENT: Final = {
    *("exists", "exist", "has", "present", "defined", "is_set", "isset", "is_present"),
    *("is_not_null", "isnotnull", "not_null", "notnull"),
}
ABSENT: Final = {"missing", "absent", "undefined", "is_null", "isnull", "is_missing", "not_exists", "is_none"}
_PREFIX: Final = {"startswith", "starts_with", "begins_with", "beginswith", "prefix"}
_SUFFIX: Final = {"endswith", "ends_with", "suffix"}
_PART: Final = {"contains", "contain", "includes", "substring", "instr"}
_PATTERN: Final = {"match", "matches", "regex", "regexp", "rlike", "re_match", "regex_match"}
_WORDS: Final = {
    **dict.fromkeys(_PREFIX, "startswith"),
    **dict.fromkeys(_SUFFIX, "endswith"),
    **{word: word for word in SUGAR},
}
"""The names of text operators in other languages, with those of this one."""
_CASES: Final = {"lower", "upper", "tolower", "toupper", "lowercase", "uppercase", "casefold"}
NETWORK: Final = {
    *("cidr", "cidrmatch", "cidr_match", "in_network", "in_subnet", "ip_in", "subnet", "network"),
}
_RULE: Final = {"rule", "rules", "use", "matched", "fired"}
_BEFORE: Final = {"prev", "last", "lag", "before", "changed", "delta", "diff", "prior"}
_VALUES: Final = {
    *("lower", "upper", "tolower", "toupper", "trim", "round", "floor", "ceil", "compare", "mod", "substr"),
    *("if", "case", "coalesce", "iif", "concat", "split", "year", "second"),
}
_TERMS: Final = {
    "length({})": {
        "length",
        "len",
        "strlen",
        "str_len",
        "size",
        "char_length",
        "array_length",
        "cardinality",
    },
    "abs({})": {"abs", "absolute", "fabs"},
    "min({})": {"min", "minimum", "lowest"},
    "max({})": {"max", "maximum", "highest"},
    "time({})": {"time", "to_timestamp", "strptime", "parse_time", "date", "datetime", "timestamp", "epoch"},
    "now()": {"now", "current_timestamp", "getdate", "sysdate", "unix_timestamp", "utcnow", "time_now"},
    "hour()": {"hour", "date_part", "datepart", "extract", "hour_of_day", "hourofday", "strftime"},
    "weekday()": {"weekday", "dayofweek", "day_of_week", "dow", "isodow"},
    "minute()": {"minute"},
    "day()": {"day", "dayofmonth", "day_of_month"},
    "month()": {"month"},
    "clock()": {"clock", "time_of_day", "timeofday"},
    "age({} == 1)": {"age", "time_since", "seconds_since"},
}
"""Terms by their names, here and in other languages. `{}` stands for the fact."""
OPERATORS: Final = PRESENT | ABSENT | _PART | _PATTERN | _WORDS.keys()
"""The words that are operators between a fact and a value in other languages."""
_ANY_TEXT: Final = str.maketrans({"%": "*"})
"""Translates the wildcards of patterns in other languages."""


@derived
def words_before() -> frozenset[str]:
    """Return the words for the previous value, here and in other languages."""
    return frozenset({*_BEFORE, *(form.word for form in FORMS.values() if form.looks_before)})


@derived
def aggregate_names() -> frozenset[str]:
    """Return the names of aggregates, here and in other languages."""
    return frozenset(
        name for form in FORMS.values() if form.shape in CALLS for name in (form.word, *form.synonyms)
    )


def instead_of(word: str, fact: str, value: str, *, is_negated: bool = False) -> str | None:
    """Return what to write instead of a function or an operator; None if the name is unknown.

    `fact` and `value` are its arguments; the value is a text.
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
        networks = (value,) if network_of(value) is not None else ("10.0.0.0/8",)
        asked: Condition = InNetwork(fact, networks)
        return f"write {quoted(text_of(Not(asked) if is_negated else asked))}"
    if word in _CASES:
        return f"without regard to letter case, write {quoted(text_of(_sugared('iequals', fact, value)))}"
    if word in _RULE:
        return "a rule cannot ask another rule; repeat its condition here"
    if word in words_before():
        return (
            f"the value before is `prev(x)`, as in {quoted(text_of(Compare(Fact(fact), 'neq', Prev(fact))))}"
        )
    for term, names in _TERMS.items():
        if word in names:
            return f"write it as in `{term.format(name_text(fact))} > 5`"
    if word in _VALUES:
        return "facts are compared as they are; send the computed value as a field of its own"
    if word in aggregate_names():
        counts = [f"`{call}(a == 1) within 10m >= 5`" for call in words_of({Shape.CALL_OF_CONDITION})]
        of_facts = [f"`{call}(x)`" for call in words_of({Shape.CALL_OF_FACT})]
        return f"{enumerated([*counts, *of_facts], 'and')} are compared with a number"
    return None


def _leaf(word: str, fact: str, value: str) -> Leaf | None:
    """Return the equivalent predicate, if there is one."""
    if word in _PART:
        return Leaf(fact, "contains", value)
    if word in _PATTERN:
        return Leaf(fact, "matches", value)
    if word not in _WORDS:
        return None
    has_wildcards = SUGAR[_WORDS[word]].has_wildcards
    return _sugared(_WORDS[word], fact, value.translate(_ANY_TEXT) if has_wildcards else value)


def _sugared(word: str, fact: str, text: str) -> Leaf:
    return Leaf(fact, "matches", pattern_of(word, text))
