"""The garbage collector does not look through a detector that is awake, and does when it has gone."""

import gc
from collections.abc import Iterator

import pytest

from engine.runtime.collector import leave_alone, look_at_all, look_seldom, settle


class Cycle:
    def __init__(self) -> None:
        self.itself = self
        self.freed: list[str] = []

    def __del__(self) -> None:
        self.freed.append("freed")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_is_hidden_is_not_collected_until_all_is_looked_at():
    gc.collect()
    # Python 3.12 hides what is immortal by itself.
    hidden = gc.get_freeze_count()
    cycle = Cycle()
    freed = cycle.freed
    leave_alone()
    assert gc.get_freeze_count() > hidden
    del cycle
    gc.collect()
    assert freed == []
    look_at_all()
    assert freed == ["freed"]
    assert gc.get_freeze_count() == hidden


def test_the_collector_comes_seldom_but_comes():
    look_seldom()
    assert all(
        threshold > before for threshold, before in zip(gc.get_threshold(), (700, 10, 10), strict=True)
    )
    assert gc.isenabled()


def test_a_front_end_hides_what_stays_and_still_collects_what_comes_and_goes():
    before = Cycle()
    collected = Cycle().freed
    settle()
    assert collected == ["freed"], "what starting left behind is not hidden"
    assert gc.get_freeze_count() > 0
    threshold, *older = gc.get_threshold()
    assert threshold > 700
    assert older == [10, 10], "what grew old is looked at as ever"
    hidden, gone = before.freed, Cycle().freed
    del before
    gc.collect()
    assert gone == ["freed"]
    assert hidden == []
