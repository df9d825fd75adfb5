"""The kernel that is to replace the present one answers each event as the executable specification does."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.evaluation.kernel import stream
from engine.evaluation.kernel.indexing import indexed_stream
from engine.evaluation.slices import histories, slices
from tests.conformance.vectors import EnginePlayer, play, read
from tests.differential.comparison import disagreement, explained
from tests.differential.kernel import DISPATCHES, on_kernel
from tests.worlds.evictions import BoundedWorld
from tests.worlds.long_histories import LongHistoriesWorld
from tests.worlds.many_rules import ManyRulesWorld
from tests.worlds.ranges import RangesWorld
from tests.worlds.scripts import World
from tests.worlds.shared_histories import EndlessWorld, NestedWorld, RunsWorld, SharedWorld
from tests.worlds.steady_facts import SteadyFactsWorld

Examples = Callable[..., Iterator[random.Random]]

PLACES_MAX = (slices.PLACES_MAX, slices.FIRST + 2, 0)
"""All memories have a place in the lists of slices, or the first two, or none."""

WORLDS: dict[str, tuple[type[World], int, dict[str, Any]]] = {
    "deep": (World, 80, {"depth": 4, "steps_max": 18}),
    "shallow": (World, 60, {"depth": 2, "steps_max": 24}),
    "long scripts": (World, 15, {"depth": 3, "steps_max": 60}),
    "long histories": (LongHistoriesWorld, 50, {"steps_max": 60}),
    "steady facts": (SteadyFactsWorld, 10, {"steps_max": 40}),
    "many rules": (ManyRulesWorld, 3, {"steps_max": 30}),
    "ranges": (RangesWorld, 10, {}),
    "shared": (SharedWorld, 40, {}),
    "shared and nested": (NestedWorld, 20, {}),
    "shared runs": (RunsWorld, 20, {}),
    "shared for ever": (EndlessWorld, 20, {}),
}
"""Each world, with how many scripts and of what size."""


@pytest.mark.parametrize("dispatch", DISPATCHES)
@pytest.mark.parametrize("world", WORLDS)
def test_kernel_and_reference_agree(
    world: str, dispatch: str, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, count, shape = WORLDS[world]
    with on_kernel(dispatch):
        for number, drawn in enumerate(examples(count, dispatch)):
            monkeypatch.setattr(slices, "PLACES_MAX", PLACES_MAX[number % len(PLACES_MAX)])
            # Every other world is swept at each event.
            swept_from, every = (histories.SWEPT_FROM, histories.SETTLED_EVERY) if number % 2 else (-1, 1)
            monkeypatch.setattr(histories, "SWEPT_FROM", swept_from)
            for module in (histories, stream, indexed_stream):
                monkeypatch.setattr(module, "SETTLED_EVERY", every)
            script = made(drawn.choice).script(**shape)
            if disagreement(script):
                pytest.fail(f"the script made shorter:\n{explained(script)}")


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_kernel_agrees_with_every_vector(dispatch: str) -> None:
    for title, vector in read():
        with on_kernel(dispatch):
            assert play(vector, EnginePlayer()) is None, title


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_kernel_evicts_the_longest_unseen_live_keys_and_no_others(
    dispatch: str, examples: Examples, scaled: Callable[[int], int]
) -> None:
    evictions = 0
    for number, drawn in enumerate(examples(150, dispatch, until=lambda: evictions > scaled(400))):
        world = (BoundedWorld.drawn, BoundedWorld.with_twins)[number % 2](drawn.choice)
        expected = world.expected()
        with on_kernel(dispatch):
            difference = world.disagreement(expected)
        assert difference is None, difference
        evictions += sum(evicted for _, evicted in expected)
    assert evictions > scaled(400)


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_in_the_kernel_what_has_expired_makes_room_before_anything_is_evicted(
    dispatch: str, examples: Examples
) -> None:
    for drawn in examples(30, dispatch):
        world = BoundedWorld.with_many_keys(drawn.choice)
        with on_kernel(dispatch):
            difference = world.disagreement()
        assert difference is None, difference
