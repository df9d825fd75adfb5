"""How generated code reads and writes entries of slices; see `operators/interface.py`."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final

from engine.evaluation.generated import function, indented
from engine.evaluation.kernel.code.event_code import EventCode
from engine.evaluation.operators.interface import Reading
from engine.evaluation.slices.slices import MORE, SEEN, Remembered
from engine.evaluation.stamps import UNSET


class Entry(ABC):
    """The entry of a memory in a slice, as code reads and writes it.

    `slice_` and `place` are the expressions for the slice and the entry's place in it. If the slice may be
    `blank`, `admit` is the expression for a new slice; without `admit`, the slice always exists.
    """

    outcome: str
    stamp = "stamp"

    def __init__(
        self, remembered: Remembered, *, slice_: str, place: str, blank: str = "", admit: str = ""
    ) -> None:
        self._remembered, self._slice, self._place = remembered, slice_, place
        self._opening = [f"if {slice_} is {blank}: {slice_} = {admit}"] if admit else []

    @property
    @abstractmethod
    def now(self) -> str:
        """The variable of the event's time in microseconds."""

    @abstractmethod
    def constant(self, value: object) -> str:
        """Return the variable of a constant."""

    @property
    def memory(self) -> str:
        """The variable of the memory."""
        return "remembered"

    @property
    def keep(self) -> int:
        """The number of stamps or values that a record currently needs."""
        return self._remembered.keep

    @property
    def seen(self) -> str:
        """The stamp of the slice's last event."""
        return f"{self._slice}[{SEEN}]"

    @property
    def entry(self) -> str:
        """The expression for the entry."""
        if self._remembered.by_exception:
            return f"({self.seen} if (entry := {self._kept}) == NEVER else entry)"
        return self._kept

    @property
    def _kept(self) -> str:
        if self._remembered.has_place:
            return f"{self._slice}[{self._place}]"
        return f"{self._placeless}({self._place}, {self._blank})"

    @property
    def _blank(self) -> str:
        return "()" if self._remembered.memory.is_record else "NEVER"

    @property
    def _placeless(self) -> str:
        """The function that returns entries without a place."""
        return f"({self._slice}[{MORE}] or NOTHING).get"

    def lasts(self, latest: str) -> str:
        """Return the expression for whether the record `entry` can still matter, given its latest stamp."""
        memory, stamp = self.memory, self.stamp
        return f"({memory}.newest < {latest} >= {stamp} - {memory}.reach or {memory}.lasts(entry, {stamp}))"

    def put(self, value: str) -> list[str]:
        """Return the statements that set the entry, in a new slice if there is none."""
        if self._remembered.by_exception:
            assert value == self.stamp, "the slice's last event needs no entry"
            return self._keep_none()
        return self._keep(value)

    def clear(self) -> list[str]:
        """Return the statements that clear the entry. They do not change a blank slice."""
        if self._remembered.by_exception:
            return self._keep("UNSET")
        if not self._remembered.memory.is_record:
            return self._keep_none()
        given_back = f"{self.memory}.weigh(-{self.memory}.bytes_of(entry))"
        return [f"if (entry := {self._kept}):", f" {given_back}", *_inside(self._keep_none())]

    def written(self) -> list[str]:
        """Return the statements that write the outcome of the event."""
        lines = self._remembered.memory.write(self)
        if not self._remembered.by_exception:
            return lines
        # Keep the stamp of the slice's last event, which was the implied entry so far.
        kept = _inside(self._keep(self.seen))
        return [f"if not {self.outcome} and {self._kept} == NEVER:", *kept, *lines]

    def _keep(self, value: str) -> list[str]:
        lines = [*self._opening, f"{self._slice}[{self._place}] = {value}"]
        if not self._remembered.has_place:
            lines[-1] = f"{self.memory}.put({self._slice}, {value})"
        if self._remembered.memory.is_record:
            lines.append(f"{self.memory}.weigh({self.memory}.bytes_of({self._kept}))")
        return lines

    def _keep_none(self) -> list[str]:
        if self._remembered.has_place:
            return [f"{self._slice}[{self._place}] = {self._blank}"]
        return [f"{self.memory}.clear({self._slice})"]


def _inside(lines: Iterable[str]) -> list[str]:
    """Return statements as the body of the preceding one."""
    return [f" {line}" for line in lines]


def is_inside(read: Reading, window_us: int | None) -> str:
    """Return the expression of `Reading.inside` that reads the entry itself."""
    return f"{read.born} < {read.entry}" + ("" if window_us is None else f" >= {read.edge(window_us)}")


class Access(Entry):
    """Reads a memory as it was before an event, and writes it, for a rule with a given birth.

    `path` is the number of the memory's path in the code.
    """

    def __init__(
        self,
        code: EventCode,
        remembered: Remembered,
        *,
        outcome: str,
        path: int,
        born: int,
        place: str | None = None,
    ) -> None:
        admit = f"admit{path}(k{path})" if path else ""
        place = place or str(remembered.place)
        super().__init__(remembered, slice_=f"s{path}", place=place, blank=f"blank{path}", admit=admit)
        self._code, self._born, self._remembered = code, born, remembered
        self.outcome, self.path = outcome, path

    def fact(self, name: str) -> str:
        """Return the variable of a fact."""
        return self._code.fact(name)

    def constant(self, value: object) -> str:
        """Return the variable of a constant."""
        return self._code.constant(value)

    def edge(self, window_us: int) -> str:
        """Return the expression for a stamp that separates the events inside a window from older ones."""
        return self._code.edge(window_us)

    def inside(self, window_us: int | None) -> str:
        """Return the expression for whether the entry, a stamp, is after the birth and inside a window."""
        end = None
        if not (self.path or self._remembered.by_exception) and self._remembered.has_place:
            end = self._code.end(self.entry, window_us, self.born)
        return is_inside(self, window_us) if end is None else f"at <= {end}"

    @property
    def born(self) -> str:
        """The variable of the rule's birth, as a stamp."""
        return "UNSET" if self._born == UNSET else self._code.shared_constant(self._born)

    @property
    def seen(self) -> str:
        """The stamp of the slice's last event."""
        self._code.asks_last_event = True
        return super().seen

    @property
    def now(self) -> str:
        """The variable of the event's time in microseconds."""
        return self._code.now

    @property
    def memory(self) -> str:
        """The variable of the memory."""
        return self._code.shared_constant(self._remembered)


_COMMIT: Final = """\
 def commit(outcome, stamp):
  slice = slices.slice
  {lines}
 return commit
"""
"""The code that commits the outcome of one memory to the event's slice, while rules are indexed."""


class _Commit(Entry):
    """Writes a memory in the slice that the event has entered; see `operators/interface.py`."""

    outcome = "outcome"

    def __init__(self, remembered: Remembered) -> None:
        admit = "slices.begin()" if remembered.slices.path else ""
        super().__init__(remembered, slice_="slice", place="place", blank="blank", admit=admit)
        self.constants: list[object] = []

    @property
    def now(self) -> str:
        """The expression for the event's time in microseconds."""
        return "(stamp >> NUMBER_BITS)"

    def constant(self, value: object) -> str:
        """Return the variable of a constant."""
        self.constants.append(value)
        return f"c{len(self.constants) - 1}"


def committing(remembered: Remembered) -> Any:
    """Return the function that commits an outcome of a memory: (outcome, stamp)."""
    slices, to = remembered.slices, _Commit(remembered)
    lines = indented(to.written(), 2)
    given = {"slices": slices, "blank": slices.blank, "place": remembered.place, "remembered": remembered}
    numbered = [(f"c{number}", value) for number, value in enumerate(to.constants)]
    return function(_COMMIT.format(lines=lines), [*given.items(), *numbered])
