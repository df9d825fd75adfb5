"""Timed rules fire by time exactly when the reference says, which checks every possible time."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.evaluation.operators.interface import Operator
from engine.evaluation.operators.temporal.aged import AgedOperator
from engine.evaluation.operators.temporal.historically import HistoricallyForStrongOperator
from engine.evaluation.stamps import NUMBER_BITS
from engine.evaluation.timed import changes, next_turn, queue, timing
from engine.evaluation.timed.changes import Part
from engine.evaluation.timed.table import NO_SOONEST
from engine.evaluation.timed.timing import Timing
from engine.evaluation.timed.watch import Watch
from engine.evaluation.times import FOREVER
from tests.differential.feeding import in_batches, one_by_one
from tests.differential.modes import TRIED, in_mode
from tests.differential.timed import disagreement, played, played_to_the_end, shortened
from tests.thoroughness import tried
from tests.worlds.timed import AddTimed, BusyWorld, KeptWorld, TimedStep, TimedWorld

Examples = Callable[..., Iterator[random.Random]]


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("world", [TimedWorld, BusyWorld, pytest.param(KeptWorld, marks=pytest.mark.slow)])
def test_what_fires_by_time_is_what_the_reference_says(
    world: type[TimedWorld], mode: str, examples: Examples
) -> None:
    fired = 0
    for drawn in examples(300, mode, until=lambda: fired > 3):
        script = world(drawn.choice).script()
        with in_mode(mode):
            told = disagreement(script)
            assert told is None, "\n".join([told, *map(repr, shortened(script))])
            fired += sum(len(told.by_time) for told in played(script))


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param([(queue, "_SPARE", 0)], id="what waits no more is dropped at once"),
        pytest.param([(queue, "FULL", 1), (next_turn, "FULL", 1)], id="a bucket has one entry"),
    ],
)
def test_the_queue_keeps_what_waits(
    limits: list[tuple[Any, str, int]], examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in limits:
        monkeypatch.setattr(*limit)
    for drawn in examples(300):
        script = BusyWorld(drawn.choice).script()
        told = disagreement(script)
        assert told is None, "\n".join([told, *map(repr, shortened(script))])


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("world", [TimedWorld, BusyWorld])
def test_events_that_come_together_are_told_as_those_that_come_alone(
    world: type[TimedWorld], mode: str, examples: Examples
) -> None:
    fired = 0
    for drawn in examples(300, mode, until=lambda: fired > 3):
        script = world(drawn.choice).script(24)
        with in_mode(mode):
            alone, together = played_to_the_end(script, one_by_one), played_to_the_end(script, in_batches)
        assert alone == together, "\n".join(map(repr, script))
        fired += len(alone.by_time)


class TiedWorld(BusyWorld):
    """Rules that exist twice, and fire at the same times."""

    def script(self, steps_max: int = 16) -> list[TimedStep]:
        """Return what happens to one detector."""
        steps = super().script(steps_max)
        return [each for step in steps for each in [step] * (1 + isinstance(step, AddTimed))]


# -- defects ------------------------------------------------------------------------------------------------

_turns_us, _ahead, _look = AgedOperator.turns_us, Part.ahead, Watch.look
_pass_time = Timing.pass_time


def _too_late(self: Part, slice_: Any, now_us: int) -> tuple[int, int]:
    us, until_us = _ahead(self, slice_, now_us)
    return us + 1, until_us


def _always_live(self: Part, slice_: Any, now_us: int) -> tuple[int, int]:
    return _ahead(self, slice_, now_us)[0], FOREVER


def _only_when_old_enough(self: Any, node: Any, entry: Any) -> Any:
    return [us for us in _turns_us(self, node, entry) if us >= (entry[-1] >> NUMBER_BITS) + node.window_us]


def _without_looking_back(self: Watch, entry: Any) -> Any:
    decide = self._deciders.decider([(self.rule.condition, self.births)])
    self._decide = lambda fields, sent, base, tick: base == entry[0] and decide(fields, sent, base, tick)
    return _look(self, entry)


def _rest_is_forgotten(self: Watch, time_us: int) -> None:
    return


def _never_fires(self: Watch) -> bool:
    return self.soonest == NO_SOONEST and self.shared_soonest == NO_SOONEST


def _last_first(self: Timing, base: int, tick: int) -> None:
    fired, fire = list[timing.FiredByTime](), self.fired
    self.fired = lambda one, _: fired.append(one)
    _pass_time(self, base, tick)
    self.fired = fire
    for one in sorted(fired, key=lambda one: (one.time_us, -one.rule.priority)):
        fire(one, tick)


DEFECTS: dict[str, tuple[Any, ...]] = {
    "a microsecond late": ((Part, "ahead", _too_late), "fused"),
    "slices live for ever": ((Part, "ahead", _always_live), "fused"),
    "least ages": ((AgedOperator, "turns_us", _only_when_old_enough), "fused"),
    "true before": ((Watch, "look", _without_looking_back), "fused"),
    "runs that are long enough": (
        (HistoricallyForStrongOperator, "turns_us", lambda *_: ()),
        "fused",
    ),
    "what slices share": ((Watch, "look_at_all_from", _rest_is_forgotten), "fused"),
    "which way time turns": ((Operator, "drift", lambda self, node: self.grows(node)), "fused"),
    "what is in buckets": ((Watch, "sift", lambda *_: None), "fused"),
    "what a change may have time turn": ((Watch, "is_idle", property(_never_fires)), "fused", KeptWorld),
    "order": ((Timing, "pass_time", _last_first), "fused", TiedWorld),
    "ages": ((changes, "crossings", lambda _: ()), "fused"),
    "what an event has changed": ((Part, "changed", lambda *_: "False"), "fused"),
    "what brings a look forward": ((Part, "advances", lambda *_: "False"), "fused"),
    "what outcomes concern": ((Timing, "touch", lambda *_: None), "indexed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", tried(DEFECTS, 3))
def test_a_planted_defect_is_found(defect: str, examples: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    planted, mode, *worlds = DEFECTS[defect]
    monkeypatch.setattr(*planted)
    worlds = worlds or [BusyWorld, BusyWorld, BusyWorld, TimedWorld]
    for number, drawn in enumerate(examples(1, until=lambda: False)):
        world = worlds[number % len(worlds)]
        with in_mode(mode):
            try:
                if disagreement(world(drawn.choice).script()):
                    return
            except LookupError:
                # A slice that no longer waits is forgotten a second time.
                return
        assert number < 2_000
