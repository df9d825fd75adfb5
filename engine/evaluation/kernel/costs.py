"""Estimates the time that a rule takes at an event, and the state it keeps."""

from collections import Counter
from typing import Final, NamedTuple

from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.operators.table import operator_of, parts_of, remembering, term_operator
from engine.evaluation.paths import fact_of
from engine.evaluation.requirements import requirements_of
from engine.evaluation.slices.slices import PLACE_BYTES, SLICE_BYTES
from engine.language import condition as language
from engine.language.condition import Condition, children
from engine.language.nodes import TermNode
from engine.language.terms import Term, terms_in

PATTERN_NS: Final = 1_400
_RULE_NS: Final = 2
_ELEMENTS: Final = 5
"""The assumed number of elements of an array."""
_EQUALITY_NS: Final = 5
_LEAF_NS: Final = 18
_KEY_NS: Final = 15
_KEYED_NS: Final = 115
"""The time to find a slice and write to it."""
_AFTER_FIRST: Final = 0.3
"""The share of events at which a member of `all` after the first is evaluated."""


class Estimate(NamedTuple):
    """The approximate costs of a rule by itself."""

    event_ns: int
    """The time at an event, if the rule is evaluated at every event."""
    memories: dict[tuple[str, ...], int]
    """The maximum number of stamps, values or panes kept for each key, by the names of the keys, the
    outermost first."""


def estimate_of(condition: Condition) -> Estimate:
    """Estimate the costs of a rule."""
    memories: Counter[tuple[str, ...]] = Counter()
    event_ns = _RULE_NS + _time_ns(condition)
    for use in requirements_of(condition).memories:
        event_ns += _KEYED_NS if use.path else 0
        memories[tuple(map(fact_of, use.path))] += use.operator.keep(use.node)
    return Estimate(round(event_ns), dict(memories))


def key_bytes_max(condition: Condition) -> int:
    """Return the maximum size of a condition's own state for a key of 16 characters, in bytes."""
    taken = SLICE_BYTES + key_bytes("0123456789abcdef")
    for part in parts_of(condition):
        operator = remembering(part)
        memory = operator.memory(part)
        taken += PLACE_BYTES + (memory.bytes_max(operator.keep(part)) if memory.is_record else 0)
    return taken


def _time_ns(node: Condition) -> float:
    inside_ns = [_time_ns(child) for child in children(node)]
    match node:
        case language.Leaf(_, "matches", _):
            return PATTERN_NS
        case language.Leaf(_, "eq", _):
            return _EQUALITY_NS
        case language.Some():
            return _LEAF_NS + _ELEMENTS * sum(inside_ns)
        case language.Leaf() | language.Ref() | language.InRelation() | language.InNetwork():
            return _LEAF_NS
        case language.All():
            return inside_ns[0] + _AFTER_FIRST * sum(inside_ns[1:])
        case language.Keyed():
            return _KEY_NS + sum(inside_ns)
        case language.Compare(left, _, right):
            return _LEAF_NS + _value_ns(left) + _value_ns(right) + sum(inside_ns)
        case _:
            operator = operator_of(node)
            return (0 if operator is None else operator.cost_ns) + sum(inside_ns)


def _value_ns(term: Term) -> float:
    terms = [each for each in terms_in(term) if isinstance(each, TermNode)]
    return sum(term_operator(each).cost_ns for each in terms)
