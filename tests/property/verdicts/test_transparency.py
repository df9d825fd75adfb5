"""Answers do not depend on how a detector is driven: saved and loaded midway, or fed in batches."""

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Detector, Entry, Limits, Outcome, Refusal
from engine.language.condition import InRelation
from tests.differential.comparison import Pair
from tests.differential.feeding import answers, in_batches, one_by_one, submitted
from tests.differential.modes import MODES, TRIED, in_mode
from tests.worlds.long_histories import LongHistoriesWorld
from tests.worlds.scripts import Step, Submit, World, scripts

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
@given(scripts(), st.sets(st.integers(0, 18)), st.sampled_from(list(MODES)))
def test_a_detector_that_was_saved_and_loaded_answers_as_if_it_had_not_been(
    script: list[Step], places: set[int], mode: str
) -> None:
    with in_mode(mode):
        reloaded_at(script, places)


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize(
    ("world", "count", "steps_max"),
    [(World, 20, 18), (LongHistoriesWorld, 10, 30)],
    ids=["anything", "long histories"],
)
def test_saving_and_loading_before_every_step_changes_nothing(
    world: type[World],
    count: int,
    steps_max: int,
    mode: str,
    examples: Callable[..., Iterator[random.Random]],
) -> None:
    for drawn in examples(count, mode):
        script = world(drawn.choice).script(steps_max=steps_max)
        with in_mode(mode):
            reloaded_at(script, set(range(len(script))))


@pytest.mark.parametrize("mode", TRIED)
def test_what_is_submitted_together_is_answered_and_warned_about_as_what_comes_one_by_one(
    mode: str, examples: Callable[..., Iterator[random.Random]]
) -> None:
    said, every = set[int](), {1402, 2001, 2002, 2003}
    with in_mode(mode):
        for number, drawn in enumerate(examples(110, mode, until=lambda: said >= every)):
            choose = drawn.choice
            world = (World if number % 2 else LongHistoriesWorld)(choose)
            script = [step for step in world.script(steps_max=40) if isinstance(step, Submit)]
            rows = [(event.fields, event.timestamp_ms, event.vars) for event in script]
            one, other = (Detector(limits=Limits(keys_max=2)) for _ in range(2))
            for number_of_rule in range(choose((1, 2, 3))):
                # A message about a relation is too rare to leave to chance.
                asks = number % 8 == 0 and number_of_rule == 0
                condition = InRelation("nobody_sends_it", (1,)) if asks else world.condition(3)
                for detector in (one, other):
                    detector.add_rule("r", condition, rule_id=f"{number_of_rule:032x}")
            expected: list[Outcome | tuple[Entry, ...]] = []
            for row in rows:
                try:
                    expected.append(one.submit(*row))
                except Refusal as refusal:
                    expected.append(refusal.entries)
            given = [
                outcome.entries if isinstance(outcome, Refusal) else outcome
                for outcome in submitted(other, rows)
            ]
            assert given == expected
            said |= {
                entry.code for row in given for entry in (row.messages if isinstance(row, Outcome) else row)
            }
    assert said >= every


@settings(max_examples=EXAMPLES)
@given(scripts(), st.sampled_from(list(MODES)))
def test_events_in_batches_are_answered_as_one_by_one(script: list[Step], mode: str) -> None:
    with in_mode(mode):
        assert answers(script, in_batches) == answers(script, one_by_one)
