"""How a detector is driven cannot be seen in what it answers: saved and loaded midway, or fed in batches."""

import itertools
import random
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Detector
from engine.evaluation.detector import BatchRefused
from engine.language.diagnostics import Refusal
from tests.differential import Pair
from tests.strategies import Add, Change, Remove, Step, Submit, World, scripts

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


Answer = list[dict[str, object]] | None
"""The actions, or None for an event that was refused."""


def one_by_one(detector: Detector, events: list[Submit]) -> list[Answer]:
    answers: list[Answer] = []
    for event in events:
        try:
            answers.append(detector.evaluate(event.fields, event.timestamp_ms, event.vars))
        except Refusal:
            answers.append(None)
    return answers


def in_batches(detector: Detector, events: list[Submit]) -> list[Answer]:
    """A batch ends at an event that is refused; what comes after it is another."""
    rows = [(event.fields, event.timestamp_ms, event.vars) for event in events]
    answers: list[Answer] = []
    while len(answers) < len(rows):
        try:
            answers += detector.evaluate_many(rows[len(answers) :])
        except BatchRefused as refused:
            answers += [*refused.results, None]
    return answers


Feed = Callable[[Detector, list[Submit]], list[Answer]]


def answers_of(script: list[Step], feed: Feed) -> list[Answer]:
    """Give the answers to all events of a script; those between two changes are fed together."""
    numbers = itertools.count()
    detector = Detector(new_id=lambda: f"{next(numbers):032x}")
    answers: list[Answer] = []
    for together, steps in itertools.groupby(script, key=lambda step: isinstance(step, Submit)):
        if together:
            answers += feed(detector, list(steps))
            continue
        for step in steps:
            ids = [rule.id for rule in detector.rules()]
            match step:
                case Add(name, condition, notify):
                    detector.add_rule(name=name, condition=condition, notify=notify)
                case Change(place, changes):
                    detector.change_rule(ids[place], **changes)
                case Remove(place):
                    detector.remove_rule(ids[place])
    return answers


@settings(max_examples=EXAMPLES)
@given(scripts())
def test_events_in_batches_are_answered_as_one_by_one(script: list[Step]) -> None:
    assert answers_of(script, in_batches) == answers_of(script, one_by_one)
