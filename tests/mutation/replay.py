"""Holds the engine that is imported here against a recording, and stops at the first difference."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from engine import Detector, Refusal
from engine.evaluation import slices, tidying
from tests import long_texts
from tests.bounded import BoundedWorld
from tests.conformance.vectors import EnginePlayer, ReloadedPlayer, play
from tests.feeding import answers, in_batches, one_by_one
from tests.modes import MODES, in_mode
from tests.mutation.recording import Recording, Script, Worlds

SHARE = 8
"""Of eight scripts two are replayed in batches, and another is saved and loaded again and again."""

RELOADED_EVERY = 5
"""It is before every so-manieth step."""

SWEPT_AT_LEAST = 8
"""So few entries are looked at by each tidying, that even of few some are left to the next."""

SCANNED_ALWAYS = {"_DOOMED_SHARE": 1}
SCANNED_RARELY = {"_DOOMED_SHARE": 3, "_SCANNED_ALWAYS": 0}
"""With these, what is done for very many keys is done for few."""


def differences(recording: Recording) -> Iterator[str]:
    """Give what the engine answers otherwise than recorded, as it is found."""
    for small, worlds in ((SCANNED_ALWAYS, recording.worlds), (SCANNED_RARELY, recording.lasting_worlds)):
        with pytest.MonkeyPatch.context() as patch:
            for name, value in small.items():
                patch.setattr(slices, name, value)
            yield from evictions(worlds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tidying, "_SWEPT_AT_LEAST", SWEPT_AT_LEAST)
        yield from answered_otherwise(recording.scripts)
    for mode, player in (("awake", EnginePlayer), ("asleep", ReloadedPlayer)):
        for vector in recording.vectors:
            with in_mode(mode):
                if difference := play(vector, player()):
                    yield f"{mode}, {vector['title']}: {difference}"
    yield from long_texts.differences()
    yield from names()


def answered_otherwise(scripts: list[Script]) -> Iterator[str]:
    """Give the scripts that the engine answers otherwise than recorded."""
    played = Counter[str]()
    for number, (mode, steps, expected) in enumerate(scripts):
        # Counted for each mode, so that scripts of every mode are fed in every way.
        played[mode] += 1
        feed = in_batches if played[mode] % SHARE in {0, 4} else one_by_one
        reloaded = RELOADED_EVERY if played[mode] % SHARE == 1 else 0
        with in_mode(mode):
            if answers(steps, feed, reloaded_every=reloaded) != expected:
                yield f"script {number}, {mode}"


def evictions(worlds: Worlds) -> Iterator[str]:
    """Give the worlds in which the engine evicts otherwise than recorded."""
    modes = list(MODES)
    for number, (world, expected) in enumerate(worlds):
        # The world as this module knows it, whose engine is the one under judgement.
        again = BoundedWorld(world.rules, world.keys_max, world.events, world.disabled_before)
        mode = modes[number // 3 % len(modes)]
        with in_mode(mode):
            if again.disagreement(expected, reloaded=number % 4 > 1):
                yield f"world {number}, {mode}"


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
