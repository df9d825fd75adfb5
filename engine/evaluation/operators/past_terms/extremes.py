"""`min` and `max`: the least and the greatest value of a fact."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from engine.evaluation.operators.counting.panes import OfPanes, number_of_fact, places
from engine.evaluation.operators.interface import Found, Memory, Names, Triggers, Writing
from engine.evaluation.operators.past_terms.aggregate import OfSome
from engine.evaluation.operators.past_terms.pane_extremes import (
    PANE_BYTES,
    RECORD_BYTES,
    PaneMinima,
    least,
)
from engine.evaluation.operators.table import values
from engine.evaluation.operators.term_interface import observed_if
from engine.evaluation.paths import Path
from engine.language.condition import Condition
from engine.language.terms import MaxTerm, MinTerm


@dataclass(frozen=True)
class PanesOfMinima(OfPanes):
    """The minima of a fact over the panes of a window, at events at which `where` was true.

    The outcome is the number, or None if there is none. For maxima, it is the number negated.
    """

    columns = ("integers", "doubles")
    fact: str
    where: Condition | None
    is_negated: bool = False

    @property
    def operands(self) -> tuple[Condition, ...]:
        return () if self.where is None else (self.where,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        number = number_of_fact(self.fact, operands, names)
        return f"(None if (number := {number}) is None else -number)" if self.is_negated else number

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        where = None if self.where is None else triggers.true(self.where, path)
        return triggers.best([triggers.present(self.fact), where])

    def write(self, to: Writing) -> list[str]:
        pane, oldest = places(self.window_us, to)
        more = f"more := entry.add({pane}, {to.outcome}, {oldest})"
        return [
            f"if {to.outcome} is not None:",
            f" if (entry := {to.entry}):",
            f"  if ({more}): {to.memory}.weigh(more * {PANE_BYTES})",
            " else:",
            *(f"  {line}" for line in to.put(f"PaneMinima({pane}, {to.outcome})")),
        ]

    def length(self, entry: PaneMinima) -> int:
        return len(entry.minima)

    def bytes_of(self, entry: PaneMinima) -> int:
        return RECORD_BYTES + PANE_BYTES * (len(entry.minima) - 1)

    def copy(self, entry: PaneMinima) -> PaneMinima:
        return entry.copy()

    def parts(self, entry: PaneMinima) -> tuple[Collection[Any], ...]:
        panes, minima = zip(*entry.minima, strict=True)
        return panes, minima

    def entry_of(self, *parts: Sequence[Any]) -> PaneMinima:
        return PaneMinima.of(zip(*parts, strict=True))

    def bytes_max(self, keep: int) -> int:
        return RECORD_BYTES + PANE_BYTES * keep


@values(MinTerm)
class MinOperator(OfSome[MinTerm]):
    """The least."""

    calls = (PaneMinima, least)

    def memory(self, term: MinTerm) -> Memory:
        return PanesOfMinima(term.window_us, term.fact, observed_if(term.where))

    def computed(self, term: MinTerm, arguments: str) -> str:  # noqa: ARG002 -- all are computed so
        return f"least({arguments})"


@values(MaxTerm)
class MaxOperator(OfSome[MaxTerm]):
    """The greatest: the negated least of the negated."""

    calls = (PaneMinima, least)

    def memory(self, term: MaxTerm) -> Memory:
        return PanesOfMinima(term.window_us, term.fact, observed_if(term.where), is_negated=True)

    def computed(self, term: MaxTerm, arguments: str) -> str:  # noqa: ARG002 -- all are computed so
        return f"-least({arguments})"
