"""The past as an event finds it: what slices remember, and what nodes that look back make of it, until when.

The operator's own code decides: at the event, with other truths of the members, and later, as time passes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from engine.evaluation.explanation.nodes import Future
from engine.evaluation.kernel.code.node_code import MemoryCode, verdict_code
from engine.evaluation.operators.interface import Memory, Settled
from engine.evaluation.operators.table import operator_of, parts_of
from engine.evaluation.slices.slices import SEEN, Remembered, Slice, Slices
from engine.evaluation.stamps import LATEST_US, NUMBER_BITS, time_of
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


class Past(NamedTuple):
    """A memory of a node as an event finds it."""

    memory: Memory
    code: MemoryCode
    before: Before
    values: tuple[Any, ...]
    """What the code takes: the values of facts, and constants."""
    looks_before: bool
    """Whether the event itself does not count."""
    born: int
    """The stamp of the last event before the history of the node began."""

    def at(self, truths: tuple[bool, ...]) -> "Read":
        """Return what a verdict at the event reads, if the members of the node have these truths."""
        return self.code.outcome_of(truths, self.values), *self.before, self.born

    def after(self, truths: tuple[bool, ...], stamp: int) -> "Read":
        """Return what later verdicts read, as long as no further event comes."""
        outcome, (entry, seen) = self.code.outcome_of(truths, self.values), self.before
        if not self.looks_before:
            copied = self.memory.copy(entry) if entry else entry
            entry = self.code.write(outcome, copied, stamp, self.values)
        return self.code.lasting(outcome), entry, seen, self.born


class Deciding:
    """A node that looks back, or compares terms, and what it reads at an event."""

    def __init__(
        self, node: Condition, pasts: Sequence[Past], value: Callable[[str], Any], stamp: int
    ) -> None:
        """`pasts` are those of its parts with a memory. `value` gives facts, and `stamp` is the event's."""
        self.node, self.pasts, self.now_us = node, pasts, time_of(stamp)
        self._stamp = stamp
        self.code = verdict_code(node)
        self._value = value
        self.values = (*map(value, self.code.facts), *self.code.constants)

    @property
    def facts(self) -> list[str]:
        """The facts that it reads."""
        of_pasts = [fact for past in self.pasts for fact in past.code.facts]
        return [*dict.fromkeys([*of_pasts, *self.code.facts])]

    def verdict(self, truths: tuple[bool, ...]) -> bool:
        """Return the verdict if the members have these truths."""
        pasts = [past.at(truths) for past in self.pasts]
        return self.code.verdict(pasts, self.now_us << NUMBER_BITS, self.values)

    def after(self, truths: tuple[bool, ...]) -> "After":
        """Return what decides later verdicts, if the members have these truths."""
        return After(self, [past.after(truths, self._stamp) for past in self.pasts])

    def for_node(self, node: Condition) -> "Deciding":
        """Return the same for a node whose parts are some of those of this one."""
        mine = [*zip(parts_of(self.node), self.pasts, strict=True)]
        pasts = [next(past for own, past in mine if own is part) for part in parts_of(node)]
        return Deciding(node, pasts, self._value, self._stamp)


class After(NamedTuple):
    """A node after an event, as long as no further event comes."""

    deciding: Deciding
    pasts: list[Read]

    def verdict_at(self, time_us: int) -> bool:
        """Return the verdict at another time."""
        one = self.deciding
        return one.code.verdict(self.pasts, time_us << NUMBER_BITS, one.values)


class LookingBack:
    """An operator that looks back, at an event."""

    def __init__(self, deciding: Deciding, truths: tuple[bool, ...]) -> None:
        self._deciding = deciding
        [self._past] = deciding.pasts
        node, self._after = deciding.node, deciding.after(truths)
        operator = operator_of(node)
        assert operator is not None, node
        self.operator = operator
        outcome, *_ = self._past.at(truths)
        [(_, entry, *_)] = self._after.pasts
        self.at = Settled(entry, self._past.born, deciding.now_us, outcome, deciding.verdict(truths))
        """What there is to tell."""

    def future(self) -> Future:
        """Return the verdict, and when it turns if nothing else happens. No event comes after LATEST_US."""
        turns_us = self.operator.turns_us(self._deciding.node, self.at.entry)
        flips = turns(self._after.verdict_at, turns_us, self._deciding.now_us, LATEST_US)
        return Future(self.at.verdict, tuple(flips))

    def since_us(self) -> int | None:
        """Return a time after which all events so far had the verdict, or None if none is known."""
        node, now_us = self._deciding.node, self._deciding.now_us
        since_us = self.operator.since_us(node, self.at)
        if since_us is None:
            return None
        turns_us = self.operator.turns_us(node, self.at.entry)
        return max([since_us, *(us + 1 for us in turns(self._after.verdict_at, turns_us, since_us, now_us))])


def turns(
    verdict_at: Callable[[int], bool], turns_us: Iterable[int], start_us: int, end_us: int
) -> Iterator[int]:
    """Yield the times from one on, and before another, just after which a verdict turns."""
    verdict: bool | None = None
    for turn_us in turns_us:
        if start_us <= turn_us < end_us:
            if verdict is None:
                verdict = verdict_at(turn_us)
            after = verdict_at(turn_us + 1)
            if after is not verdict:
                yield turn_us
            verdict = after
