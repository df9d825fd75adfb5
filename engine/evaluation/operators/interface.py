"""The interface of operators: the state of slices, and when it makes an operator true.

Code consists of Python expressions and statements. At an event, each memory has an *outcome*: the meaning of
the event for it. All verdicts are decided from the outcomes and from the slices before the event. Then the
event is committed: each outcome is written.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from engine.evaluation.paths import Path
from engine.evaluation.stamps import time_of
from engine.language.condition import Condition, Scalar
from engine.language.forms.table import FORM_OF
from engine.language.nodes import Node

Found = frozenset[Any] | None
"""Triggers, at least one of which an event must meet; None means all events."""


class Constants(Protocol):
    """The names by which code reads constants and the time of an event."""

    def constant(self, value: object) -> str:
        """Return the variable of a constant."""

    @property
    def now(self) -> str:
        """The variable of the event's time in microseconds."""


class Names(Constants, Protocol):
    """Also the names by which code reads the facts of an event."""

    def fact(self, name: str) -> str:
        """Return the variable of a fact, which is None for a missing fact."""


class Reading(Names, Protocol):
    """The names by which the code of a verdict reads a memory, in its state before the event."""

    @property
    def outcome(self) -> str:
        """The outcome of the event for the memory."""

    @property
    def entry(self) -> str:
        """The slice's entry."""

    @property
    def born(self) -> str:
        """The stamp of the last event before the rule's history began."""

    @property
    def seen(self) -> str:
        """The stamp of the slice's last event before this one; right only if the slice has an entry."""

    def edge(self, window_us: int) -> str:
        """Return the expression for a stamp between the events inside a window and all older ones."""

    def inside(self, window_us: int | None) -> str:
        """Return the expression for whether the entry, a stamp, is after the birth and inside a window."""


class Writing(Constants, Protocol):
    """The names and statements that change a slice's entry."""

    @property
    def outcome(self) -> str:
        """The outcome of the event for the memory."""

    @property
    def entry(self) -> str:
        """The slice's entry."""

    @property
    def stamp(self) -> str:
        """The stamp of the event."""

    @property
    def memory(self) -> str:
        """The memory: an object with the methods `weigh` and `resized`."""

    @property
    def keep(self) -> int:
        """The number of stamps or values that a record needs. It may grow after the code is generated."""

    def lasts(self, latest: str) -> str:
        """Return the expression for whether the record `entry` can still matter, given its latest stamp.

        If not, a new record begins, as if the old one had expired, so its size depends only on events.
        """

    def put(self, value: str) -> list[str]:
        """Return the statements that set the entry, in a new slice if there is none."""

    def clear(self) -> list[str]:
        """Return the statements that clear the entry. They may change the variable `entry`."""


class Triggers(Protocol):
    """Finds sets of triggers, at least one of which an event must meet; None means all events."""

    def of(self, node: Node, path: Path) -> "Triggers":
        """Return the finder for the inside of a part, whose history may be older."""

    def true(self, node: Condition, path: Path) -> Found:
        """Return triggers for the events at which a condition is true."""

    def false(self, node: Condition, path: Path) -> Found:
        """Return triggers for the events at which a condition is false."""

    def present(self, fact: str) -> Found:
        """Return triggers for the events that have a fact."""

    def equal(self, fact: str, value: Scalar) -> Found:
        """Return triggers for the events at which a fact equals a value."""

    def within(self, fact: str, low: float, high: float) -> Found:
        """Return triggers for the events at which a fact is a number from `low` to `high`."""

    def holding(self, memory: "Memory", path: Path) -> Found:
        """Return triggers for events whose slice has an entry of a memory; None if nearly all have one."""

    def union(self, parts: Iterable[Found]) -> Found:
        """Return triggers for the events that meet one of the parts."""

    def best(self, parts: Iterable[Found]) -> Found:
        """Return the triggers of the part that the fewest events meet, for events that meet all parts."""


@dataclass(frozen=True)
class Memory(ABC):
    """A memory: the state that slices keep of a condition. Nodes with equal memories share one.

    Fields that are conditions are its operands: their truths at an event decide the outcome.
    """

    is_record: ClassVar[bool] = False
    """Whether an entry is a record, not a stamp. An empty entry is `()` for records, `NEVER` for stamps."""
    renews: ClassVar[bool] = False
    """Whether the entry is the stamp of the latest event with a true outcome."""
    splits: ClassVar[bool] = True
    """Whether rules of different births can share it, because it shows what came after each birth."""
    code_nodes: ClassVar[int] = 0
    """The number of nodes that its code counts as, in addition to those that it observes."""
    columns: ClassVar[tuple[str, ...]] = ("stamps",)
    """The columns in which entries are saved: `stamps`, `keys` (of scalars), `scalars` (unchanged),
    `integers` or `doubles`."""

    lasting: ClassVar[str] = "None"
    """The outcome for later verdicts, while no further event comes. It may refer to `outcome`, that of the
    last event."""

    @property
    @abstractmethod
    def operands(self) -> tuple[Condition, ...]:
        """The conditions that it observes."""

    @property
    def by_exception(self) -> bool:
        """Whether slices store only exceptions, because the outcome is True at nearly every event.

        The entry would be the stamp of the latest event with outcome True. Nothing is stored while that is
        the slice's last event.
        """
        return False

    @property
    def begins(self) -> bool:
        """Whether an `idle` event writes an entry if there is none."""
        return False

    @property
    def idle(self) -> str:
        """The outcome of an event that meets none of the triggers."""
        return str(self.by_exception or None)

    @abstractmethod
    def outcome(self, operands: Sequence[str], names: Names) -> str:
        """Return the expression for the outcome of an event, given the truths of the operands."""

    @abstractmethod
    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        """Return triggers for the events whose outcome is not `idle`."""

    def held_after(self, triggers: Triggers, path: Path) -> Found:
        """Return triggers for the events after which the slice has an entry."""
        return triggers.union([triggers.holding(self, path), self.changed_by(triggers, path)])

    def notable(self, outcome: str) -> tuple[str, str]:
        """Return the test that an outcome is not `idle`, and the outcome if the test passes."""
        return f"(found := {outcome}) is not {self.idle}", "found"

    @abstractmethod
    def write(self, to: Writing) -> list[str]:
        """Return the statements that write the outcome of an event."""

    def latest(self, entry: Any) -> int:
        """Return the latest stamp in a non-empty entry."""
        return int(entry)

    def until_us(self, entry: Any, window_us: int) -> int:
        """Return the last time at which an entry can matter to a node with this window."""
        return time_of(self.latest(entry)) + window_us

    def bytes_of(self, entry: Any) -> int:  # noqa: ARG002 -- overridden
        """Return the estimated size of a record, which depends only on the record."""
        return 0

    def length(self, entry: Any) -> int:
        """Return the number of stamps, values or sums in a record."""
        return len(entry)

    def copy(self, entry: Any) -> Any:
        """Return a copy of an entry that no event changes."""
        return entry

    def serves(self, other: "Memory") -> bool:
        """Return whether its entries suffice for another memory."""
        return self == other

    def entry_for(self, other: "Memory", entry: Any) -> Any:
        """Convert an entry to one of another memory that it `serves`."""
        raise AssertionError(entry, other)

    def parts(self, entry: Any) -> tuple[Collection[Any], ...]:
        """Return a part of an entry for each of the `columns`, all of the same length."""
        return ((entry,),)

    def entry_of(self, *parts: Sequence[Any]) -> Any:
        """Return the entry with these `parts`."""
        return parts[0][0]

    def bytes_max(self, keep: int) -> int:  # noqa: ARG002 -- overridden
        """Return the maximum size of a record that is cut to `keep` stamps or values."""
        return 0

    def resize(self, entry: Any, keep: int, weigh: Callable[[int], None]) -> None:
        """Report the growth of a record to `weigh`, and truncate it to the `keep` values that are needed."""
        raise AssertionError(entry, keep, weigh)


class Settled(NamedTuple):
    """The facts about a node at an event, for an explanation."""

    entry: Any
    """The slice's entry, including this event, unless the form `looks_before` it."""
    seen: int
    """The stamp of the slice's last event before this one; right only if the slice has an entry."""
    born: int
    """The stamp of the last event before the rule's history began."""
    now_us: int
    """The time of the event."""
    outcome: Any
    """The outcome of the event for the memory."""
    verdict: bool


NodeT = TypeVar("NodeT", bound=Node)


class LookingBack(ABC, Generic[NodeT]):
    """A member of the language, or a term, that looks back and has a memory."""

    only_next: ClassVar[bool] = False
    """Whether an entry matters only at the next event of its slice."""

    cost_ns: ClassVar[int] = 60
    """The approximate time that a node takes at an event, without its operands."""

    calls: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """The functions that the code of its memory and of its verdicts or values calls, by name."""

    @abstractmethod
    def memory(self, node: NodeT) -> Memory:
        """Return the memory of a node."""

    def window_us(self, node: NodeT) -> int | None:
        """Return how long an entry can matter to a node: by default, its window. None means forever."""
        window_us: int | None = getattr(node, "window_us", None)
        return window_us

    def lookback_us(self, node: NodeT) -> int | None:
        """Return how far back events can matter to a node at an event; None if unlimited."""
        window_us = self.window_us(node)
        return None if window_us is None else max(0, window_us)

    def keep(self, node: NodeT) -> int:  # noqa: ARG002 -- overridden
        """Return the maximum number of stamps, values or panes of a record that the node needs."""
        return 1

    def looks_before(self, node: NodeT) -> bool:  # noqa: ARG002 -- overridden
        """Return whether only earlier events count, not the current one."""
        return False

    def soonest_us(self, node: NodeT) -> int | None:
        """Return the minimum time after an event until time may turn the node; None if it never does."""
        return self.window_us(node)

    def drift(self, node: NodeT) -> bool | None:  # noqa: ARG002 -- overridden
        """Return the only verdict to which time may turn a node; None if unknown."""
        return None

    def witness_us(self, node: NodeT, at: Settled) -> int | None:  # noqa: ARG002 -- overridden
        """Return the time of the event that settles a verdict or a value; None if no single event does."""
        return None

    def next_us(self, node: NodeT, entry: Any, now_us: int, to: bool | None) -> int | None:  # noqa: ARG002
        """Return the next time from `now_us` on just after which time may turn a node, whatever events come.

        It may be too early; then it is requested again. If `to` is not None, turns to the other verdict may
        be left out.
        """
        return next((turn_us for turn_us in self.turns_us(node, entry) if turn_us >= now_us), None)

    @property
    def turns_at_edge(self) -> bool:
        """Whether time turns a node only when an entry leaves its window, as it does by default."""
        own = type(self)
        return own.next_us is LookingBack.next_us and own.turns_us is LookingBack.turns_us

    def turns_us(self, node: NodeT, entry: Any) -> Iterable[int]:
        """Return the times just after which time alone may turn a verdict or step a value, in order.

        There are no others. There may be too many, because the verdict is decided at each.
        """
        window_us = self.window_us(node)
        return () if window_us is None else (time_of(entry) + window_us,)


class Operator(LookingBack[NodeT]):
    """A member of the language that looks back."""

    def looks_before(self, node: NodeT) -> bool:
        """Return whether only earlier events make a node true, never the current one."""
        return FORM_OF[type(node)].looks_before

    @abstractmethod
    def verdict(self, node: NodeT, read: Reading) -> str:
        """Return the expression for the truth of a node at an event."""

    @abstractmethod
    def true_at(self, node: NodeT, triggers: Triggers, path: Path) -> Found:
        """Return triggers for the events at which a node is true."""

    def false_at(self, node: NodeT, triggers: Triggers, path: Path) -> Found:  # noqa: ARG002 -- overridden
        """Return triggers for the events at which a node is false."""
        return None

    def grows(self, node: NodeT) -> bool | None:  # noqa: ARG002 -- overridden
        """Return whether a larger window can only make a node true (True) or only false; None if unknown.

        If known, the verdict uses the window only in `Reading.edge`.
        """
        return None

    def drift(self, node: NodeT) -> bool | None:
        """Return the only verdict to which time may turn a node, because windows lose events over time."""
        grows = self.grows(node)
        return None if grows is None else not grows

    # -- explanations ---------------------------------------------------------------------------------------

    def witness_us(self, node: NodeT, at: Settled) -> int | None:
        """Return the time of the entry.

        An event outside the window is never returned, because it may have been dropped.
        """
        window_us = self.window_us(node)
        time_us = time_of(at.entry)
        is_inside = window_us is None or time_us >= at.now_us - window_us
        return time_us if at.born < at.entry and is_inside else None

    def since_us(self, node: NodeT, at: Settled) -> int | None:
        """Return the time after which only time may have turned a verdict; None if unknown."""
        return self.witness_us(node, at)

    def found(self, node: NodeT, at: Settled) -> float | None:  # noqa: ARG002 -- overridden
        """Return the compared number, of a count no more than the comparison needs; None without one.

        A sum beyond the range of a double is an infinity or NaN.
        """
        return None


class Choosing(Operator[NodeT]):
    """An operator that leaves nodes with `min_secs` to another one, and looks for the latest event."""

    aged: ClassVar[Operator[Any]]
    """The operator of nodes with `min_secs`."""

    def for_node(self, node: NodeT) -> Operator[Any]:
        """Return the operator of a node."""
        return self.aged if getattr(node, "min_us", 0) else self

    def grows(self, node: NodeT) -> bool:  # noqa: ARG002 -- for all windows
        return True
