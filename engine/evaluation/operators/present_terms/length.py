"""`length`: the code points of a string, or the elements of an array."""

from collections.abc import Sequence

from engine.evaluation.operators.interface import Found, Reading, Triggers
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import Kind, TermOperator
from engine.evaluation.paths import Path
from engine.language.terms import Length


@values(Length)
class LengthOperator(TermOperator[Length]):
    """How long a fact is."""

    cost_ns = 40

    def kind(self, term: Length) -> Kind:  # noqa: ARG002 -- all are the same
        return Kind.NUMBER

    def value(self, term: Length, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- none
        fact = read.fact(term.fact)
        return f"(NAN if type({fact}) is not str and type({fact}) is not list else len({fact}))"

    def present_at(self, term: Length, triggers: Triggers, path: Path) -> Found:  # noqa: ARG002 -- under all
        return triggers.present(term.fact)
