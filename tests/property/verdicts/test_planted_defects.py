"""The worlds notice if the engine forgets too early, too late, or the wrong slice."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.evaluation.kernel import rule_set
from engine.evaluation.kernel.indexing.families import Family
from engine.evaluation.operators import compare
from engine.evaluation.operators.counting.count import CountOperator, StampsSince
from engine.evaluation.operators.counting.panes import PaneMinima
from engine.evaluation.operators.temporal.aged import AgedOperator, Witnesses
from engine.evaluation.operators.temporal.since import HeldWitnesses
from engine.evaluation.operators.terms.past import LastOperator, PrevOperator
from engine.evaluation.requirements import Births, Requirements, requirements_of
from engine.evaluation.slices.bounds import tracked
from engine.evaluation.slices.slices import Remembered, Slices
from engine.evaluation.stamps import NEVER
from engine.language.condition import Condition, Windowed
from tests.differential.comparison import disagreement
from tests.differential.modes import MODES, in_mode
from tests.worlds.evictions import BoundedWorld
from tests.worlds.long_histories import AgesWorld, LongHistoriesWorld
from tests.worlds.shared_histories import SharedWorld, WindowsWorld
from tests.worlds.term_histories import FlatTermsWorld, TermsWorld

Examples = Callable[..., Iterator[random.Random]]
EXAMPLES_MAX = 300
LONG = (LongHistoriesWorld, TermsWorld, FlatTermsWorld)

_add_to_family = Family.add
_is_there = AgedOperator.is_there
_add, _until_us, _set = rule_set.RuleSet.add, Remembered.until_us, tracked.Tracked._set


def _born_early(self: rule_set.RuleSet, rule: Any, births: Births, parts: Requirements) -> None:
    early = replace(births, born=NEVER)
    _add(self, rule, early, requirements_of(rule.condition, early))


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


def _thinned_too_much(inner: Condition, node: Windowed, **more: Condition) -> Witnesses:
    made = HeldWitnesses if more else Witnesses
    return made(inner, node.min_us, node.window_us, **more)


def _young_enough(self: AgedOperator[Any], node: Any, read: Any) -> str:
    return _is_there(self, replace(node, min_secs=node.min_secs - 1e-6), read)


def _left_is_not_asked(self: HeldWitnesses, operands: Any, names: Any) -> str:
    left, right = operands
    return f"'more' if {right} else None if {left} else 'none'"


def _reset_after_counting(self: StampsSince, operands: Any, names: Any) -> str:
    inner, reset = operands
    return f"True if {inner} else False if {reset} else None"


def _of_any_event_before(self: PrevOperator, term: Any, read: Any, operands: Any) -> str:
    return f"(entry[1] if (entry := {read.entry}) and {read.born} < entry[0] else None)"


def _of_any_birth(self: LastOperator, term: Any, read: Any, operands: Any) -> str:
    return f"(entry[1] if (entry := {read.entry}) else None)"


def _least_of_all(self: PaneMinima, oldest: int) -> float:
    return self.minima[0][1]


def _never(node: Any, triggers: Any, path: Any) -> Any:
    return frozenset()


@pytest.mark.storm
@pytest.mark.parametrize(
    ("planted", "world"),
    [
        ((rule_set.RuleSet, "add", _born_early), SharedWorld),
        ((Family, "add", _in_a_family_for_ever), WindowsWorld),
        ((CountOperator, "grows", _larger_windows_fail), WindowsWorld),
        ((Remembered, "until_us", _expired_early), LongHistoriesWorld),
        ((Witnesses, "of", _thinned_too_much), AgesWorld),
        ((Witnesses, "splits", True), SharedWorld),
        ((AgedOperator, "is_there", _young_enough), AgesWorld),
        ((HeldWitnesses, "outcome", _left_is_not_asked), AgesWorld),
        ((StampsSince, "outcome", _reset_after_counting), SharedWorld),
        ((Slices, "first_until_us", _never_expired), BoundedWorld),
        ((tracked.Tracked, "_set", _seen_latest_first), BoundedWorld),
        ((PrevOperator, "value", _of_any_event_before), TermsWorld),
        ((LastOperator, "value", _of_any_birth), SharedWorld),
        ((PaneMinima, "least", _least_of_all), FlatTermsWorld),
        ((compare, "true_at", _never), TermsWorld),
    ],
    ids=[
        *("births", "births in families", "growing windows", "expired early"),
        *("thinning", "thinning for other births", "least age", "left with a least age", "reset"),
        *("never expired", "eviction"),
        *("any event before", "births of values", "expired panes", "triggers"),
    ],
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
                    shape = {"steps_max": 60} if issubclass(world, LONG) else {}
                    found = disagreement(world(drawn.choice).script(**shape))
            except LookupError:
                # A slice that expires twice is gone the second time.
                return
        if found:
            return
        assert number < EXAMPLES_MAX
