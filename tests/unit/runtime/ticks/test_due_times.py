"""What the scheduler knows of when passive detectors have to be ticked."""

import random

from engine.runtime.scheduler.detectors.due_times import DueTimes


def taken(dues: DueTimes, now_us: int) -> list[str]:
    found = []
    while (due := dues.take(now_us)) is not None:
        found.append(due[1])
    return found


def test_a_folder_tells_what_nobody_else_has_told_meanwhile() -> None:
    dues = DueTimes()
    for name in ("told", "told nothing", "asked again", "now", "then", "nothing", "gone"):
        dues.note(name, 0)
    assert len(dues.look_at(3)) == 3
    assert len(dues.look_at(9)) == 4
    assert dues.look_at(9) == []
    dues.note("told", 5)
    dues.note("told nothing", None)
    dues.note("asked again", 0)
    dues.forget("gone")
    for name in ("told", "told nothing", "asked again", "gone"):
        dues.found(name, 7, now_us=9)
    dues.found("now", 0, now_us=9)
    dues.found("then", 20, now_us=9)
    dues.found("nothing", None, now_us=9)
    assert [(name, dues.since_us(name)) for name in ("told", "now", "then", "nothing")] == [
        ("told", 5), ("now", 9), ("then", 20), ("nothing", None),
    ]  # fmt: skip
    assert [*dues.unknown] == ["asked again"]
    assert taken(dues, 100) == ["told", "now", "then"]


def test_what_is_tried_again_later_stays_overdue_until_something_newer_is_told() -> None:
    dues = DueTimes()
    dues.note("one", 5)
    assert dues.take(6) == (5, "one")
    dues.note("one", 100, since_us=5)
    assert (dues.overdue_us(50), dues.take(50)) == (45, None)
    assert dues.take(100) == (5, "one")
    dues.note("one", 200, since_us=5)
    dues.note("one", 300)
    assert (dues.overdue_us(250), dues.take(400)) == (0, (300, "one"))


def test_it_grows_with_the_detectors_and_not_with_what_is_noted_of_them() -> None:
    dues = DueTimes()
    for due_us in range(1, 10_000):
        dues.note("one", due_us)
    assert len(dues._queue) < 100


def test_it_agrees_with_a_table_that_is_searched(seed: int) -> None:
    drawn = random.Random(seed)
    dues, table = DueTimes(), dict[str, int]()
    for now_us in range(1, 2_000):
        name = f"{drawn.randrange(9)}"
        if drawn.random() < 0.7:
            due_us = drawn.choice((0, now_us + drawn.randrange(50)))
            dues.note(name, due_us)
            table[name] = due_us
        elif drawn.random() < 0.3:
            dues.note(name, None)
            table.pop(name, None)
        unknown = {one for one, due_us in table.items() if not due_us}
        assert {*dues.unknown} == unknown
        if drawn.random() < 0.2:
            found = [(table.pop(one), one) for one in taken(dues, now_us)]
            assert [due_us for due_us, _ in found] == sorted(due_us for due_us, _ in found)
            assert all(0 < due_us <= now_us for due_us, _ in found)
            assert all(due_us > now_us for one, due_us in table.items() if one not in unknown)
            assert taken(dues, now_us) == []
        assert len(dues) == len(table) - len(unknown)
