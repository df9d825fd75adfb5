"""Worlds of few facts that every event has, and of rules that are never removed.

Most rules are false because of a fact that their memory does not depend on. The engine evaluates
them at few events, and must derive their memory from the slice's last event, or trigger them in time.
"""

import itertools

from engine.language.condition import (
    All,
    Any,
    Condition,
    Historically,
    HistoricallyFor,
    Keyed,
    Leaf,
    Not,
    Once,
    OnceWithin,
    Since,
    SinceWithin,
)
from tests.worlds.scripts import Add, Change, Choose, Remove, Step, Submit, World, timestamp_ms

P, Q, T = Leaf("p", "eq", 1), Leaf("q", "eq", 1), Leaf("t", "eq", 1)
WINDOW_SECS = 0.2
STEPS_US = (1, 100_000, 100_000, 200_000, 200_001)

PAIRS = tuple(itertools.product((P, Not(P)), (Q, Not(Q))))
NODES: tuple[Condition, ...] = (
    *(node for p, _ in PAIRS[::2] for node in (Once(p), Historically(p))),
    *(node for p, _ in PAIRS[::2] for node in (OnceWithin(p, WINDOW_SECS), HistoricallyFor(p, WINDOW_SECS))),
    *(HistoricallyFor(p, WINDOW_SECS, "strong") for p, _ in PAIRS[::2]),
    HistoricallyFor(Not(Q), WINDOW_SECS, "strong"),
    HistoricallyFor(Any((Not(P), Q)), WINDOW_SECS, "strong"),
    *(Since(p, q) for p, q in PAIRS),
    *(SinceWithin(p, q, WINDOW_SECS) for p, q in PAIRS),
    Once(OnceWithin(Not(P), WINDOW_SECS)),
    HistoricallyFor(Once(Not(Q)), WINDOW_SECS, "strong"),
)
PATHS = ((), ("k",), ("k",), ("k",), ("j", "k"))
FEW_RULES = 8
"""This many rules are evaluated by one function, unless a mode says otherwise."""

COUNTS = (1, 2, FEW_RULES)


class SteadyFactsWorld(World):
    """A world of two keys."""

    def __init__(self, choose: Choose) -> None:
        super().__init__(choose)
        self.paths = choose((PATHS, PATHS[1:2], PATHS[:2], PATHS[:1]))

    def condition(self, depth: int) -> Condition:
        choose = self.choose
        inner: Condition = choose(NODES)
        for key in reversed(choose(self.paths)):
            inner = Keyed(inner, key)
        inner = choose((inner, Not(inner)))
        return All((T, inner)) if choose((False, True, True, True)) else inner

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        choose = self.choose
        time_us = clock_us + choose(STEPS_US)
        fields = {name: choose((0, 1)) for name in "pqtj"}
        if choose((False, True, True, True, True, True)):
            fields["k"] = choose((1, 1, 2))
        return Submit(fields, timestamp_ms(time_us)), time_us

    def script(self, *, depth: int = 1, steps_max: int = 40) -> list[Step]:
        """Return the steps of a detector whose rules are added at the start, and a few later."""
        choose = self.choose
        rules = [self.condition(depth) for _ in range(choose(COUNTS))]
        steps: list[Step] = [Add(f"rule {number}", rule) for number, rule in enumerate(rules)]
        clock_us = 0
        for number in range(steps_max):
            match choose("eeeeeeeeeeeeeeeeeerrahx"):
                case "r":
                    rules.append(self.condition(depth))
                    steps.append(Add(f"rule {number}", rules[-1]))
                case "a" if rules:
                    rules.append(choose(rules))
                    steps.append(Add(f"rule {number}", rules[-1]))
                case "h" if rules:
                    steps.append(Change(choose(range(len(rules))), {"enabled": choose((False, True))}))
                case "x" if rules:
                    place = choose(range(len(rules)))
                    del rules[place]
                    steps.append(Remove(place))
                case _:
                    step, clock_us = self.submission(clock_us)
                    steps.append(step)
        return steps


class BecomingIndexedWorld(SteadyFactsWorld):
    """A world with exactly as many rules as are fused, then one more, then as many again."""

    def script(self, *, depth: int = 1, steps_max: int = 24) -> list[Step]:
        """Return the steps of a detector that has state when its rules become indexed."""
        rules: list[Step] = [Add(f"rule {number}", self.condition(depth)) for number in range(FEW_RULES)]
        events: list[Step] = []
        clock_us = 0
        for _ in range(steps_max):
            step, clock_us = self.submission(clock_us)
            events.append(step)
        third = steps_max // 3
        one_more = Add("one more", self.condition(depth))
        return [
            *rules,
            *events[:third],
            one_more,
            *events[third : 2 * third],
            Remove(FEW_RULES),
            *events[2 * third :],
        ]
