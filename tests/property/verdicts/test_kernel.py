"""The kernel that is to replace the present one answers each event as the executable specification does."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.evaluation.slices import slices
from tests.conformance.vectors import EnginePlayer, play, read
from tests.differential.comparison import disagreement, explained
from tests.differential.kernel import DISPATCHES, on_kernel
from tests.worlds.long_histories import LongHistoriesWorld
from tests.worlds.many_rules import ManyRulesWorld
from tests.worlds.ranges import RangesWorld
from tests.worlds.scripts import World
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
            script = made(drawn.choice).script(**shape)
            if disagreement(script):
                pytest.fail(f"the script made shorter:\n{explained(script)}")


@pytest.mark.parametrize("dispatch", DISPATCHES)
def test_kernel_agrees_with_every_vector(dispatch: str) -> None:
    for title, vector in read():
        with on_kernel(dispatch):
            assert play(vector, EnginePlayer()) is None, title
