"""Memories by panes of time: for what is added up over a window, they take little memory."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.evaluation.operators.counting.pane_sums import PANE_BYTES, PANES, RECORD_BYTES, PaneSums, pane_us
from engine.evaluation.operators.interface import Constants, Found, Memory, Names, Triggers, Writing
from engine.evaluation.paths import Path
from engine.evaluation.stamps import LATEST
from engine.language.condition import Condition


@dataclass(frozen=True)
class OfPanes(Memory):
    """A record by the panes of a window.

    What it adds up cannot be split, so rules of different births do not share it.
    """

    is_record = True
    splits = False
    window_us: int | None

    def latest(self, entry: Any) -> int:  # noqa: ARG002 -- rules of other births have other records
        return LATEST

    def until_us(self, entry: Any, window_us: int) -> int:
        # The oldest pane counts whole.
        return (int(entry.pane) + 1) * pane_us(window_us) - 1 + window_us


@dataclass(frozen=True)
class PanesOfSums(OfPanes):
    """The sums of numbers over the panes of a window. The outcome is the number, or None if there is none."""

    columns = ("integers", "doubles", "integers")

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


@dataclass(frozen=True)
class Panes(PanesOfSums):
    """The sums of a fact at the events at which `where` was true."""

    fact: str
    where: Condition | None

    @property
    def operands(self) -> tuple[Condition, ...]:
        return () if self.where is None else (self.where,)

    def outcome(self, operands: Sequence[str], names: Names) -> str:
        return number_of_fact(self.fact, operands, names)

    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        where = None if self.where is None else triggers.true(self.where, path)
        return triggers.best([triggers.present(self.fact), where])


def number_of_fact(name: str, operands: Sequence[str], names: Names) -> str:
    """Return the expression for a fact as a double, None if it is none or `where`, its operand, is false."""
    fact = names.fact(name)
    number = f"({fact} if type({fact}) is float else double({fact}))"
    return f"{number} if {operands[0]} else None" if operands else number


def places(window_us: int | None, names: Constants) -> tuple[str, str]:
    """Return the expressions for the pane of an event, and for the oldest pane that counts."""
    if window_us is None:
        return "0", "0"
    width_us = names.constant(pane_us(window_us))
    return f"{names.now} // {width_us}", f"({names.now} - {names.constant(window_us)}) // {width_us}"


def oldest_pane(window_us: int | None, now_us: int) -> int:
    """Return the oldest pane that counts."""
    return 0 if window_us is None else (now_us - window_us) // pane_us(window_us)


def panes_left_us(window_us: int | None, panes: Iterable[int]) -> Iterable[int]:
    """Return when each pane leaves the window, given those of a record in ascending order."""
    if window_us is None:
        return ()
    width_us = pane_us(window_us)
    return ((pane + 1) * width_us - 1 + window_us for pane in panes)


def lookback_us(window_us: int | None) -> int | None:
    """Return how far back events can count. The oldest pane counts whole."""
    return None if window_us is None else window_us + pane_us(window_us)


def panes_kept(window_us: int | None) -> int:
    """Return how many panes are needed: those of the window, and one at either end that it covers in part."""
    return 1 if window_us is None else PANES + 2
