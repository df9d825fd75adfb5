"""The places of memories in slices."""

import pytest

from engine.evaluation.requirements import Use, requirements_of
from engine.evaluation.slices.histories import Histories
from engine.language.condition import Earlier, Leaf
from tests.work_growth import grows_linearly


def use_of(node: Earlier) -> Use:
    (use,) = requirements_of(node).memories
    return use


@pytest.mark.slow
def test_a_memory_takes_no_longer_to_add_beside_thousands_of_others() -> None:
    nodes = [Earlier(Leaf("a", "eq", number)) for number in range(8_000)]

    def work(size: int) -> None:
        histories = Histories(1_000, 1 << 30)
        for node in nodes[:size]:
            histories.acquire(use_of(node))

    assert grows_linearly(work, 2_000)


def test_no_two_memories_have_one_place_whatever_was_released_before() -> None:
    nodes = [Earlier(Leaf("a", "eq", number)) for number in range(60)]
    histories = Histories(1_000, 1 << 30)
    held = {node: histories.acquire(use_of(node)) for node in nodes[:40]}
    for node in nodes[0:40:3]:
        histories.release(use_of(node))
        del held[node]
    for node in nodes[40:]:
        held[node] = histories.acquire(use_of(node))
    assert len({one.place for one in held.values()}) == len(held)
