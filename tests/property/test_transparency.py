"""How a detector is driven cannot be seen in what it answers: saved and loaded midway, or fed in batches."""

import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differential import Pair
from tests.feeding import answers, in_batches, one_by_one
from tests.strategies import Step, World, scripts

EXAMPLES = settings.default.max_examples


def reloaded_at(script: list[Step], places: set[int]) -> None:
    pair = Pair()
    for place, step in enumerate(script):
        if place in places:
            pair.reload()
        pair.apply(step)
    pair.reload()
    pair.compare_rules()


@settings(max_examples=EXAMPLES)
@given(scripts(), st.sets(st.integers(0, 18)))
def test_a_detector_that_was_saved_and_loaded_answers_as_if_it_had_not_been(
    script: list[Step], places: set[int]
) -> None:
    reloaded_at(script, places)


def test_saving_and_loading_before_every_step_changes_nothing(
    seed: int, effort: int, record_property: Callable[[str, object], None]
) -> None:
    record_property("examples", 150 * effort)
    for number in range(150 * effort):
        script = World(random.Random(f"{seed} {number}").choice).script()
        reloaded_at(script, set(range(len(script))))


@settings(max_examples=EXAMPLES)
@given(scripts())
def test_events_in_batches_are_answered_as_one_by_one(script: list[Step]) -> None:
    assert answers(script, in_batches) == answers(script, one_by_one)
