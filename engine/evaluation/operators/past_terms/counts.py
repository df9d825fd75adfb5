"""`count` as a term: how many events there were at which a condition was true."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.evaluation.operators.counting.panes import PanesOfSums, PaneSums, total
from engine.evaluation.operators.interface import Found, Memory, Names, Triggers
from engine.evaluation.operators.past_terms.aggregate import Aggregated
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import observed
from engine.evaluation.paths import Path
from engine.language.condition import Condition
from engine.language.terms import CountTerm


@dataclass(frozen=True)
class PanesOfCounts(PanesOfSums):
    """How many events there were in each pane at which inner was true: the sums of a 1 for each."""

    inner: Condition

    @property
    def operands(self) -> tuple[Condition, ...]:
        return (self.inner,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:  # noqa: ARG002 -- the truth suffices
        return f"1.0 if {operands[0]} else None"

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        return triggers.true(self.inner, path)


@values(CountTerm)
class CountTermOperator(Aggregated[CountTerm]):
    """The number of events."""

    calls = (PaneSums, total)

    def memory(self, term: CountTerm) -> Memory:
        return PanesOfCounts(term.window_us, observed(term.inner))

    def computed(self, term: CountTerm, arguments: str) -> str:  # noqa: ARG002 -- all are computed so
        return f"total({arguments})"
