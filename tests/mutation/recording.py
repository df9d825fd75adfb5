"""The executable specification's answers to scripts and worlds of a fixed seed, and to the vectors."""

import random
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from tests.conformance.vectors import Vector, read
from tests.differential.feeding import rule_id
from tests.differential.modes import MODES
from tests.differential.timed import Told
from tests.differential.timed import specified as specified_by_time
from tests.reference import ReferenceDetector
from tests.worlds.at_most_once import AlwaysTrueWorld, AtMostOnceWorld
from tests.worlds.evictions import CLOCKED, LASTING, Answer, BoundedWorld
from tests.worlds.long_histories import AgesWorld, LongHistoriesWorld
from tests.worlds.many_rules import ManyRulesWorld
from tests.worlds.ranges import RangesWorld
from tests.worlds.scripts import Add, Change, Remove, Step, Submit, World
from tests.worlds.shared_histories import NestedWorld, SharedWorld, WindowsWorld
from tests.worlds.steady_facts import BecomingIndexedWorld, SteadyFactsWorld
from tests.worlds.term_histories import FlatTermsWorld, TermsWorld
from tests.worlds.text_tests import TextTestsWorld
from tests.worlds.timed import BusyWorld, TimedStep, TimedWorld

SEED = 20
"""Any seed would do; a fixed one makes runs comparable."""

WORLDS: tuple[tuple[type[World], int, dict[str, int]], ...] = (
    (SteadyFactsWorld, 12, {"steps_max": 40}),
    (BecomingIndexedWorld, 3, {"steps_max": 18}),
    (LongHistoriesWorld, 3, {"steps_max": 40}),
    (World, 8, {"depth": 2, "steps_max": 24}),
    (World, 10, {"depth": 4, "steps_max": 18}),
    (World, 1, {"depth": 3, "steps_max": 40}),
    (ManyRulesWorld, 1, {"steps_max": 30}),
    (SharedWorld, 8, {"steps_max": 40}),
    (NestedWorld, 4, {"steps_max": 40}),
    (AgesWorld, 3, {"steps_max": 60}),
    (WindowsWorld, 3, {}),
    (RangesWorld, 2, {}),
    (TextTestsWorld, 2, {"steps_max": 30}),
    (TermsWorld, 6, {"depth": 3, "steps_max": 40}),
    (FlatTermsWorld, 12, {"depth": 2, "steps_max": 40}),
)
"""Worlds, and how many scripts of each are for every mode."""

ACTING_WORLDS: tuple[tuple[type[World], int, dict[str, int]], ...] = (
    (AlwaysTrueWorld, 8, {}),
    (AtMostOnceWorld, 8, {}),
)
"""Worlds of rules that act at most once per interval."""

TIMED_WORLDS = ((TimedWorld, 200), (BusyWorld, 400))
"""Worlds of timed rules, and how many scripts of each."""

BOUNDED_WORLDS = 10


class Script(NamedTuple):
    """A script, the mode that it is played in, and what the specification answers to its events."""

    mode: str
    steps: list[Step]
    expected: list[Any]


Worlds = list[tuple[BoundedWorld, list[Answer]]]
TimedScripts = list[tuple[list[TimedStep], list[Told]]]


class Recording(NamedTuple):
    """Nothing in it belongs to the part of the engine that is mutated."""

    vectors: list[Vector]
    scripts: list[Script]
    worlds: Worlds
    lasting_worlds: Worlds
    timed: TimedScripts


def record(parts: Collection[str], effort: int = 1) -> Recording:
    """Ask the specification some parts once, so many times as much as is the rule.

    `verdicts`: of the rules of all kinds; `actions`: of those that act at most once; `times`: of timed ones.
    """
    worlds = (WORLDS if "verdicts" in parts else ()) + (ACTING_WORLDS if "actions" in parts else ())
    scripts = [Script(mode, steps, specified(steps)) for mode, steps in scripts_of(worlds, effort)]
    timed = [*timed_scripts(effort)] if "times" in parts else []
    if "verdicts" not in parts:
        return Recording([], scripts, [], [], timed)
    choosers = [random.Random(f"{SEED} {number}").choice for number in range(BOUNDED_WORLDS * effort)]
    bounded = [
        world
        for choose in choosers
        for world in (
            BoundedWorld.drawn(choose),
            BoundedWorld.drawn(choose, CLOCKED),
            BoundedWorld.with_many_keys(choose),
        )
    ]
    lasting = [
        draw(choose, LASTING)
        for choose in choosers
        for draw in (BoundedWorld.drawn, BoundedWorld.with_many_keys)
    ]
    return Recording(
        [vector for _, vector in read()],
        scripts,
        [(world, world.expected()) for world in bounded],
        [(world, world.expected()) for world in lasting],
        timed,
    )


def timed_scripts(effort: int) -> Iterator[tuple[list[TimedStep], list[Told]]]:
    """Yield scripts with timed rules, and the answer at each step."""
    for world, count in TIMED_WORLDS:
        for number in range(count * effort):
            script = world(random.Random(f"{SEED} {number}").choice).script()
            yield script, [*specified_by_time(script)]


def scripts_of(
    worlds: Sequence[tuple[type[World], int, dict[str, int]]], effort: int
) -> list[tuple[str, list[Step]]]:
    """Return all scripts with their modes, some of each world and mode early: most mutants need few."""
    kinds = [
        [
            (mode, world(random.Random(f"{SEED} {_drawn_for(mode)} {number} {shape}").choice).script(**shape))
            for number in range(count * effort)
        ]
        for world, count, shape in worlds
        for mode in MODES
    ]
    return [script for row in zip_longest(*kinds) for script in row if script is not None]


def _drawn_for(mode: str) -> str:
    """Return the seed of a mode's scripts: a mode that is extended still gets the same scripts."""
    return mode.removesuffix(", looked up")


def specified(script: list[Step]) -> list[Any]:
    """Return the answers to a script's events: actions as tuples, None where one is refused."""
    detector = ReferenceDetector()
    answers: list[Any] = []
    for step in script:
        ids = list(detector.rules)
        match step:
            case Add(name, condition, notify):
                detector.add_rule(rule_id(detector.highest), name, condition, notify=notify)
            case Change(place, changes):
                detector.change_rule(ids[place], **changes)
            case Remove(place):
                del detector.rules[ids[place]]
            case Submit(fields, timestamp_ms, sent):
                answers.append(detector.evaluate(fields, timestamp_ms, sent))
    return answers
