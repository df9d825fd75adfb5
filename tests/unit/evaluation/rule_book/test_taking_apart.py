"""A detector that is taken apart leaves little to the garbage collector, which frees it in one step."""

import gc
import sys
from collections.abc import Callable
from operator import sub
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.relations.stored import CHUNK, StoredRelation
from tests.differential.modes import in_mode

RULES = 200


def detector() -> Detector:
    made = Detector()
    for n in range(RULES):
        made.add_rule(f"once {n}", f"per user (once within 10m c == {n}) and a{n} == 1", every_secs=60)
        made.add_rule(f"silent {n}", f"per host (not once within {n + 1}m exists beat)", timed=True)
    rule_id = made.add_rule("listed", "listed(user) and name matches 'a.*b'")
    made.add_rule("draft", "listed(user)", shadow=True, draft_of=rule_id)
    made.put_relation("listed", ["ada", "bob"], time_ms=0)
    for number in range(500):
        made.evaluate({"user": f"u{number}", "host": number, "beat": 1, "c": 1, "a1": 1}, number)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_little_of_it_is_left_to_the_collector(mode):
    with in_mode(mode):
        made, steps = detector(), []
        gc.collect()
        made.take_apart(lambda: steps.append(1))
        del made
        assert gc.collect() < 10 * RULES
    assert len(steps) > 2 * RULES


TUPLES = 50 * CHUNK


class Pieces(list[Any]):
    """The pieces of a relation. They note how much memory is left when each goes."""

    def __init__(self, pieces: list[Any], blocks: list[int]) -> None:
        super().__init__(pieces)
        self.blocks = blocks

    def pop(self, *_: Any) -> Any:
        self.blocks.append(sys.getallocatedblocks())
        return super().pop()


@pytest.mark.parametrize(
    "end",
    [
        lambda made: made.take_apart(lambda: None),
        lambda made: made.delete_relation("r"),
        lambda made: made.put_relation("r", ["a"], time_ms=0),
    ],
    ids=["take apart", "delete", "replace"],
)
def test_a_relation_goes_a_chunk_at_a_time(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[Detector], object]
) -> None:
    pieces, blocks = StoredRelation.pieces, list[int]()
    monkeypatch.setattr(StoredRelation, "pieces", lambda relation: Pieces(pieces(relation), blocks))
    made = Detector()
    made.put_relation("r", map(str, range(TUPLES)), time_ms=0)
    end(made)
    # A row is two blocks, and a piece of the dict is some.
    assert blocks[0] - blocks[-1] > TUPLES
    assert max(map(sub, blocks, blocks[1:])) < 3 * CHUNK


def test_a_relation_that_others_hold_stays_whole() -> None:
    made = Detector()
    held = made.put_relation("r", map(str, range(TUPLES)), time_ms=0)
    made.take_apart(lambda: None)
    rows = [(str(number),) for number in range(TUPLES)]
    assert [*held.listed()] == rows
    assert all(row in held.rows for row in rows)
