"""The minimum of very many numbers is the one that `min` finds, whatever changes."""

import random
from array import array
from collections.abc import Callable, Iterator

import pytest

from engine.evaluation.slices.bounds.minima import Minima
from engine.evaluation.times import FOREVER

SHORT, LONG = (1, 127, 129), (2_048, 2_049, 33_000, 70_000)
"""One part, the parts of one entry; and up to three levels of entries."""


@pytest.mark.parametrize("lengths", [SHORT, LONG])
def test_the_least_of_many_numbers_is_the_least(
    examples: Callable[..., Iterator[random.Random]], lengths: tuple[int, ...]
) -> None:
    for drawn in examples(6, lengths):
        numbers = array("q", [FOREVER]) * drawn.choice(SHORT)
        minima, longest = Minima(numbers), drawn.choice(lengths)
        for _ in range(drawn.choice((20, 60))):
            _grow_longer(numbers, minima, drawn, longest)
            highest = drawn.choice((3, 1_000, 10**15))
            for place in drawn.choices(range(len(numbers)), k=drawn.choice((0, 1, 40))):
                _change(numbers, minima, drawn, place, highest)
            least = min(numbers)
            expected = (FOREVER, -1) if least == FOREVER else (least, numbers.index(least))
            assert minima.least() == expected
            if least < FOREVER:
                # The minimum grows, as the time of a key does when it is seen again.
                numbers[expected[1]] = drawn.choice((least + 1, least + highest, FOREVER))


def _grow_longer(numbers: "array[int]", minima: Minima, drawn: random.Random, longest: int) -> None:
    more = min(longest - len(numbers), drawn.choice((0, 1, 500, 40_000)))
    if more > 0:
        first = len(numbers)
        numbers.extend(drawn.randrange(10**15) for _ in range(more))
        for place in range(first, len(numbers)):
            minima.changed(place)


def _change(numbers: "array[int]", minima: Minima, drawn: random.Random, place: int, highest: int) -> None:
    """Change a number. A decrease must be reported; an increase need not be."""
    before = numbers[place]
    numbers[place] = drawn.choice((drawn.randrange(highest), before, before + (before < FOREVER), FOREVER))
    if numbers[place] < before or drawn.random() < 0.5:
        minima.changed(place)


def test_of_equal_numbers_the_first_is_found_whichever_became_so_last() -> None:
    numbers = array("q", [5, 5, 3])
    minima = Minima(numbers)
    for place in (2, 1, 0):
        minima.changed(place)
    numbers[0] = 3
    minima.changed(0)
    assert minima.least() == (3, 0)
