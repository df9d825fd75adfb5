"""Nodes at an event that look back or compare terms: their values, and when time alone turns verdicts.

The operator's own code decides: at the event, with other truths of the members, and later, as time passes.

The value of a term steps when an event leaves a window, or when the time of day changes. Between two steps it
is constant or monotonic, so a binary search finds when a comparison turns.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, pairwise
from math import isfinite
from typing import Any, Final, NamedTuple, TypeAlias, cast

from engine.evaluation.explanation.nodes import Future
from engine.evaluation.kernel.code.node_code import MemoryCode, VerdictCode, memory_code, verdict_code
from engine.evaluation.operators.compare import crossings, found_in, motion_of, steps_us
from engine.evaluation.operators.interface import LookingBack as LookingBackOperator
from engine.evaluation.operators.interface import Operator, Settled
from engine.evaluation.operators.table import parts_of, remembering
from engine.evaluation.operators.term_interface import Motion, together
from engine.evaluation.paths import Path
from engine.evaluation.requirements import Births
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import SEEN, Remembered, Slice, Slices
from engine.evaluation.stamps import LATEST_US, NUMBER_BITS, stamp_of
from engine.language.condition import Compare, Condition
from engine.language.diagnostics import Entry, Refusal, json_type
from engine.language.nodes import Node, TermNode
from engine.language.terms import Fact, Term
from engine.language.text.printer import format_term

# -- what is remembered -------------------------------------------------------------------------------------

ENTRIES_MAX: Final = 1_000_000
"""The maximum number of times, values and sums read at one event, which takes some hundred milliseconds."""


class Before(NamedTuple):
    """The state of a memory for the slice of an event, before the event."""

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
        """Return the state of a memory. Raises Refusal 1400 after too many times, values and sums."""
        before = self._kept.get(remembered) or self._read(remembered)
        if before.entry and remembered.memory.is_record:
            self._left -= remembered.memory.length(before.entry)
            if self._left < 0:
                said = f"too many times and values are remembered for this event; limit {ENTRIES_MAX}"
                raise Refusal(Entry(1400, f"{said}; name one rule, or a smaller one"))
        return before

    def keep(self, memories: Iterable[Remembered]) -> None:
        """Copy the current state of these memories, so that later events do not change it."""
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
"""The inputs of a verdict from a part: the outcome, the entry, the last event of the slice, and the birth."""


class Part(NamedTuple):
    """A part of a node with a memory, and where a rule reads it."""

    node: Node
    operator: LookingBackOperator[Any]
    code: MemoryCode
    remembered: Remembered
    looks_before: bool
    """Whether only earlier events count, not the event itself."""
    born: int
    """The stamp of the last event before the history of the node began."""


class Deciding(NamedTuple):
    """The code and parts of a node that looks back or compares terms. Valid as long as the rule."""

    node: Condition
    code: VerdictCode
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, histories: Histories, node: Condition, births: Births, path: Path) -> "Deciding":
        """Look up the code and parts of a node of a rule with these births and path."""
        parts = []
        for place, part in enumerate(parts_of(node)):
            own = births.of(part, path)
            remembered = histories.of(part, path, own.birth)
            operator, code = remembering(part), memory_code(node, place)
            parts.append(Part(part, operator, code, remembered, operator.looks_before(part), own.born))
        return cls(node, verdict_code(node), tuple(parts))


class Past(NamedTuple):
    """A part of a node at an event."""

    part: Part
    before: Before
    values: tuple[Any, ...]
    """The arguments of its code: values of facts, and constants."""

    def at(self, truths: tuple[bool, ...]) -> "Read":
        """Return the inputs of a verdict at the event, if the members of the node have these truths."""
        return self.part.code.outcome_of(truths, self.values), *self.before, self.part.born

    def after(self, truths: tuple[bool, ...], stamp: int) -> "Read":
        """Return the inputs of later verdicts, while no further event comes."""
        code, (entry, seen) = self.part.code, self.before
        outcome = code.outcome_of(truths, self.values)
        if not self.part.looks_before:
            copied = self.part.remembered.memory.copy(entry) if entry else entry
            entry = code.write(outcome, copied, stamp, self.values)
        return code.lasting(outcome), entry, seen, self.part.born


# -- what is decided ----------------------------------------------------------------------------------------

STEPS_MAX: Final = 1_500
"""The maximum number of changes of the time of day that are tried: the minutes of a day, or the hours of two
months. A verdict that holds longer is known to hold until the last of them."""

_PAST_RANGE: Final = "what it found is past the range of a double"


class Decided(ABC):
    """A node at an event that looks back or compares terms."""

    _after: list[Read] | None = None
    _verdict: bool | None = None

    def __init__(
        self,
        deciding: Deciding,
        entries: Entries,
        value: Callable[[str], Any],
        now_us: int,
        truths: tuple[bool, ...],
        *,
        pasts: Sequence[Past] | None = None,
    ) -> None:
        """Read a node, given the facts of the event, the entries, and the truths of its members.

        `pasts` are those of its parts, if they were read before. Raises what `Entries.of` raises.
        """
        self.node, self._code, parts = deciding
        self.now_us, self._truths, self._value, self._entries = now_us, truths, value, entries
        self._values = (*map(value, self._code.facts), *self._code.constants)
        self._pasts = pasts or [
            Past(part, entries.of(part.remembered), (*map(value, part.code.facts), *part.code.constants))
            for part in parts
        ]
        self._now = [past.at(truths) for past in self._pasts]
        """The inputs of its verdict at the event from its parts."""

    @property
    def facts(self) -> list[str]:
        """The facts that it reads."""
        of_pasts = [fact for past in self._pasts for fact in past.part.code.facts]
        return [*dict.fromkeys([*of_pasts, *self._code.facts])]

    def verdict_if(self, truths: tuple[bool, ...]) -> bool:
        """Return its verdict if its members had these truths."""
        pasts = [past.at(truths) for past in self._pasts]
        return self._code.verdict(pasts, self.now_us << NUMBER_BITS, self._values)

    @property
    def verdict(self) -> bool:
        """Its verdict at the event."""
        if self._verdict is None:
            self._verdict = self._code.verdict(self._now, self.now_us << NUMBER_BITS, self._values)
        return self._verdict

    @property
    def after(self) -> list[Read]:
        """The inputs of later verdicts from its parts, while no further event comes."""
        if self._after is None:
            stamp = stamp_of(self.now_us, self._entries.number)
            self._after = [past.after(self._truths, stamp) for past in self._pasts]
        return self._after

    def verdict_at(self, time_us: int) -> bool:
        """Return the verdict at another time, while no further event comes."""
        return self._code.verdict(self.after, time_us << NUMBER_BITS, self._values)

    @abstractmethod
    def values(self) -> Sequence[Any]:
        """Return the number that it compares, or the values of its terms. None means missing."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Return remarks about unusual values."""

    def witness_us(self) -> int | None:
        """Return the time of the event that settles it, if a single one does."""
        if len(self._pasts) != 1:
            return None
        part = self._pasts[0].part
        return part.operator.witness_us(part.node, self._at())

    def _at(self) -> Settled:
        """Return the facts about its only part."""
        [(outcome, *_)], [(_, entry, seen, born)] = self._now, self.after
        return Settled(entry, seen, born, self.now_us, outcome, self.verdict)

    @abstractmethod
    def future(self) -> Future:
        """Return the verdict, and when it turns if nothing else happens. No event comes after LATEST_US."""

    def since_us(self) -> int | None:
        """Return a time after which all events so far had the verdict; None if unknown."""
        return None


class LookingBack(Decided):
    """A member that looks back."""

    @property
    def operator(self) -> Operator[Any]:
        """The operator of the node."""
        return cast("Operator[Any]", self._pasts[0].part.operator)

    def values(self) -> Sequence[float | None]:
        """Return the number that it compares, if there is one."""
        [(_, entry, seen, born)] = self.after
        # The number depends neither on its verdict nor on the outcome of the event.
        at = Settled(entry, seen, born, self.now_us, outcome=None, verdict=False)
        return (self.operator.found(self.node, at),)

    def notes(self) -> list[str]:
        """Return a remark if JSON has no such number."""
        [found] = self.values()
        return [] if found is None or isfinite(found) else [_PAST_RANGE]

    def future(self) -> Future:
        """Try the times at which its operator may turn."""
        [(_, entry, *_)] = self.after
        turns_us = self.operator.turns_us(self.node, entry)
        return Future(self.verdict, tuple(turns(self.verdict_at, turns_us, self.now_us, LATEST_US)))

    def since_us(self) -> int | None:
        """Return the later of its operator's answer and the last time at which time turned it."""
        at = self._at()
        since_us = self.operator.since_us(self.node, at)
        if since_us is None:
            return None
        turns_us = self.operator.turns_us(self.node, at.entry)
        return max([since_us, *(us + 1 for us in turns(self.verdict_at, turns_us, since_us, self.now_us))])


class Comparing(Decided):
    """A comparison of terms."""

    node: Compare

    def values(self) -> Sequence[Any]:
        """Return the values of the terms in `found_in`. Non-finite values are missing."""
        values = self._code.found(self._now, self.now_us << NUMBER_BITS, self._values)
        return [None if type(value) is float and not isfinite(value) else value for value in values]

    def notes(self) -> list[str]:
        """Return remarks about terms without a value, and about types that never compare."""
        found = dict(zip(found_in(self.node), self.values(), strict=True))

        def value_of(term: Term) -> Any:
            if isinstance(term, Fact):
                held = self._value(term.fact)
                return None if isinstance(held, list | dict) else held
            return found[term] if isinstance(term, TermNode) else term

        notes = [f"`{format_term(term)}` has no value" for term, held in found.items() if held is None]
        left, right = value_of(self.node.left), value_of(self.node.right)
        if left is not None and right is not None and json_type(left) != json_type(right):
            sides = [
                f"{format_term(term)} is {json_type(held)}"
                for term, held in ((self.node.left, left), (self.node.right, right))
            ]
            notes.append(f"{sides[0]} and {sides[1]}, which never compare")
        return notes

    def future(self) -> Future:
        """Try the times at which its terms step, and search between them."""
        node, now_us = self.node, self.now_us
        steps = [*islice(merge(*steps_us(node, now_us)), STEPS_MAX)]
        horizon_us = steps[-1] if len(steps) == STEPS_MAX else None
        end_us = LATEST_US if horizon_us is None else horizon_us
        knots = {*steps, *(us for each in _leaving(self) for us in each)}
        motion = together([motion_of(node.left), motion_of(node.right)])
        if motion is Motion.BENT:
            return Future(self.verdict, (), now_us)
        if motion is not Motion.STILL:
            for crossing in crossings(node):
                knots.update(_crossed(self._for_node(crossing), now_us, sorted(knots), end_us))
        return Future(self.verdict, tuple(turns(self.verdict_at, sorted(knots), now_us, end_us)), horizon_us)

    def _for_node(self, node: Compare) -> "Comparing":
        """Return the same for a comparison whose parts are some of those of this one."""
        pasts = [next(past for past in self._pasts if past.part.node is part) for part in parts_of(node)]
        deciding = Deciding(node, verdict_code(node), tuple([past.part for past in pasts]))
        return Comparing(deciding, self._entries, self._value, self.now_us, self._truths, pasts=pasts)


def decided(
    deciding: Deciding, entries: Entries, value: Callable[[str], Any], now_us: int, truths: tuple[bool, ...]
) -> Decided:
    """Decide a node at an event; see `Decided`."""
    kind = Comparing if isinstance(deciding.node, Compare) else LookingBack
    return kind(deciding, entries, value, now_us, truths)


def _leaving(compared: "Comparing") -> Iterator[Iterable[int]]:
    """Yield the times at which events leave the windows of the terms."""
    for part, (_, entry, *_) in zip(parts_of(compared.node), compared.after, strict=True):
        yield remembering(part).turns_us(part, entry)


def _crossed(compared: "Comparing", now_us: int, knots: list[int], end_us: int) -> Iterator[int]:
    """Yield the times just after which a comparison turns, which it does at most once between two knots."""
    starts = [now_us, *(knot + 1 for knot in knots if now_us <= knot < end_us)]
    for start_us, stop_us in pairwise([*starts, end_us + 1]):
        verdict = compared.verdict_at(start_us)
        if compared.verdict_at(stop_us - 1) is not verdict:
            before_us, after_us = start_us, stop_us - 1
            # `bisect` takes no range as long as all the time that there is.
            while after_us - before_us > 1:
                middle_us = (before_us + after_us) // 2
                same = compared.verdict_at(middle_us) is verdict
                before_us, after_us = (middle_us, after_us) if same else (before_us, middle_us)
            yield before_us


def turns(
    verdict_at: Callable[[int], bool], turns_us: Iterable[int], start_us: int, end_us: int
) -> Iterator[int]:
    """Yield the times from `start_us` on, before `end_us`, just after which a verdict turns."""
    verdict: bool | None = None
    for turn_us in turns_us:
        if start_us <= turn_us < end_us:
            if verdict is None:
                verdict = verdict_at(turn_us)
            after = verdict_at(turn_us + 1)
            if after is not verdict:
                yield turn_us
            verdict = after
