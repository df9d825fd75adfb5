"""A world whose conditions change often, a little each time, and keep the history that still fits."""

from dataclasses import fields, is_dataclass, replace
from typing import Any as Json

from engine.language.condition import (
    All,
    Any,
    Avg,
    Condition,
    Count,
    CountSince,
    Distinct,
    EarlierWithin,
    HistoricallyFor,
    Keyed,
    Leaf,
    Not,
    OnceWithin,
    SinceWithin,
    Sum,
)
from engine.language.nodes import Node
from tests.worlds.scripts import COMPARISONS, COUNTS, WINDOWS_SECS, Add, Change, Step, World


class KeepingWorld(World):
    """Rules of several parts, whose bounds change, and which gain and lose parts."""

    def predicate(self, *names: Json) -> Condition:
        """Mostly one bit, so that parts meet again."""
        return (
            Leaf(self.choose(("a", "b")), "eq", 1) if self.choose((0, 1, 1, 1)) else super().predicate(*names)
        )

    def edit(self, condition: Condition) -> Condition:
        """Return a condition that shares something with the previous one."""
        choose = self.choose
        match choose(("bounds", "bounds", "bounds", "more", "fewer", "around", "another")):
            case "bounds":
                edited = self.rebound(condition)
                return edited if edited != condition else self.edit(condition)
            case "more":
                added = self.condition(2)
                return choose((All, Any))(choose(((condition, added), (added, condition))))
            case "fewer" if isinstance(condition, All | Any):
                return choose(condition.members)
            case "around":
                key = choose(("a", "b"))
                return choose(
                    (Not(condition), Keyed(condition, key), Any((condition, Keyed(condition, key))))
                )
            case _:
                return self.condition(3)

    def rebound(self, part: Json) -> Json:
        """Return a part, or members of one, with some of its bounds changed."""
        if isinstance(part, tuple):
            return tuple(self.rebound(member) for member in part)
        if not isinstance(part, Node) or not is_dataclass(part):
            return part
        changed = {each.name: self.rebound(getattr(part, each.name)) for each in fields(part)}
        bounds = self.choose((True, False))
        if bounds and "window_secs" in changed and changed.get("min_secs") is None:
            changed["window_secs"] = self.choose(WINDOWS_SECS)
        elif bounds and "min_secs" in changed:
            changed["min_secs"] = self.choose((changed["min_secs"] / 2, changed["window_secs"] / 2))
        if bounds and isinstance(part, Count | CountSince | Distinct | Sum | Avg):
            changed |= {"op": self.choose(COMPARISONS), "value": self.choose(COUNTS)}
        return replace(part, **changed)

    def script(self, *, depth: int = 4, steps_max: int = 40) -> list[Step]:
        """Return the script of one or two rules."""
        choose = self.choose
        rules = [All((self.condition(depth - 1), self.condition(depth - 1))) for _ in choose(((0,), (0, 0)))]
        steps: list[Step] = [Add("r", rule, notify=False) for rule in rules]
        clock_us = 0
        for _ in range(choose(range(10, steps_max))):
            if choose((0, 0, 0, 1)):
                place = choose(range(len(rules)))
                rules[place] = self.edit(rules[place])  # type: ignore[call-overload]
                changes = {"condition": rules[place]}
                steps.append(Change(place, changes | choose(({"history": "keep"},) * 4 + ({},))))
            else:
                step, clock_us = self.submission(clock_us)
                steps.append(step)
        return steps


class CountingWorld(KeepingWorld):
    """Rules that count, sometimes under a key, and whose counts change by one or two."""

    def condition(self, depth: int) -> Condition:
        """Return a member that counts."""
        choose = self.choose
        window_secs, bounds = choose((None, 1, 86_400)), (choose(COMPARISONS), choose(COUNTS))
        counting: Condition = choose(
            (
                lambda: Count(self.predicate(), window_secs, *bounds),
                lambda: Distinct(choose(("a", "b")), None, window_secs, *bounds),
                lambda: CountSince(self.predicate(), Leaf("b", "eq", 2), *bounds),
            )
        )()
        return choose((counting, counting, Keyed(counting, "b")))


class AgedWorld(KeepingWorld):
    """Rules whose windows have a lower bound, which decreases."""

    def condition(self, depth: int) -> Condition:
        """Return a member whose window has a lower bound."""
        choose, ages = self.choose, self.choose(((1, 0.3), (1.3, 1), (2, 1), (2, 1.5), (5, 4), (86_400, 2.5)))
        aged: Condition = choose(
            (
                lambda: OnceWithin(self.predicate(), *ages),
                lambda: EarlierWithin(self.predicate(), *ages),
                lambda: SinceWithin(self.predicate(), self.predicate(), *ages),
                lambda: HistoricallyFor(self.predicate(), ages[0], None, ages[1]),
            )
        )()
        return choose((aged, aged, Keyed(aged, "b")))
