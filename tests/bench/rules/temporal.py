"""One rule with a memory on a stream of ready events: for all events together, and for each of many keys.

By hand it is a loop that keeps one number, or one a key. `past` carries it from one stretch of events to the
next; a loop without keys reads it once and writes it once, so that in between it works with what is at hand.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.race import Contestant, Event, ours, race
from tests.bench.measuring.rows import Part, Row, Target
from tests.bench.rules.peers import of_temporal

CASE = "temporal"
NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Stream:
    """Events a step apart, the window of the rules over them, and who they are about."""

    step_ms: int
    window_ms: int
    keys: int

    @property
    def steps(self) -> int:
        """The window by reelay's clock, which counts events."""
        return self.window_ms // self.step_ms

    def events(self, count: int, alarming: float) -> list[Event]:
        """Return events in which `alarm` is seldom 1, and `calm` is seldom not."""
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


def once_within(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`once within`: the latest alarm is young enough."""
    seen_ms = past.get("", NEVER)
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        if fields["alarm"] == 1:
            seen_ms = time_ms
        answers.append([0] if seen_ms >= time_ms - window_ms else [])
    past[""] = seen_ms
    return answers


def since_within(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`since within`: the latest alarm is young enough, and all was calm after it."""
    seen_ms = past.get("", NEVER)
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        if fields["alarm"] == 1:
            seen_ms = time_ms
        elif fields["calm"] != 1:
            seen_ms = NEVER
        answers.append([0] if seen_ms >= time_ms - window_ms else [])
    past[""] = seen_ms
    return answers


def once_within_keyed(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`once within`: the latest alarm is young enough. Per user."""
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        user = fields["user"]
        if fields["alarm"] == 1:
            past[user] = time_ms
        answers.append([0] if past.get(user, NEVER) >= time_ms - window_ms else [])
    return answers


def since_within_keyed(events: list[Event], window_ms: int, past: dict[str, float]) -> list[Any]:
    """`since within`: the latest alarm is young enough, and all was calm after it. Per user."""
    answers: list[Any] = []
    for fields, time_ms, _ in events:
        user = fields["user"]
        if fields["alarm"] == 1:
            past[user] = time_ms
        elif fields["calm"] != 1:
            past.pop(user, None)
        answers.append([0] if past.get(user, NEVER) >= time_ms - window_ms else [])
    return answers


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
        once_within,
        once_within_keyed,
        "once[0:STEPS]{alarm: 1}",
        "once[0:STEPS]{user: *u, alarm: 1}",
    ),
    Member(
        "since within",
        "calm == 1 since within 10m alarm == 1",
        since_within,
        since_within_keyed,
        "{calm: 1} since[0:STEPS]{alarm: 1}",
        "((not {user: *u, calm: 0}) since[0:STEPS] {user: *u, alarm: 1})",
    ),
)


def parts(effort: Effort) -> list[Part]:
    """Return a part for each member, first without a key and then with one."""
    return [
        Part(CASE, partial(measure, member, keyed, effort), f"{member.name}{', keyed' if keyed else ''}")
        for keyed in (False, True)
        for member in MEMBERS
    ]


def by_hand(loop: Loop, window_ms: int) -> Contestant:
    """A loop, and its state from one stretch of events to the next."""
    past: dict[str, float] = {}
    return Contestant("floor", lambda events: loop(events, window_ms, past))


def measure(member: Member, keyed: bool, effort: Effort) -> list[Row]:
    """Return millions of events per second with one rule."""
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
    return [
        Row(
            case=CASE,
            name=f"{member.name}, {f'{stream.keys} keys' if keyed else 'no key'}",
            unit="M events/s",
            ours=rate["ours"],
            worst=1e-6 / raced.worst_s,
            floor=rate["floor"],
            peers={**figures, **peers.absent},
            ratio=raced.ratio,
            # The baseline's step is a tenth of a microsecond, which anything else that runs here disturbs.
            tolerance=0.5,
            target=_target(rate["ours"], figures, keyed=keyed),
        )
    ]


def _target(ours_rate: float, peers: dict[str, float], *, keyed: bool) -> Target:
    ahead = all(ours_rate > rate for rate in peers.values())
    if keyed:
        return Target(text="at least 1 M/s, ahead of reelay", met=ahead and ours_rate >= 1)
    return Target(text="ahead of reelay; aim 3 M/s", met=ahead and ours_rate >= 3)
