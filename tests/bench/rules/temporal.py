"""One rule with a memory on a stream of ready events: for all events together, and for each of many keys."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Contestant, Event, ours, race
from tests.bench.measuring.rows import Part, Row, Target
from tests.bench.rules import loops
from tests.bench.rules.peers import of_temporal

CASE = "temporal"
LITERATURE = "published: 1.0-1.3 M/s, not measured here"
"""What is known of reelay where it cannot be installed."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Events a step apart, the window of the rules over them, and who they are about."""

    step_ms: int
    window_ms: int
    keys: int

    @property
    def steps(self) -> int:
        """The window in reelay's clock, which counts events."""
        return self.window_ms // self.step_ms

    def events(self, count: int, alarming: float) -> list[Event]:
        """Give events in which `alarm` is seldom 1, and `calm` is seldom not."""
        drawn = random.Random(self.keys)
        return [
            (
                {
                    "alarm": int(drawn.random() < alarming),
                    "calm": int(drawn.random() >= alarming),
                    "user": f"user{drawn.randrange(self.keys)}",
                },
                number * self.step_ms,
                None,
            )
            for number in range(count)
        ]


Loop = Callable[[list[Event], int, dict[str, float]], list[Any]]


@dataclass(frozen=True, slots=True)
class Member:
    """A temporal member as our rule, as a loop by hand, and for reelay, with STEPS for the window.

    The patterns for keys are of the form that reelay judges as we do; its plainer ones judge otherwise.
    """

    name: str
    condition: str
    loop: Loop
    loop_keyed: Loop
    pattern: str
    pattern_keyed: str


MEMBERS = (
    Member(
        "once within",
        "once within 10m alarm == 1",
        loops.once_within,
        loops.once_within_keyed,
        "once[0:STEPS]{alarm: 1}",
        "once[0:STEPS]{user: *u, alarm: 1}",
    ),
    Member(
        "historically for, weak",
        "historically for 10m calm == 1",
        loops.held_weak,
        loops.held_weak_keyed,
        "historically[0:STEPS]{calm: 1}",
        "historically[0:STEPS](not {user: *u, calm: 0})",
    ),
    Member(
        "historically for, strong",
        "historically for 10m strong calm == 1",
        loops.held_strong,
        loops.held_strong_keyed,
        "historically[0:STEPS]{calm: 1} and once[STEPS:STEPS]{calm: 1}",
        "((not {user: *u, calm: 0}) since[STEPS:] {user: *u, calm: 1})",
    ),
    Member(
        "since within",
        "calm == 1 since within 10m alarm == 1",
        loops.since_within,
        loops.since_within_keyed,
        "{calm: 1} since[0:STEPS]{alarm: 1}",
        "((not {user: *u, calm: 0}) since[0:STEPS] {user: *u, alarm: 1})",
    ),
)


def parts(effort: Effort) -> list[Part]:
    """Give a part for each member, first without a key and then with one."""
    return [
        Part(CASE, partial(measure, member, keyed, effort), f"{member.name}{', keyed' if keyed else ''}")
        for keyed in (False, True)
        for member in MEMBERS
    ]


def by_hand(loop: Loop, window_ms: int) -> Contestant:
    """A loop, and what it remembers from one stretch of events to the next."""
    past: dict[str, float] = {}
    return Contestant("floor", lambda events: loop(events, window_ms, past))


def measure(member: Member, keyed: bool, effort: Effort) -> list[Row]:
    """Give the millions of events in a second that one rule takes."""
    # With keys the steps are shorter, so that a window sees each key several times.
    stream = Stream(step_ms=100 if keyed else 1_000, window_ms=600_000, keys=effort.keys_of_stream)
    rule = f"per user ({member.condition})" if keyed else member.condition
    pattern = f"exists[u]. {{user: *u}} and {member.pattern_keyed}" if keyed else member.pattern
    peers = of_temporal(pattern.replace("STEPS", str(stream.steps)), keyed=keyed)
    floor = by_hand(member.loop_keyed if keyed else member.loop, stream.window_ms)
    events = stream.events(effort.events, alarming=0.05 if keyed else 0.001)
    raced = race([ours([rule]), floor, *peers.contestants], events, effort)
    rate = {name: 1e-6 / cost_s for name, cost_s in raced.cost_s.items()}
    figures = {peer.name: rate[peer.name] for peer in peers.contestants}
    absent = (
        {name: f"{why} ({LITERATURE})" for name, why in peers.absent.items()} if not keyed else peers.absent
    )
    return [
        Row(
            case=CASE,
            name=f"{member.name}, {f'{stream.keys} keys' if keyed else 'no key'}",
            unit="M events/s",
            ours=rate["ours"],
            worst=1e-6 / raced.worst_s,
            floor=rate["floor"],
            peers={**figures, **absent},
            ratio=raced.ratio,
            # The yardstick's step is a tenth of a microsecond, which whatever else runs here disturbs.
            tolerance=0.5,
            target=_target(rate["ours"], figures, keyed=keyed),
        )
    ]


def _target(ours_rate: float, peers: dict[str, float], *, keyed: bool) -> Target:
    ahead = all(ours_rate > rate for rate in peers.values())
    if keyed:
        return Target(text="at least 1 M/s, ahead of reelay", met=ahead and ours_rate >= 1)
    return Target(text="ahead of reelay; aim 3 M/s", met=ahead and ours_rate >= 3)
