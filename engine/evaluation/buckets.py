"""Rules that are run together: by shape, as rows of one loop over their constants."""

from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from engine.evaluation.compiler import Fire, Observe, Row
from engine.evaluation.ir import Known
from engine.evaluation.values import Relations

_ARRAY_INT_MAX: Final = (1 << 63) - 1

_PENDING_MAX: Final = 16
"""So many new rules may wait for the next event: making rows of them takes it half a millisecond."""

Compile = Callable[[int, Known | None], Row]
"""Gives a rule, named by its priority, as a row for events of which something may be known beforehand."""


Numbers: TypeAlias = "array[int] | array[float] | list[Any]"
"""One constant of each row."""


class Group:
    """Rules of one shape in a bucket, by their constants."""

    __slots__ = ("constants", "rest", "width")

    def __init__(self, first: int, width: int) -> None:
        self.constants: list[Numbers] = [[] for _ in range(first)]
        """By place in a row, those of all rows. Numbers lie in arrays: they are next to one another there."""
        self.rest: list[Any] = []
        """What rows need where their first test has not failed; each ends with the rule's priority."""
        self.width = width
        """How many of the rest a row has."""

    def add(self, constants: list[Any], rest: list[Any]) -> None:
        """Add a row."""
        assert len(constants) == len(self.constants), "rules of one shape have as many constants"
        assert len(rest) == self.width, "rules of one shape have as many constants"
        for place, value in enumerate(constants):
            column, kind = self.constants[place], _kind(value)
            if not column and kind is not None:
                column = self.constants[place] = array(kind)
            elif isinstance(column, array) and column.typecode != kind:
                column = self.constants[place] = list(column)
            column.append(value)
        self.rest += rest

    def remove(self, priority: int) -> bool:
        """Drop the row of a rule, if it has one here."""
        priorities = self.rest[self.width - 1 :: self.width]
        if priority not in priorities:
            return False
        row = priorities.index(priority)
        for column in self.constants:
            del column[row]
        del self.rest[row * self.width : (row + 1) * self.width]
        return True


def _kind(value: Any) -> str | None:
    """Give the kind of array that a value fits into."""
    if type(value) is int:
        return "q" if -_ARRAY_INT_MAX <= value <= _ARRAY_INT_MAX else None
    return "d" if type(value) is float else None


class Bucket:
    """Rules that some events have to be shown to.

    Rules become rows some at a time, so that the constants of rules that are run together lie together in
    memory: of a hundred thousand rules, fifty that lie anywhere take several times as long as fifty in a row.
    """

    __slots__ = ("_compile", "_groups", "_known", "_pending", "size")

    def __init__(self, compile_rule: Compile, known: Known | None = None) -> None:
        self._compile = compile_rule
        self._known = known
        self._groups: dict[Observe, Group] = {}
        self._pending: list[int] = []
        self.size = 0

    def add(self, priority: int) -> None:
        """Take a rule in."""
        self.size += 1
        self._pending.append(priority)
        if len(self._pending) >= _PENDING_MAX:
            self._take_in()

    def remove(self, priority: int) -> None:
        """Let a rule go."""
        self.size -= 1
        if priority in self._pending:
            self._pending.remove(priority)
            return
        for observe, group in self._groups.items():
            if group.remove(priority):
                if not group.rest:
                    del self._groups[observe]
                return
        raise AssertionError(priority)

    def run(  # noqa: PLR0917 -- naming them would cost more than many rules do
        self,
        fields: Mapping[str, Any],
        sent: Mapping[str, Any],
        now_us: int,
        tick: int,
        relations: Relations | None,
        fire: Fire,
    ) -> None:
        """Show an event to every rule."""
        if self._pending:
            self._take_in()
        for observe, group in self._groups.items():
            observe(group.constants, group.rest, fields, sent, now_us, tick, relations, fire)

    def _take_in(self) -> None:
        while self._pending:
            priority = self._pending.pop(0)
            observe, constants, rest = self._compile(priority, self._known)
            group = self._groups.get(observe)
            if group is None:
                group = self._groups[observe] = Group(len(constants), len(rest) + 1)
            group.add(constants, [*rest, priority])
