"""What the terms have in common that are computed over the events of a window, by panes of time."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from engine.evaluation.operators.counting.panes import lookback_us, panes_kept, panes_left_us, places
from engine.evaluation.operators.interface import Found, Reading, Triggers
from engine.evaluation.operators.term_interface import PastTerm
from engine.evaluation.paths import Path

AggregateT = TypeVar("AggregateT", bound=Any)


class Aggregated(PastTerm[AggregateT]):
    """A number over the events of a window. With `earlier`, the event now does not count."""

    cost_ns = 350

    @abstractmethod
    def computed(self, term: AggregateT, arguments: str) -> str:
        """Return the expression for the number, given the entry, pane, outcome and oldest pane."""

    def value(self, term: AggregateT, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- none
        pane, oldest = places(term.window_us, read)
        outcome = "None" if self.looks_before(term) else read.outcome
        return self.computed(term, f"{read.entry}, {pane}, {outcome}, {oldest}")

    def window_us(self, term: AggregateT) -> int | None:
        window_us: int | None = term.window_us
        return window_us

    def lookback_us(self, term: AggregateT) -> int | None:
        return lookback_us(term.window_us)

    def keep(self, term: AggregateT) -> int:
        return panes_kept(term.window_us)

    def looks_before(self, term: AggregateT) -> bool:
        return term.earlier is True

    def turns_us(self, term: AggregateT, entry: Any) -> Iterable[int]:
        return panes_left_us(term.window_us, (one[0] for one in entry.panes()) if entry else ())


class OfSome(Aggregated[AggregateT]):
    """A number that is missing where no event counts."""

    def present_at(self, term: AggregateT, triggers: Triggers, path: Path) -> Found:
        memory = self.memory(term)
        held = triggers.holding(memory, path)
        if self.looks_before(term):
            return held
        return triggers.union([held, memory.changed_by(triggers, path)])
