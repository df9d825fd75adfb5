"""Holds the engine that is imported here against a recording, and stops at the first difference."""

import re
from collections import Counter
from collections.abc import Iterator

from engine import Detector, Refusal
from tests.conformance.vectors import EnginePlayer, ReloadedPlayer, play
from tests.differential.feeding import answers, in_batches, one_by_one
from tests.differential.modes import MODES, in_mode
from tests.differential.timed import played
from tests.mutation.recording import Recording, Script, TimedScripts, Worlds
from tests.worlds import long_texts
from tests.worlds.evictions import BoundedWorld

SHARE = 8
"""One script of so many is saved and loaded again and again, and two are replayed in batches."""

RELOADED_EVERY = 5
"""It is before every so-manieth step."""


def differences(recording: Recording) -> Iterator[str]:
    """Give what the engine answers otherwise than recorded, as it is found."""
    for worlds in (recording.worlds, recording.lasting_worlds):
        yield from evictions(worlds)
    yield from answered_otherwise(recording.scripts)
    yield from fired_otherwise(recording.timed)
    if not recording.vectors:
        return
    for mode, player in (("fused", EnginePlayer), ("indexed", ReloadedPlayer)):
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


def fired_otherwise(scripts: TimedScripts) -> Iterator[str]:
    """Give the scripts in which other rules fire by time than recorded."""
    modes = list(MODES)
    for number, (steps, expected) in enumerate(scripts):
        mode = modes[number % len(modes)]
        with in_mode(mode):
            if [*played(steps)] != expected:
                yield f"timed script {number}, {mode}"


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
