"""`sum` and `avg` as terms: the sum and the mean of a fact."""

from engine.evaluation.operators.counting.panes import Panes, PaneSums, mean, total
from engine.evaluation.operators.interface import Memory
from engine.evaluation.operators.past_terms.aggregate import Aggregated, OfSome
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import observed_if
from engine.language.terms import AvgTerm, SumTerm


@values(SumTerm)
class SumTermOperator(Aggregated[SumTerm]):
    """The sum, which is 0 where no event counts."""

    calls = (PaneSums, total)

    def memory(self, term: SumTerm) -> Memory:
        return Panes(term.window_us, term.fact, observed_if(term.where))

    def computed(self, term: SumTerm, arguments: str) -> str:  # noqa: ARG002 -- all are computed so
        return f"total({arguments})"


@values(AvgTerm)
class AvgTermOperator(OfSome[AvgTerm]):
    """The mean."""

    calls = (PaneSums, mean)

    def memory(self, term: AvgTerm) -> Memory:
        return Panes(term.window_us, term.fact, observed_if(term.where))

    def computed(self, term: AvgTerm, arguments: str) -> str:  # noqa: ARG002 -- all are computed so
        return f"(NAN if (found := mean({arguments})) is None else found)"
