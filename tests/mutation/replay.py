"""Holds the engine that is imported here against a recording, and stops at the first difference."""

import itertools
from collections.abc import Iterator
from typing import Any

from engine import Detector
from engine.evaluation import slices
from tests.bounded import BoundedWorld
from tests.conformance.vectors import EnginePlayer, ReloadedPlayer, play
from tests.differential import evaluated
from tests.mutation.recording import Recording, Worlds, rule_id
from tests.strategies import Add, Change, Remove, Step, Submit

RELOADED_SHARE = 4
"""Every fourth script is replayed a second time, saved and loaded before each step."""

SCANNED_ALWAYS = {"_RESCAN_SHARE": 1}
SCANNED_RARELY = {"_RESCAN_SHARE": 1, "_SCANNED_ALWAYS": 0}
"""With these, what is done for very many keys is done for few."""


def differences(recording: Recording) -> Iterator[str]:
    """Give what the engine answers otherwise than recorded, as it is found."""
    for vector in recording.vectors:
        for player in (EnginePlayer(), ReloadedPlayer()):
            if difference := play(vector, player):
                yield f"{vector['title']}: {difference}"
    for number, (script, answers) in enumerate(recording.scripts):
        if list(given(script)) != answers:
            yield f"script {number}"
        if number % RELOADED_SHARE == 0 and list(given(script, reloaded=True)) != answers:
            yield f"script {number}, reloaded"
    for small, worlds in ((SCANNED_ALWAYS, recording.worlds), (SCANNED_RARELY, recording.lasting_worlds)):
        for name, value in small.items():
            assert hasattr(slices, name), f"there is no slices.{name} any more"
            setattr(slices, name, value)
        yield from evictions(worlds)


def evictions(worlds: Worlds) -> Iterator[str]:
    """Give the worlds in which the engine evicts otherwise than recorded."""
    for number, (world, expected) in enumerate(worlds):
        # The world as this module knows it, whose engine is the one under judgement.
        again = BoundedWorld(world.rules, world.keys_max, world.events)
        if again.disagreement(expected) or again.disagreement(expected, reloaded=True):
            yield f"world {number}"


def given(script: list[Step], *, reloaded: bool = False) -> Iterator[Any]:
    """Give the engine's answers to a script's events."""
    numbers = itertools.count()

    def new_id() -> str:
        return rule_id(next(numbers))

    detector = Detector(new_id=new_id)
    for step in script:
        if reloaded:
            detector = Detector.load(detector.dump(), Detector.STATE_VERSION, new_id=new_id)
        ids = [rule.id for rule in detector.rules()]
        match step:
            case Add(name, condition, notify):
                detector.add_rule(name=name, condition=condition, notify=notify)
            case Change(place, changes):
                detector.change_rule(ids[place], **changes)
            case Remove(place):
                detector.remove_rule(ids[place])
            case Submit():
                yield evaluated(detector, step)
