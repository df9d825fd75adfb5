"""Rules that share a memory see only what happened since their births, as if they shared nothing."""

import random
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from engine.evaluation.state import joining
from tests.differential.comparison import Pair, explained
from tests.differential.modes import MODES, in_mode
from tests.worlds.scripts import Submit
from tests.worlds.shared_histories import EndlessWorld, NestedWorld, RunsWorld, SharedWorld

JOINS: Final = "joining 60"
"""The seed of an example in which rules of different births share memories, in every world and mode."""


@pytest.mark.parametrize("mode", [mode for mode in MODES if "fused" not in mode])
@pytest.mark.parametrize("world", [SharedWorld, NestedWorld, RunsWorld, EndlessWorld])
def test_rules_that_share_histories_agree_with_the_reference(
    world: type[SharedWorld],
    mode: str,
    examples: Callable[..., Iterator[random.Random]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    joined = 0
    for drawn in (random.Random(JOINS), *examples(40, world.__name__, mode)):
        reloads = drawn.choice((0, 0.2))
        script = world(drawn.choice).script()
        monkeypatch.setattr(joining, "COMPARED_EVERY_US", drawn.choice((0, 300_000)))
        monkeypatch.setattr(joining, "COMPARED_AT_ONCE", drawn.choice((1, 64)))
        with in_mode(mode):
            pair = Pair()
            for step in script:
                try:
                    pair.apply(step)
                except AssertionError as error:
                    pytest.fail(f"{error}\n{explained(script)}")
                joined += len(pair.engine.state.inner if world is NestedWorld else pair.engine.state.joined)
                if isinstance(step, Submit) and drawn.random() < reloads:
                    pair.reload()
            names = {*pair.engine.state.stores, *pair.engine.state.joined}
            for rule_id in list(pair.reference.rules):
                pair.engine.remove_rule(rule_id)
            state = pair.engine.state
            assert (state.stores, state.joined, state.users, state.views) == ({}, {}, {}, {}), names
            assert (state.inner, pair.engine.rule_set.uses, pair.engine.rule_set.nodes) == ({}, {}, 0), names
            assert joined, "rules of different births share memories, as early as in the first example"
