"""Rules that share a history see of it what happened since their births, and cannot be told from others."""

import random
from collections.abc import Callable

import pytest

from tests.differential.comparison import Pair, explained
from tests.differential.modes import MODES, in_mode
from tests.worlds.scripts import Submit
from tests.worlds.shared_histories import SharedWorld


@pytest.mark.parametrize("mode", [mode for mode in MODES if "fused" not in mode])
@pytest.mark.parametrize("reloads", [0, 0.2], ids=["in one life", "saved and loaded"])
def test_rules_that_share_histories_agree_with_the_reference(
    reloads: float,
    mode: str,
    seed: int,
    scaled: Callable[[int], int],
    record_property: Callable[[str, object], None],
) -> None:
    record_property("examples", scaled(30))
    joined = 0
    for number in range(scaled(30)):
        drawn = random.Random(f"{seed} {mode} {reloads} {number}")
        script = SharedWorld(drawn.choice).script()
        with in_mode(mode):
            pair = Pair()
            for step in script:
                try:
                    pair.apply(step)
                except AssertionError as error:
                    pytest.fail(f"script {number} of seed {seed}: {error}\n{explained(script)}")
                joined += len(pair.engine.state.joined)
                if isinstance(step, Submit) and drawn.random() < reloads:
                    pair.reload()
            names = {*pair.engine.state.stores, *pair.engine.state.joined}
            for rule_id in list(pair.reference.rules):
                pair.engine.remove_rule(rule_id)
            state = pair.engine.state
            assert (state.stores, state.joined, state.users, state.views) == ({}, {}, {}, {}), names
    assert joined, "rules of different births share memories"
