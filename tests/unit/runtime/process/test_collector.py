"""What the garbage collector scans in a worker, while a detector is active and afterwards."""

import pytest

from engine.runtime.process import collector
from engine.runtime.process.collector import FrozenHeap, collect_seldom, freeze_present, settle

OWN = frozenset({"own 1", "own 2"})


class Collector:
    """Python's collector, over objects that are used or garbage."""

    def __init__(self) -> None:
        self.used: set[str] = {*OWN}
        self.garbage: set[str] = set()
        self.frozen: set[str] = set()
        self.scanned: list[int] = []
        """How many objects each collection has looked at."""
        self.lists = 0
        self.count = (0, 0, 0)
        self.threshold: tuple[int, ...] = (700, 10, 10)

    def freeze(self) -> None:
        self.frozen |= self.used | self.garbage

    def unfreeze(self) -> None:
        self.frozen.clear()

    def collect(self) -> None:
        self.scanned.append(len(self.visible))
        self.garbage &= self.frozen

    @property
    def visible(self) -> set[str]:
        return (self.used | self.garbage) - self.frozen

    def get_objects(self) -> list[str]:
        self.lists += 1
        return [*self.visible]

    def get_count(self) -> tuple[int, ...]:
        return self.count

    def get_threshold(self) -> tuple[int, ...]:
        return self.threshold

    def set_threshold(self, *threshold: int) -> None:
        self.threshold = (*threshold, *self.threshold[len(threshold) :])

    def detector(self, heap: FrozenHeap, objects: int, at_most: int = 0) -> set[str]:
        """Have a detector of so many objects activated; `at_most` is what the counts of the collector say."""
        made = {f"of the detector {number}" for number in range(objects)}
        self.used |= made
        self.count = (at_most or objects, 0, 0)
        heap.activated()
        return made

    def drop(self, heap: FrozenHeap, made: set[str]) -> None:
        self.used -= made
        self.garbage |= made
        heap.gone()


@pytest.fixture
def gc(monkeypatch: pytest.MonkeyPatch) -> Collector:
    made = Collector()
    monkeypatch.setattr(collector, "gc", made)
    monkeypatch.setattr(collector, "_LARGE_OBJECTS", 100)
    return made


def test_a_large_detector_is_hidden_while_it_is_active_and_collected_when_it_has_gone(gc: Collector) -> None:
    heap = FrozenHeap()
    assert gc.frozen == OWN
    made = gc.detector(heap, 101)
    assert heap.holds_many
    assert gc.frozen == OWN | made
    gc.drop(heap, made)
    assert (gc.garbage, gc.frozen, heap.holds_many) == (set(), OWN, False)


def test_a_small_detector_is_not_hidden_and_objects_are_listed_only_where_there_may_be_many(
    gc: Collector,
) -> None:
    heap = FrozenHeap()
    gc.drop(heap, gc.detector(heap, 100))
    assert (gc.frozen, gc.lists, heap.holds_many) == (OWN, 0, False)
    gc.detector(heap, 100, at_most=101)
    assert (gc.frozen, gc.lists, heap.holds_many) == (OWN, 1, False)
    # What the older generations have counts too: 7 + 10 * (3 + 4 * 2).
    gc.count, gc.threshold = (7, 3, 2), (10, 4, 9)
    heap.activated()
    assert gc.lists == 2
    gc.count = (0, 1, 2)
    heap.activated()
    assert gc.lists == 2


@pytest.mark.parametrize(("detectors", "active"), [(1, 0), (30, 0), (30, 20)])
def test_what_small_detectors_leave_is_collected_once_more_are_gone_than_a_few_and_than_are_active(
    gc: Collector, detectors: int, active: int
) -> None:
    heap = FrozenHeap(detectors)
    assert heap.holds_many is (detectors > 1)
    for _ in range(active):
        heap.activated()
    gone = 0
    while not gc.scanned:
        gc.drop(heap, gc.detector(heap, 3))
        gone += 1
    assert gone == max(active, 15) + 1
    assert gc.scanned == [3], "it does not look at what is the worker's own"
    assert (gc.garbage, gc.frozen) == (set(), OWN)


def test_detectors_that_share_a_worker_are_never_hidden(gc: Collector) -> None:
    gc.detector(FrozenHeap(2), 101)
    assert (gc.frozen, gc.lists) == (OWN, 0)


def test_a_front_end_hides_what_stays_and_still_collects_what_comes_and_goes(gc: Collector) -> None:
    gc.garbage = {"what starting left behind"}
    settle()
    assert (gc.garbage, gc.frozen) == (set(), OWN)
    young, middle, old = gc.threshold
    assert 700 < young < young * (middle + 1) <= 30_000, "each collection frees few connections"
    assert old == 10, "what grew old is looked at as ever"


def test_a_directory_hides_what_stays_and_does_not_wait_for_a_collection(gc: Collector) -> None:
    freeze_present()
    assert (gc.scanned, gc.frozen) == ([], OWN)


def test_the_collector_comes_seldom_but_comes(gc: Collector) -> None:
    collect_seldom()
    young, middle, old = gc.threshold
    assert 700 < young < young * (middle + 1) <= 50_000, "each collection looks at few objects"
    assert 10 < old < 10**6
