"""The temporal operators: what each remembers, how an event updates it, how it is read.

Every window ends now, so one number for each node and key is enough, whatever the window: the time of the one
event in the past that decides. That each operator needs no more is argued where it stands (after Havelund and
Rosu, "Synthesizing Monitors for Safety Properties", 2002, extended by windows).

An operator is written as the Python that the compiler puts into a rule. In it stand: `{read}`, the
remembered time, NEVER if there is none; `{write}`, which remembers the time of this event; `{clear}`, which
forgets; `{edge}`, the oldest time inside the window; `{inner}`, `{left}`, `{right}`, the operands now;
`{verdict}`, the variable that takes the outcome. Each update is idempotent within one event, so two rules may
share one memory.
"""

from dataclasses import dataclass
from typing import Final

NEVER: Final = -(1 << 66)
"""Before the edge of any window: event times are within 2**63, windows are cut to WINDOW_US_MAX."""

WINDOW_US_MAX: Final = 1 << 65
"""A longer window than the whole of representable time reaches no further."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A temporal operator: its code, and whether a time that has left the window reads as none at all."""

    update: tuple[str, ...]
    expires: bool


ONCE: Final = Operator(
    # Remembers the latest time at which inner was true; that there is one is all that matters.
    update=(
        "if {inner}:",
        "    {write}",
        "    {verdict} = True",
        "else:",
        "    {verdict} = {read} != NEVER",
    ),
    expires=False,
)

HISTORICALLY: Final = Operator(
    # Remembers the latest time at which inner was false; that there is one is all that matters.
    update=(
        "if {inner}:",
        "    {verdict} = {read} == NEVER",
        "else:",
        "    {write}",
        "    {verdict} = False",
    ),
    expires=False,
)

SINCE: Final = Operator(
    # Remembers the latest time at which right was true, while left has been true at every event after it. The
    # latest is the best witness: left must hold after an earlier one for longer.
    update=(
        "if {right}:",
        "    {write}",
        "    {verdict} = True",
        "elif {left}:",
        "    {verdict} = {read} != NEVER",
        "else:",
        "    {clear}",
        "    {verdict} = False",
    ),
    expires=False,
)

ONCE_WITHIN: Final = Operator(
    # Remembers the latest time at which inner was true: it stays in the window longest.
    update=(
        "if {inner}:",
        "    {write}",
        "    {verdict} = True",
        "else:",
        "    {verdict} = {read} >= {edge}",
    ),
    expires=True,
)

HISTORICALLY_FOR_WEAK: Final = Operator(
    # Remembers the latest time at which inner was false: it stays in the window longest.
    update=(
        "if {inner}:",
        "    {verdict} = {read} < {edge}",
        "else:",
        "    {write}",
        "    {verdict} = False",
    ),
    expires=True,
)

HISTORICALLY_FOR_STRONG: Final = Operator(
    # Remembers the first time of the unbroken run in which inner is true. It never expires: the longer the
    # run, the more it has held.
    update=(
        "if {inner}:",
        "    if {read} == NEVER:",
        "        {write}",
        "    {verdict} = {read} <= {edge}",
        "else:",
        "    {clear}",
        "    {verdict} = False",
    ),
    expires=False,
)

SINCE_WITHIN: Final = Operator(
    # As SINCE. The latest witness is also the one that stays in the window longest.
    update=(
        "if {right}:",
        "    {write}",
        "    {verdict} = True",
        "elif {left}:",
        "    {verdict} = {read} >= {edge}",
        "else:",
        "    {clear}",
        "    {verdict} = False",
    ),
    expires=True,
)
