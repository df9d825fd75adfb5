"""What clients ask of one detector, so that the answers tell the order: each depends on the one before.

Timestamps are drawn one after another, and arrive in whatever order, so how late an event was tells which was
the latest before it. Eight rules are the bits of a number in the event before; events have its two halves, so
that few values have a bit. The rules that change fire at nearly every event, so that the next answer tells
whether they did.
"""

import itertools
import random
from typing import Final

from engine.language.text.parser import parse
from tests.linearizability.history import (
    AddRule,
    Asked,
    ChangeRule,
    Evaluate,
    ListRules,
    Position,
    RemoveRule,
    Sent,
)

START_MS: Final = 1_700_000_000_000
STEP_MS: Final = 100
TOO_LATE_MS: Final = 300_000
VALUES: Final = 256
CHANGING_MAX: Final = 6

FIXED: Final = tuple(
    map(
        parse,
        (
            *(
                f"previous {half} in {[value for value in range(16) if value >> bit & 1]}"
                for half in ("lower", "upper")
                for bit in range(4)
            ),
            "count(p < 128) within 1s >= 5",
            "distinct(q) within 400ms > 2 and not previous q == 1",
            "per q (count(p >= 64) within 1500ms >= 4)",
        ),
    )
)
CHANGING: Final = tuple(
    map(
        parse,
        (
            "p >= 0",
            "earlier within 1s p >= 0",
            "count(p >= 0) within 1s >= 3",
            "per q (once within 800ms p >= 0)",
        ),
    )
)


class Workload:
    """Draws the requests of all clients of one detector."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.begun = [
            *(AddRule(f"fixed {number}", one) for number, one in enumerate(FIXED)),
            *(AddRule(f"changing {number}", one) for number, one in enumerate(CHANGING)),
        ]
        """What is asked before anything else."""
        self.rules = [rule.name for rule in self.begun[len(FIXED) :]]
        """The rules that may change and were added successfully, whether or not they still exist."""
        self._names = itertools.count(len(CHANGING))
        self._numbers = itertools.count()
        self._steps = itertools.count()
        self._keys = itertools.count()

    def next(self) -> Asked:
        """Draw one request."""
        chance = self.chance
        kind = chance.choices("ebpltarx", (70, 10, 8, 3, 3, 2, 2, 1))[0]
        rule = chance.choice(self.rules)
        match kind:
            case "b":
                return self._evaluation(chance.randint(2, 4), batch=True)
            case "p":
                return Position()
            case "l":
                return ListRules()
            case "t":
                name = chance.choice(("enabled", "notify"))
                return ChangeRule(rule, ((name, chance.random() < 0.7),))
            case "r":
                return ChangeRule(rule, (("condition", chance.choice(CHANGING)),))
            case "a" if len(self.rules) < CHANGING_MAX:
                condition, notify = chance.choice(CHANGING), chance.random() < 0.5
                return AddRule(f"changing {next(self._names)}", condition, notify)
            case "x":
                return RemoveRule(rule)
        return self._evaluation(1, batch=False)

    def _evaluation(self, events: int, *, batch: bool) -> Evaluate:
        key = f"key-{next(self._keys)}" if self.chance.random() < 0.3 else ""
        return Evaluate(tuple(self._event() for _ in range(events)), batch, key)

    def _event(self) -> Sent:
        time_ms = START_MS + STEP_MS * next(self._steps)
        if self.chance.random() < 0.04:
            # Some are just late enough to be refused, some not quite, and for some it depends on the order.
            time_ms -= TOO_LATE_MS + self.chance.randint(-3, 3) * STEP_MS
        upper, lower = divmod(p := self.chance.randrange(VALUES), 16)
        fields = {"p": p, "upper": upper, "lower": lower, "q": self.chance.randrange(3)}
        return Sent(next(self._numbers), fields, time_ms)
