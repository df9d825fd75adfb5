"""Past the bound on live keys, the longest unseen begins anew, with a message, and nothing else changes."""

import random
from collections.abc import Callable

import pytest

from tests.differential.modes import MODES, in_mode
from tests.worlds.evictions import BoundedWorld


@pytest.mark.parametrize(
    "reloaded", [False, True], ids=["kept in memory", "saved and loaded from some event on"]
)
def test_the_longest_unseen_live_keys_are_evicted_and_no_others(
    reloaded: bool,
    seed: int,
    scaled: Callable[[int], int],
    record_property: Callable[[str, object], None],
) -> None:
    record_property("examples", scaled(30))
    evictions = 0
    for number in range(scaled(30)):
        world = BoundedWorld.drawn(random.Random(f"{seed} {number}").choice)
        expected = world.expected()
        with in_mode(list(MODES)[number % len(MODES)]):
            difference = world.disagreement(expected, reloaded=reloaded)
        assert difference is None, f"world {number} of seed {seed}: {difference}"
        evictions += sum(evicted for _, evicted in expected)
    assert evictions > scaled(30)


def test_what_has_expired_makes_room_before_anything_is_evicted(
    seed: int, scaled: Callable[[int], int], record_property: Callable[[str, object], None]
) -> None:
    record_property("examples", scaled(30))
    for number in range(scaled(30)):
        world = BoundedWorld.with_many_keys(random.Random(f"{seed} {number}").choice)
        with in_mode(list(MODES)[number // 2 % len(MODES)]):
            difference = world.disagreement(reloaded=number % 2 == 1)
        assert difference is None, f"world {number} of seed {seed}: {difference}"
