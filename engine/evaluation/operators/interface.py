"""What the file of an operator says: what slices remember for it, and when that makes it true.

Code is given as Python expressions and statements. At an event, each memory has an *outcome*: what the
event is to it. All verdicts are decided from the outcomes and from what slices remembered before the event.
Then the event is committed: each outcome is written.
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
"""Triggers, of which an event meets at least one; None stands for all events."""


class Constants(Protocol):
    """Gives the names by which code reads constants, and the time of an event."""

    def constant(self, value: object) -> str:
        """Return the variable of a constant."""

    @property
    def now(self) -> str:
        """The variable of the event's time in microseconds."""


class Names(Constants, Protocol):
    """Gives also the names by which code reads what an event has."""

    def fact(self, name: str) -> str:
        """Return the variable of a fact; None in it stands for a missing one."""


class Reading(Names, Protocol):
    """Gives the names by which the code of a verdict reads a memory, as it was before the event."""

    @property
    def outcome(self) -> str:
        """What the event is to the memory."""

    @property
    def entry(self) -> str:
        """What the slice remembers."""

    @property
    def born(self) -> str:
        """The stamp of the last event before the rule's history began."""

    @property
    def seen(self) -> str:
        """The stamp of the slice's last event before this one; right only if the slice has an entry."""

    def edge(self, window_us: int) -> str:
        """Return the expression for a stamp before all events inside a window, and after all older ones."""

    def inside(self, window_us: int | None) -> str:
        """Return the expression for whether the entry, a stamp, came after the birth, and inside a window."""


class Writing(Constants, Protocol):
    """Gives the names and statements that change what a slice remembers."""

    @property
    def outcome(self) -> str:
        """What the event is to the memory."""

    @property
    def entry(self) -> str:
        """What the slice remembers."""

    @property
    def stamp(self) -> str:
        """The stamp of the event."""

    @property
    def memory(self) -> str:
        """The memory itself: an object with the method `resized`."""

    @property
    def keep(self) -> int:
        """How many stamps or values of a record are needed. Once the code is made, it may become more."""

    def lasts(self, latest: str) -> str:
        """Return the expression for whether the record `entry` can still matter, by its latest stamp.

        If it cannot, it begins anew, as if it had been dropped. So its size depends only on the events.
        """

    def put(self, value: str) -> list[str]:
        """Return the statements that make a value the entry, in a new slice if there is none."""

    def clear(self) -> list[str]:
        """Return the statements that leave no entry. They may change the variable `entry`."""


class Triggers(Protocol):
    """Finds triggers: a set of which an event meets at least one; None stands for all events."""

    def of(self, node: Node, path: Path) -> "Triggers":
        """Return what finds triggers for all that is inside a part, whose history may be older."""

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
        """Return triggers for the events in whose slice a memory has an entry; None if nearly all have."""

    def union(self, parts: Iterable[Found]) -> Found:
        """Return triggers for the events that meet one of the parts."""

    def best(self, parts: Iterable[Found]) -> Found:
        """Return the triggers of the part that the fewest events meet, for events that meet all of them."""


@dataclass(frozen=True)
class Memory(ABC):
    """What slices remember of a condition. Nodes whose memories are equal share one.

    Fields that are conditions are its operands: their truth at an event decides the outcome.
    """

    is_record: ClassVar[bool] = False
    """Whether an entry is a record, not a stamp. Where nothing is remembered, it is `()`, or else `NEVER`."""
    renews: ClassVar[bool] = False
    """Whether the stamp of each event whose outcome is true becomes the entry, which is a stamp."""
    splits: ClassVar[bool] = True
    """Whether rules of different births can share it, because each can tell what came after its birth."""

    columns: ClassVar[tuple[str, ...]] = ("stamps",)
    """The columns in which entries are saved: `stamps`, `keys` (of scalars), `scalars` (as they are),
    `integers` or `doubles`."""

    lasting: ClassVar[str] = "None"
    """The outcome with which verdicts are decided later, as long as no further event comes: what was written
    decides them. It may name `outcome`, that of the last event."""

    @property
    @abstractmethod
    def operands(self) -> tuple[Condition, ...]:
        """The conditions that it observes."""

    @property
    def by_exception(self) -> bool:
        """Whether slices keep only what is unusual, because the outcome is True at nearly every event.

        An event whose outcome is True makes its stamp the entry, so nothing is kept as long as that is the
        slice's last event.
        """
        return False

    @property
    def begins(self) -> bool:
        """Whether an event that is `idle` writes an entry where there is none."""
        return False

    @property
    def idle(self) -> str:
        """The outcome of an event that meets none of the triggers."""
        return str(self.by_exception or None)

    @abstractmethod
    def outcome(self, operands: Sequence[str], names: Names) -> str:
        """Return the expression for what an event is to it, by the truths of its operands."""

    @abstractmethod
    def changed_by(self, triggers: Triggers, path: Path) -> Found:
        """Return triggers for the events whose outcome is not `idle`."""

    def held_after(self, triggers: Triggers, path: Path) -> Found:
        """Return triggers for the events after which the slice has an entry."""
        return triggers.union([triggers.holding(self, path), self.changed_by(triggers, path)])

    def notable(self, outcome: str) -> tuple[str, str]:
        """Return the test whether an outcome is not `idle`, and the outcome if it passes."""
        return f"(found := {outcome}) is not {self.idle}", "found"

    @abstractmethod
    def write(self, to: Writing) -> list[str]:
        """Return the statements that write the outcome of an event."""

    def latest(self, entry: Any) -> int:
        """Return the latest stamp in an entry that remembers something."""
        return int(entry)

    def until_us(self, entry: Any, window_us: int) -> int:
        """Return the last time at which an entry can matter to a node with this window."""
        return time_of(self.latest(entry)) + window_us

    def bytes_of(self, entry: Any) -> int:  # noqa: ARG002 -- overridden
        """Return the size of a record, as an estimate that depends on nothing else."""
        return 0

    def length(self, entry: Any) -> int:
        """Return how many stamps, values or sums a record has."""
        return len(entry)

    def copy(self, entry: Any) -> Any:
        """Return an entry that no event changes."""
        return entry

    def serves(self, other: "Memory") -> bool:
        """Return whether what it remembers is enough for another memory, too."""
        return self == other

    def entry_for(self, other: "Memory", entry: Any) -> Any:
        """Return what another memory, which it `serves`, has in place of an entry."""
        raise AssertionError(entry, other)

    def parts(self, entry: Any) -> tuple[Collection[Any], ...]:
        """Return what an entry has in each of the `columns`, equally much in all."""
        return ((entry,),)

    def entry_of(self, *parts: Sequence[Any]) -> Any:
        """Return the entry of some `parts`."""
        return parts[0][0]

    def bytes_max(self, keep: int) -> int:  # noqa: ARG002 -- overridden
        """Return the most that a record can take which is cut to `keep` stamps or values."""
        return 0

    def resize(self, entry: Any, keep: int, weigh: Callable[[int], None]) -> None:
        """Weigh what a record has grown by, and cut it to what is needed: `keep` stamps or values."""
        raise AssertionError(entry, keep, weigh)


class Settled(NamedTuple):
    """What an explanation knows of a node at an event."""

    entry: Any
    """What the slice remembers: with this event, unless the form `looks_before` it."""
    seen: int
    """The stamp of the slice's last event before this one; right only if the slice has an entry."""
    born: int
    """The stamp of the last event before the rule's history began."""
    now_us: int
    """The time of the event."""
    outcome: Any
    """What the event is to the memory."""
    verdict: bool


NodeT = TypeVar("NodeT", bound=Node)


class LookingBack(ABC, Generic[NodeT]):
    """What looks back: a member of the language, or a term. It has a memory."""

    only_next: ClassVar[bool] = False
    """Whether an entry matters only at the next event of its slice."""

    cost_ns: ClassVar[int] = 60
    """About how long a node takes at an event, without its operands."""

    calls: ClassVar[tuple[Callable[..., Any], ...]] = ()
    """What the code of its memory and of its verdicts or values calls by its name."""

    @abstractmethod
    def memory(self, node: NodeT) -> Memory:
        """Return what is remembered for a node."""

    def window_us(self, node: NodeT) -> int | None:
        """Return for how long an entry can matter to a node: by default, its window. None: for ever."""
        window_us: int | None = getattr(node, "window_us", None)
        return window_us

    def lookback_us(self, node: NodeT) -> int | None:
        """Return how far back events can matter to a node at an event; None without a bound."""
        window_us = self.window_us(node)
        return None if window_us is None else max(0, window_us)

    def keep(self, node: NodeT) -> int:  # noqa: ARG002 -- overridden
        """Return how many stamps, values or panes of a record the node needs at most."""
        return 1

    def looks_before(self, node: NodeT) -> bool:  # noqa: ARG002 -- overridden
        """Return whether the current event does not count, only those before it."""
        return False

    def soonest_us(self, node: NodeT) -> int | None:
        """Return how long after an event time may turn what it wrote, at least; None if time never does."""
        return self.window_us(node)

    def drift(self, node: NodeT) -> bool | None:  # noqa: ARG002 -- overridden
        """Return the only verdict to which time may turn a node; None if that is not known."""
        return None

    def witness_us(self, node: NodeT, at: Settled) -> int | None:  # noqa: ARG002 -- overridden
        """Return the time of the event that settles a verdict or a value, or None if no single event does."""
        return None

    def next_us(self, node: NodeT, entry: Any, now_us: int, to: bool | None) -> int | None:  # noqa: ARG002
        """Return the next time, from one on, just after which time may turn a node, whatever events come.

        It may be too early: then it is asked for again. What can only turn it to the verdict other than `to`
        may be left out, if that is not None.
        """
        return next((turn_us for turn_us in self.turns_us(node, entry) if turn_us >= now_us), None)

    @property
    def turns_at_edge(self) -> bool:
        """Whether time turns a node only when an entry leaves its window, as it does by default."""
        own = type(self)
        return own.next_us is LookingBack.next_us and own.turns_us is LookingBack.turns_us

    def turns_us(self, node: NodeT, entry: Any) -> Iterable[int]:
        """Return the times just after which time alone may turn a verdict or step a value, in order.

        Later times than these cannot. The verdict is asked for at each, so there may be too many.
        """
        window_us = self.window_us(node)
        return () if window_us is None else (time_of(entry) + window_us,)


class Operator(LookingBack[NodeT]):
    """A member of the language that looks back."""

    def looks_before(self, node: NodeT) -> bool:
        """Return whether the current event never makes a node true, only those before it."""
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
        """Return whether a larger window can only make a node true, or only false; None if it is not known.

        If it is known, nothing else than `Reading.edge` tells its verdict the window.
        """
        return None

    def drift(self, node: NodeT) -> bool | None:
        """Return the only verdict to which time may turn a node. It leaves less of the past in windows."""
        grows = self.grows(node)
        return None if grows is None else not grows

    # -- explanations ---------------------------------------------------------------------------------------

    def witness_us(self, node: NodeT, at: Settled) -> int | None:
        """Return that of the entry.

        An event outside the window may have been forgotten already, so it is never named.
        """
        window_us = self.window_us(node)
        time_us = time_of(at.entry)
        is_inside = window_us is None or time_us >= at.now_us - window_us
        return time_us if at.born < at.entry and is_inside else None

    def since_us(self, node: NodeT, at: Settled) -> int | None:
        """Return the time after which nothing but time may have turned a verdict; None if it is not known."""
        return self.witness_us(node, at)

    def found(self, node: NodeT, at: Settled) -> float | None:  # noqa: ARG002 -- overridden
        """Return the number that is compared, no more of a count than the comparison needs; None without one.

        Of a sum, it is an infinity or not a number if it is past the range of a double.
        """
        return None


class Choosing(Operator[NodeT]):
    """An operator that leaves some nodes of its types to others."""

    @abstractmethod
    def for_node(self, node: NodeT) -> Operator[NodeT]:
        """Return the operator of a node."""
