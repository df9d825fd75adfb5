"""What the garbage collector scans in an actor, while a detector is active and afterwards."""

import gc
from collections.abc import Iterator

import pytest

from engine.runtime.process import collector
from engine.runtime.process.collector import FrozenHeap, collect_seldom, settle


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
    # As it is after the collection of tests.
    gc.freeze()
    gc.set_threshold(*thresholds)


def test_a_large_detector_is_hidden_while_it_is_active_and_looked_through_when_it_has_gone(monkeypatch):
    monkeypatch.setattr(collector, "_LARGE_OBJECTS", 0)
    gc.collect()
    heap = FrozenHeap()
    hidden = gc.get_freeze_count()
    # Many, because some of what was hidden before may go meanwhile.
    cycles = [Cycle() for _ in range(1_000)]
    freed = cycles[0].freed
    heap.activated()
    assert gc.get_freeze_count() > hidden
    del cycles
    gc.collect()
    assert freed == []
    heap.gone()
    assert freed == ["freed"]


def test_objects_are_listed_only_where_there_may_be_many(monkeypatch):
    monkeypatch.setattr(collector, "_LARGE_OBJECTS", 10_000)
    collect_seldom()
    heap = FrozenHeap()
    with monkeypatch.context() as patched:
        patched.delattr(gc, "get_objects")
        heap.activated()
    heap.gone()
    for threshold in (50_000, 700):
        gc.set_threshold(threshold)
        hidden = gc.get_freeze_count()
        detector = [Cycle() for _ in range(10_000)]
        heap.activated()
        assert gc.get_freeze_count() > hidden + len(detector)
        del detector
        heap.gone()


def test_what_an_actor_is_made_of_is_not_looked_through_when_a_detector_goes(monkeypatch):
    """The number of hidden objects is the same before, all the time, and afterwards."""
    monkeypatch.setattr(collector, "_LEFT_SMALL", 0)
    own = [Cycle() for _ in range(20_000)]
    heap = FrozenHeap()
    hidden = gc.get_freeze_count()
    assert hidden > len(own)
    for _ in range(3):
        cycle = Cycle()
        freed = cycle.freed
        heap.activated()
        # The collector looks through what it can see: the detector, and little else.
        assert len(gc.get_objects()) < len(own) // 4
        del cycle
        heap.gone()
        assert freed == ["freed"]
        assert gc.get_freeze_count() >= len(own)
        assert len(gc.get_objects()) < len(own) // 4


def test_what_small_detectors_leave_is_collected_once_several_are_gone():
    heap = FrozenHeap()
    freed = Cycle().freed
    gone = 0
    while not freed:
        heap.activated()
        heap.gone()
        gone += 1
        assert gone <= 20
    assert gone > 1, "a collection takes longer than what a small detector leaves is worth"


def test_a_large_detector_that_went_leaves_the_actor_hidden(monkeypatch):
    own = [Cycle() for _ in range(20_000)]
    heap = FrozenHeap()
    monkeypatch.setattr(collector, "_LARGE_OBJECTS", 0)
    heap.activated()
    heap.gone()
    assert gc.get_freeze_count() > len(own)
    assert len(gc.get_objects()) < len(own) // 4


def test_the_collector_comes_seldom_but_comes():
    collect_seldom()
    young, _, old = gc.get_threshold()
    assert young > 700
    assert old > 10
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
