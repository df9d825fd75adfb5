"""The temporal operators: what each remembers, how an event updates it, how it is read.

Every window ends now. So a memory is one number for each node and slice, whatever the window: the time of the
one past event that decides, the decisive event. A comment at each operator says why no more is needed (after
Havelund and Rosu, "Synthesizing Monitors for Safety Properties", 2002, extended by windows).

Operators are templates of Python code for generated functions:

    {past}                    the remembered time, NEVER if there is none
    {write}                   remembers the time of this event
    {clear}                   forgets the remembered time
    {keep}                    keeps the remembered time
    {edge}                    the oldest time inside the window, always later than NEVER
    {inner}, {left}, {right}  the operands at this event
    {since}                   the time up to which a rule ignores the memory
    {starts}                  the time at which a run that started up to then begins for the rule

An update gives no verdict, because often none is read. It is idempotent within one event, because an event
may meet several triggers of a memory.

`previous` and `earlier` look at the events before the current one. Their verdict is read before the update
for the event, which is *deferred* until everything else has been evaluated.

A comparison with a number over the past is no operator: see `Tally` in `shapes.py`.
"""

from dataclasses import dataclass
from typing import Final

WINDOW_US_PLAIN: Final = 500_000_000_000_000_000
"""Up to this window, about 15 000 years, the edge is later than NEVER at any event."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A temporal operator: its code, and whether a time before the window reads like NEVER."""

    name: str
    update: tuple[str, ...]
    truth: str
    """The verdict after the memory's update for the event."""
    viewed: str
    """The same if only times later than `{since}` count."""
    expires: bool
    deferred: bool = False
    """Whether the verdict is that before the memory's update for the event."""


_LATEST_TRUE: Final = ("if {inner}:", " {write}", "else:", " {keep}")
_LATEST_FALSE: Final = ("if {inner}:", " {keep}", "else:", " {write}")
_LATEST_WITNESS: Final = ("if {right}:", " {write}", "elif {left}:", " {keep}", "else:", " {clear}")

_EVER: Final = "{past} != NEVER", "{since} < {past}"
_WITHIN: Final = "{past} >= {edge}", "{since} < {past} >= {edge}"
"""The verdict if there is a time, or one inside the window; and the same if only later times count."""

# Remembers the latest time at which inner was true. Only its existence matters.
ONCE: Final = Operator("once", _LATEST_TRUE, *_EVER, expires=False)

# Remembers the latest time at which inner was false. Only its existence matters.
HISTORICALLY: Final = Operator(
    "historically", _LATEST_FALSE, "{past} == NEVER", "not {since} < {past}", expires=False
)

# Remembers the latest time at which right was true, while left has been true at every event after it. The
# latest witness suffices: if left held after an earlier one, it also held after this one.
SINCE: Final = Operator("since", _LATEST_WITNESS, *_EVER, expires=False)

# Remembers the latest time at which inner was true, which stays in the window longest.
ONCE_WITHIN: Final = Operator("once_within", _LATEST_TRUE, *_WITHIN, expires=True)

# Remembers the latest time at which inner was false, which stays in the window longest.
HISTORICALLY_FOR_WEAK: Final = Operator(
    "historically_for_weak", _LATEST_FALSE, "{past} < {edge}", "not {since} < {past} >= {edge}", expires=True
)

# Remembers the start of the current run of events at which inner is true. It never expires: a longer run
# still satisfies the window.
HISTORICALLY_FOR_STRONG: Final = Operator(
    "historically_for_strong",
    update=("if {inner}:", " if {past} == NEVER:", "  {write}", "else:", " {clear}"),
    truth="NEVER < {past} <= {edge}",
    viewed="NEVER < (start := {past}) <= {edge} and (start > {since} or {starts} <= {edge})",
    expires=False,
)

# Like SINCE. The latest witness also stays in the window longest.
SINCE_WITHIN: Final = Operator("since_within", _LATEST_WITNESS, *_WITHIN, expires=True)

# Remembers the time of the latest event if inner was true at it.
PREVIOUS: Final = Operator(
    "previous", ("if {inner}:", " {write}", "else:", " {clear}"), *_EVER, expires=False, deferred=True
)

# They remember what ONCE and ONCE_WITHIN do, and are read before the event.
EARLIER: Final = Operator("earlier", ("if {inner}:", " {write}"), *_EVER, expires=False, deferred=True)
EARLIER_WITHIN: Final = Operator("earlier_within", EARLIER.update, *_WITHIN, expires=True, deferred=True)
