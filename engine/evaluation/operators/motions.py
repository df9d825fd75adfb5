"""How time alone changes what a comparison of terms compares: at which times it steps, and where it turns."""

from collections.abc import Iterator
from dataclasses import replace

from engine.evaluation.operators.table import term_operator
from engine.evaluation.operators.term_interface import Motion
from engine.language.condition import Compare
from engine.language.nodes import TermNode
from engine.language.terms import Abs, Div, Term, terms_in


def steps_us(node: Compare, now_us: int) -> Iterator[Iterator[int]]:
    """Yield the times at which the time of day changes terms, for each."""
    for side, other in ((node.left, node.right), (node.right, node.left)):
        for term in terms_in(side):
            if isinstance(term, TermNode):
                yield term_operator(term).steps_us(term, now_us, other if term is side else None)


def motion_of(term: Term) -> Motion:
    """Return how time changes the value of a term, between two steps."""
    if not isinstance(term, TermNode):
        return Motion.STILL
    operator = term_operator(term)
    return operator.motion(term, [motion_of(operand) for operand in operator.operands(term)])


def crossings(node: Compare) -> Iterator[Compare]:
    """Yield comparisons that turn where the value of a term bends, or where the node itself turns."""
    for term in reversed([*terms_in(node.left), *terms_in(node.right)]):
        pivot = term.operand if isinstance(term, Abs) else term.operands[1] if isinstance(term, Div) else None
        if pivot is not None and motion_of(pivot) is not Motion.STILL:
            yield Compare(pivot, "gt", 0)
            yield Compare(pivot, "gte", 0)
    yield replace(node, op="gt")
    yield replace(node, op="gte")
