"""What the executable specification answers to scripts and worlds of a fixed seed, and to the vectors."""

import random
from typing import Any, NamedTuple

from tests.bounded import LASTING, Answer, BoundedWorld
from tests.conformance.vectors import Vector, read
from tests.feeding import rule_id
from tests.reference import ReferenceDetector
from tests.strategies import Add, Change, Remove, Step, Submit, World

SEED = 20
"""Any would do; a fixed one makes two runs comparable."""

SHAPES: tuple[tuple[int, dict[str, int]], ...] = (
    (300, {"depth": 2, "steps_max": 24}),
    (300, {"depth": 4, "steps_max": 18}),
    (30, {"depth": 3, "steps_max": 60}),
)
WORLDS = 30

Worlds = list[tuple[BoundedWorld, list[Answer]]]


class Recording(NamedTuple):
    """Nothing in it is of the part of the engine that is mutated."""

    vectors: list[Vector]
    scripts: list[tuple[list[Step], list[Any]]]
    worlds: Worlds
    lasting_worlds: Worlds


def record() -> Recording:
    """Ask the specification everything once."""
    shapes = [(number, shape) for count, shape in SHAPES for number in range(count)]
    scripts = [
        World(random.Random(f"{SEED} {number} {shape}").choice).script(**shape) for number, shape in shapes
    ]
    choosers = [random.Random(f"{SEED} {number}").choice for number in range(WORLDS)]
    worlds = [draw(choose) for choose in choosers for draw in (BoundedWorld.drawn, BoundedWorld.crowded)]
    lasting_worlds = [
        draw(choose, LASTING) for choose in choosers for draw in (BoundedWorld.drawn, BoundedWorld.crowded)
    ]
    return Recording(
        [vector for _, vector in read()],
        [(script, specified(script)) for script in scripts],
        [(world, world.expected()) for world in worlds],
        [(world, world.expected()) for world in lasting_worlds],
    )


def specified(script: list[Step]) -> list[Any]:
    """Give the answers to a script's events: actions as tuples, None where one is refused."""
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
