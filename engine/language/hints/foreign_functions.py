"""Relations whose names are those of functions in other languages: hints at what the condition can say."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from typing import Final

from engine.language.condition import FactArg, Leaf, Not, Ref, Scalar
from engine.language.diagnostics import nearest, quoted
from engine.language.text.printer import format as text_of

_Args = Sequence[FactArg | Scalar]

_PRESENT: Final = {
    *("exists", "exist", "has", "present", "defined", "is_set", "isset", "is_present"),
    *("is_not_null", "isnotnull", "not_null"),
}
_ABSENT: Final = {"missing", "absent", "is_null", "isnull", "is_missing", "not_exists", "is_none"}
_PREFIX: Final = {"startswith", "starts_with", "begins_with", "beginswith", "prefix"}
_SUFFIX: Final = {"endswith", "ends_with", "suffix"}
_PART: Final = {"contains", "includes", "icontains", "substring", "instr"}
_PATTERN: Final = {"like", "ilike", "match", "matches", "regex", "regexp", "re_match", "regex_match"}
_NETWORK: Final = {"cidr", "cidrmatch", "cidr_match", "in_network", "in_subnet", "ip_in", "subnet", "network"}
_RULE: Final = {"rule", "rules", "use", "matched", "fired"}
_VALUE_BEFORE: Final = {"prev", "previous", "lag", "last", "before", "earlier", "changed", "delta", "diff"}
_VALUES: Final = {
    *("length", "len", "lower", "upper", "tolower", "toupper", "trim", "abs", "round", "floor", "ceil"),
    *("min", "max", "now", "time", "hour", "minute", "day", "weekday", "month", "clock", "age", "compare"),
    *("if", "case", "coalesce", "iif", "date", "concat", "split"),
}
_AGGREGATES: Final = {"count", "distinct", "sum", "avg", "mean", "average", "count_distinct"}
_OF_THE_LANGUAGE: Final = ("count", "distinct", "exists", "missing", "startswith", "endswith", "contains")
_NEAR_CHARS_MIN: Final = 5
"""A shorter name is too easily near another."""
_QUOTED_AS_IS: Final = frozenset(r"\.+*?()[]{}^$|")
_IPV4: Final = 4
_OCTET_BITS: Final = 8


def about_function(name: str, args: _Args) -> Iterator[str]:
    """Yield what to write instead if a relation is named like a function, or nearly."""
    meant = name.lower()
    instead = _instead(meant, args)
    if instead is None and len(name) >= _NEAR_CHARS_MIN:
        near = nearest(meant, _OF_THE_LANGUAGE)
        instead = None if near is None or meant == f"{near}s" else _instead(near, args)
    if instead is not None:
        yield f"{quoted(name)} is no function here: what looks like one looks in a relation; {instead}"


def _instead(name: str, args: _Args) -> str | None:
    """Return what to write instead of a function, or None if there is no such function anywhere."""
    fact = next((arg.fact for arg in args if isinstance(arg, FactArg)), "x")
    text = next((arg for arg in args if isinstance(arg, str)), "…")
    if name in _PRESENT:
        return f"that a fact is there is written {quoted(text_of(Ref(fact, 'eq', fact)))}"
    if name in _ABSENT:
        return f"that a fact is missing is written {quoted(text_of(Not(Ref(fact, 'eq', fact))))}"
    if name in _PREFIX:
        return f"write {quoted(text_of(Leaf(fact, 'matches', '^' + _escaped(text))))}"
    if name in _SUFFIX:
        return f"write {quoted(text_of(Leaf(fact, 'matches', _escaped(text) + '$')))}"
    if name in _PART:
        return f"write {quoted(text_of(Leaf(fact, 'contains', text)))}"
    if name in _PATTERN:
        return f"write {quoted(text_of(Leaf(fact, 'matches', text)))}, with a regular expression"
    if name in _NETWORK:
        pattern = _octets(text)
        written = "" if pattern is None else f"; write {quoted(text_of(Leaf(fact, 'matches', pattern)))}"
        return f"a network is matched as text{written or ', or send its addresses as a relation'}"
    if name in _RULE:
        return "a rule cannot ask another rule; repeat its condition here"
    if name in _VALUE_BEFORE:
        return 'no condition compares with the value before; name the values, as in `previous x == "a"`'
    if name in _VALUES:
        return "facts are compared as they are; send the computed value as a field of its own"
    if name in _AGGREGATES:
        return (
            "`count(a == 1) within 10m >= 5`, `distinct(x)`, `sum(x)` and `avg(x)` are compared with a number"
        )
    return None


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in _QUOTED_AS_IS else char for char in text)


def _octets(network: str) -> str | None:
    """Return the pattern for an IPv4 network of whole octets, None for any other text."""
    try:
        found = ip_network(network, strict=False)
    except ValueError:
        return None
    if found.version != _IPV4 or found.prefixlen % _OCTET_BITS or not found.prefixlen:
        return None
    octets = str(found.network_address).split(".")[: found.prefixlen // _OCTET_BITS]
    return (
        "^"
        + "".join(f"{octet}\\." for octet in octets).removesuffix("\\.")
        + ("$" if len(octets) == _IPV4 else "\\.")
    )
