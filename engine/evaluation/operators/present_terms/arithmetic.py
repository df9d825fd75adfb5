"""`+`, `-`, `*`, `/` and `abs`: computed in doubles. A result that is not finite is missing.

What is not finite stays so through `+`, `-`, `*` and `abs`. Only a division by it would give a number again.
"""

from collections.abc import Mapping, Sequence
from math import inf, nan
from typing import Final, TypeAlias

from engine.evaluation.operators.interface import Reading
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import Kind, Motion, TermOperator, together
from engine.language.terms import Abs, Add, Div, Mul, Sub, Term

Computed: TypeAlias = Add | Sub | Mul | Div | Abs

_SIGNS: Final[Mapping[type, str]] = {Add: " + ", Sub: " - ", Mul: " * "}


@values(Add, Sub)
class AddOperator(TermOperator[Computed]):
    """The sum, from left to right, or the difference."""

    def kind(self, term: Computed) -> Kind:  # noqa: ARG002 -- all are the same
        return Kind.COMPUTED

    def operands(self, term: Computed) -> tuple[Term, ...]:
        return (term.operand,) if isinstance(term, Abs) else term.operands

    def value(self, term: Computed, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- the operands do
        return f"({_SIGNS[type(term)].join(operands)})"

    def motion(self, term: Computed, operands: Sequence[Motion]) -> Motion:  # noqa: ARG002 -- the same
        return together(operands)


@values(Mul)
class MulOperator(AddOperator):
    """The product, from left to right."""

    def motion(self, term: Computed, operands: Sequence[Motion]) -> Motion:
        is_scaled = operands.count(Motion.STILL) >= len(operands) - 1
        return super().motion(term, operands) if is_scaled else Motion.BENT


def quotient(dividend: float, divisor: float) -> float:
    """Return a quotient, or NaN if there is none or the divisor is not finite."""
    return dividend / divisor if divisor and -inf < divisor < inf else nan


@values(Div)
class DivOperator(AddOperator):
    """The first divided by the second."""

    cost_ns = 80
    calls = (quotient,)

    def value(self, term: Computed, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- the operands do
        return f"quotient({', '.join(operands)})"

    def motion(self, term: Computed, operands: Sequence[Motion]) -> Motion:
        dividend, divisor = operands
        if divisor is Motion.STILL:
            return super().motion(term, operands)
        is_one_way = divisor is Motion.STRAIGHT and dividend in (Motion.STILL, Motion.STRAIGHT)
        return Motion.ONE_WAY if is_one_way else Motion.BENT


@values(Abs)
class AbsOperator(AddOperator):
    """The absolute value."""

    cost_ns = 40

    def value(self, term: Computed, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- the operand does
        return f"abs({operands[0]})"
