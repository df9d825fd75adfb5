"""What many rules ask of one value is found once, and is what each would find alone."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.facts import lookups, relations, values
from engine.evaluation.facts.lookups import WALKED_MAX, Lookups
from engine.evaluation.facts.values import canonical
from engine.evaluation.slices.slices import Slices
from tests.differential.feeding import submitted
from tests.differential.modes import index_from
from tests.reference_values import among, equal

SCALARS: tuple[Any, ...] = (
    10**5_000,
    10**5_000 + 1,
    0,
    1,
    1.0,
    True,
    False,
    "1",
    "",
    "ab",
    0.5,
    10**30,
    -(10**30),
    1e30,
    2**61 - 1,
    2**53,
)
NESTED: tuple[Any, ...] = (
    [],
    {},
    [1],
    [1.0],
    [True],
    ["1"],
    [None],
    [[1], {}],
    [[1.0], {}],
    {"a": 1, "b": [2.0]},
    {"b": [2], "a": 1.0},
    {"a": None},
    {"a": "1, b"},
    ["a', 'b"],
    ["a", "b"],
)


def _shown(value: Any) -> str:
    return hex(value) if type(value) is int else repr(value)


FILLING: list[Any] = [f"x{number}" for number in range(WALKED_MAX)]


@pytest.fixture(params=[0, 1 << 62], ids=["indexed", "fused"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    index_from(monkeypatch, request.param)


@pytest.mark.parametrize("left", [*SCALARS, *NESTED], ids=_shown)
def test_canonical_texts_are_the_same_for_equal_values_only(left: Any) -> None:
    for right in [*SCALARS, *NESTED]:
        assert (canonical(left) == canonical(right)) is equal(left, right), right


@pytest.mark.parametrize("wanted", [*SCALARS, *NESTED], ids=_shown)
def test_an_element_is_found_in_a_large_array_as_in_a_small_one(wanted: Any) -> None:
    lookup, of_wanted = Lookups().of("x"), Lookups().of("y")
    for element in [*SCALARS, *NESTED, None]:
        array = [*FILLING, element]
        for _ in range(2):
            assert lookup.holds(array, wanted, of_wanted) is among(wanted, array), element
            assert lookup.holds([element], wanted) is equal(wanted, element), element


@pytest.mark.parametrize("left", NESTED, ids=_shown)
def test_large_values_are_compared_as_small_ones_are(left: Any) -> None:
    ours, theirs = Lookups().of("x"), Lookups().of("y")
    for right in [*NESTED, *SCALARS]:
        for _ in range(2):
            assert ours.equals(left, right, theirs) is equal(left, right), right


# -- work ---------------------------------------------------------------------------------------------------


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the arrays whose elements were gathered, compared, or read as a relation."""
    lengths: list[int] = []

    def counted(module: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(module, name)

        def count(value: Any, *rest: Any) -> Any:
            if isinstance(value, list | dict):
                lengths.append(len(value))
            return real(value, *rest)

        monkeypatch.setattr(module, name, count)

    counted(lookups, "_elements")
    counted(lookups, "holds")
    counted(lookups, "equal")
    counted(lookups, "canonical")
    counted(relations, "_tuples")
    return lengths


def _detector(rules: Iterator[str]) -> Detector:
    detector = Detector()
    for rule in rules:
        detector.add_rule(rule[:50], rule)
    return detector


@pytest.mark.parametrize(
    ("size", "wanted", "expected"),
    [
        # Python looks for a text by itself. Many texts are looked for in a set.
        (WALKED_MAX, "a", []),
        (WALKED_MAX + 1, "a", [WALKED_MAX + 1]),
        (WALKED_MAX, 7, [WALKED_MAX] * 3),
        (WALKED_MAX + 1, 7, [WALKED_MAX + 1]),
        (WALKED_MAX + 1, True, [WALKED_MAX + 1]),
        # The canonical text of what is looked for, and those of the elements.
        (0, [1, 2], [2, 0]),
        (WALKED_MAX, [1, 2], [2, WALKED_MAX]),
        (WALKED_MAX, {"a": 1}, [1, WALKED_MAX]),
        (WALKED_MAX + 1, [1, 2], [2, WALKED_MAX + 1]),
    ],
)
def test_an_array_is_walked_no_more_often_than_it_pays(
    size: int, wanted: Any, expected: list[int], walks: list[int]
) -> None:
    lookup, of_wanted = Lookups().of("x"), Lookups().of("y")
    array: list[Any] = [f"x{number}" for number in range(size)]
    assert not any(lookup.holds(array, wanted, of_wanted) for _ in range(3))
    assert walks == expected


def test_values_that_are_compared_again_are_walked_for_the_last_time(walks: list[int]) -> None:
    ours, theirs = Lookups().of("x"), Lookups().of("y")
    left, right = [*range(100)], [*range(100)]
    for expected in ([100], [100] * 3, [100] * 3):
        assert ours.equals(left, right, theirs)
        assert walks == expected
    walks.clear()
    # Their sizes show that they differ.
    assert not any(ours.equals(left, right[1:], theirs) for _ in range(3))
    assert not any(ours.equals(left, {str(number): 1 for number in range(100)}, theirs) for _ in range(3))
    assert walks == []


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(
    ("rule", "walks_max"),
    [
        ("x contains {}", 1),
        ('x contains "{}"', 1),
        ("{} between 0 and 1 or x contains {}", 1),
        ("not x contains {}", 1),
        ("y in x and not z == {}", 1),
        ("y in $list and not z == {}", 1),
        ("y not in x and not z == {}", 1),
        ("x == w and not z == {}", 3),
        ("x != w and not z == {}", 3),
        ("r(y, {})", 1),
    ],
)
def test_an_array_is_walked_as_often_for_thirty_rules_as_for_two(
    rule: str, walks_max: int, walks: list[int]
) -> None:
    many = list(range(5_000))
    sent = {"list": many, "r": [[number, number] for number in many]}
    for count in (2, 30):
        walks.clear()
        detector = _detector(
            rule.replace("{}", str(number)).replace(f"{number} b", f"f{number} b") for number in range(count)
        )
        detector.evaluate({"x": many, "w": [*many], "y": 4_999, "z": "z"}, 0, sent)
        assert len([length for length in walks if length == 5_000]) <= walks_max


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("rule", ["owns(user, thing)", "user in $users", "user not in $users"])
def test_what_a_context_brings_is_read_once_for_a_batch(rule: str, walks: list[int]) -> None:
    sent = {"owns": [[str(number), number] for number in range(300)], "users": [*map(str, range(300))]}
    events = [({"user": str(number), "thing": number}, 0, sent) for number in range(250, 350)]
    expected = [rule != "user not in $users"] * 50 + [rule == "user not in $users"] * 50
    detector = _detector(iter([rule]))
    assert [*map(bool, detector.submit_clean(events).fired)] == expected
    detector.forget_lookups()
    assert [bool(fired) for fired in detector.evaluate_many(events)] == expected
    assert len(walks) <= 2, "once for each call"


def test_what_was_found_is_forgotten_when_the_call_is_over() -> None:
    detector = _detector(iter(["x contains 5", "owns(y)", "y in $list", "x == $list"]))
    fields: dict[str, Any] = {"x": [*range(100)], "y": 7}
    sent: dict[str, Any] = {"owns": [7], "list": [*range(100)]}
    calls: list[Callable[[], int]] = [
        lambda: len(detector.evaluate(fields, 0, sent)),
        lambda: len(detector.submit(fields, 0, sent).fired),
        lambda: len(detector.evaluate_many([(fields, 0, sent)])[0]),
        lambda: len(getattr(submitted(detector, [(fields, 0, sent)])[0], "fired", ())),
    ]
    for call in calls:
        assert call() == 4
        # In place: the values are the same ones, and hold something else.
        fields["x"][5] = sent["owns"][0] = sent["list"][7] = -1
        assert call() == 0
        fields["x"][5], sent["owns"][0], sent["list"][7] = 5, 7, 7


@pytest.mark.usefixtures("both_ways")
def test_keys_of_several_numbers_cannot_be_made_to_share_a_hash() -> None:
    detector = _detector(iter(["per a per b once x == 1", "per c per a per b once x == 1"]))
    pairs = [(1, 2), (0.5, 2), (10**30, -(10**30)), (True, 2), ("1", "2"), (1e-9, -0.25), (3.0, 1e300)]
    for a, b in pairs:
        detector.evaluate({"a": a, "b": b, "c": 1, "x": 1}, 0)
    every = detector.histories.slices.values()
    keys: list[Any] = [key for slices in every for shard in slices.shards for key in shard]
    assert len(keys) == 2 * len(pairs)
    assert not any(type(part) in (int, float) for key in keys for part in key)
    for a, b in [*pairs, (1.0, 2.0), (3, 10**300)]:
        expected = 0 if b == 10**300 else 2
        assert len(detector.evaluate({"a": a, "b": b, "c": 1.0}, 0)) == expected, (a, b)
        assert detector.evaluate({"a": b, "b": a, "c": 1}, 0) == [], (a, b)


def test_a_batch_of_refused_events_is_read_through_once() -> None:
    class Counted(list[Any]):
        given = 0

        def __iter__(self) -> Iterator[Any]:
            for event in super().__iter__():
                self.given += 1
                yield event

        def __getitem__(self, place: Any) -> Any:
            found = super().__getitem__(place)
            self.given += len(found) if isinstance(place, slice) else 1
            return found

    detector = Detector()
    detector.add_rule("once", "once x == 1")
    events = Counted(
        [({"x": 1}, 10**9, None), *[({}, number, None) for number in range(500)], ({}, 10**9, None)]
    )
    outcomes = detector.submit_clean(events)
    assert list(map(bool, outcomes.fired)) == [True, *[False] * 500, True]
    assert events.given == 2 * len(events), "once for the types, once to evaluate"


# -- messages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paths", [5, 150])
def test_an_event_is_shown_to_the_keys_that_it_has(paths: int, monkeypatch: pytest.MonkeyPatch) -> None:
    index_from(monkeypatch, 0)
    entered: list[tuple[str, ...]] = []
    real = Slices.enter

    def counted(self: Slices, *event: Any) -> None:
        entered.append(self.path)
        real(self, *event)

    monkeypatch.setattr(Slices, "enter", counted)
    detector = _detector(f"per k{number % 120} per k{number} once x == 1" for number in range(paths))
    assert len(detector.evaluate({"k3": "a", "x": 1}, 0)) == 1
    entered.clear()
    assert len(detector.evaluate({"k3": "a", "k4": 1}, 0)) == 1
    assert len(entered) <= 10
    # The key of the event before is that event's alone, also for a rule that this one triggers.
    detector.add_rule("triggered", "x == 2 and per k3 once x == 1")
    detector.evaluate({"x": 1, "k3": "a"}, 0)
    assert "triggered" in [action["name"] for action in detector.evaluate({"x": 2, "k3": "a"}, 0)]
    assert detector.evaluate({"x": 2}, 0) == []


@pytest.mark.usefixtures("both_ways")
def test_the_digest_of_a_long_key_is_made_once_for_all_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = values.sha256

    def counted(data: bytes) -> Any:
        made.append(len(data))
        return real(data)

    monkeypatch.setattr(values, "sha256", counted)
    detector = _detector(f"per a per b per k{number} once x == 1" for number in range(20))
    a, b = "a" * 5_000, "b" * 5_000
    for _ in range(2):
        made.clear()
        fields = {"a": a + "!", "b": b + "!", "x": 1} | {f"k{number}": number for number in range(20)}
        assert len(detector.evaluate(fields, 0)) == 20
        assert made == [5_001, 5_001]


def test_a_text_that_no_rule_added_excludes_no_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "WALKS_MAX", 0)
    found = Lookups()
    narrowed = found.of("elements").containing("b", found.of("texts"), lambda element: element)
    array = ["abc", "d", ["b"], ["bb"], 1]
    assert narrowed(array) is array
    found.add("texts", "b")
    assert narrowed(array) == ["abc", ["b"]]
