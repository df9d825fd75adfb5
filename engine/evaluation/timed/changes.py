"""When time alone may change what a condition is at an event that has only the keys of its rule."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from math import floor
from typing import Any, Final, NamedTuple, Protocol

from engine.evaluation.operators.compare import crossings, motion_of, steps_us
from engine.evaluation.operators.counting.panes import OfPanes, pane_us
from engine.evaluation.operators.table import parts_of, remembering
from engine.evaluation.operators.term_interface import Motion
from engine.evaluation.paths import Path, fact_of
from engine.evaluation.requirements import Around, Births, births_alone, inside
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.readers import Reader, Readers
from engine.evaluation.slices.slices import SEEN, Remembered, Slice, Slices
from engine.evaluation.stamps import NUMBER_BITS, time_of
from engine.evaluation.times import FOREVER, NEVER
from engine.language.condition import Compare, Condition, Keyed, Predicate
from engine.language.forms.table import facts_of
from engine.language.nodes import Node, TermNode
from engine.language.terms import Age

MICROSECONDS: Final = 1_000_000
"""Those of a second."""

AGE_SECS_MAX: Final = 1_000_000_000
"""Up to so many seconds, doubles tell microseconds apart."""

STEPS_MAX: Final = 1_500
"""The most changes of the time of day that are looked at: those of the minutes of a day. A verdict that stays
longer is looked at again then."""


class Written(Protocol):
    """Gives the names by which code reads what an event has written in its slice."""

    outcome: str
    stamp: str

    @property
    def entry(self) -> str:
        """What the slice remembers."""


class Part:
    """A part of a rule that remembers something of the slice that an event with the keys is in."""

    def __init__(
        self,
        node: Node,
        births: Births,
        remembered: Remembered,
        keys: Sequence[str],
        ages_us: Sequence[int] = (),
    ) -> None:
        """Take a part of a node, and the ages at which a comparison of its own turns."""
        self.slices: Slices = remembered.slices
        self._remembered, self._node, self._born = remembered, node, births.born
        self._operator = remembering(node)
        self._window_us = self._operator.window_us(node)
        self._readers = Readers(remembered.memory)
        self._readers.read_by(Reader(self._window_us, births.born, self._operator.only_next))
        memory = remembered.memory
        self._turns_by_pane = isinstance(memory, OfPanes) and getattr(memory, "fact", None) in keys
        """Whether the event's own number is added, in another order once its pane is another."""
        self.soonest_us = 0 if self._turns_by_pane else self._operator.soonest_us(node)
        """How long after an event time may turn what it wrote, at least: 0 if that is not known, None if time
        never does."""
        self._ages_us = ages_us
        if ages_us:
            self.soonest_us = ages_us[0]
        self.is_met_by_all = memory.by_exception or memory.begins or self._operator.only_next
        """Whether an event may change what is remembered though its outcome is the usual one."""
        self._is_stamp = not (memory.is_record or self.is_met_by_all or ages_us or self._turns_by_pane)
        self._leaves_us = self._window_us if self._is_stamp and self._operator.turns_at_edge else None
        """The window of a stamp that turns nothing but when it leaves that; else None."""

    @property
    def remembered(self) -> Remembered:
        """The memory."""
        return self._remembered

    def changed(self, read: Written) -> str | None:
        """Return the test whether an event has changed what time will change; None if each event may have."""
        memory = self._remembered.memory
        if memory.by_exception:
            return None
        return memory.notable(read.outcome)[0] if memory.is_record else f"{read.entry} == {read.stamp}"

    def is_changed(self, slice_: Slice, stamp: int) -> bool:
        """Return whether an event has changed what a slice remembers, by the event's stamp."""
        entry = self._remembered.slices.entry_in(slice_, self._remembered)
        return bool(entry) and self._remembered.memory.latest(entry) >= stamp

    def ahead(self, slice_: Slice, now_us: int) -> tuple[int, int]:
        """Return when time may change what it is next, after a time, and until when it matters."""
        remembered = self._remembered
        if self._leaves_us is not None and remembered.has_place:
            stamp = slice_[remembered.place]
            if stamp <= self._born:
                return FOREVER, NEVER
            until_us = (stamp >> NUMBER_BITS) + self._leaves_us
            return until_us + 1 if until_us >= now_us else FOREVER, until_us
        entry = remembered.slices.entry_in(slice_, remembered)
        if not entry or entry == remembered.blank or remembered.memory.latest(entry) <= self._born:
            return FOREVER, NEVER
        next_us = self._pane_ends_us(entry, now_us)
        turn_us = self._operator.next_us(self._node, entry, now_us)
        if turn_us is not None and turn_us < next_us:
            next_us = turn_us + 1
        for age_us in self._ages_us:
            us = time_of(entry) + age_us
            if now_us < us < next_us:
                next_us = us
        return next_us, self._readers.until_us(entry, slice_[SEEN])

    def _pane_ends_us(self, entry: Any, now_us: int) -> int:
        if not self._turns_by_pane or self._window_us is None:
            return FOREVER
        end_us = (int(entry.pane) + 1) * pane_us(self._window_us)
        return end_us if end_us > now_us else FOREVER


def parts_under(
    keys: Sequence[str], condition: Condition, births: Births, histories: Histories
) -> Iterator[Part]:
    """Yield the parts of a condition that an event with only these keys can read, in order."""
    for node, within, path, _ in _under(keys, condition, births, (), ()):
        ages_us = _ages_us(node) if isinstance(node, Compare) else ()
        for part in parts_of(node):
            own = within.of(part, path)
            yield Part(part, own, histories.of(part, path, own.birth), keys, ages_us)


def _ages_us(node: Compare) -> tuple[int, ...]:
    """Return the ages, in order, from which on a comparison of an age with a number may be another."""
    age, number = (node.left, node.right) if isinstance(node.left, Age) else (node.right, node.left)
    if not isinstance(age, Age) or isinstance(number, str | bool | TermNode) or not 0 < number < AGE_SECS_MAX:
        return ()
    reached = floor(number * MICROSECONDS) - 1
    while reached / MICROSECONDS < number:
        reached += 1
    return (reached, reached + 1)


def _under(
    keys: Sequence[str], node: Condition, births: Births, path: Path, around: tuple[Around, ...]
) -> Iterator[tuple[Condition, Births, Path, tuple[Around, ...]]]:
    """Yield a condition and all in it that an event with only these keys can decide."""
    yield node, births, path, around
    if isinstance(node, Predicate):
        return
    for child, within, longer in inside(node, births, path):
        if longer == path:
            yield from _under(keys, child, within, longer, around)
        elif fact_of(longer[-1]) in keys:
            assert isinstance(node, Keyed), "it has made the path longer"
            yield from _under(keys, child, within, longer, (*around, Around(node, births, path)))


class Moving(NamedTuple):
    """What time changes besides what leaves a window."""

    stepping: tuple[Compare, ...]
    """Comparisons that the time of day steps, and that read only it: one verdict for all slices."""
    stepping_by_slice: tuple[Compare, ...]
    """Those that read something else, too."""
    crossing: tuple[tuple[Condition, Births], ...]
    """Comparisons that turn at most once between two other changes, each under its keys; and their births."""
    crosses_shared: bool
    """Whether one of these looks back at what slices of several keys share."""


def moving_in(keys: Sequence[str], condition: Condition, births: Births) -> Moving:
    """Return what moves in a condition at an event with only these keys."""
    stepping: list[Compare] = []
    by_slice: list[Compare] = []
    crossing: list[tuple[Condition, Births]] = []
    crosses_shared = False
    for node, within, path, around in _under(keys, condition, births, (), ()):
        if not isinstance(node, Compare):
            continue
        steps = any(next(each, None) is not None for each in steps_us(node, 0))
        moves = any(motion_of(side) is not Motion.STILL for side in (node.left, node.right))
        alone = not parts_of(node) and not moves and not set(keys) & set(facts_of(node))
        if steps:
            (stepping if alone else by_slice).append(node)
        if moves and not _ages_us(node):
            crosses_shared |= bool(parts_of(node)) and {each.keyed.key for each in around} < {*keys}
            own = births_alone(node, within, path, around)
            for each in crossings(node):
                under: Condition = each
                for keyed, *_ in reversed(around):
                    under = Keyed(under, keyed.key, keyed.where)
                crossing.append((under, own))
    return Moving(tuple(stepping), tuple(by_slice), tuple(crossing), crosses_shared)


def next_step_us(compares: Iterable[Compare], now_us: int) -> int:
    """Return when the time of day steps something next."""
    steps = merge(*(each for node in compares for each in steps_us(node, now_us)))
    return next(steps, FOREVER - 1) + 1


def next_turn_us(compares: Sequence[Compare], bits_at: Callable[[int], object], now_us: int) -> int:
    """Return when the verdicts of comparisons that the time of day steps turn next, or when to look again."""
    before, step_us = bits_at(now_us), FOREVER - 1
    for step_us in islice(merge(*(each for node in compares for each in steps_us(node, now_us))), STEPS_MAX):
        if bits_at(step_us + 1) != before:
            break
    return step_us + 1
