"""`now`: the time of the event."""

from collections.abc import Sequence

from engine.evaluation.operators.interface import Reading
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import Motion, TermOperator
from engine.language.terms import Now

SECOND = "1000000"
"""The microseconds of a second, in code."""


@values(Now)
class NowOperator(TermOperator[Now]):
    """The seconds since 1970."""

    cost_ns = 40

    def value(self, term: Now, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- none
        return f"({read.now} / {SECOND})"

    def motion(self, term: Now, operands: Sequence[Motion]) -> Motion:  # noqa: ARG002 -- none
        return Motion.STRAIGHT
