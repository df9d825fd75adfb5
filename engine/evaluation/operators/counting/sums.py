"""`sum` and `avg`: the sum and the mean of a fact, kept by panes of time, so that they take little memory."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.evaluation.operators.counting.comparison import Comparing, some_counted
from engine.evaluation.operators.counting.pane_sums import (
    PANE_BYTES,
    PANES,
    RECORD_BYTES,
    PaneSums,
    mean,
    pane_us,
    total,
)
from engine.evaluation.operators.interface import (
    Constants,
    Found,
    Memory,
    Names,
    Reading,
    Settled,
    Triggers,
    Writing,
)
from engine.evaluation.operators.table import evaluates
from engine.evaluation.paths import Path
from engine.evaluation.stamps import LATEST
from engine.language.condition import Avg, Condition, ScaledFact, Sum
from engine.language.forms.form import Content, Counted
from engine.language.forms.shapes import call_of_fact
from engine.language.operators import COMPARISONS


@dataclass(frozen=True)
class Panes(Memory):
    """The sums of a fact over the panes of a window, at events at which `where` was true.

    The outcome is the number, or None if the event does not count. A sum cannot be split, so rules of
    different births do not share it.
    """

    is_record = True
    splits = False
    columns = ("integers", "doubles", "integers")
    fact: str
    where: Condition | None
    window_us: int | None

    @property
    def operands(self) -> tuple[Condition, ...]:
        return () if self.where is None else (self.where,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        fact = names.fact(self.fact)
        number = f"({fact} if type({fact}) is float else double({fact}))"
        return f"{number} if {operands[0]} else None" if operands else number

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        where = None if self.where is None else triggers.true(self.where, path)
        return triggers.best([triggers.present(self.fact), where])

    def latest(self, entry: PaneSums) -> int:  # noqa: ARG002 -- rules of other births have other sums
        return LATEST

    def until_us(self, entry: PaneSums, window_us: int) -> int:
        # The oldest pane counts whole.
        return (entry.pane + 1) * pane_us(window_us) - 1 + window_us

    def length(self, entry: PaneSums) -> int:
        return 1 + len(entry.older or ())

    def bytes_of(self, entry: PaneSums) -> int:
        return RECORD_BYTES + PANE_BYTES * len(entry.older or ())

    def copy(self, entry: PaneSums) -> PaneSums:
        return entry.copy()

    def parts(self, entry: PaneSums) -> tuple[Collection[Any], ...]:
        panes, sums, counts = zip(*entry.panes(), strict=True)
        return panes, sums, counts

    def entry_of(self, *parts: Sequence[Any]) -> PaneSums:
        return PaneSums.of(zip(*parts, strict=True))

    def bytes_max(self, keep: int) -> int:
        return RECORD_BYTES + PANE_BYTES * keep

    def write(self, to: Writing) -> list[str]:
        pane, oldest = places(self.window_us, to)
        more = f"more := entry.add({pane}, {to.outcome}, {oldest})"
        return [
            f"if {to.outcome} is not None:",
            f" if (entry := {to.entry}):",
            f"  if ({more}): {to.memory}.weigh(more * {PANE_BYTES})",
            " else:",
            *(f"  {line}" for line in to.put(f"PaneSums({pane}, {to.outcome})")),
        ]


def places(window_us: int | None, names: Constants) -> tuple[str, str]:
    """Return the expressions for the pane of an event, and for the oldest pane that counts."""
    if window_us is None:
        return "0", "0"
    width_us = names.constant(pane_us(window_us))
    return f"{names.now} // {width_us}", f"({names.now} - {names.constant(window_us)}) // {width_us}"


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
        return Panes(node.fact, node.where, node.window_us)

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
        """Return when each pane leaves the window."""
        window_us = node.window_us
        if window_us is None or not entry:
            return []
        width_us = pane_us(window_us)
        panes = [*[pane for pane, _, _ in entry.older or ()], entry.pane]
        return [(pane + 1) * width_us - 1 + window_us for pane in panes]

    def since_us(self, node: Sum | Avg, at: Settled) -> int | None:
        # It is not known when the last number came, nor what the fact was.
        unknown = node.window_us is None or isinstance(node.value, ScaledFact)
        return None if unknown else super().since_us(node, at)

    def found(self, node: Sum | Avg, at: Settled) -> float | None:
        return total(at.entry, 0, None, _oldest(node, at.now_us))

    def lookback_us(self, node: Sum | Avg) -> int | None:
        # The oldest pane counts whole.
        return None if node.window_us is None else node.window_us + pane_us(node.window_us)

    def keep(self, node: Sum | Avg) -> int:
        # The panes of the window, and one at either end that it covers in part.
        return 1 if node.window_us is None else PANES + 2


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
        return mean(at.entry, 0, None, _oldest(node, at.now_us))


def _oldest(node: Sum | Avg, now_us: int) -> int:
    """Return the oldest pane that counts."""
    return 0 if node.window_us is None else (now_us - node.window_us) // pane_us(node.window_us)
