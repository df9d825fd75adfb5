"""What a detector's state keeps twice always agrees."""

import itertools
import random
from collections.abc import Callable

import pytest

from engine import Detector, Limits
from tests.audit import audit
from tests.differential.feeding import change, one_by_one, rule_id
from tests.differential.modes import TRIED, in_mode
from tests.worlds.remembering import RECORDS, TIMES
from tests.worlds.scripts import Submit, World
from tests.worlds.shared_histories import NestedWorld, SharedWorld, WindowsWorld
from tests.worlds.term_histories import TermsWorld

RULES = (
    *TIMES,
    *RECORDS,
    "per k where once within 90ms b == 1 previous a == 1",
    "per k count(a == 1) within 50ms >= 1",
    "count(a == 1) within 50ms >= 3 or distinct(j) == 2 or avg(t) > 0.5",
)


def emptied(made: Detector, audited_every: int = 1) -> None:
    """Remove all rules, after which nothing is left."""
    for number, rule in enumerate(made.rules()):
        made.remove_rule(rule.id)
        if number % audited_every == 0:
            audit(made)
    histories = made.histories
    assert (histories.bytes, histories.live, histories.memories, histories.slices) == (0, 0, {}, {})
    assert (made.rule_set.nodes, made.rule_set.uses) == (0, {})


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("world", [World, SharedWorld, NestedWorld, WindowsWorld, TermsWorld])
def test_all_that_is_kept_twice_is_the_same_after_each_step(
    world: type[World], mode: str, scaled: Callable[[int], int]
) -> None:
    for number in range(scaled(20)):
        choose = random.Random(f"{mode} {number}").choice
        script = world(choose).script(steps_max=40)
        numbers = itertools.count()
        given = {"limits": Limits(keys_max=choose((3, 1_000))), "new_id": lambda: rule_id(next(numbers))}
        with in_mode(mode):
            made = Detector(**given)
            for place, step in enumerate(script):
                if isinstance(step, Submit):
                    one_by_one(made, [step])
                else:
                    change(made, step)
                audit(made)
                if place % 7 == 6:
                    made = Detector.load(made.dump(), Detector.STATE_VERSION, **given)
                    audit(made)
            emptied(made)


@pytest.mark.slow
@pytest.mark.parametrize("keys_max", [150, 10_000], ids=["evicted", "expiring"])
@pytest.mark.parametrize("mode", TRIED)
def test_all_that_is_kept_twice_is_the_same_with_many_keys(mode: str, keys_max: int) -> None:
    drawn, now_ms = random.Random(mode), 0
    with in_mode(mode):
        made = Detector(limits=Limits(keys_max=keys_max))
        for number, rule in enumerate(RULES):
            made.add_rule(f"r{number}", rule, rule_id=rule_id(number))
        made.add_rule("draft", "per k once b == 1", shadow=True, draft_of=rule_id(0))
        for few in (False, False, True, False):
            for _ in range(200):
                bits = {name: drawn.choice((0, 1)) for name in "abt"}
                key = drawn.randrange(3) if few else drawn.randrange(350)
                more = {
                    "j": "é" * drawn.randrange(4),
                    "n": drawn.choice((1, 10**30, 10**90, -(10**30), -(10**90))),
                }
                made.evaluate({**bits, **more, "k": key}, now_ms)
                now_ms += drawn.choice((0, 1))
            audit(made)
            made.change_rule(rule_id(drawn.randrange(1, len(RULES))), enabled=drawn.choice((True, False)))
            audit(made)
            made.promote(rule_id(0))
            audit(made)
            made = Detector.load(made.dump(), Detector.STATE_VERSION, limits=made.limits)
            audit(made)
            now_ms += drawn.choice((0, 60))
        # With many keys, an audit takes long.
        emptied(made, audited_every=5)
