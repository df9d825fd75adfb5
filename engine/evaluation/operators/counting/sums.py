"""`sum` and `avg`: the sum and the mean of a fact, kept by panes of time, so that they take little memory."""

from collections.abc import Iterable
from typing import ClassVar

from engine.evaluation.operators.counting.comparison import Comparing, some_counted
from engine.evaluation.operators.counting.panes import (
    Panes,
    PaneSums,
    lookback_us,
    mean,
    oldest_pane,
    panes_kept,
    panes_left_us,
    places,
    total,
)
from engine.evaluation.operators.interface import Found, Memory, Reading, Settled, Triggers
from engine.evaluation.operators.table import evaluates
from engine.evaluation.paths import Path
from engine.language.condition import Avg, ScaledFact, Sum
from engine.language.forms.form import Content, Counted
from engine.language.forms.shapes import call_of_fact
from engine.language.operators import COMPARISONS


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
class SumOperator(Comparing[Sum | Avg]):
    """Compares the sum with a number, or with a fact of the event times a number."""

    cost_ns = 350
    calls = (PaneSums, mean, total)
    function: ClassVar[str] = "total"
    """The name of the function that gives the number from a record."""

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
        memory = self.memory(node)
        if isinstance(node.value, ScaledFact):
            limited = triggers.present(node.value.fact)
            if self.function != "mean":
                return limited
            counted = triggers.union([triggers.holding(memory, path), memory.changed_by(triggers, path)])
            return triggers.best([limited, counted])
        if self.function == "mean":
            return triggers.union([triggers.holding(memory, path), memory.changed_by(triggers, path)])
        return some_counted(node.op, node.value, memory, triggers, path)

    def turns_us(self, node: Sum | Avg, entry: PaneSums) -> Iterable[int]:
        return panes_left_us(node.window_us, (one[0] for one in entry.panes()) if entry else ())

    def next_us(self, node: Sum | Avg, entry: PaneSums, now_us: int, to: bool | None) -> int | None:
        # Less than before, or as much, remains of a sum without a number that is not negative.
        if to is None or node.window_us is None or self.function == "mean" or node.op in ("eq", "neq"):
            return super().next_us(node, entry, now_us, to)
        grows = (node.op in ("gt", "gte")) is to
        panes = entry.since(oldest_pane(node.window_us, now_us))
        turning = (pane for pane, added, _ in panes if not (added >= 0 if grows else added <= 0))
        return next(iter(panes_left_us(node.window_us, turning)), None)

    def since_us(self, node: Sum | Avg, at: Settled) -> int | None:
        # It is not known when the last number came, nor what the fact was.
        unknown = node.window_us is None or isinstance(node.value, ScaledFact)
        return None if unknown else super().since_us(node, at)

    def found(self, node: Sum | Avg, at: Settled) -> float | None:
        return total(at.entry, 0, None, oldest_pane(node.window_us, at.now_us))

    def lookback_us(self, node: Sum | Avg) -> int | None:
        return lookback_us(node.window_us)

    def keep(self, node: Sum | Avg) -> int:
        return panes_kept(node.window_us)


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
    """The same for the mean; false where no event counts."""

    function = "mean"

    def found(self, node: Sum | Avg, at: Settled) -> float | None:
        return mean(at.entry, 0, None, oldest_pane(node.window_us, at.now_us))
