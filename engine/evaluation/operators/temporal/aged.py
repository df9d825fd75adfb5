"""Operators with `min_secs`: an event counts once it is old enough, until it leaves the window."""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self, TypeVar

from engine.evaluation.operators.interface import (
    Found,
    Memory,
    Operator,
    Reading,
    Settled,
    Triggers,
    Writing,
)
from engine.evaluation.operators.memories import MemoryOfStamps
from engine.evaluation.paths import Path
from engine.evaluation.stamps import NUMBER_BITS, time_of
from engine.language.condition import (
    Condition,
    EarlierWithin,
    HistoricallyFor,
    OnceWithin,
    SinceWithin,
    Windowed,
)

NodeT = TypeVar("NodeT", bound=OnceWithin | EarlierWithin | HistoricallyFor | SinceWithin)

RECORD_BYTES: Final = 150
"""The size of a list of one stamp."""

STAMP_BYTES: Final = 52
"""The size of each further stamp."""


@dataclass(frozen=True)
class Witnesses(MemoryOfStamps):
    """Stamps of events at which inner was true, oldest first; of those old enough, only the latest.

    Of three stamps, the middle one is dropped if the others are at most `span_us` apart: when the youngest is
    old enough, the oldest is still inside the window. So their number is bounded. The middle one may be the
    only one after a birth, so rules of different births do not share the memory.
    """

    splits = False
    min_us: int
    span_us: int
    """The window minus `min_us`."""

    @classmethod
    def of(cls, inner: Condition, node: Windowed, **more: Condition) -> Self:
        """Return the memory of a condition for a node."""
        return cls(inner, node.min_us, node.window_us - node.min_us, **more)

    def write(self, to: Writing) -> list[str]:
        return [f"if {to.outcome}:", *self.written_more(to)]

    def written_more(self, to: Writing) -> list[str]:
        """Return the statements that write another witness, as the body of the preceding statement."""
        most = f"{to.stamp}, {to.constant(self.span_us)}, {to.constant(self.min_us)}"
        return [
            f" if (entry := {to.entry}) and {to.lasts('entry[-1]')}:",
            f"  if (more := add_witness(entry, {most})): {to.memory}.weigh(more * {STAMP_BYTES})",
            " else:",
            *(f"  {line}" for line in to.put(f"[{to.stamp}]")),
        ]

    def serves(self, other: Memory) -> bool:
        if not isinstance(other, Witnesses) or other.span_us < self.span_us:
            return False
        # The stamps for one span include all that a longer span needs.
        return self == replace(other, min_us=self.min_us, span_us=self.span_us)

    def entry_for(self, other: Memory, entry: list[int]) -> list[int]:
        assert isinstance(other, Witnesses), "it only serves other witnesses"
        made = list[int]()
        for stamp in entry:
            add_witness(made, stamp, other.span_us, other.min_us)
        return made

    def bytes_of(self, entry: list[int]) -> int:
        return self.bytes_max(len(entry))

    def bytes_max(self, keep: int) -> int:
        return RECORD_BYTES + STAMP_BYTES * (keep - 1)


def add_witness(entry: list[int], stamp: int, span_us: int, min_us: int) -> int:
    """Add the stamp of an event, and drop useless stamps. Return the increase in their number."""
    before, now_us = len(entry), time_of(stamp)
    old = bisect_left(entry, (now_us - min_us + 1) << NUMBER_BITS)
    if old > 1:
        del entry[: old - 1]
    if len(entry) > 1 and now_us - time_of(entry[-2]) <= span_us:
        entry[-1] = stamp
    else:
        entry.append(stamp)
    return len(entry) - before


class AgedOperator(Operator[NodeT]):
    """Looks for the latest event that is old enough, because that stays inside the window longest."""

    cost_ns = 120
    calls = (add_witness, bisect_left)

    @abstractmethod
    def memory(self, node: NodeT) -> Witnesses:
        """Return the memory of a node."""

    def is_there(self, node: NodeT, read: Reading) -> str:
        """Return the test that a witness is old enough, and inside the window."""
        # The edge is before all events that are too young.
        old = f"(old := bisect_left(entry, {read.edge(node.min_us - 1)}))"
        return f"(entry := {read.entry}) and {old} and entry[old - 1] >= {read.edge(node.window_us)}"

    def verdict(self, node: NodeT, read: Reading) -> str:
        return self.is_there(node, read)

    def true_at(self, node: NodeT, triggers: Triggers, path: Path) -> Found:
        return triggers.holding(self.memory(node), path)

    def keep(self, node: NodeT) -> int:
        # A stamp that is too young is more than the span before the second next one.
        span_us = node.window_us - node.min_us
        return 2 * ((node.min_us - 1) // (span_us + 1)) + 3

    def soonest_us(self, node: NodeT) -> int:
        return node.min_us

    def turns_us(self, node: NodeT, entry: Sequence[int]) -> Iterable[int]:
        """Return the times at which each witness becomes old enough and leaves the window."""
        times_us = [*map(time_of, entry)]
        begins_us = [time_us + node.min_us - 1 for time_us in times_us]
        return sorted({*begins_us, *(time_us + node.window_us for time_us in times_us)})

    def witness_us(self, node: NodeT, at: Settled) -> int | None:
        place = bisect_left(at.entry, (at.now_us - node.min_us + 1) << NUMBER_BITS)
        time_us = time_of(at.entry[place - 1]) if place else None
        return time_us if time_us is not None and time_us >= at.now_us - node.window_us else None

    def since_us(self, node: NodeT, at: Settled) -> int | None:  # noqa: ARG002 -- for all bounds
        # An earlier witness, since dropped, may have been old enough before the first one. Then the verdict
        # seems to turn with the first one.
        return time_of(at.entry[0]) if at.entry else None
