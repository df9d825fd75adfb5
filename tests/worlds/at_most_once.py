"""Scripts of rules that act at most once per interval, for the values of some names."""

from collections.abc import Mapping
from typing import Any

from engine.language.condition import Keyed, Leaf, OnceWithin
from tests.worlds.scripts import BITS, MOSTLY, Add, Change, Remove, Step, Submit, World, timestamp_ms

EVERY_SECS = (0.3, 1, 1.0, 1.001, 2.5, 2.5, 5e-7, 1.5e-6, 86_400)
"""Most are differences between the times of events."""
EVERY_BY = ((), ("a",), ("a",), ("b",), ("$v",), ("user.id", "list"), ("nowhere",), ("a", "a", "$user.id"))
VALUES = (0, 1, 1.0, "1", True, None, [1], [1.0], ["1"], {"x": 1}, {}, "", "x" * 300, 1.5, 10**30)
"""Values that look alike: some are equal, some are not."""
STEPS_US = (0, 0, 1, 1, 299_999, 999_999, 999_999, 1_000_000, 1_001_000, 2_500_000, -1_000)


class AtMostOnceWorld(World):
    """Rules of any kind; many act at most once per interval."""

    def every(self) -> Mapping[str, Any]:
        """Return members of a rule."""
        by = {"every_by": self.choose(EVERY_BY)} if self.choose(BITS) else {}
        return {"every_secs": self.choose(EVERY_SECS), **by}

    def script(self, *, depth: int = 2, steps_max: int = 24) -> list[Step]:
        """Return a script in which rules are added, changed and removed."""
        steps: list[Step] = []
        rules = 0
        for step in super().script(depth=depth, steps_max=steps_max):
            steps.append(step)
            rules += isinstance(step, Add)
            rules -= isinstance(step, Remove)
            if isinstance(step, Add):
                steps.append(Change(rules - 1, {**self.every()}))
            elif rules and self.choose("...............e") == "e":
                steps.append(
                    Change(self.choose(range(rules)), self.choose(({"every_secs": 0}, self.every())))
                )
        return steps


class AlwaysTrueWorld(AtMostOnceWorld):
    """Rules that are true at most events, whose values look alike."""

    def script(self, *, depth: int = 0, steps_max: int = 40) -> list[Step]:
        """Return a script of few rules and many events."""
        choose = self.choose
        fires = Leaf("fires", "eq", True)
        conditions = (fires, Keyed(fires, "a"), Keyed(Keyed(OnceWithin(fires, 1), "b"), "a"))
        values = [choose(VALUES) for _ in range(4)]
        steps: list[Step] = []
        for place in range(choose((1, 2, 3))):
            steps += [Add(f"r{place}", choose(conditions)), Change(place, {**self.every()})]
        rules, clock_us = len(steps) // 2, 1_000_000_000
        off, on = {"enabled": False}, {"enabled": True}
        for _ in range(steps_max):
            if choose("eeeeeeeeeec") == "c":
                of_one = ({"condition": choose(conditions)}, {"every_by": choose(EVERY_BY)}, self.every())
                place, secs = choose(range(rules)), {"every_secs": choose(EVERY_SECS)}
                changes = choose(
                    ((off, on), (off,), (on,), ({"name": "z"},), (secs,), *((one,) for one in of_one))
                )
                steps += [Change(place, change) for change in changes]
                continue
            clock_us += choose(STEPS_US)
            fields = {name: choose(values) for name in ("a", "b", "list") if choose(MOSTLY)}
            fields |= {"fires": choose(MOSTLY), "user": {"id": choose(values)}}
            sent = choose((None, {"v": choose(values)}))
            steps.append(Submit(fields, timestamp_ms(clock_us), sent))
        return steps
