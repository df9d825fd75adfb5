"""Python's own values mean what JSON's do, or are refused by name; what is refused leaves all as it was."""

import math
import numbers
import re
import sys
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import pytest

from engine import BatchRefused, Detector, Limits, Refusal
from engine.evaluation.events.intake import Intake, as_object
from tests.differential.feeding import submitted
from tests.differential.modes import index_from

NOON = datetime(2024, 3, 4, 12, tzinfo=UTC)
NOON_MS = 1_709_553_600_000


class Int64:
    """A number as NumPy has it: registered, and no subclass."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __int__(self) -> int:
        return self.value


class Float32(Int64):
    """The same, for floats."""

    def __float__(self) -> float:
        return float(self.value)


class Text(str):
    """A string of another type, as NumPy's is."""

    __slots__ = ()


class Color(str, Enum):  # noqa: UP042 -- the newer kind gives its text to `str`
    """Texts that `str` shows by their names."""

    A = "a"


class Hidden(str):
    """A string that dicts do not find by its text."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash((str, str.__str__(self)))


class Level(IntEnum):
    """Integers with names."""

    TWO = 2


class Rate(float, Enum):
    """Floats with names."""

    HALF = 1.5


class Moody(int):
    """An integer that converts to another."""

    def __int__(self) -> int:
        return 7


numbers.Integral.register(Int64)
numbers.Real.register(Float32)
bool_ = type("bool_", (), {"__module__": "numpy", "__bool__": lambda _: True})
OtherBool = type("bool_", (), {"__module__": "other"})
datetime64 = type("datetime64", (), {"__module__": "numpy"})


def shown(value: object) -> str:
    """Name a parameter alike in every process."""
    return re.sub(r" object at 0x[0-9a-f]+", "", repr(value))


@pytest.fixture(params=[0, 1 << 62], ids=["indexed", "fused"])
def detector(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Detector:
    index_from(monkeypatch, request.param)
    made = Detector()
    made.add_rule("equal", "x == 1.5 or x == 2 or x == true or x == 'a' or $x == 2")
    made.add_rule("within", "x contains 2 or x.y == 2 or x.y contains 2")
    made.add_rule("keyed", "per x once within 1s y == 1")
    return made


def ways(detector: Detector) -> list[Callable[..., list[str]]]:
    """Every function that takes events. Each gives the names of the rules that fire, or raises Refusal."""

    def many(*event: Any) -> list[str]:
        return [rule.name for rule in detector.evaluate_many([event])[0]]

    def one_by_one(*event: Any) -> list[str]:
        return [rule.name for rule in detector.evaluate_many(iter([event]))[0]]

    def in_a_batch(*event: Any) -> list[str]:
        (outcome,) = submitted(detector, [event])
        if isinstance(outcome, Refusal):
            raise outcome
        return [rule.name for rule in outcome.fired]

    alone: list[Callable[..., list[str]]] = [
        lambda *event: [str(action["name"]) for action in detector.evaluate(*event)],
        lambda *event: [rule.name for rule in detector.submit(*event).fired],
    ]
    together = [many, one_by_one, in_a_batch]
    return [*alone, *(lambda *event, way=way: way(*event, *[None] * (3 - len(event))) for way in together)]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (Decimal("1.5"), "equal"),
        (Decimal(2), "equal"),
        (Decimal("2E0"), "equal"),
        (Fraction(3, 2), "equal"),
        (Int64(2), "equal"),
        (Float32(2), "equal"),
        (bool_(), "equal"),
        (Text("a"), "equal"),
        (Color.A, "equal"),
        (Level.TWO, "equal"),
        (Rate.HALF, "equal"),
        (Moody(2), "equal"),
        (Decimal("2.00"), "equal"),
        ((1, 2), "within"),
        ([1, Decimal(2)], "within"),
        ([Int64(2)], "within"),
        (OrderedDict(y=2), "within"),
        (UserDict(y=Decimal(2)), "within"),
        (defaultdict(int, y=2), "within"),
        (MappingProxyType({"y": (2,)}), "within"),
        ({Text("y"): 2}, "within"),
        ({Hidden("y"): 2}, "within"),
        ([Color.A, Level.TWO], "within"),
    ],
    ids=shown,
)
def test_a_value_means_what_it_does_in_python(detector: Detector, value: Any, rule: str) -> None:
    for way in ways(detector):
        assert way({"x": value}, 0) == [rule]
        assert way(UserDict(x=value), 0, None) == [rule]
        assert way({Hidden("x"): value}, 0, None) == [rule]
        assert way(MappingProxyType({"y": value, "x": 3}), 0) == []


@pytest.mark.parametrize(
    "two", [2, 2.0, Decimal(2), Int64(2), Float32(2)], ids=["int", "float", "Decimal", "Int64", "Float32"]
)
def test_vars_and_keys_are_taken_as_fields_are(detector: Detector, two: Any) -> None:
    for way in ways(detector):
        assert way({"z": two}, 0, {"x": two}) == ["equal"]
        assert way({"x": 3}, 0, UserDict(x=two)) == ["equal"]
    detector.evaluate({"x": 2, "y": 1}, 0)
    for way in ways(detector):
        assert way({"x": two}, 0) == ["equal", "keyed"]
        assert way({"x": 3}, 0) == []


@pytest.mark.parametrize(
    ("time", "time_us"),
    [
        (NOON, NOON_MS * 1_000),
        (NOON + timedelta(microseconds=1), NOON_MS * 1_000 + 1),
        (NOON.astimezone(timezone(timedelta(hours=-7))), NOON_MS * 1_000),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (Decimal("1.001"), 1_001),
        (Int64(5), 5_000),
        (8.64e15, 8_640_000_000_000_000_000),
        (-8.64e15, -8_640_000_000_000_000_000),
    ],
    ids=shown,
)
def test_a_time_may_be_a_datetime_or_any_number(detector: Detector, time: Any, time_us: int) -> None:
    for way in ways(detector):
        way({}, time)
        assert detector.clock_us == time_us


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
REFUSED: list[tuple[dict[str, Any] | Any, Any, Any, str]] = [
    ({"a": 1, "x": math.nan}, 0, None, "fields.x: expected a finite number, got nan"),
    ({"a": 1.5, "x": math.inf}, 0, None, "fields.x: expected a finite number, got inf"),
    ({"x": -math.inf, "y": 1}, 0, None, "fields.x: expected a finite number, got -inf"),
    ({"x": Decimal("NaN")}, 0, None, "fields.x: expected a finite number, got nan"),
    ({"x": Decimal("Infinity")}, 0, None, "fields.x: expected a finite number, got inf"),
    ({"x": Decimal("sNaN")}, 0, None, "fields.x: expected a finite number, got nan"),
    ({"x": Fraction(10**400, 3)}, 0, None, "fields.x: expected a number in the range of a double"),
    ({"x": Decimal("1e4000")}, 0, None, "fields.x: expected a number in the range of a double"),
    ({"x": Decimal("1e999999")}, 0, None, "fields.x: expected a number in the range of a double"),
    ({"x": Decimal("1" * 400 + ".5")}, 0, None, "fields.x: expected a finite number, got inf"),
    ({1: "no name", "a": 2}, 0, None, "fields: expected names that are strings, got 1"),
    ({"a": 2, None: []}, 0, None, "fields: expected names that are strings, got None"),
    ({"x": [{"y": {(1,): 1}}]}, 0, None, "fields.x[0].y: expected names that are strings, got (1,)"),
    ({}, 0, {b"v": 1}, "vars: expected names that are strings, got b'v'"),
    ({}, Decimal("sNaN"), None, "timestamp_ms: expected a finite number, got nan"),
    ({"x": bytearray(b"a")}, 0, None, "fields.x: expected a value that JSON has, got bytearray"),
    ({"x": [1, [math.nan]]}, 0, None, "fields.x[1][0]: expected a finite number, got nan"),
    ({"x": {"y": [1j]}}, 0, None, "fields.x.y[0]: expected a value that JSON has, got complex"),
    ({"x": b"a"}, 0, None, "fields.x: expected a value that JSON has, got bytes"),
    ({"x": {1, 2}}, 0, None, "fields.x: expected a value that JSON has, got set"),
    ({"x": OtherBool()}, 0, None, "fields.x: expected a value that JSON has, got other.bool_"),
    ({"x": datetime64()}, 0, None, "fields.x: expected a value that JSON has, got numpy.datetime64"),
    ({"x": NOON}, 0, None, "fields.x: expected a value that JSON has, got datetime.datetime"),
    ({"x": CYCLE}, 0, None, "fields.x[0]"),
    ([("x", 1)], 0, None, "fields: expected a mapping, got list"),
    (None, 0, None, "fields: expected a mapping, got NoneType"),
    ({}, math.nan, None, "timestamp_ms: expected a finite number, got nan"),
    ({}, math.inf, None, "timestamp_ms: expected a finite number, got inf"),
    ({}, 1e16, None, "timestamp_ms: expected a number from -8.64e15 to 8.64e15"),
    ({}, -(10**400), None, "timestamp_ms: expected a number from -8.64e15 to 8.64e15"),
    ({}, True, None, "timestamp_ms: expected a number or a datetime, got bool"),
    ({}, "0", None, "timestamp_ms: expected a number or a datetime, got str"),
    ({}, None, None, "timestamp_ms: expected a number or a datetime, got NoneType"),
    ({}, bool_(), None, "timestamp_ms: expected a number or a datetime, got numpy.bool_"),
    ({}, [0], None, "timestamp_ms: expected a number or a datetime, got list"),
    ({}, NOON.date(), None, "timestamp_ms: expected a number or a datetime, got datetime.date"),
    ({}, NOON.replace(tzinfo=None), None, "timestamp_ms: expected a datetime with a time zone"),
    ({}, 0, {"v": math.nan}, "vars.v: expected a finite number, got nan"),
    ({}, 0, {"r": [[object()]]}, "vars.r[0][0]: expected a value that JSON has, got object"),
    ({}, 0, ["v"], "vars: expected a mapping, got list"),
]


@pytest.mark.parametrize(("fields", "time", "sent", "said"), REFUSED, ids=lambda value: shown(value)[:30])
def test_what_json_has_not_is_refused_by_name_and_changes_nothing(
    detector: Detector, fields: Any, time: Any, sent: Any, said: str
) -> None:
    detector.evaluate({"x": 1, "y": 1}, 5)
    before = detector.dump()
    for way in ways(detector):
        with pytest.raises(Refusal) as caught:
            way(fields, time, sent)
        (entry,) = caught.value.entries
        assert entry.code == 1001
        assert entry.message.startswith(said)
        assert detector.dump() == before


@pytest.mark.parametrize("time", [8_640_000_000_000_001, -8_640_000_000_000_001, 9 * 10**15, -(10**16)])
def test_the_first_time_is_one_that_dates_have(detector: Detector, time: int) -> None:
    for way in ways(detector):
        with pytest.raises(Refusal, match=r"expected a number from -8\.64e15 to 8\.64e15"):
            way({"x": 2, "y": 3, "x.y": 1}, time)
        assert detector.clock_us is None


UNREAD: list[dict[Any, Any]] = [
    {"x": 2, "y": 3, "x.y": 1, "unread": math.nan},
    {"x": 2, "y": 3, "x.y": 1, "x" * 81: {1}},
    {"x": 2, "y": 3, "x.y": 1, 1: "no name"},
    {"x": 2, "unread": CYCLE},
    {"x": (2,), "y": Decimal(3), "unread": object()},
]


@pytest.mark.parametrize("fields", UNREAD, ids=lambda value: shown(value)[:60])
def test_of_many_events_only_what_rules_read_is_refused(detector: Detector, fields: dict[Any, Any]) -> None:
    one, other, together, in_turn, body = ways(detector)
    for way in (together, in_turn):
        assert way(fields, 0) == (["equal"] if fields["x"] == 2 else ["within"])
    for way in (one, other, body):
        with pytest.raises(Refusal, match=r"fields"):
            way(fields, 0)
    detector.add_rule("shadow", "z == 1", shadow=True)
    for way in ways(detector):
        with pytest.raises(Refusal, match=r"^(at index 0: )?fields"):
            way(fields, 0)


def test_a_name_of_the_fields_is_shown_in_part() -> None:
    with pytest.raises(Refusal, match=f"^fields.{'x' * 80}: expected a value that JSON has, got set$"):
        as_object({"x" * 81: {1}}, "fields", 3)


def test_of_fields_with_the_same_name_that_with_a_plain_name_counts() -> None:
    for fields in ({"z": 1, Hidden("z"): 2}, {Hidden("z"): 2, "z": 1}):
        made = Detector()
        made.add_rule("one", "z == 1")
        for given in (fields, fields | {"unread": [1]}, UserDict(fields)):
            assert len(made.evaluate_many([(given, 0, None)])[0]) == 1


def test_a_batch_goes_as_far_as_the_first_refused_event(detector: Detector) -> None:
    sent: list[Any] = [({"x": 2}, 0, None), ({"x": 2}, 1, None), ({"x": math.nan}, 2, None), ({}, 3, None)]
    for events in (sent, iter(sent)):
        with pytest.raises(BatchRefused) as caught:
            detector.evaluate_many(events)
        assert (caught.value.index, len(caught.value.results), detector.clock_us) == (2, 2, 1_000)
    outcomes = submitted(detector, sent)
    assert [isinstance(outcome, Refusal) for outcome in outcomes] == [False, False, True, False]
    assert detector.clock_us == 3_000


def test_whoever_changes_an_event_before_the_next_is_judged_by_what_it_is_then(detector: Detector) -> None:
    detector.add_rule("large", "big contains 'yes' and $list contains 7 and $number >= 1")

    def events() -> Iterator[Any]:
        big: list[Any] = ["no"] * 1_000
        sent: dict[str, Any] = {"list": list(range(1_000))}
        for number in range(4):
            big[0] = "yes" if number % 2 else "no"
            sent["list"][7] = 7 if number else 0
            sent["number"] = number
            yield {"big": big}, number, sent

    assert [len(fired) for fired in detector.evaluate_many(events())] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "fields",
    [
        {"a": 10**400, "b": 0.5},
        {"a": 10**5_000},
        {},
        {"a": Decimal("1e400"), "b": Int64(10**400)},
        {"a": None, "b": True, "c": "x"},
    ],
    ids=["large", "larger", "empty", "large of other types", "of all kinds"],
)
def test_json_values_of_any_size_are_taken(detector: Detector, fields: dict[str, Any]) -> None:
    for way in ways(detector):
        assert way(fields, 0) == []
    assert len(detector.evaluate_many([(fields, 0.5, None), ({"a": 1}, 1, None)])) == 2


def test_what_is_json_already_is_taken_without_a_copy() -> None:
    """A copy of each event would take longer than the evaluation of a few rules."""
    fields = {"a": 1, "b": 0.5, "c": "x", "d": None, "e": True}
    batch = [(fields, time, None) for time in (-8_640_000_000_000_000, -8.64e15, 0.5, 8.64e15)]
    intake = Intake(Limits())
    assert intake.in_turn(batch, lambda: None) is batch
    assert intake.events(batch) is batch
    assert intake.read_events(batch, frozenset) is batch
    assert as_object(fields, "fields", 1) is fields
    assert as_object({"scalars": (scalars := [1, "x"])}, "fields", 2)["scalars"] is scalars


def test_what_is_converted_consists_of_the_types_of_json() -> None:
    given = [None, True, "a", 1, 0.5, Text("b"), Decimal(2**53 + 1), Decimal("1e3999"), (1,), UserDict(x=1)]
    taken = as_object(UserDict(x=given), "fields", 3)
    assert taken == {"x": [None, True, "a", 1, 0.5, "b", 2**53 + 1, 10**3999, [1], {"x": 1}]}
    kinds = [type(None), bool, str, int, float, str, int, int, list, dict]
    assert [type(value) for value in taken["x"]] == kinds


@pytest.mark.parametrize(
    "value", [[[1]], ([1],), [{"a": Decimal(1)}], {"a": [1]}, {"a": {"a": 1}}], ids=shown
)
def test_an_event_may_be_nested_as_deeply_as_the_limit_says(value: Any) -> None:
    intake = Intake(Limits(body_depth_max=3))
    intake.event({"x": value}, 0, {"x": value})
    with pytest.raises(Refusal, match=r"^fields\.x\[0\].*: it is nested too deeply$"):
        intake.event({"x": [value]}, 0, None)
    with pytest.raises(Refusal, match=r"^vars\.x\.y.*: it is nested too deeply$"):
        intake.event({}, 0, {"x": {"y": value}})


def test_each_event_of_a_batch_has_the_context_that_came_with_it(detector: Detector) -> None:
    two, three = {"x": Decimal(2)}, {"x": Decimal(3)}
    batch = [({}, time, sent) for time, sent in enumerate([two, two, None, three, two, None])]
    for events in (batch, iter(batch)):
        assert [len(fired) for fired in detector.evaluate_many(events)] == [1, 1, 0, 0, 1, 0]


def test_a_context_that_comes_with_several_events_in_a_row_is_converted_once(detector: Detector) -> None:
    converted = 0

    class Context(UserDict[str, Any]):
        def items(self) -> Any:
            nonlocal converted
            converted += 1
            return super().items()

    sent = Context(x=2)
    assert all(detector.evaluate_many([({}, time, sent) for time in range(3)]))
    assert converted == 1


@pytest.mark.parametrize("timestamp_ms", [0.1, 1e-9, 8.0005, 2289727492837.5073, -3377255321789.6553])
def test_a_fraction_of_a_millisecond_is_rounded_as_it_is_written(timestamp_ms: float) -> None:
    made = Detector()
    made.evaluate({}, timestamp_ms)
    assert made.clock_us == round(Decimal(repr(timestamp_ms)) * 1_000)


NESTED = {"a": {"b": 3}, "list": [1]}


def test_the_work_on_an_event_does_not_grow_with_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    index_from(monkeypatch, 1)

    def calls(rules: int) -> int:
        detector, made = Detector(), 0

        def note(_frame: object, event: str, _argument: object) -> None:
            nonlocal made
            made += event == "call"

        for number in range(rules):
            detector.add_rule(f"rule {number}", f"a.b == {number} and c == 1")
        detector.evaluate_many([(NESTED, 0, None)])
        sys.setprofile(note)
        try:
            detector.evaluate_many([(NESTED, 1, None)])
        finally:
            sys.setprofile(None)
        return made

    assert calls(200) < 2 * calls(10)


def test_a_new_rule_reads_fields_that_no_rule_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    index_from(monkeypatch, 1)
    detector = Detector()
    detector.add_rule("first", "a.b == 3")
    assert [len(fired) for fired in detector.evaluate_many([(NESTED, 0, None)])] == [1]
    detector.add_rule("second", "list contains 1")
    assert [len(fired) for fired in detector.evaluate_many([(NESTED, 1, None)])] == [2]
