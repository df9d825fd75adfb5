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
"""Gives a rule, named by its priority, or what updates a memory, by a number below 0, as a row for events of
which something may be known beforehand."""


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

    def take_over(self, other: "Group") -> None:
        """Add the rows of another group of the same shape."""
        for place, column in enumerate(other.constants):
            mine = self.constants[place]
            if not mine:
                self.constants[place] = column[:]
            elif isinstance(mine, array) and isinstance(column, array) and mine.typecode == column.typecode:
                mine += column  # type: ignore[operator]  # of one kind
            else:
                self.constants[place] = [*mine, *column]
        self.rest += other.rest

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


Groups: TypeAlias = dict[Observe, Group]


class Bucket:
    """Rules that some events have to be shown to, and memories that those events may change.

    They become rows some at a time, so that the constants of what is run together lie together in memory: of
    a hundred thousand rules, fifty that lie anywhere take several times as long as fifty in a row.
    """

    __slots__ = ("_compile", "_known", "pending", "rules", "size", "updaters")

    def __init__(self, compile_member: Compile, known: Known | None = None) -> None:
        self._compile = compile_member
        self._known = known
        self.rules: Groups = {}
        self.updaters: dict[int, Groups] = {}
        """By how deep memories lie in one another."""
        self.pending: list[tuple[int, int]] = []
        self.size = 0

    def add(self, member: int, depth: int = 0) -> None:
        """Take in a rule, or what updates a memory with so many memories in one another."""
        self.size += 1
        self.pending.append((member, depth))
        if len(self.pending) >= _PENDING_MAX:
            self.take_in()

    def remove(self, member: int, depth: int = 0) -> None:
        """Let it go."""
        self.size -= 1
        if (member, depth) in self.pending:
            self.pending.remove((member, depth))
            return
        groups = self.updaters[depth] if depth else self.rules
        for observe, group in groups.items():
            if group.remove(member):
                if not group.rest:
                    del groups[observe]
                    if depth and not groups:
                        del self.updaters[depth]
                return
        raise AssertionError(member)

    def take_over(self, other: "Bucket") -> None:
        """Take all that another bucket has."""
        other.take_in()
        _take_over(self.rules, other.rules)
        for depth, groups in other.updaters.items():
            _take_over(self.updaters.setdefault(depth, {}), groups)
        self.size += other.size

    def take_in(self) -> None:
        """Make rows of what was added."""
        while self.pending:
            member, depth = self.pending.pop(0)
            observe, constants, rest = self._compile(member, self._known)
            groups = self.updaters.setdefault(depth, {}) if depth else self.rules
            group = groups.get(observe)
            if group is None:
                group = groups[observe] = Group(len(constants), len(rest) + 1)
            group.add(constants, [*rest, member])


def _take_over(mine: Groups, others: Groups) -> None:
    for observe, group in others.items():
        if observe not in mine:
            mine[observe] = Group(len(group.constants), group.width)
        mine[observe].take_over(group)


def run(  # noqa: PLR0917 -- naming them would cost more than many rules do
    met: list[Bucket],
    fields: Mapping[str, Any],
    sent: Mapping[str, Any],
    now_us: int,
    tick: int,
    relations: Relations | None,
    fire: Fire,
) -> None:
    """Show an event to the buckets that it meets: memories first, from the inside out, then rules."""
    depths: set[int] = set()
    for bucket in met:
        if bucket.pending:
            bucket.take_in()
        if bucket.updaters:
            depths.update(bucket.updaters)
    for depth in sorted(depths) if len(depths) > 1 else depths:
        for bucket in met:
            for observe, group in bucket.updaters.get(depth, _NONE).items():
                observe(group.constants, group.rest, fields, sent, now_us, tick, relations, fire)
    for bucket in met:
        for observe, group in bucket.rules.items():
            observe(group.constants, group.rest, fields, sent, now_us, tick, relations, fire)


_NONE: Final[Groups] = {}
