"""`twice within`: a condition was true at two events, the current one included. Only a test has it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.evaluation.operators.interface import Found, Memory, Operator, Reading, Settled, Triggers, Writing
from engine.evaluation.operators.memories import MemoryOfStamps
from engine.evaluation.operators.table import evaluates
from engine.evaluation.paths import Path
from engine.evaluation.stamps import NEVER, time_of
from engine.language.condition import Condition, Windowed
from engine.language.forms.form import prefix_within

RECORD_BYTES: Final = 150
"""What a list of two stamps takes."""


@dataclass(frozen=True, slots=True, eq=False)
class Twice(Windowed):
    """Inner was true at two events no older than the window."""

    inner: Condition
    window_secs: float


@dataclass(frozen=True)
class LatestTwo(MemoryOfStamps):
    """The stamps of the latest two events at which inner was true, the older first."""

    def write(self, to: Writing) -> list[str]:
        return [
            f"if {to.outcome}:",
            f" if (entry := {to.entry}): entry[:] = entry[-1], {to.stamp}",
            " else:",
            *(f"  {line}" for line in to.put(f"[{to.stamp}]")),
        ]

    def bytes_of(self, entry: list[int]) -> int:
        return RECORD_BYTES

    def bytes_max(self, keep: int) -> int:
        return RECORD_BYTES


def older_of_two(entry: Sequence[int], is_true: bool) -> int:
    """Return the stamp of the older of the latest two events, of which the current one may be the later."""
    needed = 1 if is_true else 2
    return entry[-needed] if len(entry) >= needed else NEVER


FORM: Final = prefix_within(
    Twice,  # type: ignore[arg-type]  # not in the closed union
    "twice",
    text="Inner was true at two events no older than the window.",
    is_addition=True,
)


@evaluates(FORM)
class TwiceOperator(Operator[Any]):
    """The older of the latest two events is inside the window."""

    calls = (older_of_two,)

    def memory(self, node: Twice) -> Memory:
        return LatestTwo(node.inner)

    def verdict(self, node: Twice, read: Reading) -> str:
        older = f"older_of_two({read.entry}, {read.outcome})"
        return f"{read.born} < {older} >= {read.edge(node.window_us)}"

    def true_at(self, node: Twice, triggers: Triggers, path: Path) -> Found:
        return triggers.holding(self.memory(node), path)

    def keep(self, node: Twice) -> int:
        return 2

    def turns_us(self, node: Twice, entry: Any) -> Iterable[int]:
        return [time_of(stamp) + node.window_us for stamp in entry]

    def witness_us(self, node: Twice, at: Settled) -> int | None:
        return time_of(at.entry[0]) if at.verdict else None

    def since_us(self, node: Twice, at: Settled) -> int | None:
        return time_of(at.entry[-1]) if at.entry and at.born < at.entry[-1] else None
