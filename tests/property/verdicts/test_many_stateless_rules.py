"""Many stateless rules on few facts: whatever they share, each fires when it is true."""

import random
from collections.abc import Callable, Iterator

from engine import Detector
from engine.language.condition import All, Any, Condition, InRelation, Keyed, Leaf, Not
from tests.reference import Event, verdict

FACTS = ("x", "y", "d.e", "$v")
RULES = (10, 40, 90)


class Drawn:
    """Conditions of which most parts are looked up by value; every value is one of few."""

    def __init__(self, chosen: random.Random) -> None:
        self.chosen = chosen

    def leaf(self) -> Condition:
        chosen = self.chosen
        fact = chosen.choice(FACTS)
        match chosen.randrange(12):
            case 0:
                return Leaf(fact, "in", tuple(chosen.sample(range(6), 2)))
            case 1:
                return Leaf(fact, "between", tuple(sorted(chosen.sample((0, 1.5, 3, 10**30, 4.0), 2))))
            case 2:
                return Leaf(fact, "neq", chosen.randrange(6))
            case 3:
                return Leaf(fact, "matches", chosen.choice(("a", "^b", "[ab]c")))
            case 4:
                return InRelation("r", (chosen.randrange(3),))
            case _:
                return Leaf(fact, "eq", chosen.choice((0, 1, 2, 3, 4, 5, "a", "bc", True)))

    def condition(self, depth: int) -> Condition:
        chosen = self.chosen
        if depth == 0:
            return self.leaf()
        match chosen.randrange(9):
            case 0:
                return self.leaf()
            case 1 | 2 | 3:
                return All(tuple(self.condition(depth - 1) for _ in range(chosen.randint(1, 4))))
            case 4 | 5 | 6:
                return Any(tuple(self.condition(depth - 1) for _ in range(chosen.randint(1, 3))))
            case 7:
                return Keyed(self.condition(depth - 1), chosen.choice(FACTS))
            case _:
                return Not(self.condition(depth - 1))

    def event(self, number: int) -> Event:
        values = (0, 1, 1.0, 2, 3, 4, 5, "a", "bc", True, 10**30, None, [1])
        chosen = self.chosen
        fields = {name: chosen.choice(values) for name in ("x", "y") if chosen.random() < 0.9}
        sent = {"v": chosen.choice(values), "r": [chosen.randrange(3)]}
        return Event(number * 1_000, {**fields, "d": {"e": chosen.choice(values)}}, sent)


def test_of_many_rules_exactly_those_fire_that_are_true(
    examples: Callable[..., Iterator[random.Random]], scaled: Callable[[int], int]
) -> None:
    fired = 0
    for chosen in examples(30, until=lambda: fired > scaled(1_000)):
        drawn = Drawn(chosen)
        detector = Detector()
        conditions: dict[str, Condition] = {}
        for number in range(25):
            if number % 5 == 0:
                for rule_id in drawn.chosen.sample(list(conditions), len(conditions) // 4):
                    detector.remove_rule(rule_id)
                    del conditions[rule_id]
                for _ in range(drawn.chosen.choice(RULES)):
                    condition = drawn.condition(drawn.chosen.choice((1, 2, 2, 3)))
                    conditions[detector.add_rule("rule", condition)] = condition
            event = drawn.event(number)
            given = {rule.id for rule in detector.submit(event.fields, number, event.vars).fired}
            wrong = {
                rule_id
                for rule_id, condition in conditions.items()
                if (rule_id in given) is not verdict(condition, [event])
            }
            assert not wrong, f"{conditions[min(wrong)]} at {event}"
            fired += len(given)
    assert fired > scaled(1_000)
