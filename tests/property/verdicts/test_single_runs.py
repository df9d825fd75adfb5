"""A rule is evaluated, and a store updated, at most once per event, however many triggers it meets."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import Detector
from engine.evaluation.kernel.indexing.members import Members
from tests.differential.feeding import answers, in_batches
from tests.differential.modes import in_mode
from tests.worlds.many_rules import ManyRulesWorld
from tests.worlds.ranges import RangesWorld
from tests.worlds.scripts import World
from tests.worlds.shared_histories import NestedWorld, RunsWorld, SharedWorld
from tests.worlds.steady_facts import SteadyFactsWorld


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """Count the runs of each member at each event."""
    counted: Counter[tuple[int, int]] = Counter()
    wrapped: dict[Any, Any] = {}
    compile_row = Members._row

    def row(self: Members, member: int, known: Any, *, selected: bool) -> Any:
        made = compile_row(self, member, known, selected=selected)
        width = len(made.rest) + 1

        def observe(constants: Any, rest: Any, *args: Any) -> None:
            members = [each[-2] for each in rest] if selected else rest[width - 1 :: width]
            tick = args[3]
            counted.update((tick, each) for each in members)
            made.observe(constants, rest, *args)

        return made._replace(observe=wrapped.setdefault(made.observe, observe))

    monkeypatch.setattr(Members, "_row", row)
    return counted


@pytest.mark.parametrize(
    "world", [ManyRulesWorld, SharedWorld, NestedWorld, RunsWorld, SteadyFactsWorld, RangesWorld]
)
def test_no_event_runs_a_member_twice(
    world: type[World],
    runs: Counter[tuple[int, int]],
    examples: Callable[..., Iterator[random.Random]],
) -> None:
    ran = 0
    modes = ("indexed", "indexed, swept at every event", "becoming indexed")
    for number, drawn in enumerate(examples(10, until=lambda: ran)):
        script = world(drawn.choice).script()
        with in_mode(modes[number % len(modes)]):
            answers(script, in_batches)
        assert max(runs.values(), default=1) == 1, script
        ran += len(runs)
        runs.clear()
    assert ran


def test_many_triggers_that_are_met_together_run_a_rule_once(runs: Counter[tuple[int, int]]) -> None:
    rules = [
        " or ".join(f"f{n} == 1" for n in range(50)),
        'a == 1 or a contains "x" or tags contains "x" or tags contains "y" or a matches "x"',
        "per k (a == 1 since b == 1)",
    ]
    detector = Detector()
    with in_mode("indexed"):
        for rule in rules:
            detector.add_rule("rule", rule)
    fields = {f"f{n}": 1 for n in range(50)} | {"a": "x", "tags": ["x", "y"], "k": 1, "b": 1}
    for number in range(3):
        fired = detector.evaluate(fields, number)
        assert [action["priority"] for action in fired] == [1, 2, 3]
    assert len(runs) == 3 * (len(rules) + 1)
    assert set(runs.values()) == {1}
