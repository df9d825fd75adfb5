"""What a stranger may send: the engine stays within its bounds, and judges as specified."""

import itertools
import sys
from typing import Any

import pytest

from engine import Detector, Limits, Refusal, parse
from engine.evaluation.facts.values import KEY_CHARS_MAX
from tests.differential.modes import in_mode
from tests.reference import Event, verdict

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    1.0,
    0.5,
    10**30,
    -(10**400),
    1.7976931348623157e308,
    "",
    "1",
    "true",
    "x" * 10_000,
    "\U0001f600",
    [],
    [1],
    ["1", None],
    [[1], {}],
    {},
    {"y": 1},
    {"y": {"y": None}},
)
PREDICATES = (
    "x == 1",
    "x != 1",
    "x == true",
    'x == "1"',
    "x == [1]",
    "x in [0, 1, 0.5]",
    'x in ["1", ""]',
    "x not in [1]",
    "x contains 1",
    'x contains "1"',
    "x matches '^(1|x+)$'",
    "x between 0 and 1",
    'x between "" and "1"',
    "x > 0.25",
    "x.y == 1",
    "x == z",
    "x in z",
    "x not in z",
    "r(x)",
)
"""One of each kind, all about x."""
RULES = (
    *PREDICATES,
    "per x once within 1s y == 1",
    "per x historically not x == 1",
    "historically for 1s x between 0 and 1",
    "once within 1s not x == 1",
    "x != 2 since y == 1",
)


@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_a_fact_may_be_of_another_type_at_each_event(mode: str) -> None:
    detector = Detector()
    with in_mode(mode):
        conditions = {detector.add_rule(rule, rule): parse(rule) for rule in RULES}
    history: list[Event] = []
    for number, (x, z) in enumerate(itertools.product(VALUES, (1, [True, "1", 1]))):
        fields = {"x": x, "y": number % 2, "z": z}
        sent = {"r": [x, 1]}
        history.append(Event(number * 150_000, fields, sent))
        fired = {action["ruleId"] for action in detector.evaluate(fields, number * 150, sent)}
        expected = {rule_id for rule_id, condition in conditions.items() if verdict(condition, history)}
        assert fired == expected, fields


@pytest.mark.storm
def test_any_number_of_keys_takes_room_for_no_more_than_the_limit() -> None:
    detector = Detector(limits=Limits(keys_max=500))
    detector.add_rule("lasting", "per k once a == 1")
    detector.add_rule("passing", "per k per j once within 1s a == 1")
    most = 0
    for number in range(20_000):
        outcome = detector.submit({"k": number, "j": f"j{number}", "a": 1}, number)
        most = max(most, detector.histories.live)
        # Two keys come with each event, and as many may have to go.
        assert number < 250 or [message.code for message in outcome.messages] == [2002]
    assert most <= 502
    assert sum(map(len, detector.histories.slices.values())) == detector.histories.live


def test_keys_that_are_chosen_to_collide_do_not() -> None:
    """Python's hash of an integer is its rest modulo 2**61 - 1, which anyone can foresee."""
    detector = Detector()
    detector.add_rule("r", "per k once a == 1")
    for number in range(2_000):
        detector.evaluate({"k": number * (2**61 - 1), "a": 1}, 0)
    (slices,) = detector.histories.slices.values()
    assert len({hash(key) for shard in slices.shards for key in shard}) == 2_000
    assert max(map(len, slices.shards)) < 60


def test_an_event_of_very_many_facts_meets_only_the_rules_of_those_there_are() -> None:
    detector = Detector()
    for number in range(50):
        detector.add_rule(f"rule {number}", f"fact{number} == 1 and x == {number}")
    fields = {f"fact{number}": 1 for number in range(100_000)} | {"x": 7}
    assert [action["name"] for action in detector.evaluate(fields, 0)] == ["rule 7"]


def test_a_deep_event_is_looked_into_without_recursion() -> None:
    deep: Any = 1
    for _ in range(sys.getrecursionlimit() * 2):
        deep = {"a": deep}
    detector = Detector()
    name = ".".join("a" * 50)
    detector.add_rule("r", f"x.{name} != 1")
    assert len(detector.submit_clean_one({"x": deep}, 0, None).fired) == 1
    # No body nests so deep, and who calls in process is held to the same.
    with pytest.raises(Refusal, match="nested too deeply"):
        detector.evaluate({"x": deep}, 0)


@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_a_long_key_takes_little_room_and_is_a_key_of_its_own(mode: str) -> None:
    detector = Detector()
    with in_mode(mode):
        for condition in ("per k once a == 1", "per j per k once a == 1"):
            detector.add_rule("r", condition)
    longest = "x" * KEY_CHARS_MAX
    texts = [longest, longest + "x", longest + "\ud800", "\ud800", "y" * 1_000_000]
    for text in texts[:4]:
        assert len(detector.evaluate({"k": text, "j": "z" * 1_000, "a": 1}, 0)) == 2
    assert detector.histories.bytes < 6_000
    assert len(detector.dump()) < 3_000
    for _ in range(2):
        fired = [len(detector.evaluate({"k": text, "j": "z" * 1_000, "a": 0}, 0)) for text in texts]
        assert fired == [2, 2, 2, 2, 0]
        detector = Detector.load(detector.dump(), Detector.STATE_VERSION)
