"""Answers are the same whether rules are indexed or not, and indexing ends when few rules are left."""

import functools
import random
from collections.abc import Callable
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.dispatch import rule_set
from engine.evaluation.dispatch.compilation import compiler, fused_stream
from engine.evaluation.state.removal.expiry import until_us
from tests.differential import fused

WORLDS: dict[str, Callable[[int], str]] = {
    "equality": lambda number: f'kind == "v{number}" and amount > {number}',
    "stamped, without keys": lambda number: f"once within 500ms not kind == {number % 5}",
    "stamped": lambda number: f"per user once within 1s not kind == {number % 5}",
    "begun": lambda number: f"per user historically for 2s strong not kind == {number % 5}",
    "kept": lambda number: f"per user ((not amount == 3) since within 5s kind == {number % 5})",
    "alike": lambda _: "per user once within 3s kind == 1",
    "alike, for ever": lambda _: "per user once (kind == 1 and amount == 5)",
    "alike, without keys": lambda _: "once within 3s kind == 1",
    "alike, for ever, without keys": lambda _: "once (kind == 1 and amount == 5)",
    "counts": lambda number: f"per user count(kind == {number % 5}) within {1 + number}s >= {1 + number % 3}",
    "counts, without keys": lambda number: f"count(kind == {number % 5}) within {1 + number}s >= 2",
    "values": lambda number: f"per user distinct(amount where kind == {number % 5}) within {1 + number}s > 1",
    "sums": lambda number: f"per user sum(amount where kind == {number % 5}) within {1 + number}s > {number}",
    "alike, weak": lambda _: "per user historically for 2s kind == 1",
}
Events = list[tuple[dict[str, Any], int]]

MANY, FEW = 12, 5
"""Rules are indexed while there are more than FEW."""
EVER = 10**9


def events(count: int, seed: int, clock_ms: int) -> Events:
    drawn = random.Random(seed)
    drawn_events: Events = []
    for _ in range(count):
        clock_ms += drawn.choice((0, 0, 100, 300, 900))
        fields = {"kind": drawn.randrange(5), "amount": drawn.randrange(6), "user": f"u{drawn.randrange(3)}"}
        drawn_events.append(({name: fields[name] for name in fields if drawn.random() < 0.9}, clock_ms))
    return drawn_events


def unexpired(detector: Detector) -> set[Any]:
    clock_us = detector.clock_us or 0
    return {
        (path, key)
        for path, table in detector.state.tables.items()
        for slot, key in enumerate(table.keys)
        if key is not None and until_us(table, slot) >= clock_us
    }


def with_rules(condition: Callable[[int], str], count: int) -> Detector:
    detector = Detector()
    for number in range(count):
        detector.add_rule(f"rule {number}", condition(number), rule_id=f"{number:032x}")
    return detector


@pytest.mark.parametrize("condition", WORLDS.values(), ids=WORLDS)
def test_nobody_can_tell_how_rules_are_evaluated(
    condition: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, plain = Detector(), Detector()
    modes, clock_ms = [], 1_700_000_000_000
    for seed, count in enumerate((3, MANY, FEW + 1, FEW, MANY, 2, MANY, 1, 0, MANY, 3), 1):
        between: dict[int, Events] = {}
        for number in range(len(chosen.live), count):
            between[number] = events(number % 4, seed + number, clock_ms)
            clock_ms = between[number][-1][1] if between[number] else clock_ms
        # Some changes follow one another at once, others after many events.
        after = events(60 if seed % 3 else 2, seed, clock_ms)
        clock_ms = after[-1][1]
        for detector, few in ((chosen, FEW), (plain, EVER)):
            monkeypatch.setattr(rule_set, "index_pays", fused.up_to(few))
            for rule in detector.rules()[: -count or None] if len(detector.live) > count else ():
                detector.remove_rule(rule.id)
            for number in range(len(detector.live), count):
                detector.add_rule("a rule", condition(number), rule_id=f"{seed:016x}{number:016x}")
                for fields, time_ms in between[number]:
                    detector.evaluate(fields, time_ms)
        modes.append(chosen.state.indexed)
        for fields, time_ms in after:
            expected = plain.evaluate(fields, time_ms)
            assert chosen.evaluate(fields, time_ms) == expected
        assert unexpired(chosen) == unexpired(plain)
        if seed % 2:
            chosen = Detector.load(chosen.dump(), Detector.STATE_VERSION)
            assert chosen.state.indexed is modes[-1]
    assert not plain.state.indexed
    assert modes == [False, True, True, False, True, False, True, False, False, True, False]


def test_a_rule_that_comes_and_goes_does_not_change_how_rules_are_evaluated() -> None:
    detector = with_rules(WORLDS["equality"], 1)
    while not detector.state.indexed:
        detector.add_rule("one more", WORLDS["equality"](len(detector.live)))
    for _ in range(3):
        detector.remove_rule(detector.rules()[-1].id)
        assert detector.state.indexed
        detector.add_rule("one more", WORLDS["equality"](len(detector.live)))


def test_rules_with_much_to_write_stay_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_set, "WRITTEN_MAX", 5)
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(FEW))
    detector = with_rules(WORLDS["stamped"], MANY)
    for fields, time_ms in events(60, 1, 0):
        detector.evaluate(fields, time_ms)
    for rule in detector.rules()[3:]:
        detector.remove_rule(rule.id)
    assert detector.state.indexed
    for rule in detector.rules()[1:]:
        detector.remove_rule(rule.id)
    assert not detector.state.indexed


def test_many_rules_that_fire_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(EVER))
    for count in (1, 31, 32, 33, 64, 65, 100):
        detector = with_rules(lambda number: f"x > {number} or y == {number}", count)
        names = [rule.name for rule in detector.rules()]
        for x in (0, 1, 32, 33, 64, 65, 100):
            expected = [*names[:x], *names[x:][-1:]]
            assert [each["name"] for each in detector.evaluate({"x": x, "y": count - 1}, 0)] == expected


def test_the_conditions_of_a_memory_count_once_however_many_rules_share_it() -> None:
    detector = with_rules(WORLDS["alike"], 3)
    counted = []
    for rule in detector.rules():
        counted.append(detector.rule_set.nodes)
        detector.remove_rule(rule.id)
    assert [*counted, detector.rule_set.nodes] == [5, 4, 3, 0]


@pytest.mark.parametrize("few", [0, EVER])
@pytest.mark.parametrize("inner", ["p == 1", "once p == 1", "not previous p == 7"])
def test_an_event_belongs_to_a_slice_only_if_its_where_is_true(
    inner: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(few))
    detector = Detector()
    detector.add_rule("rule", f"per k where x == 1 ({inner})")
    told = ({"k": 1, "x": 2, "p": 1}, {"x": 1, "p": 1}, {"k": 1, "p": 1}, {"k": 1, "x": 1, "p": 1})
    assert [len(detector.evaluate(fields, 0)) for fields in told] == [0, 0, 0, 1]


@pytest.mark.parametrize("few", [0, EVER])
@pytest.mark.parametrize(
    ("rule", "fires"),
    [
        ("z == 1 and j == 7 or per k per j once a == 1", [0, 1, 1]),
        ("z == 1 and k == 7 or per k per j once a == 1", [0, 1, 1]),
        ("z == 1 and k == 7 or per k where k == 2 per j once a == 1", [0, 1, 1]),
        ("z == 1 and a == 7 or sum(a) >= 2", [0, 0, 1]),
        ("z == 1 and a == 7 or distinct(a) >= 2", [0, 1, 1]),
        ("z == 1 and a == 7 or sum(b) > 2 * a", [0, 0, 1]),
        ("z == 1 and a == 1 and j == 3", [0, 1, 1]),
    ],
)
def test_a_fact_may_be_read_once_by_a_comparison_and_elsewhere_for_other_purposes(
    rule: str, fires: list[int], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(few))
    detector = Detector()
    detector.add_rule("rule", rule)
    last = {"z": 1, "a": 1, "b": 2, "k": 2, "j": 3}
    told = ({"a": 0, "j": 1}, last, last)
    assert [len(detector.evaluate(fields, 0)) for fields in told] == fires


def test_what_was_remembered_among_few_rules_is_remembered_once_they_are_indexed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(1))
    detector = Detector()
    detector.add_rule("rule", "once within 10s not p == 1")
    for p, time_ms in ((0, 1_000), (1, 5_000)):
        detector.evaluate({"p": p}, time_ms)
    detector.add_rule("other", "q == 1")
    assert detector.state.indexed
    assert [len(detector.evaluate({"p": 1}, time_ms)) for time_ms in (11_000, 11_001)] == [1, 0]


def test_slices_that_depend_on_the_past_go_on_however_rules_are_evaluated_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turned, plain = Detector(), Detector()
    joined = set()
    for number in range(40):
        for detector, few in ((turned, EVER if number % 16 < 8 else 0), (plain, EVER)):
            monkeypatch.setattr(rule_set, "index_pays", fused.up_to(few))
            if number % 8 == 0:
                rule_id = f"{number:032}"
                detector.add_rule(
                    "rule", "per k where (once within 9ms x == 1) (once p == 1)", rule_id=rule_id
                )
            if number == 20:
                detector.remove_rule(f"{0:032}")
        told = {"k": number % 3, "x": int(number % 5 == 0), "p": int(number % 4 == 1)}, number
        assert turned.evaluate(*told) == plain.evaluate(*told)
        joined.add(len(turned.state.joined))
    assert joined == {0, 1}
    assert len(plain.evaluate({"k": 1, "x": 1}, 41)) == 4


@pytest.mark.parametrize("few", [0, EVER])
def test_an_event_that_belongs_to_no_slice_is_not_the_last_event_of_one(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(few))
    detector = Detector()
    detector.add_rule("rule", "per k where x == 1 once p == 1")
    detector.evaluate({"k": 1, "x": 1, "p": 1}, 0)
    detector.evaluate({"k": 1, "p": 1}, 1)
    (table,) = detector.state.tables.values()
    assert list(table.seen) == [1]


@pytest.mark.parametrize("few", [0, EVER])
def test_rules_of_two_births_have_slices_of_their_own_where_these_depend_on_the_past(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(few))
    detector = Detector()
    told = ({"k": 1, "x": 1}, {"k": 1, "p": 1}, {"k": 1, "x": 1}, {"k": 1}, {"k": 1, "p": 1}, {"k": 1})
    fired = []
    for number, fields in enumerate(told):
        if number < 2:
            detector.add_rule(f"born {number}", "per k where (once x == 1) (once p == 1)")
        fired.append([action["name"] for action in detector.evaluate(fields, number)])
    assert fired == [[], *[["born 0"]] * 3, *[["born 0", "born 1"]] * 2]


def test_indexed_rules_that_differ_in_values_alone_are_rows_of_one_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(0))
    detector = with_rules(lambda number: f"not kind == {number + 2} or amount > {number}", MANY)
    assert len(detector.evaluate({"kind": 9, "amount": 5}, 0)) == MANY - 1
    loops = detector.rule_set._members._index._always.groups.values()
    assert [len(loop.rest) // loop.width for loop in loops] == [MANY]


ALIKE = (
    "per user once within 3s kind == 1",
    "once within 3s kind == 1 and per user count(kind == 2) within 1m >= 2",
    'path matches "/dir[0-9]/x" and previous kind == 1',
    "per user historically for 2s not kind == 3",
)


def test_detectors_with_equal_rules_share_what_is_compiled_and_no_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = []

    def noted(rules: fused_stream.Fusible, *, begins: bool) -> fused_stream.Fused:
        if len(rules) == len(ALIKE):
            compiled.append(rules)
        return fused_stream._fuse(rules, begins=begins)

    monkeypatch.setattr(compiler, "fuse_few", functools.lru_cache(noted))

    def made(births: tuple[int, int]) -> Detector:
        detector = Detector()
        for half, count in enumerate(births):
            detector.evaluate_many([({}, 0, None)] * count)
            for condition in ALIKE[half::2]:
                detector.add_rule(condition, condition)
        return detector

    def verdicts(detector: Detector) -> list[list[str]]:
        told = [({**fields, "path": "/dir1/x"}, ms, None) for fields, ms in events(60, 1, 1_000)]
        return [[rule.name for rule in fired] for fired in detector.evaluate_many(told)]

    first, of_two_births = made((0, 0)), made((2, 3))
    expected = verdicts(first)
    assert {name for names in expected for name in names} == set(ALIKE)
    assert verdicts(made((5, 0))) == expected
    assert len(compiled) == 1, "the number of events before all rules does not matter"
    assert verdicts(of_two_births) == expected
    assert len(compiled) == 2, "whether rules were born together does"
    assert verdicts(made((0, 0))) == expected
    assert len(compiled) == 2
