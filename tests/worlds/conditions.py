"""Generators of all valid conditions, especially unusual ones, and of texts that are nearly conditions."""

from collections.abc import Callable
from typing import Any as Json

from hypothesis import strategies as st

from engine.language.condition import (
    All,
    Any,
    Anywhere,
    Avg,
    Condition,
    Count,
    CountSince,
    Distinct,
    Earlier,
    EarlierWithin,
    FactArg,
    Historically,
    HistoricallyFor,
    InNetwork,
    InRelation,
    Keyed,
    Leaf,
    NetworksOf,
    Not,
    Once,
    OnceWithin,
    Previous,
    Ref,
    ScaledFact,
    Since,
    SinceWithin,
    Some,
    Sum,
)
from engine.language.durations import microseconds
from engine.language.text.sugar import SUGAR, pattern_of
from tests.worlds.terms import odd_comparisons

MAX = 1.7976931348623157e308
ODD_NAMES = (
    *("in", "AND", "True", "null", "not", "per", "all", "any", "Since"),
    *("exists", "missing", "some", "network", "like", "startswith", "it"),
    *("previous", "earlier", "count", "distinct", "sum", "avg", "where", "Where", "$count", "count.where"),
    *("a.b", "$a", "$user.id", "user.in", "$in", "in-x", "@timestamp", "a-1", "_"),
    *(
        ".",
        "a..b",
        ".a",
        "a.",
        "$$",
        "$.",
        "`",
        "``",
        "a`b",
        "a b",
        "a\nb",
        "\n",
        "\t",
        "#",
        "'",
        '"',
        "1",
        "-1",
    ),
    *("größe", "名", "\x00", "\x7f", "\u2028", "\u202e", "𝄞", "(", "a(b)", "0x1", "5m", "\\", "\r\n"),
)
ODD_NUMBERS = (
    *(0, 1, -1, 10, 2**53, 2**53 + 1, 2**64, 10**22, 10**23, -(10**40), 10**3999, int(MAX), int(MAX) + 1),
    *(0.0, -0.0, 1.0, 0.1, 0.1 + 0.2, 1e-7, 5e-324, 1e22, 1e23, 1e300, MAX, -MAX, 1.001, 1e15, 123456789.125),
)
WINDOWS = (
    *(0, 0.0, -0.0, 1, 59, 60, 61, 90, 90.5, 300, 300.0, 3600, 86400, 604800, 604801, 0.001, 0.3, 0.0005),
    *(0.1 + 0.2, 1e-7, 5e-324, 1.001, 1e22, 1e23, 1e300, MAX, 10**23, 10**3999, 2**53 + 1, 60 * 10**30),
)
PATTERNS = (
    *(
        "",
        "a",
        "^a$",
        r"@(tmp|trash)mail\.",
        r"\d+",
        r"[\"']",
        r"\\",
        "(?i)x",
        r"\pL",
        "日本",
        "'",
        '"',
        "a\nb",
    ),
    *(r"'\"", "\x00", "\u2028\\d", "#", "`"),
)

characters = st.characters(exclude_categories=["Cs"])
strings = st.one_of(st.sampled_from(ODD_NAMES + PATTERNS), st.text(characters, max_size=8))
plain_names = st.from_regex(
    r"\$?[A-Za-z_@][A-Za-z0-9_@-]{0,4}(\.[A-Za-z_@][A-Za-z0-9_@-]{0,3}){0,2}", fullmatch=True
)
names = st.one_of(
    st.sampled_from(ODD_NAMES),
    plain_names,
    st.text(characters, min_size=1, max_size=6).filter(lambda name: name != "$"),
)
relations = st.one_of(names, st.just("$"))
numbers = st.one_of(
    st.sampled_from(ODD_NUMBERS),
    st.integers(-100, 100),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
windows = st.one_of(
    st.sampled_from(WINDOWS),
    st.integers(0, 10**6),
    st.integers(0),
    st.floats(0, allow_nan=False, allow_infinity=False),
    st.integers(0, 10**7).map(lambda amount: amount / 1000),
)
scalars = st.one_of(strings, numbers, st.booleans())
arrays = st.one_of(st.lists(strings, max_size=3), st.lists(numbers, max_size=3)).map(tuple)


sugared = st.builds(
    pattern_of, st.sampled_from([*SUGAR]), st.one_of(strings, st.text("a*?\\\\.$", max_size=6))
)
"""The patterns that words for texts give."""


@st.composite
def leaves(draw: Callable[[st.SearchStrategy[Json]], Json]) -> Leaf:
    """Leaves of every operator."""
    fact = draw(names)
    match draw(st.sampled_from(("eq", "neq", "in", "nin", "contains", "matches", "between"))):
        case ("eq" | "neq") as op:
            return Leaf(fact, op, draw(st.one_of(scalars, arrays)))
        case ("in" | "nin") as op:
            return Leaf(fact, op, draw(arrays))
        case "contains":
            return Leaf(fact, "contains", draw(scalars))
        case "matches":
            return Leaf(fact, "matches", draw(st.one_of(st.sampled_from(PATTERNS), sugared)))
        case _:
            pair = st.one_of(st.tuples(strings, strings), st.tuples(numbers, numbers))
            return Leaf(fact, "between", tuple(sorted(draw(pair))))


@st.composite
def nearly_comparisons(draw: Callable[[st.SearchStrategy[Json]], Json]) -> Condition:
    """What `x > 1` and `x <= 1` stand for, and what differs from it slightly."""
    fact, other = draw(names), draw(names)
    number = draw(numbers.filter(lambda number: -MAX <= number <= MAX))
    value = draw(st.sampled_from((number, number, number, float(number), 1, "1", (number,))))
    ends = draw(
        st.sampled_from(((number, MAX), (-MAX, number), (-MAX, MAX), (number, int(MAX)), (number, number)))
    )
    at_end = Leaf(fact, "between", ends)
    past_end = Leaf(draw(st.sampled_from((fact, fact, fact, other))), "neq", value)
    return draw(
        st.sampled_from(
            (
                at_end,
                All((at_end, past_end)),
                All((at_end, past_end)),
                All((past_end, at_end)),
                All((at_end,)),
            )
        )
    )


refs = st.builds(Ref, names, st.sampled_from(("eq", "neq", "in", "nin")), names)
in_relations = st.builds(
    InRelation, relations, st.lists(st.one_of(scalars, st.builds(FactArg, names)), max_size=3).map(tuple)
)
presences = names.map(lambda name: Ref(name, "eq", name))
alternatives = st.tuples(names, st.sampled_from([*SUGAR]), st.lists(strings, min_size=1, max_size=3)).map(
    lambda one: Any(tuple(Leaf(one[0], "matches", pattern_of(one[1], text)) for text in one[2]))
)
NETWORKS = (
    "10.0.0.0/8",
    "::1",
    "0.0.0.0/0",
    "10.1.2.3",
    "2001:db8::/32",
    "::ffff:10.0.0.1/120",
    "fe80::/010",
)
in_networks = st.builds(
    InNetwork,
    names,
    st.one_of(
        st.lists(st.sampled_from(NETWORKS), min_size=1, max_size=3).map(tuple),
        st.builds(NetworksOf, relations),
    ),
)
of_elements = st.one_of(leaves(), nearly_comparisons(), refs, presences, in_relations, in_networks)
somes = st.recursive(
    of_elements,
    lambda inner: st.one_of(
        st.builds(Some, names, inner),
        st.builds(Anywhere, inner),
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, min_size=1, max_size=2).map(tuple)),
    ),
    max_leaves=3,
)
predicates = st.one_of(
    leaves(),
    nearly_comparisons(),
    of_elements,
    alternatives,
    st.builds(Some, names, somes),
    st.builds(Anywhere, somes),
)


comparisons = st.sampled_from(("gt", "gte", "lt", "lte", "eq", "neq"))
counts = st.one_of(st.sampled_from((0, 1, 5, 10_000)), st.integers(0, 10_000))
factors = st.one_of(st.none(), numbers.filter(lambda number: -MAX <= number <= MAX))
amounts = st.one_of(numbers, st.builds(ScaledFact, names, factors))


def _ages(window_secs: float, hundredths: int | None) -> tuple[float, float | None]:
    """Return a window, and a part of it as the minimum age, if that is less in microseconds."""
    if hundredths is None or microseconds(window_secs, 1_000_000) < 1:
        return window_secs, None
    is_whole = isinstance(window_secs, int)
    return window_secs, window_secs * hundredths // 100 if is_whole else window_secs * (hundredths / 100)


ages = st.builds(_ages, windows, st.one_of(st.none(), st.integers(0, 99)))
"""Windows, each with its minimum age, if there is one."""
optional_windows = st.one_of(st.none(), windows)


def _extended(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    members = st.lists(inner, min_size=1, max_size=3).map(tuple)
    boundaries = st.sampled_from((None, "weak", "strong"))
    optional = st.one_of(st.none(), inner)
    return st.one_of(
        st.builds(All, members),
        st.builds(Any, members),
        st.builds(Not, inner),
        st.builds(Once, inner),
        st.builds(Historically, inner),
        st.builds(Since, inner, inner),
        st.builds(lambda inner, both: OnceWithin(inner, *both), inner, ages),
        st.builds(lambda inner, both: HistoricallyFor(inner, both[0], None, both[1]), inner, ages),
        st.builds(HistoricallyFor, inner, windows, boundaries),
        st.builds(lambda left, right, both: SinceWithin(left, right, *both), inner, inner, ages),
        st.builds(Keyed, inner, names),
        st.builds(Keyed, inner, names, inner),
        st.builds(Previous, inner),
        st.builds(Earlier, inner),
        st.builds(lambda inner, both: EarlierWithin(inner, *both), inner, ages),
        st.builds(Count, inner, optional_windows, comparisons, counts),
        st.builds(CountSince, inner, inner, comparisons, counts),
        st.builds(Distinct, names, optional, optional_windows, comparisons, counts),
        st.builds(Sum, names, optional, optional_windows, comparisons, amounts),
        st.builds(Avg, names, optional, optional_windows, comparisons, amounts),
        odd_comparisons(inner, names, scalars, optional_windows),
    )


conditions: st.SearchStrategy[Condition] = st.recursive(predicates, _extended, max_leaves=8)

small_conditions: st.SearchStrategy[Condition] = st.recursive(
    st.sampled_from(
        (
            Leaf("a", "eq", 1),
            Leaf("previous", "nin", ("x",)),
            Ref("a", "eq", "earlier"),
            InRelation("count", (FactArg("where"),)),
            Sum("avg", None, None, "gt", ScaledFact("sum", 2)),
            InRelation("r", (FactArg("a"), 1)),
            Ref("a", "eq", "b"),
            Ref("a", "in", "$b"),
            Leaf("like", "eq", 1),
        )
    ),
    _extended,
    max_leaves=8,
)
"""Conditions of simple predicates: only their structure matters."""

PIECES = (
    *(
        "and",
        "or",
        "not",
        "in",
        "contains",
        "matches",
        "between",
        "once",
        "historically",
        "since",
        "within",
        "for",
    ),
    *(
        "per",
        "strong",
        "weak",
        "all",
        "any",
        "true",
        "false",
        "null",
        "AND",
        "True",
        "(",
        ")",
        "[",
        "]",
        ",",
        "==",
    ),
    *(
        "!=",
        "=",
        ">",
        "<",
        ">=",
        "<=",
        "&&",
        "||",
        "!",
        "a",
        "user.id",
        "$v",
        "`odd name`",
        "``",
        "`",
        "1",
        "-2.5",
    ),
    *(
        "1e999",
        "01",
        "5m",
        "5 m",
        "300ms",
        "10x",
        '"s"',
        "'re'",
        '"',
        "'",
        '"\\x"',
        '"\\ud800"',
        "#",
        "# c\n",
        "\n",
    ),
    *(
        ";",
        "{",
        "}",
        "\\",
        "é",
        "\x00",
        "\ud800",
        *("exists", "missing", "some", "network", "in network", "like", "startswith", "icontains"),
        *("previous", "earlier", "count", "distinct", "sum", "avg", "where", "*", "count(", "sum(", "cuont"),
        "wihtin",
        "adn",
        "onec",
        "is",
        "minutes",
        ".",
        "$",
        "-",
        "+",
    ),
)
nearly_texts = st.lists(st.sampled_from(PIECES), max_size=14).flatmap(
    lambda pieces: st.sampled_from((" ".join(pieces), "".join(pieces)))
)
