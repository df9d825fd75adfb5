"""Whether rules are indexed is chosen by their size, and nobody can tell it from the answers."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from engine import Detector
from engine.evaluation import generated
from engine.evaluation.kernel.rule_set import FUSED_BELOW, INDEXED_FROM, PATTERN_NODES
from tests.differential.modes import in_mode, index_from

EVER = 10**9
MODES = pytest.mark.parametrize("mode", ["fused", "indexed"])


def with_rules(condition: Callable[[int], str], count: int) -> Detector:
    detector = Detector()
    for number in range(count):
        detector.add_rule(f"rule {number}", condition(number), rule_id=f"{number:032x}")
    return detector


def test_rules_are_indexed_from_some_size_on_and_stay_so_until_they_are_much_smaller() -> None:
    detector = Detector()
    ids = []
    while not detector.rule_set.indexed:
        ids.append(detector.add_rule("three nodes", f"a == {len(ids)} and b == 1"))
    assert len(ids) == -(-INDEXED_FROM // 3)
    while detector.rule_set.indexed:
        detector.remove_rule(ids.pop())
    assert len(ids) == (FUSED_BELOW - 1) // 3


def test_a_pattern_counts_as_many_nodes() -> None:
    detector = Detector()
    count = -(-INDEXED_FROM // (PATTERN_NODES + 1))
    indexed = []
    for number in range(count):
        detector.add_rule("rule", f"path matches '/dir{number}/[a-f]+x'")
        indexed.append(detector.rule_set.indexed)
    assert indexed == [False] * (count - 1) + [True]


@pytest.mark.parametrize(
    ("condition", "nodes"),
    [
        ("sum(a) within {}s > 1", 4),
        ("per k distinct(a{}) within 3s > 5", 5),
        ("a + b * {} > 1", 5),
        ("sum(a) within {}s > length(b)", 7),
        ('x{} in network "10.0.0.0/8"', 3),
        ("x{} in network stored", 3),
    ],
)
def test_conditions_with_long_code_count_as_several_nodes(condition: str, nodes: int) -> None:
    detector = Detector()
    count = 0
    while not detector.rule_set.indexed:
        count += 1
        detector.add_rule("rule", condition.format(count))
    assert count == -(-INDEXED_FROM // nodes)
    while detector.rule_set.indexed:
        detector.remove_rule(detector.rules()[-1].id)
        count -= 1
    assert count == (FUSED_BELOW - 1) // nodes


def test_many_rules_that_fire_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    index_from(monkeypatch, EVER)
    for count in (1, 31, 32, 33, 64, 65, 100):
        detector = with_rules(lambda number: f"x > {number} or y == {number}", count)
        names = [rule.name for rule in detector.rules()]
        for x in (0, 1, 32, 33, 64, 65, 100):
            expected = [*names[:x], *names[x:][-1:]]
            assert [each["name"] for each in detector.evaluate({"x": x, "y": count - 1}, 0)] == expected


def test_the_conditions_of_a_memory_count_once_however_many_rules_share_it() -> None:
    detector = with_rules(lambda _: "per user once within 3s kind == 1", 3)
    counted = []
    for rule in detector.rules():
        counted.append(detector.rule_set.nodes)
        detector.remove_rule(rule.id)
    assert [*counted, detector.rule_set.nodes] == [5, 4, 3, 0]


@MODES
@pytest.mark.parametrize("made", ["x startswith {!r}", "x endswith {!r}", "once (x startswith {!r})"])
def test_a_rule_fires_once_however_long_the_texts_of_others_are(made: str, mode: str) -> None:
    texts = ("a", "aa", "aaa", "ab", "b", "")
    with in_mode(mode):
        detector = Detector()
        for text in texts:
            detector.add_rule(text or "none", made.format(text))
        told = [action["name"] for action in detector.evaluate({"x": "a"}, 0)]
    assert told == ["a", "none"]


@MODES
@pytest.mark.parametrize(
    "condition",
    [
        'some x (it startswith "a")',
        "some x (it == 'ab')",
        "some x (it matches 'b$')",
        'some x (it in network "10.0.0.0/8")',
        "some x (n >= 1 and n <= 3)",
        "some x (exists n)",
        'anywhere (it startswith "a")',
    ],
)
def test_a_rule_fires_once_however_many_elements_do(condition: str, mode: str) -> None:
    with in_mode(mode):
        detector = Detector()
        for name in ("one", "two"):
            detector.add_rule(name, condition)
        told = detector.evaluate({"x": ["ab", "ab", "10.0.0.1", "10.0.0.2", {"n": 2}, {"n": 1}]}, 0)
    assert [action["name"] for action in told] == ["one", "two"]


def test_indexed_rules_that_differ_in_values_alone_are_rows_of_one_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index_from(monkeypatch, 0)
    detector = with_rules(lambda number: f"not kind == {number + 2} or amount > {number}", 12)
    assert len(detector.evaluate({"kind": 9, "amount": 5}, 0)) == 11
    loops = detector.rule_set._members.index._always.groups.values()
    assert [len(loop.rest) // loop.width for loop in loops] == [12]


ALIKE = (
    "per user once within 3s kind == 1",
    "once within 3s kind == 1 and per user count(kind == 2) within 1m >= 2",
    'path matches "/dir[0-9]/x" and previous kind == 1',
    "per user historically for 2s not kind == 3",
)


def test_detectors_with_equal_rules_share_what_is_compiled_and_no_state() -> None:
    def made(births: tuple[int, int]) -> Detector:
        detector = Detector()
        for half, count in enumerate(births):
            detector.evaluate_many([({}, 0, None)] * count)
            for condition in ALIKE[half::2]:
                detector.add_rule(condition, condition)
        return detector

    drawn, events = random.Random(1), list[Any]()
    for number in range(60):
        fields = {"kind": drawn.randrange(5), "user": f"u{drawn.randrange(3)}", "path": "/dir1/x"}
        events.append((fields, 1_000 + 300 * number, None))

    def verdicts(detector: Detector) -> list[list[str]]:
        return [[rule.name for rule in fired] for fired in detector.evaluate_many(events)]

    first, of_two_births = made((0, 0)), made((2, 3))
    expected = verdicts(first)
    assert {name for names in expected for name in names} == set(ALIKE)
    assert verdicts(of_two_births) == expected
    compiled = generated._compiled.cache_info().misses
    assert verdicts(made((1, 7))) == verdicts(made((4, 1))) == expected
    assert generated._compiled.cache_info().misses == compiled, "births are constants of the code"
