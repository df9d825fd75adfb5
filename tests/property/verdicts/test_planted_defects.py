"""The worlds notice it if the engine forgets too early or too late, or the wrong slice."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.evaluation.kernel import rule_set
from engine.evaluation.kernel.indexing.families import Family
from engine.evaluation.operators.counting.count import CountOperator
from engine.evaluation.slices.bounds import tracked
from engine.evaluation.slices.slices import Remembered, Slices
from engine.evaluation.stamps import NEVER
from tests.differential.comparison import disagreement
from tests.differential.modes import MODES, in_mode
from tests.worlds.evictions import BoundedWorld
from tests.worlds.long_histories import LongHistoriesWorld
from tests.worlds.shared_histories import SharedWorld, WindowsWorld

Examples = Callable[..., Iterator[random.Random]]
EXAMPLES_MAX = 300

_add_to_family = Family.add
_add, _until_us, _set = rule_set.RuleSet.add, Remembered.until_us, tracked.Tracked._set


def _born_early(self: rule_set.RuleSet, rule: Any, birth: int, born: int) -> None:
    _add(self, rule, birth, NEVER)


def _in_a_family_for_ever(self: Family, rank: int, priority: int, born: int) -> None:
    _add_to_family(self, rank, priority, NEVER)


def _larger_windows_fail(self: CountOperator, node: Any) -> bool:
    return False


def _expired_early(self: Remembered, entry: Any, seen: int) -> int:
    return _until_us(self, entry, seen) - 1_000_000


def _never_expired(self: Slices, slice_: Any) -> int:
    return 1 << 62


def _seen_latest_first(self: tracked.Tracked, number: int, until_us: int, seen: int) -> None:
    _set(self, number, until_us, -seen)


@pytest.mark.parametrize(
    ("planted", "world"),
    [
        ((rule_set.RuleSet, "add", _born_early), SharedWorld),
        ((Family, "add", _in_a_family_for_ever), WindowsWorld),
        ((CountOperator, "grows", _larger_windows_fail), WindowsWorld),
        ((Remembered, "until_us", _expired_early), LongHistoriesWorld),
        ((Slices, "first_until_us", _never_expired), BoundedWorld),
        ((tracked.Tracked, "_set", _seen_latest_first), BoundedWorld),
    ],
    ids=["births", "births in families", "growing windows", "expired early", "never expired", "eviction"],
)
def test_a_planted_defect_is_found(
    planted: tuple[Any, str, Any], world: Any, examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*planted)
    for number, drawn in enumerate(examples(1, until=lambda: False)):
        swept = [mode for mode in MODES if "swept" in mode]
        with in_mode(swept[number % len(swept)]):
            try:
                if world is BoundedWorld:
                    found = BoundedWorld.drawn(drawn.choice).disagreement()
                else:
                    shape = {"steps_max": 60} if world is LongHistoriesWorld else {}
                    found = disagreement(world(drawn.choice).script(**shape))
            except LookupError:
                # A slice that has expired twice is not there the second time.
                return
        if found:
            return
        assert number < EXAMPLES_MAX
