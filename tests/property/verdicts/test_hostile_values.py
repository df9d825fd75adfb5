"""Values of any type in the events of a batch: each is refused, or taken as the JSON value that it means."""

import math
import random
from collections import OrderedDict, UserDict
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from engine import BatchRefused, Detector, Limits, Refusal
from engine.evaluation.events.intake import Intake
from engine.evaluation.kernel import stream
from engine.evaluation.kernel.code import given_code
from tests.differential.modes import in_mode
from tests.unit.evaluation.events.test_hostile_events import PREDICATES

READ = ("x", "y", "z")
"""The fields that some rule reads."""

DOTTED = "x.y == 1"
"""A rule that reads a field of this name, or of the part of the name before a dot."""

RULES = (
    *PREDICATES,
    "x < 0.25",
    "$v == 1",
    "$r == z",
    "y == 1 and z == 1",
    "per x once within 1s y == 1",
    "per x per y (count(z == 1) within 1s >= 2)",
    "per x where y == 1 previous z == 1",
    "historically for 1s x between 0 and 1",
    "historically not x == 1",
    "x != 2 since y == 1",
    "distinct(x) within 1s >= 3",
    "sum(x where y == 1) within 1s > 1",
    "avg(y) within 1s > 0.5 * z",
)


class Text(str):
    """A string of another type."""

    __slots__ = ()


class Name(str, Enum):  # noqa: UP042 -- the newer kind hashes as its text
    """Texts with names."""

    Y = "y"
    ONE = "1"


class Hidden(str):
    """A string that a dict does not find by its text."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash((str, str.__str__(self)))


class Level(IntEnum):
    """Integers with names."""

    ONE = 1


SCALARS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    2,
    1.0,
    0.5,
    "",
    "1",
    "x",
    10**30,
    10**400,
    math.nan,
    math.inf,
    Text("1"),
    Name.ONE,
    Level.ONE,
    Decimal(1),
    Decimal("NaN"),
    Fraction(1, 2),
    np.float64(1),
    np.float64("nan"),
    np.int64(1),
    np.bool_(True),
    np.str_("1"),
    b"1",
    {1},
    1j,
)
NAMES: tuple[Any, ...] = (
    *READ,
    *READ,
    "x.y",
    "unread",
    Text("x"),
    Hidden("x"),
    Name.Y,
    np.str_("z"),
    1,
    b"x",
)
TIMES = (0.5, Decimal(1), np.int64(2), math.nan, 1e300, -(10**400), "1", None, True, -8.64e15 - 2)


def value(drawn: random.Random, depth: int = 2) -> Any:
    kind = drawn.randrange(12) if depth else 11
    if kind > 2:
        return drawn.choice(SCALARS)
    members = [value(drawn, depth - 1) for _ in range(drawn.randrange(3))]
    if kind < 2:
        return tuple(members) if drawn.random() < 0.3 else members
    made = dict(zip(("y", Name.Y, "a"), members, strict=False))
    return drawn.choice((dict, OrderedDict, UserDict))(made)


def event(drawn: random.Random, time_ms: int) -> tuple[Any, Any, Any]:
    names = ["x", "y", "z"] if drawn.random() < 0.6 else drawn.sample(NAMES, drawn.randrange(6))
    hostile = drawn.random() < 0.5
    fields: Any = {name: value(drawn) if hostile else drawn.choice((0, 1, "1", 0.5, True)) for name in names}
    if drawn.random() < 0.1:
        fields["unread"] = value(drawn)
    if drawn.random() < 0.05:
        fields = drawn.choice((UserDict(fields), OrderedDict(fields), list(fields), None))
    sent = drawn.choice((None, None, {}, {"v": 1, "r": [1]}, {"v": value(drawn), "r": value(drawn)}))
    return fields, drawn.choice(TIMES) if drawn.random() < 0.05 else time_ms, sent


def meant(fields: Any, read: Sequence[str]) -> Any:
    """Return the fields that some rule can read, with plain strings as names."""
    if not isinstance(fields, Mapping):
        return fields
    others = {str.__str__(name): one for name, one in reversed([*fields.items()]) if isinstance(name, str)}
    exact = {name: one for name, one in fields.items() if type(name) is str}
    named = {name: one for name, one in (others | exact).items() if name in read}
    if any(named.get(name) is None for name in read):
        named.update({name: one for name, one in fields.items() if not isinstance(name, str)})
    return {name: named[name] for name in (*fields, *named) if name in named}


def told_one_by_one(detector: Detector, events: list[Any], read: Sequence[str]) -> list[Any]:
    """Convert each event whole and evaluate it alone; return the names of what fires, or the refusal."""
    told: list[Any] = []
    for fields, time_ms, sent in events:
        try:
            clean = Intake(Limits()).event(meant(fields, read), time_ms, sent)
            told.append([rule.name for rule in detector.submit_clean_one(*clean).fired])
        except Refusal as refusal:
            told.append(refusal.code)
        finally:
            detector.forget_lookups()
    return told


def told_together(detector: Detector, events: list[Any], *, in_turn: bool) -> list[Any]:
    told: list[Any] = []
    while len(told) < len(events):
        rest = events[len(told) :]
        try:
            results = detector.evaluate_many(iter(rest) if in_turn else rest)
            refused = []
        except BatchRefused as refusal:
            results, refused = list(refusal.results), [refusal.code]
        told += [*[[rule.name for rule in fired] for fired in results], *refused]
    return told


def several(drawn: random.Random) -> tuple[list[str], Sequence[str]]:
    """Draw rules; return the fields that they read, which together are all fields."""
    rules = drawn.sample(RULES, drawn.choice((1, 2, 5)))
    all_read = " and ".join(f"{name} == 0" for name in READ)
    return [*rules, all_read], (*READ, "x.y") if DOTTED in rules else READ


def compare(seed: int, mode: str, *, in_turn: bool = False) -> int:
    """Compare both ways; return how many events were refused."""
    drawn = random.Random(seed)
    rules, read = several(drawn) if seed % 4 else ([DOTTED], ("x", "x.y"))
    events = [event(drawn, 200 * number) for number in range(60)]
    detectors = Detector(), Detector()
    with in_mode(mode):
        for detector in detectors:
            for rule in rules:
                detector.add_rule(rule, rule)
    expected = told_one_by_one(detectors[0], events, read)
    found = told_together(detectors[1], events, in_turn=in_turn)
    for given, one, other in zip(events, expected, found, strict=True):
        assert one == other, (rules, given)
    assert detectors[0].clock_us == detectors[1].clock_us
    assert detectors[0].events_seen == detectors[1].events_seen
    return sum(type(one) is int for one in found)


@pytest.mark.parametrize("way", ["fused", "indexed", "checked first", "in turn"])
def test_what_rules_read_is_refused_or_judged_as_json(
    way: str, scaled: Callable[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "checked first":
        monkeypatch.setattr(stream, "FIELDS_TAKEN_MAX", 0)
    mode = "indexed" if way == "indexed" else "fused"
    refused = [compare(seed, mode, in_turn=way == "in turn") for seed in range(scaled(600))]
    # Both happen often.
    assert 5 * len(refused) < sum(refused) < 40 * len(refused)


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (float, "type({0}) is float"),
        (int, "isinstance({0}, int)"),
        (str, "isinstance({0}, str)"),
        (bool, "type({0}) is dict"),
        (bool, "type({0}) is list"),
        (bool, "type({0}) is bytes"),
    ],
)
def test_a_check_that_lets_more_through_is_noticed(
    kind: type, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(given_code._TESTS, kind, test)
    with pytest.raises((AssertionError, TypeError)):
        sum(compare(seed, "fused") for seed in range(60))
