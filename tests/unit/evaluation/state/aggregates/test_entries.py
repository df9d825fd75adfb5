"""A comparison with a number is evaluated only where a record holds as many times or values."""

import pytest

from engine import Detector, Limits
from tests.differential.modes import in_mode

FEW, PAGED = "indexed", "indexed, in pages, looked up"
RULES = [
    ("count(b == 1) within 1h >= 3", 3),
    ("count(b == 1) > 13", 14),
    ("count(b == 1) within 1h == 2", 2),
    ("distinct(a where b == 1) >= 3", 3),
    ("distinct(a where b == 1) within 1h > 13", 14),
    ("distinct(a where b == 1) within 1h == 2", 2),
    ("count(b == 1) != 0", 1),
    ("sum(a where b == 1) within 1h > 5", 1),
]


def triggers(made: Detector, key: int = 1) -> bool:
    """Tell whether the events of a key meet the bucket of the only memory."""
    [table] = made.state.tables.values()
    slot = table.slot_at({"k": key}, {})
    return slot in table.triggering or any(column.triggers_at(slot) for column in table.watched)


@pytest.mark.parametrize("reloads", [False, True])
@pytest.mark.parametrize("mode", [FEW, PAGED])
@pytest.mark.parametrize(("rule", "needed"), RULES)
def test_a_slice_meets_the_rule_from_the_entry_on_that_can_make_it_true(
    rule: str, needed: int, mode: str, *, reloads: bool
) -> None:
    with in_mode(mode):
        made = Detector()
        made.add_rule("r", f"per k ({rule})")
        for number in range(1, 30):
            fired = made.evaluate({"k": 1, "a": number, "b": 1}, number)
            assert triggers(made) is (number >= needed), number
            if reloads:
                made = Detector.load(made.dump(), Detector.STATE_VERSION)
                assert triggers(made) is (number >= needed), number
            assert [made.evaluate({"k": 1}, number), made.evaluate({"k": 2}, number)] == [fired, []]


@pytest.mark.parametrize("mode", [FEW, PAGED])
@pytest.mark.parametrize(("rule", "needed"), RULES[:6])
def test_a_slice_that_is_forgotten_begins_anew(rule: str, needed: int, mode: str) -> None:
    with in_mode(mode):
        made = Detector(limits=Limits(keys_max=1))
        made.add_rule("r", f"per k ({rule})")
        for key in (1, 2, 1):
            for number in range(1, needed + 1):
                assert bool(made.evaluate({"k": key, "a": number, "b": 1}, 0)) is (number == needed)
                assert triggers(made, key) is (number == needed)


@pytest.mark.parametrize("rule", ["count(b == 1) >= 3", "distinct(a where b == 1) > 2"])
def test_without_keys_it_is_the_same(rule: str) -> None:
    with in_mode(FEW):
        made = Detector()
        made.add_rule("r", rule)
        for number in range(1, 6):
            made.evaluate({"a": number, "b": 1}, number)
            assert bool(made.state.globals.triggering) is (number >= 3)
            assert bool(made.evaluate({}, number)) is (number >= 3)


def test_a_rule_that_is_added_meets_the_slices_that_hold_as_much_as_it_needs() -> None:
    with in_mode(FEW):
        made = Detector()
        rule = "per k (count(b == 1) within 1h >= 2)"
        made.add_rule("r", f"a == 8 and {rule}")
        for number in (1, 2):
            made.evaluate({"k": 1, "a": 7, "b": 1}, number)
        assert not triggers(made)
        late = made.add_rule("late", rule)
        assert [made.evaluate({"k": 1, "a": 7, "b": 1}, 3), made.evaluate({"k": 1}, 3)] == [[], []]
        made.evaluate({"k": 1, "a": 7, "b": 1}, 4)
        assert [action["name"] for action in made.evaluate({"k": 1}, 5)] == ["late"]
        made.remove_rule(late)
        assert not triggers(made)


def test_a_memory_that_grows_into_pages_is_asked_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.evaluation.state.storage.columns.PAGED_FROM", 8)
    with in_mode(FEW):
        made = Detector()
        made.add_rule("r", "per k (count(b == 1) within 1h >= 2)")
        for key in range(7):
            for _ in range(1 + key % 2):
                made.evaluate({"k": key, "a": 7, "b": 1}, 0)
        [table] = made.state.tables.values()
        assert [triggers(made, key) for key in range(7)] == [bool(key % 2) for key in range(7)]
        assert not table.watched
        for key in range(7, 12):
            made.evaluate({"k": key, "a": 7, "b": 1}, 0)
        assert [triggers(made, key) for key in range(7)] == [bool(key % 2) for key in range(7)]
        assert (table.triggering, len(table.watched)) == ({}, 1)
