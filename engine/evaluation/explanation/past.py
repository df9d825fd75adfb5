"""The past as an event finds it: what slices remember, and what nodes that look back make of it, until when.

The operator's own code decides: at the event, with other truths of the members, and later, as time passes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from engine.evaluation.explanation.nodes import Future
from engine.evaluation.kernel.code.node_code import OperatorCode
from engine.evaluation.operators.interface import Memory, Operator, Settled
from engine.evaluation.slices.slices import SEEN, Remembered, Slice, Slices
from engine.evaluation.stamps import LATEST_US, NUMBER_BITS, stamp_of
from engine.language.condition import Condition
from engine.language.diagnostics import Entry, Refusal
from engine.language.forms.table import FORM_OF

ENTRIES_MAX: Final = 1_000_000
"""The most times, values and sums that are read at one event, which takes some hundred milliseconds."""


class Before(NamedTuple):
    """What a memory had for the slice of an event before it."""

    entry: Any
    seen: int
    """The number of the last event of the slice."""


class Entries:
    """The entries of the slices of one event, which has a number."""

    def __init__(self, number: int, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> None:
        self.number = number
        self._fields, self._sent = fields, sent
        self._slices: dict[Slices, Slice] = {}
        self._kept: dict[Remembered, Before] = {}
        self._left = ENTRIES_MAX

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


class LookingBack(NamedTuple):
    """A node that looks back, and what it reads at an event."""

    node: Condition
    operator: Operator[Any]
    memory: Memory
    code: OperatorCode
    before: Before
    born: int
    now_us: int
    number: int
    """The number of the event."""
    values: tuple[Any, ...]
    """What the code takes: the values of facts, and constants."""

    def verdict(self, truths: tuple[bool, ...]) -> bool:
        """Return the verdict if the members have these truths."""
        entry, seen = self.before
        outcome = self.code.outcome_of(truths, self.values)
        return self.code.verdict(outcome, entry, self.born, seen, self.now_us << NUMBER_BITS, self.values)

    def settled(self, truths: tuple[bool, ...]) -> Settled:
        """Return what there is to tell if the members have these truths."""
        outcome, entry = self.code.outcome_of(truths, self.values), self.before.entry
        if not FORM_OF[type(self.node)].looks_before:
            stamp = stamp_of(self.now_us, self.number)
            copied = self.memory.copy(entry) if entry else entry
            entry = self.code.write(outcome, copied, stamp, self.values)
        return Settled(entry, self.born, self.now_us, outcome, self.verdict(truths))

    def future(self, at: Settled) -> Future:
        """Return the verdict, and when it turns if nothing else happens. No event comes after LATEST_US."""
        turns_us = self.operator.turns_us(self.node, at.entry)
        return Future(at.verdict, tuple(_turns(self._later(at), turns_us, self.now_us, LATEST_US)))

    def since_us(self, at: Settled) -> int | None:
        """Return a time after which all events so far had the verdict, or None if none is known."""
        since_us = self.operator.since_us(self.node, at)
        if since_us is None:
            return None
        turns_us = self.operator.turns_us(self.node, at.entry)
        return max([since_us, *(us + 1 for us in _turns(self._later(at), turns_us, since_us, self.now_us))])

    def _later(self, at: Settled) -> Callable[[int], bool]:
        """Return the function that gives the verdict at other times, if nothing else happens until then."""
        code, outcome = self.code, self.code.lasting(at.outcome)

        def verdict_at(time_us: int) -> bool:
            base = time_us << NUMBER_BITS
            return code.verdict(outcome, at.entry, at.born, self.before.seen, base, self.values)

        return verdict_at


def _turns(
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
