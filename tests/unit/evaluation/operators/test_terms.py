"""Terms: the values that each gives, and where it gives none."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from engine import Detector, explain
from engine.evaluation.key_sizes import key_bytes, value_bytes
from engine.evaluation.operators.counting.panes import PaneMinima, least
from engine.evaluation.operators.table import term_operator
from engine.evaluation.operators.terms.clock import LocalTimes, Parts, local_times
from engine.language.condition import Compare
from engine.language.limits import Limits
from engine.language.terms import (
    Abs,
    Add,
    Clock,
    Div,
    Fact,
    Last,
    Length,
    Mul,
    Prev,
    Sub,
    Term,
    Time,
)
from engine.language.text.printer import format_term
from tests import reference_terms
from tests.differential.modes import TRIED, in_mode
from tests.reference import COMPARISONS

Event = tuple[dict[str, Any], float]


def value(term: Term, *events: Event) -> Any:
    """Return the value of a term at the last of some events; None where it is missing."""
    detector = Detector()
    detector.add_rule("rule", Compare(term, "eq", 0))
    for event in events[:-1]:
        detector.evaluate(*event)
    found = explain(detector, *events[-1]).rules[0].node.found
    assert isinstance(found, Mapping)
    return found.get(format_term(term))


def at(time: str) -> float:
    return datetime.fromisoformat(time).timestamp() * 1_000


@pytest.mark.parametrize(
    ("term", "x", "y", "expected"),
    [
        (Add((Fact("x"), Fact("y"), 1)), 2, 0.5, 3.5),
        (Add((Fact("x"), Fact("y"))), 2, "1", None),
        (Add((Fact("x"), Fact("y"))), 2, True, None),
        (Add((Fact("x"), Fact("y"))), 2, None, None),
        (Add((Fact("x"), 1)), 2**53 + 1, None, 2.0**53 + 1),
        (Add((Fact("x"), 1)), 10**400, None, None),
        (Add((Fact("x"), 10**400)), 1, None, None),
        (Add((Fact("x"), True)), 1, None, None),
        (Add((Fact("x"), "1")), 1, None, None),
        (Add((Fact("x"), 0)), 2**1024 - 2**970 - 1, None, 1.7976931348623157e308),
        (Add((Fact("x"), 0)), -(2**1024 - 2**970), None, None),
        (Add((Fact("x"), 0)), -(2**1024 - 2**970 - 1), None, -1.7976931348623157e308),
        (Add((Fact("x"), Fact("y"))), 1e308, 1e308, None),
        (Sub((Fact("x"), Fact("y"))), 1, 2.5, -1.5),
        (Mul((Fact("x"), Fact("y"), 2)), 3, 0.5, 3.0),
        (Mul((Fact("x"), Fact("y"))), 1e308, 10, None),
        (Div((Fact("x"), Fact("y"))), 1, 8, 0.125),
        (Div((Fact("x"), Fact("y"))), 1, 0, None),
        (Div((Fact("x"), Fact("y"))), 1, -0.0, None),
        (Div((1, Mul((Fact("x"), Fact("y"))))), 1e308, 10, None),
        (Div((1, Mul((Fact("x"), Fact("y"))))), 1e308, -10, None),
        (Abs(Fact("x")), -2, None, 2.0),
        (Abs(Mul((Fact("x"), Fact("y")))), -1e308, 10, None),
        (Length("x"), "é𝄞a", None, 3),
        (Length("x"), [1, [2, 3]], None, 2),
        (Length("x"), {"a": 1}, None, None),
        (Length("x"), 5, None, None),
        (Add((Length("x"), 0.5)), "ab", None, 2.5),
        (Time("x"), "2024-02-01", None, 1_706_745_600.0),
    ],
)
def test_terms_of_one_event(term: Term, x: Any, y: Any, expected: Any) -> None:
    found = value(term, ({"x": x, "y": y}, 0))
    assert (found, type(found)) == (expected, type(expected))


RFC_3339 = (
    *("2024-02-01", "2024-02-01T01:00:00+02:00", "2024-02-01T01:00:00Z", "2024-02-01T01:00:00"),
    *("2024-02-01T01:00:00.5Z", "2024-02-01T01:00:00.1234567Z", "0000-01-01", "9999-12-31T23:59:59-23:59"),
    *("1969-12-31T23:59:59.999999Z", "2024-02-29", "2023-02-29", "2024-13-01", "2024-02-01T24:00:00Z"),
    *("2024-02-01T23:59:60Z", "2024-02-01t01:00:00Z", "2024-02-01T01:00:00z", "2024-02-01 01:00:00Z"),
    *("2024-02-01T01:00Z", "2024-02-01T01:00:00+0200", "2024-02-01T01:00:00+24:00", "24-02-01", ""),
    *("2024-02-01T01:00:00.Z", "2024-02-01T01:00:00+02:60", " 2024-02-01", "2024-02-01\n", "٢٠٢٤-02-01"),
    *("2024-02-01T01:00:00." + "9" * 60 + "Z", "2024-02-01T01:00:00-00:00", "2024-00-01", "2024-01-00"),
)


@pytest.mark.parametrize("text", RFC_3339)
def test_a_time_is_that_of_rfc_3339(text: str) -> None:
    assert value(Time("x"), ({"x": text}, 0)) == reference_terms.seconds(text)


def test_some_texts_are_times_and_others_are_not() -> None:
    known = [reference_terms.seconds(text) for text in RFC_3339]
    assert 10 < known.count(None) < len(known) - 10


@pytest.mark.parametrize(
    ("time", "zone", "expected"),
    [
        ("2024-03-31T00:59:59+00:00", "Europe/Berlin", (1, 59, 7, 31, 3, "01:59")),
        ("2024-03-31T01:00:00+00:00", "Europe/Berlin", (3, 0, 7, 31, 3, "03:00")),
        ("2024-10-27T00:30:00+00:00", "Europe/Berlin", (2, 30, 7, 27, 10, "02:30")),
        ("2024-10-27T01:30:00+00:00", "Europe/Berlin", (2, 30, 7, 27, 10, "02:30")),
        ("2024-12-31T23:59:59.999999+00:00", None, (23, 59, 2, 31, 12, "23:59")),
        ("2024-12-31T18:30:00+00:00", "Asia/Kolkata", (0, 0, 3, 1, 1, "00:00")),
        # Its offset was -00:44:30.
        ("1971-06-01T00:44:29+00:00", "Africa/Monrovia", (23, 59, 1, 31, 5, "23:59")),
        ("1971-06-01T00:44:30+00:00", "Africa/Monrovia", (0, 0, 2, 1, 6, "00:00")),
    ],
)
def test_the_parts_of_a_local_time(time: str, zone: str | None, expected: tuple[Any, ...]) -> None:
    parts = ("hour", "minute", "weekday", "day", "month", "clock")
    assert tuple(value(Clock(part, zone), ({}, at(time))) for part in parts) == expected


@pytest.mark.parametrize("time_ms", [-8.64e15, 8.64e15])
def test_years_that_no_calendar_here_has_have_no_parts(time_ms: float) -> None:
    for part in ("hour", "clock"):
        assert value(Clock(part, "Europe/Berlin"), ({}, time_ms)) is None
    for time_us in (-62_135_596_800_000_000, 253_402_300_799_999_999):
        # The first and the last moment of UTC that have some; not in each zone.
        assert local_times(None).at(time_us).hour in (0, 23)
        assert {local_times(zone).at(time_us).clock for zone in ("Asia/Tokyo", "America/Lima")} >= {None}


def test_a_zone_that_this_system_does_not_know_has_no_parts() -> None:
    assert local_times("Nowhere/Atlantis").at(0).clock is None
    assert list(local_times("Nowhere/Atlantis").steps_us("hour", 0)) == []


def test_one_local_time_a_minute_is_looked_up_for_each_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[int] = []
    missing = LocalTimes.__missing__

    def counted(self: LocalTimes, minute: int) -> Any:
        looked_up.append(minute)
        return missing(self, minute)

    monkeypatch.setattr(LocalTimes, "__missing__", counted)
    for mode in ("fused", "indexed"):
        looked_up.clear()
        local_times.cache_clear()
        with in_mode(mode):
            detector = Detector()
            for hour in range(12):
                for zone in ("Europe/Berlin", "Asia/Tokyo"):
                    detector.add_rule(f"{hour} {zone}", Compare(Clock("hour", zone), "gte", hour))
            for number in range(600):
                detector.evaluate({}, number * 500)
        assert sorted(looked_up) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], mode


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "Africa/Monrovia", "Australia/Lord_Howe"])
@pytest.mark.parametrize("part", ["minute", "hour", "weekday", "day", "month", "clock"])
def test_a_part_of_the_time_changes_at_its_steps_and_nowhere_else(part: str, zone: str | None) -> None:
    times, local = local_times(zone), ZoneInfo(zone or "UTC")
    for start in ("1970-12-30T11:59:31+00:00", "2024-03-30T12:00:00+00:00", "2024-10-05T12:00:00+00:00"):
        now_us = round(at(start) * 1_000)
        steps = list(itertools.islice(times.steps_us(part, now_us), 200))
        assert steps == sorted(set(steps))

        def shown(time_us: int) -> Any:
            then = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
            then = then.astimezone(local)
            if part == "clock":
                return then.hour, then.minute
            return then.isoweekday() if part == "weekday" else getattr(then, part)

        changes = [us for us in steps if shown(us) != shown(us + 1)]
        assert len(changes) > 150, "steps at which nothing changes are few"
        for before, after in itertools.pairwise([now_us - 1, *steps]):
            probed = [before + 1 + (after - before - 1) * part // 7 for part in range(8)]
            assert len({shown(us) for us in probed}) == 1, (start, before, after)


@pytest.mark.slow
@pytest.mark.parametrize("zone", [None, "Australia/Lord_Howe"])
@pytest.mark.parametrize(
    ("part", "constant"),
    [
        *(("minute", value) for value in (-1, 0, 30, 30.5, 59, 60, 10**400)),
        *(("clock", text) for text in ("", "00:00", "02:3", "02:30", "23:59", "zz")),
    ],
)
def test_a_comparison_with_a_constant_steps_only_where_its_verdict_may_change(
    part: str, constant: Any, zone: str | None
) -> None:
    times = local_times(zone)
    place = Parts._fields.index(part)

    def verdicts(time_us: int) -> tuple[bool, bool]:
        value: Any = times.at(time_us)[place]
        return value < constant, value == constant

    for start in ("2024-03-30T12:00:07+00:00", "2024-10-05T12:00:00+00:00"):
        now_us = round(at(start) * 1_000)
        end_us = now_us + 2 * 86_400_000_000
        every, few = (
            [*itertools.takewhile(lambda us, end_us=end_us: us < end_us, found)]
            for found in (
                times.steps_us(part, now_us),
                term_operator(Clock(part, zone)).steps_us(Clock(part, zone), now_us, constant),
            )
        )
        assert {us for us in every if verdicts(us) != verdicts(us + 1)} <= {*few} <= {*every}
        assert len(few) < len(every) / 10


@pytest.mark.parametrize("mode", TRIED)
def test_values_of_all_types_compare_as_they_are_said_to(mode: str) -> None:
    values = (0, 1, 1.0, 1.5, 2**53 + 1, 2.0**53, 10**400, -1, "", "1", "b", "é", True, False, None, [1], {})
    for op, compare in COMPARISONS.items():
        sides = [(Fact("x"), Fact("y")), (Fact("x"), Prev("z")), (Last("z"), Fact("y"))]
        with in_mode(mode):
            detector = Detector()
            for left, right in sides:
                detector.add_rule("facts", Compare(left, op, right))
            constants = [one for one in values if not isinstance(one, list | dict | None)]
            for constant in constants:
                detector.add_rule("left", Compare(constant, op, Fact("y")))
                detector.add_rule("right", Compare(Fact("x"), op, constant))
            before: Any = None
            for number, (x, y) in enumerate(itertools.product(values, values)):
                fired = {
                    action["priority"]
                    for action in detector.evaluate({"x": x, "y": y, "z": [x, y][number % 2]}, number)
                }
                pairs = [(x, y), (x, before), (before, y)]
                for constant in constants:
                    pairs += [(constant, y), (x, constant)]
                held = [None if isinstance(one, list | dict) else one for pair in pairs for one in pair]
                expected = {
                    place + 1
                    for place, (one, other) in enumerate(zip(held[::2], held[1::2], strict=True))
                    if reference_terms.holds(one, op, other, compare)
                }
                if before is None and number:
                    # `last` goes further back than `prev`.
                    fired, expected = fired - {3}, expected - {3}
                assert fired == expected, (op, x, y)
                before = [x, y][number % 2]
                before = None if isinstance(before, list | dict) else before


def test_minima_of_panes_are_those_of_all_numbers() -> None:
    for seed in range(200):
        drawn = random.Random(seed)
        numbers: list[tuple[int, float]] = []
        entry: PaneMinima | tuple[()] = ()
        pane = added = 0
        for _ in range(40):
            pane += drawn.choice((0, 0, 1, 2, 9))
            number, oldest = float(drawn.randrange(9)), pane - 6
            now = drawn.choice((None, float(drawn.randrange(9))))
            counted = [one for at_pane, one in numbers if at_pane >= oldest] + ([] if now is None else [now])
            found = least(entry, pane, now, oldest)
            assert found == min(counted) if counted else math.isnan(found)
            numbers.append((pane, number))
            if entry:
                added += entry.add(pane, number, oldest)
            else:
                entry = PaneMinima([(pane, number)])
            assert len(entry.minima) == 1 + added <= 8
            assert entry.pane == pane
            # Each number that is kept counts, and is the least from its pane on.
            for kept in zip(*entry.minima, strict=True):
                assert list(kept) == sorted({*kept})
            assert entry.minima[0][0] >= oldest
            copied = entry.copy()
            copied.add(pane + 100, 0.0, pane + 100)
            assert entry.minima == PaneMinima(entry.minima).minima != copied.minima


def test_values_weigh_what_they_are() -> None:
    assert value_bytes("é" * 9) == key_bytes("é" * 9)
    assert value_bytes(1) == value_bytes(True) == value_bytes(1.5) == value_bytes(-(2**62))
    assert value_bytes(2**70) == value_bytes(2.0**70) > value_bytes(1)
    assert value_bytes(10**3999) > 1_600


def test_an_explanation_tells_what_was_computed_and_no_facts_and_constants() -> None:
    detector = Detector()
    detector.add_rule("rule", "x + 1 > last(x) * 2")
    detector.evaluate({"x": 1}, 0)
    [rule] = explain(detector, {"x": 2}, 1).rules
    assert rule.node.found == {"x + 1": 3.0, "last(x) * 2": 2.0, "last(x)": 1}


@pytest.mark.parametrize("term", [Prev("x"), Last("x")])
def test_a_string_of_262144_characters_is_remembered_and_no_longer_one(term: Term) -> None:
    longest = "x" * 262_144
    assert value(term, ({"x": longest}, 0), ({}, 1)) == longest
    assert value(term, ({"x": longest + "x"}, 0), ({}, 1)) is None


@pytest.mark.parametrize("earlier", ["prev", "last"])
def test_a_verdict_lasts_though_its_own_event_is_the_earlier_one_of_later_events(earlier: str) -> None:
    detector = Detector()
    detector.add_rule("rule", f"{earlier}(x) < age(a == 1)")
    detector.evaluate({"x": 1, "a": 1}, 0)
    future = explain(detector, {"x": 5}, 2_000).rules[0].node.future
    assert (future.verdict, future.until_us) == (True, None)


@pytest.mark.parametrize("is_new", [False, True], ids=["from the beginning", "since the last event"])
@pytest.mark.parametrize(
    ("condition", "x", "witness_us"),
    [
        ("x != prev(x)", [1, 2, 3], 1_000_000),
        ("x != prev(x)", [1, None, 3], None),
        ("x != last(x)", [1, None, 3], 0),
        ("x != last(x)", [None, 2, None, 3], 1_000_000),
        ("x != last(x)", [None, None, 3], None),
        ("age(x == 1) >= 0", [1, 2, 3], 0),
        ("age(x == 1) >= 0", [1, 1, 1], 2_000_000),
        ("age(x == 1) >= 0", [3, 2, 3], None),
    ],
)
def test_an_explanation_tells_the_one_event_that_a_value_comes_from(
    condition: str, x: Sequence[int | None], witness_us: int | None, *, is_new: bool
) -> None:
    detector = Detector()
    detector.add_rule("rule", condition)
    for number, value in enumerate(x[:-1]):
        detector.evaluate({"x": value}, 1_000 * number)
    if is_new:
        # It shares what is remembered, and knows nothing of it.
        detector.add_rule("new", condition)
    now_us = 1_000_000 * (len(x) - 1)
    node = explain(detector, {"x": x[-1]}, now_us / 1_000).rules[-1].node
    assert node.witness_us == (witness_us if not is_new or witness_us == now_us else None)


@pytest.mark.parametrize(
    ("condition", "verdict", "until_us"),
    [
        ("x * 2 < 10", True, None),
        ("now() < 5", True, 4_999_999),
        ("2 * now() * 3 < 30", True, 4_999_999),
        ("now() / 2 < 2.5", True, 4_999_999),
        ("10 / now() > x", True, 4_999_999),
        ("10 / (now() + now()) > 1", True, 4_999_999),
        ("10 / (now() + now()) < 1", False, 5_000_000),
        ("10 / (5 - now()) < 5", True, 2_999_999),
        ("now() / now() == 1", True, None),
        ("x / now() + x > 3", True, 1_999_999),
        ("abs(now() - 3) <= 2", True, 5_000_000),
        ("abs(now() - 3) < 2", False, 1_000_000),
        ("now() - now() == 0", True, None),
        ("hour() == 0", True, 3_599_999_999),
        ("3 > minute()", True, 179_999_999),
        ('clock() < "06:30"', True, 23_399_999_999),
        ('clock() != "06:30"', True, 23_399_999_999),
        ("weekday() == 4", True, 86_399_999_999),
        ("month() < 3", True, 59 * 86_400_000_000 - 1),
        ("hour() + minute() < 61", True, (3600 + 59 * 60 + 3600) * 1_000_000 - 1),
        # So many changes of the hour are looked at, or of the day where only midnight could matter.
        ("hour() < 24", True, 1_500 * 3_600_000_000 - 1),
        ('clock() < "24:00"', True, 1_500 * 86_400_000_000 - 1),
        # These change in ways that are not followed.
        ("now() * now() < 25", True, 1_000_000),
        ("5 / (now() * now()) > 0.2", True, 1_000_000),
        ("1 / now() / now() > 0.1", True, 1_000_000),
        ("now() + 10 / now() > 0", True, 1_000_000),
        # What stays false decides beside them. They do not, though they are false.
        ("x == 1 and now() * now() < 25", False, None),
        ("now() < 5 and now() * now() > 25", False, 1_000_000),
    ],
)
def test_an_explanation_tells_until_when_a_comparison_stays(
    condition: str, until_us: int | None, *, verdict: bool
) -> None:
    detector = Detector()
    detector.add_rule("rule", condition)
    node = explain(detector, {"x": 2}, 1_000).rules[0].node
    assert (node.verdict, node.until_us) == (verdict, until_us)


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize(
    "condition",
    [
        "count(a == 1) >= 2",
        "sum(v where a == 1) >= 2",
        "avg(v where a == 1) + v >= 2",
        "min(v where a == 1) + sum(v) >= 3",
        "max(v) + sum(v where a == 1) >= 3",
        "last(v where a == 1) >= v",
    ],
)
def test_an_event_of_which_nothing_is_remembered_takes_no_place(condition: str, mode: str) -> None:
    with in_mode(mode):
        detector = Detector(limits=Limits(keys_max=1))
        detector.add_rule("rule", f"per k (compare({condition}))")
        detector.evaluate({"k": 1, "a": 1, "v": 1}, 0)
        assert not detector.evaluate({"k": 2, "a": 2}, 1_000)
        assert not detector.evaluate({"k": 3, "a": 2}, 2_000)
        assert detector.evaluate({"k": 1, "a": 1, "v": 1}, 3_000)
