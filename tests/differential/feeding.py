"""Ways to feed a script to the engine: one by one, in batches, or saved and loaded between steps."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from engine import Detector, Refusal
from engine.evaluation.events.intake import Intake
from engine.evaluation.events.outcomes import BatchRefused, Outcome
from tests.differential.comparison import Action, in_order
from tests.worlds.scripts import Add, Change, Remove, Step, Submit

Answer = list[Action] | None
"""The actions, or None for a refused event."""

Feed = Callable[[Detector, list[Submit]], list[Answer]]


def rule_id(number: int) -> str:
    """Return the id of the rule that is created at this place, from 0."""
    return f"{number:032x}"


def one_by_one(detector: Detector, events: list[Submit]) -> list[Answer]:
    """Evaluate each event in a call of its own."""
    answers: list[Answer] = []
    for event in events:
        try:
            actions = detector.evaluate(event.fields, event.timestamp_ms, event.vars)
        except Refusal as refusal:
            if refusal.code != 1402:
                raise
            answers.append(None)
        else:
            answers.append([in_order(action) for action in actions])
    return answers


def in_batches(detector: Detector, events: list[Submit]) -> list[Answer]:
    """Evaluate many events in a call. A batch ends at a refused event; the next one follows."""
    rows = [(event.fields, event.timestamp_ms, event.vars) for event in events]
    answers: list[Answer] = []
    while len(answers) < len(rows):
        refused = None
        try:
            done = detector.evaluate_many(rows[len(answers) :])
        except BatchRefused as refusal:
            if refusal.code != 1402 or refusal.index != len(refusal.results):
                raise
            done, refused = list(refusal.results), refusal
        answers += [[in_order(rule.action()) for rule in fired] for fired in done]
        answers += [None] if refused else []
    return answers


def submitted(detector: Detector, events: Sequence[Any]) -> list[Outcome | Refusal]:
    """Submit events in one call, like the batches of callers. Return the outcome of each."""
    intake, given = Intake(detector.limits), []
    for event in events:
        try:
            given.append(intake.event(*event))
        except Refusal as refusal:
            given.append(refusal)
    told = detector.submit_clean(given)
    detector.forget_lookups()
    return [
        told.refused.get(place) or Outcome(fired, told.messages.get(place, []))
        for place, fired in enumerate(told.fired)
    ]


def answers(
    script: list[Step], feed: Feed, *, reloaded: bool = False, reloaded_every: int = 0
) -> list[Answer]:
    """Give the engine's answers to all events of a script. Those between two changes are fed together.

    `reloaded`: before each step the detector is saved, and the one that is loaded takes its place;
    `reloaded_every`: before every so-manieth step, events one by one.
    """
    numbers, steps_done = itertools.count(), itertools.count()
    every = 1 if reloaded else reloaded_every

    def new_id() -> str:
        return rule_id(next(numbers))

    detector = Detector(new_id=new_id)
    given: list[Answer] = []
    for submissions, steps in itertools.groupby(script, key=lambda step: isinstance(step, Submit)):
        alike = list(steps)
        for portion in [alike] if submissions and not every else [[step] for step in alike]:
            if every and next(steps_done) % every == 0:
                detector = Detector.load(detector.dump(), Detector.STATE_VERSION, new_id=new_id)
            if submissions:
                given += feed(detector, portion)
            else:
                change(detector, portion[0])
    return given


def change(detector: Detector, step: Step) -> None:
    """Execute a step that is not an event."""
    ids = [rule.id for rule in detector.rules()]
    match step:
        case Add(name, condition, notify):
            detector.add_rule(name=name, condition=condition, notify=notify)
        case Change(place, changes):
            detector.change_rule(ids[place], **changes)
        case Remove(place):
            detector.remove_rule(ids[place])
