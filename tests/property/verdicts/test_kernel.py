"""The kernel of the third edition answers each event of every script as the executable specification does."""

import random
from collections.abc import Callable, Iterator

import pytest

from engine.evaluation.slices import slices
from tests.conformance.vectors import EnginePlayer, play, read
from tests.differential.comparison import disagreement, explained
from tests.differential.kernel import on_kernel
from tests.worlds.long_histories import LongHistoriesWorld
from tests.worlds.many_rules import ManyRulesWorld
from tests.worlds.ranges import RangesWorld
from tests.worlds.scripts import World
from tests.worlds.steady_facts import SteadyFactsWorld

PLACES = {"in places": slices.PLACES_MAX, "some in no place": 3, "none in a place": 0}


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize(
    ("world", "count", "shape"),
    [
        (World, 150, {"depth": 4, "steps_max": 18}),
        (World, 100, {"depth": 2, "steps_max": 24}),
        (World, 25, {"depth": 3, "steps_max": 60}),
        (LongHistoriesWorld, 100, {"steps_max": 60}),
        (SteadyFactsWorld, 20, {"steps_max": 40}),
        (ManyRulesWorld, 5, {"steps_max": 30}),
        (RangesWorld, 20, {}),
    ],
    ids=["deep", "shallow", "long scripts", "long histories", "steady facts", "many rules", "ranges"],
)
def test_kernel_and_reference_agree(
    world: type[World],
    count: int,
    shape: dict[str, int],
    places: str,
    examples: Callable[..., Iterator[random.Random]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "PLACES_MAX", PLACES[places])
    with on_kernel():
        for drawn in examples(count, places):
            script = world(drawn.choice).script(**shape)
            if disagreement(script):
                pytest.fail(f"the script made shorter:\n{explained(script)}")


def test_kernel_agrees_with_every_vector() -> None:
    for title, vector in read():
        with on_kernel():
            assert play(vector, EnginePlayer()) is None, title
