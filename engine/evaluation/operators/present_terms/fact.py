"""A fact as a term: its value, if it is a string, number or boolean."""

from collections.abc import Sequence

from engine.evaluation.operators.interface import Found, Reading, Triggers
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import Kind, TermOperator
from engine.evaluation.paths import Path
from engine.language.terms import Fact


@values(Fact)
class FactOperator(TermOperator[Fact]):
    """The value of a fact."""

    cost_ns = 0

    def kind(self, term: Fact) -> Kind:  # noqa: ARG002 -- all are the same
        return Kind.SCALAR

    def value(self, term: Fact, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- it has none
        return read.fact(term.fact)

    def present_at(self, term: Fact, triggers: Triggers, path: Path) -> Found:  # noqa: ARG002 -- under all
        return triggers.present(term.fact)
