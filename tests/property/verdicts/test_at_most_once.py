"""Rules that act at most once: the engine agrees with the reference, however it is driven."""

import random
from collections.abc import Callable, Iterator

import pytest

from tests.audit import audit
from tests.differential.comparison import Pair, disagreement, explained
from tests.differential.feeding import answers, in_batches, one_by_one
from tests.differential.modes import TRIED, in_mode
from tests.property.looking.test_dry_runs import told_as_evaluated
from tests.worlds.at_most_once import AlwaysTrueWorld, AtMostOnceWorld

Examples = Callable[..., Iterator[random.Random]]

WORLDS = (AtMostOnceWorld, AlwaysTrueWorld, AlwaysTrueWorld)


@pytest.mark.parametrize("mode", TRIED)
def test_what_acts_and_what_is_held_back_is_what_the_reference_says(mode: str, examples: Examples) -> None:
    with in_mode(mode):
        for chance in examples(300, mode):
            script = chance.choice(WORLDS)(chance.choice).script()
            assert disagreement(script) is None, explained(script)


def test_it_goes_on_after_a_reload_and_what_is_counted_twice_is_right(examples: Examples) -> None:
    for chance in examples(150):
        pair = Pair()
        for step in chance.choice(WORLDS)(chance.choice).script():
            pair.apply(step)
            if chance.random() < 0.2:
                pair.reload()
            audit(pair.engine)


@pytest.mark.parametrize("mode", TRIED)
def test_batches_and_dry_runs_tell_the_same(mode: str, examples: Examples) -> None:
    with in_mode(mode):
        for chance in examples(60, mode):
            script = chance.choice(WORLDS)(chance.choice).script()
            expected = answers(script, one_by_one)
            assert answers(script, in_batches) == expected
            assert answers(script, one_by_one, reloaded=True) == expected
            told_as_evaluated(script, chance)
