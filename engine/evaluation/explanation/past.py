"""The past as an event finds it: what slices remember of the parts of a node."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from engine.evaluation.kernel.code.node_code import MemoryCode, VerdictCode, memory_code, verdict_code
from engine.evaluation.kernel.rule_set import EnabledRule
from engine.evaluation.operators.interface import Operator
from engine.evaluation.operators.table import operator_of, parts_of, remembering
from engine.evaluation.paths import Path
from engine.evaluation.requirements import Births
from engine.evaluation.slices.slices import SEEN, Remembered, Slice, Slices
from engine.language.condition import Condition
from engine.language.diagnostics import Entry, Refusal

ENTRIES_MAX: Final = 1_000_000
"""The most times, values and sums that are read at one event, which takes some hundred milliseconds."""


class Before(NamedTuple):
    """What a memory had for the slice of an event before it."""

    entry: Any
    seen: int
    """The stamp of the last event of the slice."""


class Entries:
    """The entries of the slices of one event, which has a number."""

    def __init__(
        self,
        number: int,
        fields: Mapping[str, Any],
        sent: Mapping[str, Any],
        entries_max: int | None = None,
    ) -> None:
        self.number = number
        self._fields, self._sent = fields, sent
        self._slices: dict[Slices, Slice] = {}
        self._kept: dict[Remembered, Before] = {}
        self._left = ENTRIES_MAX if entries_max is None else entries_max

    def of(self, remembered: Remembered) -> Before:
        """Return what a memory had. Raises Refusal 1400 after too many times, values and sums."""
        before = self._kept.get(remembered) or self._read(remembered)
        if before.entry and remembered.memory.is_record:
            self._left -= remembered.memory.length(before.entry)
            if self._left < 0:
                said = f"more than {ENTRIES_MAX} times and values are remembered for this event"
                raise Refusal(Entry(1400, f"{said}, which is the limit; name one rule, or a smaller one"))
        return before

    def keep(self, memories: Iterable[Remembered]) -> None:
        """Copy what these memories have now. Later events do not change what is given."""
        for one in memories:
            entry, seen = self._read(one)
            self._kept[one] = Before(one.memory.copy(entry) if entry else entry, seen)

    def _read(self, remembered: Remembered) -> Before:
        slices = remembered.slices
        slice_ = self._slices.get(slices)
        if slice_ is None:
            slice_ = self._slices[slices] = slices.at(self._fields, self._sent)
        return Before(slices.entry_in(slice_, remembered), slice_[SEEN])


Read: TypeAlias = tuple[Any, Any, int, int]
"""What a verdict reads of a part: the outcome, the entry, the last event of the slice, and the birth."""


class Part(NamedTuple):
    """A part of a node that has a memory, and where a rule reads it."""

    code: MemoryCode
    remembered: Remembered
    looks_before: bool
    """Whether the event itself does not count."""
    born: int
    """The stamp of the last event before the history of the node began."""


class Deciding(NamedTuple):
    """What decides a node of a rule that looks back, or compares terms. It lasts as long as the rule."""

    node: Condition
    code: VerdictCode
    parts: tuple[Part, ...]
    operator: Operator[Any] | None
    """None of a comparison of terms."""

    @classmethod
    def of(cls, enabled: EnabledRule, node: Condition, births: Births, path: Path) -> "Deciding":
        """Look up what belongs to a node of a rule that has these births and path."""
        parts = []
        for place, part in enumerate(parts_of(node)):
            own = births.of(part, path)
            remembered = enabled.site.histories.of(part, path, own.birth)
            looks_before = remembering(part).looks_before(part)
            parts.append(Part(memory_code(node, place), remembered, looks_before, own.born))
        return cls(node, verdict_code(node), tuple(parts), operator_of(node))


class Past(NamedTuple):
    """A part of a node as an event finds it."""

    part: Part
    before: Before
    values: tuple[Any, ...]
    """What its code takes: the values of facts, and constants."""

    def at(self, truths: tuple[bool, ...]) -> "Read":
        """Return what a verdict at the event reads, if the members of the node have these truths."""
        return self.part.code.outcome_of(truths, self.values), *self.before, self.part.born

    def after(self, truths: tuple[bool, ...], stamp: int) -> "Read":
        """Return what later verdicts read, as long as no further event comes."""
        code, (entry, seen) = self.part.code, self.before
        outcome = code.outcome_of(truths, self.values)
        if not self.part.looks_before:
            copied = self.part.remembered.memory.copy(entry) if entry else entry
            entry = code.write(outcome, copied, stamp, self.values)
        return code.lasting(outcome), entry, seen, self.part.born
