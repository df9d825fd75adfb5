"""Holds the engine that is imported here against a recording, and stops at the first difference."""

import re
from collections.abc import Iterator

from engine import Detector, Refusal
from engine.evaluation import slices
from tests import long_texts
from tests.bounded import BoundedWorld
from tests.conformance.vectors import EnginePlayer, ReloadedPlayer, play
from tests.feeding import answers, in_batches, one_by_one
from tests.mutation.recording import Recording, Worlds

SHARE = 4
"""Every fourth script is replayed in batches, and another fourth saved and loaded before each step."""

SCANNED_ALWAYS = {"_RESCAN_SHARE": 1}
SCANNED_RARELY = {"_RESCAN_SHARE": 3, "_SCANNED_ALWAYS": 0}
"""With these, what is done for very many keys is done for few."""


def differences(recording: Recording) -> Iterator[str]:
    """Give what the engine answers otherwise than recorded, as it is found."""
    for vector in recording.vectors:
        for player in (EnginePlayer(), ReloadedPlayer()):
            if difference := play(vector, player):
                yield f"{vector['title']}: {difference}"
    for number, (script, expected) in enumerate(recording.scripts):
        feed = in_batches if number % SHARE == 0 else one_by_one
        if answers(script, feed, reloaded=number % SHARE == 1) != expected:
            yield f"script {number}"
    for small, worlds in ((SCANNED_ALWAYS, recording.worlds), (SCANNED_RARELY, recording.lasting_worlds)):
        for name, value in small.items():
            assert hasattr(slices, name), f"there is no slices.{name} any more"
            setattr(slices, name, value)
        yield from evictions(worlds)
    yield from long_texts.differences()
    yield from names()


def evictions(worlds: Worlds) -> Iterator[str]:
    """Give the worlds in which the engine evicts otherwise than recorded."""
    for number, (world, expected) in enumerate(worlds):
        # The world as this module knows it, whose engine is the one under judgement.
        again = BoundedWorld(world.rules, world.keys_max, world.events, world.disabled_before)
        if again.disagreement(expected, reloaded=number % 4 > 1):
            yield f"world {number}"


def names() -> Iterator[str]:
    """Give what is wrong with the names of rules, and with their ids."""
    detector = Detector()
    rule_id = detector.add_rule(name="rule", condition="a == 1")
    if not re.fullmatch("[0-9a-f]{32}", rule_id):
        yield f"{rule_id} is no id"
    try:
        detector.add_rule(name="", condition="a == 1")
        yield "a rule without a name"
    except Refusal:
        pass
