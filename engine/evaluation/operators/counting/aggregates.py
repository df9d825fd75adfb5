"""`sum`, `avg`, `min`, `max` and, as a term, `count`: numbers over the events of a window.

They are stored by panes of time, which takes little memory.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeVar

from engine.evaluation.operators.counting.count import Comparing
from engine.evaluation.operators.counting.panes import (
    PaneMinima,
    Panes,
    PanesOfCounts,
    PanesOfMinima,
    PaneSums,
    least,
    lookback_us,
    mean,
    oldest_pane,
    panes_kept,
    panes_left_us,
    places,
    total,
)
from engine.evaluation.operators.interface import Found, LookingBack, Memory, Reading, Settled, Triggers
from engine.evaluation.operators.table import evaluates, values
from engine.evaluation.operators.term_interface import PastTerm, observed, observed_if
from engine.evaluation.paths import Path
from engine.language.condition import Avg, ScaledFact, Sum
from engine.language.forms.form import Content, Counted, call_of_fact
from engine.language.operators import COMPARED, COMPARISONS
from engine.language.terms import AvgTerm, CountTerm, MaxTerm, MinTerm, SumTerm

NodeT = TypeVar("NodeT", bound=Any)
"""A member or a term."""


class ByPanes(LookingBack[NodeT]):
    """A computation over the events of a window."""

    cost_ns = 350

    def lookback_us(self, node: NodeT) -> int | None:
        return lookback_us(node.window_us)

    def keep(self, node: NodeT) -> int:
        return panes_kept(node.window_us)

    def turns_us(self, node: NodeT, entry: Any) -> Iterable[int]:
        return panes_left_us(node.window_us, (one[0] for one in entry.panes()) if entry else ())


@evaluates(
    call_of_fact(
        Sum,
        "sum",
        Content.AMOUNT,
        text="The sum of a fact, where `where` was true.",
        is_addition=True,
        counted=Counted(frozenset({"a number"}), "only numbers count, so that the sum is always 0"),
    )
)
class SumOperator(ByPanes[Sum | Avg], Comparing[Sum | Avg]):
    """Compares the sum with a number, or with a fact of the event times a number."""

    calls = (PaneSums, mean, total)
    function: ClassVar[str] = "total"
    """The name of the function that computes the number from a record."""

    def memory(self, node: Sum | Avg) -> Memory:
        return Panes(node.window_us, node.fact, node.where)

    def verdict(self, node: Sum | Avg, read: Reading) -> str:
        pane, oldest = places(node.window_us, read)
        found = f"{self.function}({read.entry}, {pane}, {read.outcome}, {oldest})"
        tests = []
        if isinstance(node.value, ScaledFact):
            factor = read.constant(float(node.value.factor))
            tests = [f"(limit := scaled({read.fact(node.value.fact)}, {factor})) is not None"]
            limit = "limit"
        else:
            limit = read.constant(node.value)
        if self.function == "mean":
            tests.append(f"(found := {found}) is not None")
            found = "found"
        return " and ".join([*tests, f"{found} {COMPARISONS[node.op]} {limit}"])

    def true_at(self, node: Sum | Avg, triggers: Triggers, path: Path) -> Found:
        counted: Found = None
        if self.function == "mean" or not (
            isinstance(node.value, ScaledFact) or COMPARED[node.op](0, node.value)
        ):
            # A mean of no events is never true.
            counted = self.memory(node).held_after(triggers, path)
        if isinstance(node.value, ScaledFact):
            return triggers.best([triggers.present(node.value.fact), counted])
        return counted

    def next_us(self, node: Sum | Avg, entry: PaneSums, now_us: int, to: bool | None) -> int | None:
        # Without a non-negative number, a sum becomes smaller or stays equal.
        if to is None or node.window_us is None or self.function == "mean" or node.op in ("eq", "neq"):
            return super().next_us(node, entry, now_us, to)
        grows = (node.op in ("gt", "gte")) is to
        panes = entry.since(oldest_pane(node.window_us, now_us))
        turning = (pane for pane, added, _ in panes if not (added >= 0 if grows else added <= 0))
        return next(iter(panes_left_us(node.window_us, turning)), None)

    def since_us(self, node: Sum | Avg, at: Settled) -> int | None:
        # It is unknown when the last number came, or what the fact was.
        unknown = node.window_us is None or isinstance(node.value, ScaledFact)
        return None if unknown else super().since_us(node, at)

    def found(self, node: Sum | Avg, at: Settled) -> float | None:
        return total(at.entry, 0, None, oldest_pane(node.window_us, at.now_us))


@evaluates(
    call_of_fact(
        Avg,
        "avg",
        Content.AMOUNT,
        text="The mean of a fact, where `where` was true. False if no event counts.",
        is_addition=True,
        synonyms=frozenset({"mean", "average"}),
        counted=Counted(
            frozenset({"a number"}), "only numbers count, so that a comparison of the mean is always false"
        ),
    )
)
class AvgOperator(SumOperator):
    """Compares the mean instead of the sum; false if no event counts."""

    function = "mean"

    def found(self, node: Sum | Avg, at: Settled) -> float | None:
        return mean(at.entry, 0, None, oldest_pane(node.window_us, at.now_us))


# -- terms --------------------------------------------------------------------------------------------------


class Aggregated(ByPanes[NodeT], PastTerm[NodeT]):
    """A number over the events of a window. With `earlier`, the current event does not count."""

    code: ClassVar[str]
    """The expression for the number, with places for the entry, the pane, the outcome and the oldest pane."""
    begins_with_0: ClassVar[bool] = False
    """Whether it is 0, not missing, if no event counts."""

    def value(self, term: NodeT, read: Reading, operands: Sequence[str]) -> str:  # noqa: ARG002 -- none
        pane, oldest = places(term.window_us, read)
        outcome = "None" if self.looks_before(term) else read.outcome
        return self.code.format(f"{read.entry}, {pane}, {outcome}, {oldest}")

    def looks_before(self, term: NodeT) -> bool:
        return term.earlier is True

    def present_at(self, term: NodeT, triggers: Triggers, path: Path) -> Found:
        if self.begins_with_0:
            return None
        memory = self.memory(term)
        return triggers.holding(memory, path) if term.earlier else memory.held_after(triggers, path)


@values(CountTerm)
class CountTermOperator(Aggregated[CountTerm]):
    """The number of events."""

    calls = (PaneSums, total)
    code = "total({})"
    begins_with_0 = True

    def memory(self, term: CountTerm) -> Memory:
        return PanesOfCounts(term.window_us, observed(term.inner))


@values(SumTerm)
class SumTermOperator(Aggregated[SumTerm | AvgTerm]):
    """The sum."""

    calls = (PaneSums, mean, total)
    code = "total({})"
    begins_with_0 = True

    def memory(self, term: SumTerm | AvgTerm) -> Memory:
        return Panes(term.window_us, term.fact, observed_if(term.where))


@values(AvgTerm)
class AvgTermOperator(SumTermOperator):
    """The mean."""

    code = "(NAN if (found := mean({})) is None else found)"
    begins_with_0 = False


@values(MinTerm)
class MinOperator(Aggregated[MinTerm | MaxTerm]):
    """The minimum."""

    calls = (PaneMinima, least)
    code = "least({})"

    def memory(self, term: MinTerm | MaxTerm) -> Memory:
        is_negated = isinstance(term, MaxTerm)
        return PanesOfMinima(term.window_us, term.fact, observed_if(term.where), is_negated)


@values(MaxTerm)
class MaxOperator(MinOperator):
    """The maximum: the negated minimum of the negated numbers."""

    code = "-least({})"
