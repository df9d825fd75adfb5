"""Compares the engine that is imported here with a recording, and stops at the first difference."""

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
"""One script in this many is saved and loaded again and again, and two are replayed in batches."""

RELOADED_EVERY = 5
"""It is saved and loaded before every step whose number this divides."""


def differences(recording: Recording) -> Iterator[str]:
    """Yield each answer of the engine that differs from the recording, as it is found."""
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
    """Yield the scripts for which the engine's answers differ from the recording."""
    played = Counter[str]()
    for number, (mode, steps, expected) in enumerate(scripts):
        # Counted per mode, so that scripts of every mode are fed in every way.
        played[mode] += 1
        feed = in_batches if played[mode] % SHARE in {0, 4} else one_by_one
        reloaded = RELOADED_EVERY if played[mode] % SHARE == 1 else 0
        with in_mode(mode):
            if answers(steps, feed, reloaded_every=reloaded) != expected:
                yield f"script {number}, {mode}"


def fired_otherwise(scripts: TimedScripts) -> Iterator[str]:
    """Yield the scripts in which the rules that fire by time differ from the recording."""
    modes = list(MODES)
    for number, (steps, expected) in enumerate(scripts):
        mode = modes[number % len(modes)]
        with in_mode(mode):
            if [*played(steps)] != expected:
                yield f"timed script {number}, {mode}"


def evictions(worlds: Worlds) -> Iterator[str]:
    """Yield the worlds in which the engine's evictions differ from the recording."""
    modes = list(MODES)
    for number, (world, expected) in enumerate(worlds):
        # The world as imported by this module: its engine is the one that is judged.
        again = BoundedWorld(world.rules, world.keys_max, world.events, world.disabled_before)
        mode = modes[number // 3 % len(modes)]
        with in_mode(mode):
            if again.disagreement(expected, reloaded=number % 4 > 1):
                yield f"world {number}, {mode}"


def names() -> Iterator[str]:
    """Yield what is wrong with the names of rules, and with their ids."""
    detector = Detector()
    rule_id = detector.add_rule(name="rule", condition="a == 1")
    if not re.fullmatch("[0-9a-f]{32}", rule_id):
        yield f"{rule_id} is no id"
    try:
        detector.add_rule(name="", condition="a == 1")
        yield "a rule without a name"
    except Refusal:
        pass
