"""The engine answers each event of every script as the executable specification does."""

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differential.comparison import disagreement, explained, run
from tests.differential.modes import MODES, TRIED, in_mode
from tests.reference import verdict
from tests.worlds.long_histories import AgesWorld, LongHistoriesWorld
from tests.worlds.many_rules import ManyRulesWorld
from tests.worlds.ranges import RangesWorld
from tests.worlds.relations import RelationsWorld
from tests.worlds.scripts import Change, Step, Submit, World, scripts
from tests.worlds.shared_histories import (
    EndlessWorld,
    NestedWorld,
    RunsWorld,
    SharedWorld,
    WindowsWorld,
)
from tests.worlds.steady_facts import BecomingIndexedWorld, SteadyFactsWorld
from tests.worlds.term_histories import FlatTermsWorld, TermsWorld
from tests.worlds.text_tests import TextTestsWorld

EXAMPLES = settings.default.max_examples


@settings(max_examples=2 * EXAMPLES)
@given(scripts(), st.sampled_from(list(MODES)))
def test_engine_and_reference_agree_on_every_script(script: list[Step], mode: str) -> None:
    with in_mode(mode):
        run(script)


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize(
    ("world", "count", "shape"),
    [
        (World, 150, {"depth": 4, "steps_max": 18}),
        (World, 100, {"depth": 2, "steps_max": 24}),
        (World, 25, {"depth": 3, "steps_max": 60}),
        (LongHistoriesWorld, 100, {"steps_max": 60}),
        (AgesWorld, 40, {"steps_max": 60}),
        (SteadyFactsWorld, 20, {"steps_max": 40}),
        (BecomingIndexedWorld, 10, {"steps_max": 18}),
        (ManyRulesWorld, 5, {"steps_max": 30}),
        (RangesWorld, 20, {}),
        (TextTestsWorld, 50, {"steps_max": 30}),
        (SharedWorld, 40, {}),
        (NestedWorld, 40, {}),
        (RunsWorld, 40, {}),
        (EndlessWorld, 40, {}),
        (WindowsWorld, 100, {}),
        (TermsWorld, 100, {"depth": 3, "steps_max": 40}),
        (FlatTermsWorld, 100, {"depth": 2, "steps_max": 40}),
        (RelationsWorld, 100, {"depth": 3, "steps_max": 40}),
        (RelationsWorld, 100, {"depth": 1, "steps_max": 60}),
    ],
    ids=[
        "deep conditions",
        "shallow conditions",
        "long scripts",
        "long histories",
        "ages",
        "steady facts",
        "becoming indexed",
        "many rules",
        "ranges",
        "text tests",
        "shared histories",
        "shared histories of histories",
        "shared runs",
        "shared counts without a window",
        "windows",
        "terms",
        "comparisons",
        "stored relations",
        "stored relations in predicates",
    ],
)
def test_engine_and_reference_agree_on_many_random_scripts(
    world: type[World],
    count: int,
    shape: dict[str, int],
    mode: str,
    examples: Callable[..., Iterator[random.Random]],
) -> None:
    """Without hypothesis, which would shrink them but is many times slower."""
    for drawn in examples(count, mode):
        script = world(drawn.choice).script(**shape)
        with in_mode(mode):
            if disagreement(script):
                pytest.fail(f"the script made shorter:\n{explained(script)}")


@pytest.mark.slow
def test_scripts_reach_what_they_are_made_for(seed: int) -> None:
    """If no rule ever fired, or no event was late, agreement would mean little."""
    verdicts = {False: 0, True: 0}
    seen = set[str]()
    for number in range(300):
        script = World(random.Random(f"{seed} {number}").choice).script()
        reference = run(script).reference
        late_ms = float("-inf")
        for step in script:
            if isinstance(step, Submit):
                seen |= {"late"} if step.timestamp_ms < late_ms else set()
                late_ms = max(late_ms, step.timestamp_ms)
            elif isinstance(step, Change):
                seen |= set(step.changes)
        seen |= (
            {"refused"} if len(reference.events) < sum(isinstance(step, Submit) for step in script) else set()
        )
        seen |= {"born later"} if any(rule.birth for rule in reference.rules.values()) else set()
        for rule in reference.rules.values():
            if rule.enabled and reference.events[rule.birth :]:
                verdicts[verdict(rule.condition, reference.events[rule.birth :])] += 1
        if len(seen) == 7 and min(verdicts.values()) > 50:
            return
    pytest.fail(f"{seen} {verdicts}")
