"""When time alone may change the verdict of a condition at an event that has only the keys of its rule."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from engine.evaluation.slices.slices import SEEN, Remembered, Slice, Slices
from engine.evaluation.stamps import LATEST_US, NUMBER_BITS, time_of
from engine.evaluation.timed.table import Event
from engine.evaluation.times import FOREVER, NEVER
from engine.language import condition as language
from engine.language.condition import Compare, Condition, Keyed, Not, Predicate
from engine.language.forms.table import facts_of
from engine.language.nodes import Node, TermNode
from engine.language.terms import Age

MICROSECONDS: Final = 1_000_000
"""Microseconds in a second."""

AGE_SECS_MAX: Final = 1_000_000_000
"""Up to this many seconds, doubles distinguish microseconds."""

STEPS_MAX: Final = 1_500
"""The maximum number of steps of the time of day that are tried: the minutes of a day. A verdict that holds
longer is tried again then."""


Decide = Callable[[Mapping[str, Any], Mapping[str, Any], int, int], Any]
"""Returns a bit for each of some conditions that is true at an event, given the stamp of its time."""


class Deciders(Protocol):
    """Creates functions that decide conditions of a rule."""

    def decider(self, conditions: Sequence[tuple[Condition, Births]]) -> Decide:
        """Return a function that decides conditions, given with the births of their histories."""


class Written(Protocol):
    """The names by which code reads what an event has written to its slice."""

    outcome: str
    stamp: str

    @property
    def entry(self) -> str:
        """The slice's entry."""

    def inside(self, window_us: int | None) -> str:
        """Return the expression for whether the entry, a stamp, is after the birth and inside a window."""


Given = list[tuple[str, Any]]
"""Names in generated code, with their values."""


class Part:
    """A part of a rule with a memory, in the slice of an event with the rule's keys.

    If `to` is not None, only turns of the part to this verdict matter.
    """

    def __init__(
        self,
        node: Node,
        births: Births,
        remembered: Remembered,
        keys: Sequence[str],
        *,
        to: bool | None,
        ages: "Ages",
    ) -> None:
        """Take a part of a node, and the ages at which its comparison turns."""
        self.slices: Slices = remembered.slices
        self._remembered, self._node, self._born, self._to = remembered, node, births.born, to
        self._operator = remembering(node)
        self._window_us = self._operator.window_us(node)
        memory = remembered.memory
        self._turns_by_pane = isinstance(memory, OfPanes) and getattr(memory, "fact", None) in keys
        """Whether time may change the order of additions: the event's own number comes into another pane."""
        self.soonest_us = 0 if self._turns_by_pane else self._operator.soonest_us(node)
        """The minimum time after an event until time may turn what it wrote: 0 if unknown, None if time never
        turns it, or only in a way that does not matter."""
        self._ages_us = ages.ages_us
        if self._ages_us:
            self.soonest_us = self._ages_us[0]
        drift = ages.drift if self._ages_us else self._operator.drift(node)
        self.matters = to is None or drift is None or drift is to or self._turns_by_pane
        """Whether time may turn it in a way that matters."""
        if not self.matters:
            self.soonest_us = None
        self.is_met_by_all = memory.by_exception or memory.begins or self._operator.only_next
        """Whether an event may change the memory even if its outcome is the usual one."""
        is_stamp = not (memory.is_record or self.is_met_by_all or self._turns_by_pane)
        self._turns_simply = is_stamp and bool(self._operator.turns_at_edge or self._ages_us)
        """Whether it remembers a stamp, and turns only when that leaves its window or reaches an age."""

    @property
    def remembered(self) -> Remembered:
        """The memory."""
        return self._remembered

    def changed(self, read: Written) -> str | None:
        """Return the test whether an event has changed what time will turn; None if any event may have."""
        memory = self._remembered.memory
        if memory.by_exception:
            return None
        return memory.notable(read.outcome)[0] if memory.is_record else f"{read.entry} == {read.stamp}"

    def advances(self, read: Written) -> str | None:
        """Return the test, before an event is written, whether it may advance the next check of its slice.

        None if there is no such test. An event does not advance it if the replaced stamp still counts, and is
        after the birth of `read`, when the rule was made: then the slice already waits for it.
        """
        memory = self._remembered.memory
        if not memory.renews or memory.by_exception or not (self._operator.turns_at_edge or self._ages_us):
            return None
        is_aged = self._ages_us and self.matters
        return f"{read.outcome} and not {read.inside(self._ages_us[0] - 1 if is_aged else self._window_us)}"

    def is_changed(self, slice_: Slice, stamp: int) -> bool:
        """Return whether an event has changed the entry of a slice, given the event's stamp."""
        entry = self._remembered.slices.entry_in(slice_, self._remembered)
        return bool(entry) and self._remembered.memory.latest(entry) >= stamp

    def next_turn(
        self, slice_: str, number: str, *, is_keyed: bool, is_first: bool
    ) -> tuple[list[str], Given]:
        """Return statements that update `turn` and `live` for this part, and the values of their names.

        `turn` is the last stamp before time turns something, at or after that of the time `now`. `live` is
        the last stamp at which something matters to a key. Before the first part, they are FOREVER and PAST.
        """
        place, born = f"{slice_}[{self._remembered.place}]", (f"born{number}", self._born)
        if not (self._turns_simply and self._remembered.has_place):
            lines = [
                f"us, until = ahead{number}({slice_}, now >> NUMBER_BITS)",
                "if (end := us - 1 << NUMBER_BITS) < turn: turn = end",
                *["if (end := until << NUMBER_BITS) > live: live = end"] * is_keyed,
            ]
            return lines, [(f"ahead{number}", self.ahead)]
        given: Given = [born]
        lines = ["live = FOREVER"] * is_keyed
        if self._ages_us and self.matters:
            given.append((f"age{number}", self._ages_us[0] - 1 << NUMBER_BITS))
            lines += [
                f"end = stamp + age{number}",
                "if end < now: end += MICROSECOND",
                "if now <= end < turn: turn = end",
            ]
        elif self._window_us is not None and (self.matters or is_keyed):
            given.append((f"window{number}", self._window_us << NUMBER_BITS))
            lines = [
                f"end = stamp + window{number}",
                "if end >= now:",
                *[f" {'' if is_first else 'if end < turn: '}turn = end"] * self.matters,
                *[f" {'' if is_first else 'if end > live: '}live = end"] * is_keyed,
            ]
        return [
            f"if (stamp := {place}) > born{number}:",
            *(f" {line}" for line in lines),
        ] if lines else [], given

    def ahead(self, slice_: Slice, now_us: int) -> tuple[int, int]:
        """Return when time may turn the part next, after a time, and until when it matters."""
        remembered = self._remembered
        entry = remembered.slices.entry_in(slice_, remembered)
        if not entry or entry == remembered.blank:
            return FOREVER, NEVER
        latest = remembered.memory.latest(entry)
        if latest <= self._born or (self._operator.only_next and latest != slice_[SEEN]):
            return FOREVER, NEVER
        until_us = FOREVER
        if self._window_us is not None:
            until_us = min(FOREVER, remembered.memory.until_us(entry, self._window_us))
        if not self.matters:
            return FOREVER, until_us
        next_us = self._pane_ends_us(entry, now_us)
        turn_us = self._operator.next_us(self._node, entry, now_us, None if self._turns_by_pane else self._to)
        if turn_us is not None and turn_us < next_us:
            next_us = turn_us + 1
        for age_us in self._ages_us:
            us = time_of(entry) + age_us
            if now_us < us < next_us:
                next_us = us
        return next_us, until_us

    def _pane_ends_us(self, entry: Any, now_us: int) -> int:
        if not self._turns_by_pane or self._window_us is None:
            return FOREVER
        end_us = (int(entry.pane) + 1) * pane_us(self._window_us)
        return end_us if end_us > now_us else FOREVER


def parts_under(
    keys: Sequence[str], condition: Condition, births: Births, histories: Histories
) -> Iterator[Part]:
    """Yield the parts of a condition that an event with only these keys can read, in order."""
    for node, within, path, _, to in _under(keys, condition, births):
        ages = _ages(node) if isinstance(node, Compare) else NO_AGES
        for part in parts_of(node):
            own = within.of(part, path)
            yield Part(part, own, histories.of(part, path, own.birth), keys, to=to, ages=ages)


class Ages(NamedTuple):
    """The ages at which a comparison of an age with a number turns."""

    ages_us: tuple[int, ...] = ()
    """The ages from which on the verdict may differ, in order."""
    drift: bool | None = None
    """The only verdict to which it turns then; None if it may turn to either."""


NO_AGES: Final = Ages()


def _ages(node: Compare) -> Ages:
    is_left = isinstance(node.left, Age)
    age, number = (node.left, node.right) if is_left else (node.right, node.left)
    if not isinstance(age, Age) or isinstance(number, str | bool | TermNode) or not 0 < number < AGE_SECS_MAX:
        return NO_AGES
    reached = floor(number * MICROSECONDS) - 1
    while reached / MICROSECONDS < number:
        reached += 1
    drift = None if node.op in ("eq", "neq") else (node.op in ("gt", "gte")) is is_left
    return Ages((reached, reached + 1), drift)


_Under = tuple[Condition, Births, Path, tuple[Around, ...], bool | None]


def _under(
    keys: Sequence[str],
    node: Condition,
    births: Births,
    path: Path = (),
    around: tuple[Around, ...] = (),
    *,
    to: bool | None = True,
) -> Iterator[_Under]:
    """Yield a condition and all conditions in it that an event with only these keys can decide.

    With each comes the only verdict that can make the whole true; None if either can.
    """
    yield node, births, path, around, to
    if isinstance(node, Predicate):
        return
    if isinstance(node, Not):
        to = None if to is None else not to
    elif not isinstance(node, language.All | language.Any | Keyed):
        to = None
    for child, within, longer in inside(node, births, path):
        if longer == path:
            yield from _under(keys, child, within, longer, around, to=to)
        elif fact_of(longer[-1]) in keys:
            assert isinstance(node, Keyed), "only a key makes the path longer"
            yield from _under(keys, child, within, longer, (*around, Around(node, births, path)), to=to)


class Moving(NamedTuple):
    """What time changes, apart from events leaving windows."""

    stepping: tuple[Compare, ...]
    """Comparisons that depend only on the time of day, so they have the same verdict for all slices."""
    stepping_by_slice: tuple[Compare, ...]
    """Comparisons that also depend on other values."""
    crossing: tuple[tuple[Condition, Births], ...]
    """Comparisons that turn at most once between two other changes, each under its keys, with their
    births."""
    crosses_shared: bool
    """Whether one of these reads state that slices of several keys share."""


def moving_in(keys: Sequence[str], condition: Condition, births: Births) -> Moving:
    """Return what time changes in a condition at an event with only these keys."""
    stepping: list[Compare] = []
    by_slice: list[Compare] = []
    crossing: list[tuple[Condition, Births]] = []
    crosses_shared = False
    for node, within, path, around, _ in _under(keys, condition, births):
        if not isinstance(node, Compare):
            continue
        steps = any(next(each, None) is not None for each in steps_us(node, 0))
        moves = any(motion_of(side) is not Motion.STILL for side in (node.left, node.right))
        alone = not parts_of(node) and not moves and not set(keys) & set(facts_of(node))
        if steps:
            (stepping if alone else by_slice).append(node)
        if moves and not _ages(node).ages_us:
            crosses_shared |= bool(parts_of(node)) and {each.keyed.key for each in around} < {*keys}
            own = births_alone(node, within, path, around)
            for each in crossings(node):
                under: Condition = each
                for keyed, *_ in reversed(around):
                    under = Keyed(under, keyed.key, keyed.where)
                crossing.append((under, own))
    return Moving(tuple(stepping), tuple(by_slice), tuple(crossing), crosses_shared)


def next_step_us(compares: Iterable[Compare], now_us: int) -> int:
    """Return when the time of day steps one of the comparisons next."""
    steps = merge(*(each for node in compares for each in steps_us(node, now_us)))
    return next(steps, FOREVER - 1) + 1


def next_turn_us(compares: Sequence[Compare], bits_at: Callable[[int], object], now_us: int) -> int:
    """Return when the time of day next turns one of the comparisons, or when to try again."""
    before, step_us = bits_at(now_us), FOREVER - 1
    for step_us in islice(merge(*(each for node in compares for each in steps_us(node, now_us))), STEPS_MAX):
        if bits_at(step_us + 1) != before:
            break
    return step_us + 1


class Movement:
    """When continuous changes turn the verdict of a rule."""

    def __init__(self, keys: Sequence[str], condition: Condition, births: Births, deciders: Deciders) -> None:
        self.moving = moving_in(keys, condition, births)
        self._births, self._deciders = births, deciders
        self._crossing: Decide | None = None
        self._turn_us: tuple[int, int] = (0, 0)

    def rules_changed(self) -> None:
        """Discard the generated function, which is created again on demand."""
        self._crossing = None

    def turns_us(self, event: Event, now_us: int, best: int) -> int:
        """Return when a continuous change turns a verdict, but at most `best`."""
        moving = self.moving
        if moving.stepping_by_slice:
            best = min(best, next_step_us(moving.stepping_by_slice, now_us))
        if moving.stepping:
            best = min(best, self._next_turn_us(now_us))
        return self.crossed_us(event, now_us, best) if moving.crossing else best

    def _next_turn_us(self, now_us: int) -> int:
        from_us, turn_us = self._turn_us
        if not from_us <= now_us < turn_us:
            stepping = self.moving.stepping
            decide = self._deciders.decider([(each, self._births) for each in stepping])
            turn_us = next_turn_us(stepping, lambda us: decide({}, {}, us << NUMBER_BITS, 0), now_us)
            self._turn_us = now_us, turn_us
        return turn_us

    def crossed_us(self, event: Event, now_us: int, end_us: int) -> int:
        """Return when a comparison of changing values turns, but at most `end_us`."""
        if self._crossing is None:
            self._crossing = self._deciders.decider(self.moving.crossing)
        decide = self._crossing
        before = decide(*event, now_us << NUMBER_BITS, 0)
        last_us = min(end_us - 1, LATEST_US)
        if decide(*event, last_us << NUMBER_BITS, 0) == before:
            return end_us
        # They turn one at a time, so a binary search for any difference finds the first.
        low_us, high_us = now_us, last_us
        while high_us - low_us > 1:
            middle_us = (low_us + high_us) // 2
            if decide(*event, middle_us << NUMBER_BITS, 0) == before:
                low_us = middle_us
            else:
                high_us = middle_us
        return high_us
