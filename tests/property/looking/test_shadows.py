"""Shadow rules change nothing for others, and comparisons of drafts count what the reference fires."""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from engine import Condition, Detector
from engine.evaluation.rule_book.shadows import lookback_us
from engine.evaluation.times import FOREVER
from engine.language.condition import Count, Keyed, Not, OnceWithin, SinceWithin, Sum
from tests.differential.modes import TRIED, in_mode
from tests.differential.shadows import ShadowPair
from tests.property.looking.test_explanations import WORLDS
from tests.worlds.scripts import Submit
from tests.worlds.shared_histories import COUNTING, HISTORIES, SETTLING, P, Q

SUM = Sum("t", None, 0.3, "gt", 3)


def play(world: str, drawn: random.Random) -> Counter[str]:
    """Play a script in which rules become shadow rules and normal ones again."""
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
    histories, shadows = pair.engine.histories, pair.engine.shadows
    assert (histories.memories, histories.slices, histories.bytes, histories.live) == ({}, {}, 0, 0)
    assert not shadows.ids
    assert not shadows.comparisons
    return pair.met


@pytest.mark.parametrize("mode", TRIED)
@pytest.mark.parametrize("world", WORLDS)
def test_what_shadow_rules_and_drafts_do_agrees_with_the_reference(
    world: str,
    mode: str,
    examples: Callable[..., Iterator[random.Random]],
) -> None:
    for drawn in examples(max(3, WORLDS[world][1] // 4), world, mode):
        with in_mode(mode):
            play(world, drawn)


@pytest.mark.slow
def test_shadow_rules_fire_differ_and_are_promoted(seed: int) -> None:
    """If nothing ever fired, agreement would mean little."""
    met = Counter[str]()
    for number in range(60):
        met += play("shared histories", random.Random(f"{seed} {number}"))
        if min(met[what] for what in ("as a shadow", "both", "only_rule", "only_draft", "promoted")) > 20:
            return
    pytest.fail(f"{met}")


@pytest.mark.slow
def test_a_pair_that_is_promoted_and_rolled_back_acts_as_its_rule_always_does() -> None:
    """What is known of rules that fire together does not outlive them, even if Python reuses addresses."""
    detector, pairs = Detector(), range(10)
    rules = [detector.add_rule(f"rule {n}", f"x == {n}") for n in pairs]
    for number, rule_id in enumerate(rules):
        detector.add_rule(f"draft {number}", f"y == {number}", shadow=True, draft_of=rule_id)
    facts = dict.fromkeys(pairs, "x")
    drawn = random.Random(0)
    for at_ms in range(600):
        for number in drawn.sample(pairs, 2):
            detector.promote(rules[number])
            facts[number] = "y" if facts[number] == "x" else "x"
        number, fact = drawn.choice(pairs), drawn.choice("xy")
        expected = [rules[number]] if fact == facts[number] else []
        assert [action["ruleId"] for action in detector.evaluate({fact: number}, at_ms)] == expected, at_ms


BOUNDED = (
    *[each for each in (*HISTORIES, *COUNTING, *SETTLING) if lookback_us(each) is not None],
    Keyed(OnceWithin(P, 1), "t", OnceWithin(Q, 0.6)),
    Keyed(Count(P, 0.3, "eq", 1), "t", Count(Q, 0.3, "lt", 2)),
    Sum("t", SUM, 0.3, "gte", 3),
    SinceWithin(Not(SUM), SUM, 0.3),
)
"""Conditions that look back over a bounded time."""


@pytest.mark.slow
def test_a_draft_that_is_its_rule_never_differs_once_it_is_old_enough(seed: int) -> None:
    differed = until = 0
    for number, condition in enumerate(BOUNDED * 8):
        drawn = random.Random(f"{seed} {number}")
        differed_before, edge_us = young_and_old(condition, drawn)
        differed, until = differed + differed_before, until + (edge_us is not None)
    assert differed > 20, "drafts that are too young do differ"
    assert until > 20


def young_and_old(condition: Condition, drawn: random.Random) -> tuple[bool, int | None]:
    """Play events around the making of a draft that is its rule.

    Tell whether the two differed while it was young, and until when it was.
    """
    detector, clock_us = Detector(), 0
    condition = drawn.choice((condition, Keyed(condition, "k")))
    rule = detector.add_rule("rule", condition)
    comparison = None
    for place in range(60):
        if place == 20:
            detector.add_rule("draft", condition, shadow=True, draft_of=rule)
            comparison = detector.comparison(rule)
        edge_us = None if comparison is None else comparison.young_until_us
        steps = (0, 1, 1_000, 100_000, 150_000, 299_999, 300_000, 300_001)
        clock_us += drawn.choice(steps)
        if edge_us is not None and edge_us < FOREVER and drawn.random() < 0.2:
            # Just before, at, and just after the time until which the two may differ.
            clock_us = max(clock_us, edge_us + drawn.choice((-1, 0, 1)))
        alone = 0 if comparison is None else comparison.counts["only_rule"] + comparison.counts["only_draft"]
        fields = {name: drawn.choice((0, 1)) for name in "pq"}
        detector.evaluate({**fields, "t": drawn.choice((1, 2)), "k": drawn.choice((1, 2))}, clock_us / 1_000)
        if comparison is not None and (edge_us is None or clock_us > edge_us):
            now = comparison.counts["only_rule"] + comparison.counts["only_draft"]
            assert now == alone, (condition, clock_us, edge_us)
    assert comparison is not None
    return comparison.counts["both"] < sum(comparison.counts.values()), comparison.young_until_us


def test_a_run_and_a_pane_are_reckoned_with_as_they_are() -> None:
    """A run may begin at any time for a key that is rarely seen; the oldest pane counts whole."""
    detector = Detector()
    rule = detector.add_rule("rule", "per k historically for 1m strong a == 1")
    detector.evaluate({"k": 1, "a": 1}, 0)
    detector.add_rule("draft", "per k historically for 1m strong a == 1", shadow=True, draft_of=rule)
    assert detector.comparison(rule).young_until_us == FOREVER
    detector.evaluate({"k": 1, "a": 1}, 130_000)
    assert detector.comparison(rule).counts["only_rule"] == 1
