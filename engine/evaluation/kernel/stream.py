"""The functions that evaluate events for a few rules: they decide each event, and then commit it."""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from textwrap import dedent
from typing import Any, Final, TypeAlias, TypeVar

from engine.evaluation.generated import function
from engine.evaluation.kernel.code.condition_code import ConditionCode
from engine.evaluation.kernel.code.given_code import GivenCode
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.requirements import Births
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.slices.bounds.eviction import SETTLED_EVERY
from engine.evaluation.timed.changes import Part
from engine.evaluation.timed.timing import Timing
from engine.evaluation.timed.watch import Watch
from engine.language.condition import Condition
from engine.language.durations import CLEAR_OF_HALVES

KeyT = TypeVar("KeyT", bound=Hashable)

KEPT_MAX: Final = 1_024
_RULES_MAX: Final = 64
"""Larger combinations are not cached. Together with KEPT_MAX, this limits the cache to about a megabyte."""

_BASE: Final = re.compile(r"\bbase\b")
_AS_CHOICES: Final = bytes.maketrans(b"01", b"\x00\x01")


class Combinations(dict[KeyT, Fired]):
    """The tuple of rules for each combination, which `of` makes from its key.

    The same combinations often recur, so what depends on one is looked up by the identity of its tuple.
    """

    __slots__ = ("_of",)

    def __init__(self, of: Callable[[KeyT], Fired]) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, key: KeyT) -> Fired:
        fired = self._of(key)
        if len(fired) <= _RULES_MAX:
            if len(self) >= KEPT_MAX:
                self.clear()
            self[key] = fired
        return fired


def rules_of_bits(rules: Sequence[Rule], bits: int) -> Fired:
    """Return the rules that have their bits set in a number; the first rule has the lowest bit."""
    return tuple(compress(rules, f"{bits:b}"[::-1].encode().translate(_AS_CHOICES)))


FIELDS_TAKEN_MAX: Final = 16
"""Looking up more fields than this at each event may take longer than checking all fields of the event."""

Note: TypeAlias = Callable[[Fired, Mapping[str, Any], Mapping[str, Any] | None, int, int], Fired]
"""Takes the rules that fire at a decided event, its fields and vars, the stamp of its time and its number.
Returns the rules that remain."""


# Python looks up the names of types faster if they are local.
_OBSERVE_MANY: Final = """\
 def observe_many(events, detector, results, intake=None, type=type, str=str, int=int, float=float):
  append = results.append
  start = UNSET_US if detector.clock_us is None else detector.clock_us
  end, seen = min(detector.latest_us, LATEST_US), detector.events_seen
  unit = MILLISECOND
  clock, latest = -(-start // 1000), end // 1000
{counting}\
{opening}\
  try:
   for fields, at, vars in events:
{taken}\
    if type(at) is not int or not clock <= at <= latest:
     if unit != MICROSECOND:
      clock, latest, unit = start if {count} == seen else clock * 1000, NEVER, MICROSECOND
{reopening}\
     if type(at) is float and PRODUCT_MIN < (product := at * 1000.0) < PRODUCT_MAX:
      whole = product + ROUNDING - ROUNDING
      at = int(whole) if -{clear} < product - whole < {clear} else microseconds(at, 1000)
     else: at = microseconds({checked}, 1000)
     if not clock <= at <= end: at = detector.time_of(at, clock)
{based}\
{due}\
    clock = at
{counted}\
{decided}\
{noted}\
{written}\
{settled}\
    append({firing})
  finally:
   if {count} != seen:
    detector.clock_us, detector.events_seen = clock * unit >> NUMBER_BITS, {count}
 return observe_many
"""
"""The stamp of an event's time is `at` times the `unit`. Small integers are compared in much less time: `at`
counts milliseconds, until an event has another time or is late; from then on, microseconds."""

_COUNTING: Final = ("tick = pause = seen", "tracking = histories.tracking")
_COUNT: Final = "before + len(results)"
"""The number of the last event, for a loop that does not count them."""

_NEXT_DUE: Final = "due = -(-queue.due // unit)"

_SETTLED: Final = (
    "if tick >= pause or histories.due:",
    " detector.settle(clock * unit >> NUMBER_BITS, tick)",
    " pause, tracking = tick - tick % SETTLED_EVERY + SETTLED_EVERY, histories.tracking",
)

_FIRING: Final = "combinations[fired] if fired else ()"

_NOTED: Final = (
    f"firing = {_FIRING}",
    "if fired & NOTED: firing = note(firing, fields, vars, base, tick)",
)
"""The code between deciding and committing if some rules are noted."""

_DECIDE: Final = """\
 def decide(fields, vars, base, tick):
  at, unit = base >> NUMBER_BITS, MICROSECOND
{opening}\
{decided}\
  return combinations[fired] if fired else ()
 return decide
"""


def _lines(lines: Iterable[str], depth: int) -> str:
    return "".join(f"{' ' * depth}{line}\n" for line in lines)


class _Touching:
    """Statements for timed rules, and their names; empty without timed rules.

    Most events change nothing that time will change, or find a slice that is checked soon enough, as shown by
    the stamp that they replace or by one look-up.
    """

    def __init__(self, code: ConditionCode, timing: Timing | None, *, stamp: str, count: str) -> None:
        """Take the expressions for the stamp of an event, and for the number of the event before it."""
        self.given: list[tuple[str, Any]] = []
        self.opening: list[str] = []
        """The statements before all events."""
        self.first: list[str] = []
        """The statements before an event is committed."""
        self.lines: list[str] = []
        """The statements after it is committed."""
        self.due: list[str] = []
        """The statements before an event is decided."""
        if timing is None or not timing.watches:
            return
        self._code, self._stamp = code, stamp
        self.opening = [_NEXT_DUE]
        self.due = ["if at >= due:", f" timing.pass_time(at * unit, {count})", f" {_NEXT_DUE}"]
        self.given = [("timing", timing), ("queue", timing.queue), ("NOT_WAITING", timing.not_waiting)]
        for number, waiting in enumerate(timing.watches.values()):
            key = None if waiting.is_late else code.key_of(waiting.path)
            if key is None:
                self.given.append((f"meet{number}", waiting.meet))
                self.lines += [f"meet{number}({stamp}, fields, vars)", _NEXT_DUE]
                continue
            if waiting.shares:
                self._share(number, waiting)
            self._touch(number, waiting, key)

    def _share(self, number: int, waiting: Watch) -> None:
        changed = self._changed(waiting.shared_parts)
        tests = [] if changed is None else [changed]
        if waiting.shared_soonest is not None:
            self.given += [(f"rest{number}", waiting.rest), (f"sooner{number}", waiting.shared_soonest)]
            tests.append(f"rest{number}[0] > {self._stamp} + sooner{number}")
        self.given.append((f"share{number}", waiting.share))
        self.lines += _if(tests, f"share{number}({self._stamp}, fields, vars)")

    def _touch(self, number: int, waiting: Watch, key: str) -> None:
        self.given += [(f"touch{number}", waiting.touch), (f"waiting{number}", waiting.shards)]
        touch = f"touch{number}({key}, {self._stamp}, fields, vars)"
        advances = None if waiting.soonest is None else self._advances(waiting)
        place = hash(()) % len(waiting.shards) if key == "()" else key.replace("k", "h")
        shard = f"waiting{number}[{place}]"
        tests = [] if key == "()" else [f"{key} is not None"]
        if advances is not None:
            self.first.append(f"advance{number} = {' and '.join([*tests, advances])}")
            touch, tests = f"{touch[:-1]}, is_changed=True)", [f"advance{number}"]
        else:
            changed = self._changed(waiting.own_parts)
            tests += [] if changed is None else [changed]
            if waiting.soonest is not None:
                self.given.append((f"soonest{number}", waiting.soonest))
                tests.append(f"{shard}.get({key}, NOT_WAITING)[0] > {self._stamp} + soonest{number}")
        if key == "()" and tests:
            # A slice without keys waits from its first event on.
            self.opening.append(f"waits{number} = () in {shard}")
            tests = [f"not waits{number} or {' and '.join(tests)}"]
            touch = f"waits{number} = True; {touch}"
        self.lines += _if(tests, touch)

    def _advances(self, waiting: Watch) -> str | None:
        """Return the test, before an event is written, whether its slice may have to wait for less time."""
        tests = []
        for part in waiting.own_parts:
            read = self._code.written_to(part.remembered, waiting.made)
            test = None if read is None else part.advances(read)
            if test is None:
                return None
            tests.append(test)
        return f"({' or '.join(dict.fromkeys(tests))})" if tests else None

    def _changed(self, parts: Sequence[Part]) -> str | None:
        """Return the test whether an event has changed what time will change; None if each event may have."""
        tests = []
        for part in parts:
            read = self._code.written_to(part.remembered)
            test = None if read is None else part.changed(read)
            if read is None or test is None:
                return None
            tests.append(f"k{read.path} is not None and {test}" if read.path else test)
        return f"({' or '.join(dict.fromkeys(tests))})" if tests else None


def _if(tests: Sequence[str], call: str) -> list[str]:
    """Return the statements that call something that may put something into the queue, if all tests hold."""
    lines = [call, _NEXT_DUE]
    return [f"if {' and '.join(tests)}:", *(f" {line}" for line in lines)] if tests else lines


class _Code:
    """The source of functions for some rules, and what it is given."""

    def __init__(
        self,
        code: ConditionCode,
        fired: Sequence[str],
        tools: Mapping[str, Any],
        timing: Timing | None,
    ) -> None:
        begin = [] if tools["begin"] is None else ["begin(fields, vars or NOTHING)"]
        # Verdicts are decided before anything is written.
        self.decided = [*begin, *code.decided(), *fired]
        self._noted = _NOTED if "NOTED" in tools else ()
        # Otherwise nothing can expire at an event or exceed a bound, and few events need their numbers.
        self._settles = code.has_keys or bool(self._noted)
        self._count = "tick" if self._settles else _COUNT
        number = "tick" if self._settles else f"{_COUNT} + 1"
        stamp = f"{'base' if self._settles else 'at * unit'} + {number}"
        touching = _Touching(code, timing, stamp=stamp, count=self._count)
        self._opening, self._timed_opening, self._due = code.opening(), touching.opening, touching.due
        reading = [*self.decided, *self._noted, *touching.first, *touching.lines, *code.writing]
        is_based = any(_BASE.search(line) for line in reading)
        self._based = ["base = at * unit"] if is_based else []
        self._written = code.written(
            f"{'base' if is_based else 'at * unit'} + {number}", touching.first, touching.lines
        )
        self.given = [*code.given(), *code.tables(), *tools.items(), *touching.given]

    def observe_many(self, taken: Sequence[str] = (), checked: str = "at") -> str:
        """Return the source of `observe_many`; each event is first taken, and an unusual time is checked."""
        opening = [*self._opening, *self._timed_opening]
        return _OBSERVE_MANY.format(
            counting=_lines(_COUNTING if self._settles else ["before = seen - len(results)"], 2),
            counted=_lines(["tick += 1"] if self._settles else (), 4),
            count=self._count,
            opening=_lines(opening, 2),
            taken=_lines(taken, 4),
            checked=checked,
            clear=CLEAR_OF_HALVES,
            reopening=_lines(opening, 6),
            based=_lines(self._based, 4),
            due=_lines(self._due, 4),
            decided=_lines(self.decided, 4),
            noted=_lines(self._noted, 4),
            written=_lines(self._written, 4),
            settled=_lines(_SETTLED if self._settles else (), 4),
            firing="firing" if self._noted else _FIRING,
        )

    def decide(self) -> str:
        """Return the source of `decide`."""
        return _DECIDE.format(opening=_lines(self._opening, 2), decided=_lines(self.decided, 2))


class Functions:
    """The functions for some rules. All consist of the same code, but `decide` commits nothing."""

    def __init__(
        self,
        rules: Sequence[tuple[Condition, Births]],
        needs: Needs,
        combinations: Mapping[int, Any],
        *,
        timing: Timing | None = None,
        noted: int = 0,
        note: Note | None = None,
        besides: Sequence[str] = (),
    ) -> None:
        """They return what `combinations` has for the bits of the firing rules, lowest for the first.

        `note` is called before an event is committed if a rule fires whose bit is in `noted`. It reads the
        facts `besides`.
        """
        self._rules, self._needs, self._timing, self._besides = rules, needs, timing, besides
        self._tools = {
            "histories": needs.histories,
            "combinations": combinations,
            "begin": needs.patterns.begin if needs.patterns.bounded else None,
            "relations_of": needs.lookups.relations,
            "SETTLED_EVERY": SETTLED_EVERY,
            **({"NOTED": noted, "note": note} if noted else {}),
        }

    @cached_property
    def observe_many(self) -> Any:
        """(events, detector, results): appends the rules that fire at each event to the results."""
        return function(self._code.observe_many(), self._code.given)

    @cached_property
    def takes_given(self) -> bool:
        """Whether there is `observe_given`: the rules read few fields."""
        return len(self._given_code.uses.fields) <= FIELDS_TAKEN_MAX

    @cached_property
    def observe_given(self) -> Any:
        """(events, detector, results, intake): the same for events that may have values unknown in JSON."""
        made = self._made(self._given_code)
        return function(made.observe_many(self._given_code.taken(), "intake.time(at)"), made.given)

    @cached_property
    def decide(self) -> Any:
        """(fields, vars, the stamp of its time, its number): returns the rules that fire at an event."""
        return function(self._code.decide(), self._code.given)

    @property
    def code(self) -> str:
        """The source of `observe_many`, after its names and constants."""
        plain = (bool, int, float, str, tuple)
        given = [f"{name} = {value!r}" for name, value in self._code.given if isinstance(value, plain)]
        return "\n".join([*given, *dedent(self._code.observe_many()).splitlines()[:-1]])

    @cached_property
    def _given_code(self) -> GivenCode:
        return GivenCode(self._needs, Uses(self._rules, at_once=True, besides=self._besides))

    @cached_property
    def _code(self) -> _Code:
        return self._made(ConditionCode(self._needs, Uses(self._rules)))

    def _made(self, code: ConditionCode) -> _Code:
        code.is_timed = bool(self._timing and self._timing.watches)
        return _Code(code, [*_fired(code, self._rules)], self._tools, self._timing)


def _fired(code: ConditionCode, rules: Sequence[tuple[Condition, Births]]) -> Iterator[str]:
    if not rules:
        yield "fired = 0"
    for place, (condition, births) in enumerate(rules):
        truth = code.truth(condition, births)
        yield f"if {truth}: fired |= {1 << place}" if place else f"fired = 1 if {truth} else 0"
