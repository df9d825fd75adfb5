"""Worlds of many rules that differ only in their constants; an event concerns a few of them.

The engine runs rules of one shape together, as rows, and indexes them by the values that they wait for.
Mistakes in adding and removing rows show only when there are many.
"""

from engine.language.condition import (
    All,
    Any,
    Condition,
    HistoricallyFor,
    Keyed,
    Leaf,
    Not,
    Once,
    OnceWithin,
    Ref,
    SinceWithin,
)
from tests.worlds.scripts import Add, Change, Remove, Step, Submit, World, timestamp_ms

RULES = (16, 24)
VALUES = (0, 1, 1, 2, 1.5, "1", True, 1 << 70)
STEPS_US = (0, 300_000, 300_001, 1_000_000)


class ManyRulesWorld(World):
    """A world of many rules of few shapes."""

    def condition(self, depth: int) -> Condition:
        choose = self.choose
        leaf = Leaf("p", "eq", choose((0, 1, choose(VALUES))))
        other = Leaf(choose("pq"), choose(("eq", "neq")), choose(VALUES))
        match choose((1, 1, 1, 3, 6, 6, *range(9))):
            case 0:
                return leaf
            case 1:
                among = Leaf("t", "between", (choose((0, 1)), choose((1, 2))))
                return All((Leaf("p", "eq", choose((0, 1))), among, Leaf("q", "neq", choose((2, 1.5, 3)))))
            case 2:
                return All((leaf, Leaf("t", "between", (choose((0, 1)), 1)), Once(other)))
            case 3:
                return Any((leaf, OnceWithin(other, choose((0.3, 1)))))
            case 4:
                return All((leaf, Keyed(OnceWithin(other, choose((0.3, 1))), "k")))
            case 5:
                return Keyed(SinceWithin(Not(other), leaf, choose((0.3, 1))), "k")
            case 6:
                return Leaf(choose("pq"), choose(("matches", "matches", "contains")), choose(("1", "2")))
            case 7:
                return All((leaf, Keyed(HistoricallyFor(Not(other), 0.3, choose(("weak", "strong"))), "k")))
            case _:
                return All((Leaf("p", "in", (choose((0, 1)), 2)), Ref("q", choose(("eq", "neq")), "t")))

    def submission(self, clock_us: int) -> tuple[Submit, int]:
        choose = self.choose
        time_us = clock_us + choose(STEPS_US)
        fields = {name: choose(VALUES) for name in "pq" if choose((False, True, True, True))}
        fields |= {"t": choose((0, 1, 2)), "k": choose((1, 2))}
        return Submit(fields, timestamp_ms(time_us)), time_us

    def script(self, *, depth: int = 1, steps_max: int = 30) -> list[Step]:
        """Return the steps of a detector that has many rules from the start."""
        choose, count = self.choose, self.choose(RULES)
        steps: list[Step] = [Add(f"rule {number}", self.condition(depth)) for number in range(count)]
        clock_us = 0
        for number in range(steps_max):
            match choose("eeeeeeacchx"):
                case "a":
                    steps.append(Add(f"late {number}", self.condition(depth), notify=True))
                    count += 1
                case "c":
                    steps.append(Change(choose(range(count)), {"condition": self.condition(depth)}))
                case "h":
                    steps.append(Change(choose(range(count)), {"enabled": choose((False, True))}))
                case "x":
                    steps.append(Remove(choose(range(count))))
                    count -= 1
                case _:
                    step, clock_us = self.submission(clock_us)
                    steps.append(step)
        return steps
