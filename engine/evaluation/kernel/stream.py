"""The functions that evaluate events for a few rules: they decide an event, and then commit it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import dedent
from typing import Any, Final

from engine.evaluation.kernel.code.condition_code import ConditionCode
from engine.evaluation.kernel.code.event_code import Finder, LookupOf
from engine.evaluation.kernel.code.generated import function, indented
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.site import Site
from engine.evaluation.slices.histories import SETTLED_EVERY, Histories
from engine.language.condition import Condition

_OBSERVE_MANY: Final = """\
 def observe_many(events, detector, results):
  append = results.append
  clock = NEVER if detector.clock_us is None else detector.clock_us << NUMBER_BITS
  latest, tick = detector.latest_us << NUMBER_BITS, detector.events_seen
  pause, tracking = tick, histories.tracking
  try:
   for fields, timestamp_ms, vars in events:
    base = timestamp_ms * MILLISECOND
    if type(base) is not int:
     base = microseconds(timestamp_ms, 1000) << NUMBER_BITS
    if not clock <= base <= latest:
     base = detector.time_of(base >> NUMBER_BITS, clock >> NUMBER_BITS) << NUMBER_BITS
    clock = base
    tick += 1
    {decided}
    {written}
    if tick >= pause or histories.due:
     detector.settle(clock >> NUMBER_BITS, tick)
     pause, tracking = tick - tick % SETTLED_EVERY + SETTLED_EVERY, histories.tracking
    append(combinations[fired] if fired else ())
  finally:
   if clock != NEVER:
    detector.clock_us, detector.events_seen = clock >> NUMBER_BITS, tick
 return observe_many
"""

_DECIDE: Final = """\
 def decide(fields, vars, base, tick):
  {decided}
  return combinations[fired] if fired else ()
 return decide
"""


class Functions:
    """The functions for some rules. Both consist of the same code, but only one of them commits."""

    def __init__(self, code: ConditionCode, fired: Sequence[str], tools: Mapping[str, Any]) -> None:
        begin = [] if tools["begin"] is None else ["begin(fields, vars or NOTHING)"]
        # The verdicts are read before anything is written.
        self._decided = [*begin, *code.decided(), *fired]
        self._given = [*code.given(), *code.tables(), *tools.items()]
        written = indented(code.written(), 4)
        self._source = _OBSERVE_MANY.format(decided=indented(self._decided, 4), written=written)
        self.observe_many: Any = function(self._source, self._given)
        """(events, detector, results): appends the rules that fire at each event to the results."""
        self._decide: Any = None

    @property
    def code(self) -> str:
        """The source of `observe_many`, after the names and constants that it is given."""
        plain = (bool, int, float, str, tuple)
        given = [f"{name} = {value!r}" for name, value in self._given if isinstance(value, plain)]
        return "\n".join([*given, *dedent(self._source).splitlines()[:-1]])

    def decide(self, *event: Any) -> Any:
        """Return the rules that fire at an event: (fields, vars, the stamp of its time, its number)."""
        if self._decide is None:
            self._decide = function(_DECIDE.format(decided=indented(self._decided, 2)), self._given)
        return self._decide(*event)


def functions(
    rules: Sequence[tuple[Condition, Site]],
    histories: Histories,
    *,
    finder: Finder,
    lookup_of: LookupOf,
    relations_of: Callable[[Any], object],
    begin: Callable[[Any, Any], object] | None,
    combinations: Mapping[int, Any],
) -> Functions:
    """Generate the functions for these rules.

    They give what `combinations` has for the bits of the rules that fire, the first rule's the lowest.
    `begin` is called with each event before it is decided.
    """
    code = ConditionCode(Uses(rules), finder, lookup_of)
    tools = {
        "histories": histories,
        "combinations": combinations,
        "begin": begin,
        "relations_of": relations_of,
        "SETTLED_EVERY": SETTLED_EVERY,
    }
    return Functions(code, [*_fired(code, rules)], tools)


def _fired(code: ConditionCode, rules: Sequence[tuple[Condition, Site]]) -> Iterator[str]:
    yield "fired = 0"
    for place, (condition, site) in enumerate(rules):
        yield f"if {code.truth(condition, site)}: fired |= {1 << place}"
