"""Beyond the limit on live keys, the least recently seen key starts again, with a message."""

import random
from collections.abc import Callable, Iterator

import pytest

from tests.differential.modes import MODES, in_mode
from tests.worlds.evictions import BoundedWorld


@pytest.mark.parametrize(
    "reloaded", [False, True], ids=["kept in memory", "saved and loaded from some event on"]
)
def test_the_longest_unseen_live_keys_are_evicted_and_no_others(
    reloaded: bool,
    examples: Callable[..., Iterator[random.Random]],
    scaled: Callable[[int], int],
) -> None:
    evictions = 0
    for number, drawn in enumerate(examples(30, until=lambda: evictions > scaled(30))):
        world = BoundedWorld.drawn(drawn.choice)
        expected = world.expected()
        with in_mode(list(MODES)[number % len(MODES)]):
            difference = world.disagreement(expected, reloaded=reloaded)
        assert difference is None, difference
        evictions += sum(evicted for _, evicted in expected)
    assert evictions > scaled(30)


def test_keys_are_evicted_as_exactly_where_rules_share_what_they_remember(
    examples: Callable[..., Iterator[random.Random]],
    scaled: Callable[[int], int],
) -> None:
    evictions = 0
    for number, drawn in enumerate(examples(40, until=lambda: evictions > scaled(30))):
        world = BoundedWorld.with_twins(drawn.choice)
        expected = world.expected()
        with in_mode(list(MODES)[number % len(MODES)]):
            difference = world.disagreement(expected, reloaded=number // len(MODES) % 2 == 1)
        assert difference is None, difference
        evictions += sum(evicted for _, evicted in expected)
    assert evictions > scaled(30)


def test_what_has_expired_makes_room_before_anything_is_evicted(
    examples: Callable[..., Iterator[random.Random]],
) -> None:
    for number, drawn in enumerate(examples(60)):
        world = BoundedWorld.with_many_keys(drawn.choice)
        with in_mode(list(MODES)[number // 2 % len(MODES)]):
            difference = world.disagreement(reloaded=number % 2 == 1)
        assert difference is None, difference
