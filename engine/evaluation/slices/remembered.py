"""A memory where it is remembered: in the slices of one path, for rules of all births or of one."""

from typing import TYPE_CHECKING, Any

from engine.evaluation.operators.interface import Memory
from engine.evaluation.stamps import NEVER

if TYPE_CHECKING:
    from engine.evaluation.slices.slices import Slices


class Remembered:
    """A memory in the slices of one path. Generated code calls its methods with the entries of slices."""

    __slots__ = ("bucket", "commit", "has_place", "keep", "memory", "place", "slices")

    def __init__(self, memory: Memory, slices: "Slices", place: int, *, has_place: bool) -> None:
        self.memory, self.slices = memory, slices
        self.place = place
        """The number of its entries: their place in the list of a slice if it `has_place`, else their key."""
        self.has_place = has_place
        self.bucket: Any = None
        """The members of the index that an entry triggers, while rules are indexed."""
        self.commit: Any = None
        """Writes an outcome into the slice of the event, while rules are indexed: (outcome, base, tick)."""
        self.keep = 1
        """The most entries of a record that any node needs."""

    @property
    def blank(self) -> Any:
        """The entry of a slice that remembers nothing."""
        return () if self.memory.is_record else NEVER

    def cut(self, entry: Any) -> None:
        """Cut a record to what is needed, if it has become much longer."""
        self.memory.cut(entry, self.keep)
