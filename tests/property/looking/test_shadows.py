"""Shadow rules change nothing for others, and comparisons of drafts count what the reference fires."""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.differential.modes import MODES, in_mode
from tests.differential.shadows import ShadowPair
from tests.property.looking.test_explanations import WORLDS
from tests.worlds.scripts import Submit


def play(world: str, drawn: random.Random) -> Counter[str]:
    """Play a script in which rules turn into shadow rules and back."""
    make, _, shape = WORLDS[world]
    pair, waiting = ShadowPair(drawn), []
    for step in make(drawn.choice).script(**shape):
        if isinstance(step, Submit):
            waiting.append(step)
            if drawn.random() < 0.6:
                continue
        pair.submit(waiting)
        waiting = []
        if not isinstance(step, Submit):
            pair.apply(step)
        if pair.reference.rules:
            drawn.choice((pair.turn, pair.promote, pair.reload, *[pair.compare_counts] * 3))()
    pair.submit(waiting)
    pair.compare_counts()
    for rule_id in list(pair.reference.rules):
        pair.engine.remove_rule(rule_id)
    state, shadows = pair.engine.state, pair.engine.shadows
    assert (state.stores, state.joined, state.users, state.views) == ({}, {}, {}, {})
    assert not shadows
    assert not shadows.comparisons
    return pair.met


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("world", WORLDS)
def test_what_shadow_rules_and_drafts_do_agrees_with_the_reference(
    world: str,
    mode: str,
    examples: Callable[..., Iterator[random.Random]],
) -> None:
    for drawn in examples(max(3, WORLDS[world][1] // 4), world, mode):
        with in_mode(mode):
            play(world, drawn)


def test_shadow_rules_fire_differ_and_are_promoted(seed: int) -> None:
    """If nothing ever fired, agreement would mean little."""
    met = Counter[str]()
    for number in range(60):
        met += play("shared histories", random.Random(f"{seed} {number}"))
        if min(met[what] for what in ("as a shadow", "both", "only_rule", "only_draft", "promoted")) > 20:
            return
    pytest.fail(f"{met}")
