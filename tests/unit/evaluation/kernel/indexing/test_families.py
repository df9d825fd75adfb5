"""Rules that differ in one window only are evaluated as one, and each has what any rule has."""

from collections.abc import Callable
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.kernel.indexing import families as families_file
from engine.evaluation.kernel.indexing import indexed_stream
from engine.evaluation.kernel.indexing.families import Family
from tests.audit import audit
from tests.differential.modes import index_from

COUNT = 90
GONE = 60
"""So many seconds after an event, no shorter window has it."""
STEPS_MAX = 2 * COUNT.bit_length()


@pytest.fixture(autouse=True)
def indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are indexed from the first one on, and two are a family."""
    index_from(monkeypatch, 0)
    monkeypatch.setattr(families_file, "LARGE_FROM", 2)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Gives the ranks and births of which families ask whether a rule is true."""
    given: list[tuple[int, int]] = []
    fire = Family.fire

    def noted(self: Family, is_true: Callable[[int, int], bool], fire_one: Any) -> None:
        fire(self, lambda rank, born: bool(given.append((rank, born)) or is_true(rank, born)), fire_one)

    monkeypatch.setattr(Family, "fire", noted)
    return given


def families(detector: Detector) -> list[Family]:
    members = detector.rule_set._members
    assert members is not None
    return [one.what for one in members._members.values() if isinstance(one.what, Family)]


@pytest.mark.parametrize(
    ("condition", "firing"),
    [
        ("per k once within {}s a == 1", range(GONE, COUNT)),
        ("per k earlier within {}s a == 1", range(GONE, COUNT)),
        ("per k (a != 7 since within {}s a == 1)", range(GONE, COUNT)),
        ("per k count(a == 1) within {}s >= 1", range(GONE, COUNT)),
        ("per k count(a == 1) within {}s > 0", range(GONE, COUNT)),
        ("per k distinct(a) within {}s >= 2", range(GONE, COUNT)),
        ("per k count(a == 1) within {}s < 1", range(GONE)),
        ("per k not once within {}s a == 1", range(GONE)),
        ("k == 1 and not once within {}s a == 1", range(GONE)),
        ("per k historically for {}s a != 1", range(GONE)),
        ("per k not count(a == 1) within {}s <= 0", range(GONE, COUNT)),
    ],
)
def test_an_event_evaluates_few_of_them(condition: str, firing: range, asked: list[tuple[int, int]]) -> None:
    detector = Detector()
    for number in range(COUNT):
        # In any order, and with a window that is no multiple of the steps of time.
        window = number * 7 % COUNT + 0.5
        detector.add_rule(str(int(window)), condition.format(window))
    (family,) = families(detector)
    assert len(family.rules) == COUNT
    detector.evaluate({"k": 1, "a": 1}, 0)
    del asked[:]
    fired = detector.evaluate({"k": 1, "a": 2}, 1_000 * GONE)
    assert sorted(int(action["name"]) for action in fired) == [*firing]
    assert 0 < len(asked) <= STEPS_MAX
    audit(detector)


def test_where_none_is_true_only_the_row_itself_is_evaluated(asked: list[tuple[int, int]]) -> None:
    detector = Detector()
    for window in range(1, COUNT):
        detector.add_rule("rule", f"per k once within {window}s a == 1")
    detector.evaluate({"k": 1, "a": 1}, 0)
    del asked[:]
    assert detector.evaluate({"k": 1}, COUNT * 1_000) == []
    assert not asked


def test_rules_born_later_are_evaluated_one_by_one_only_until_their_windows_have_passed(
    asked: list[tuple[int, int]],
) -> None:
    detector = Detector()
    detector.add_rule("first", "per k once within 0.5s a == 1")
    detector.evaluate({"k": 1, "a": 1}, 0)
    for number in range(1, COUNT):
        detector.add_rule(f"rule {number}", f"per k once within {number + 0.5}s a == 1")
        detector.evaluate({"k": number + 1}, 0)
    assert len(families(detector)) == 1
    del asked[:]
    assert detector.evaluate({"k": 1}, 1_000) == []
    assert len(asked) > COUNT - 2
    detector.evaluate({"k": 1, "a": 1}, 1_000)
    del asked[:]
    assert len(detector.evaluate({"k": 1}, 1_000 + 1_000 * GONE)) == COUNT - GONE
    assert len(asked) <= STEPS_MAX


@pytest.mark.parametrize(
    "pair",
    [
        ("once within 1s a == 1", "once within 2s a == 2"),
        ("once within 1s a == 1", "earlier within 2s a == 1"),
        ("once within 1s a == 1", "not once within 2s a == 1"),
        ("once within 1s a == 1", "per k once within 2s a == 1"),
        ("count(a == 1) within 1s >= 1", "count(a == 1) within 2s >= 2"),
        ("count(a == 1) within 1s == 1", "count(a == 1) within 2s == 1"),
        ("sum(a) within 1s > 1", "sum(a) within 2s > 1"),
        ("b == 1 and once within 1s a == 1", "b == 2 and once within 2s a == 1"),
        ("b == 1 or once within 1s a == 1", "b == 1 or once within 2s a == 1"),
        (
            "once within 1s a == 1 and once within 1s b == 1",
            "once within 2s a == 1 and once within 2s b == 1",
        ),
        ("per k where once a == 1 once within 1s b == 1", "per k where once a == 1 once within 2s b == 1"),
        ("historically for 1s strong a == 1", "historically for 2s strong a == 1"),
    ],
)
def test_rules_are_no_family_if_they_differ_in_more_or_if_a_larger_window_may_mean_anything(
    pair: tuple[str, str],
) -> None:
    detector = Detector()
    for condition in pair:
        detector.add_rule(condition, condition)
    assert families(detector) == []
    audit(detector)


def test_rules_of_a_family_are_removed_exchanged_renamed_and_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexed_stream, "SAMPLED_EVERY", 1)
    detector = Detector()
    ids = [detector.add_rule(str(each), f"per k once within {each}s a == 1") for each in (1, 1, 2, 3, 5)]
    draft = detector.add_rule("draft", "per k once within 9s a == 1", shadow=True, draft_of=ids[0])

    def fired(time_ms: int, **facts: int) -> list[str]:
        audit(detector)
        return [action["name"] for action in detector.evaluate({"k": 1, **facts}, time_ms)]

    assert fired(0, a=1) == ["1", "1", "2", "3", "5"]
    assert fired(2_000) == ["2", "3", "5"]
    rules = detector.rule_set
    assert len({rules.time_ns(priority) for priority in rules.enabled}) == 1
    assert {rules.samples.ran[priority] for priority in rules.enabled} == {2}
    detector.promote(ids[0])
    assert fired(2_000) == ["1", "2", "3", "5"]
    detector.change_rule(ids[2], name="two")
    assert fired(2_000) == ["1", "two", "3", "5"]
    detector.change_rule(ids[3], enabled=False)
    assert fired(2_000) == ["1", "two", "5"]
    for rule in (ids[4], ids[1], draft, ids[2], ids[0]):
        detector.remove_rule(rule)
        audit(detector)
    assert families(detector) == []
    assert not rules.samples.ran


def test_few_rules_are_members_of_the_index_themselves_until_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(families_file, "LARGE_FROM", 4)
    detector = Detector()
    ids = []
    for number in range(1, 6):
        ids.append(detector.add_rule("rule", f"once within {number}s a == 1"))
        assert len(families(detector)) == (number >= 4)
        audit(detector)
    for rule in ids:
        assert len(families(detector)) == 1
        detector.remove_rule(rule)
        audit(detector)
    assert not families(detector)
