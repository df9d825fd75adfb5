"""One function that evaluates many events for a few rules: it decides each event, and then commits it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from engine.evaluation.kernel.code.condition_code import ConditionCode
from engine.evaluation.kernel.code.event_code import Finder, LookupOf
from engine.evaluation.kernel.code.generated import function, indented
from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.site import Site
from engine.evaluation.slices.histories import SETTLED_EVERY, Histories
from engine.language.condition import Condition

_STREAM: Final = """\
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
    {begin}
    {decided}
    {fired}
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


def stream(
    rules: Sequence[tuple[Condition, Site]],
    histories: Histories,
    *,
    finder: Finder,
    lookup_of: LookupOf,
    relations_of: Callable[[Any], object],
    begin: Callable[[Any, Any], object] | None,
    combinations: Mapping[int, Any],
) -> Any:
    """Compile the function that evaluates many events for these rules.

    It appends to its results what `combinations` gives for the bits of the rules that fire, the first rule's
    the lowest. `begin` is called with each event before it is decided.
    """
    code = ConditionCode(Uses(rules), finder, lookup_of)
    verdicts = [code.truth(condition, site) for condition, site in rules]
    fired = ["fired = 0", *(f"if {verdict}: fired |= {1 << place}" for place, verdict in enumerate(verdicts))]
    source = _STREAM.format(
        begin="pass" if begin is None else "begin(fields, vars or NOTHING)",
        decided=indented(code.decided(), 4),
        # The verdicts are read before anything is written.
        fired=indented(fired, 4),
        written=indented(code.written(), 4),
    )
    tools = {
        "histories": histories,
        "combinations": combinations,
        "begin": begin,
        "relations_of": relations_of,
        "SETTLED_EVERY": SETTLED_EVERY,
    }
    return function(source, [*code.given(), *code.tables(), *tools.items()])
