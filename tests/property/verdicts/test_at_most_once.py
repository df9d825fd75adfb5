"""Rules that act at most once per interval: the engine agrees with the reference, however it is driven."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from engine import Detector, Limits
from tests.audit import audit
from tests.differential.comparison import Pair, disagreement, explained
from tests.differential.feeding import answers, in_batches, one_by_one
from tests.differential.modes import TRIED, in_mode
from tests.property.looking.test_dry_runs import told_as_evaluated
from tests.worlds.at_most_once import AlwaysTrueWorld, AtMostOnceWorld

Examples = Callable[..., Iterator[random.Random]]

WORLDS = (AtMostOnceWorld, AlwaysTrueWorld, AlwaysTrueWorld)


@pytest.mark.parametrize("mode", TRIED)
def test_what_acts_and_what_is_held_back_is_what_the_reference_says(mode: str, examples: Examples) -> None:
    with in_mode(mode):
        for chance in examples(300, mode):
            script = chance.choice(WORLDS)(chance.choice).script()
            assert disagreement(script) is None, explained(script)


def test_it_goes_on_after_a_reload_and_what_is_counted_twice_is_right(examples: Examples) -> None:
    for chance in examples(150):
        pair = Pair()
        for step in chance.choice(WORLDS)(chance.choice).script():
            pair.apply(step)
            if chance.random() < 0.2:
                pair.reload()
            audit(pair.engine)


@pytest.mark.parametrize("mode", TRIED)
def test_batches_and_dry_runs_tell_the_same(mode: str, examples: Examples) -> None:
    with in_mode(mode):
        for chance in examples(60, mode):
            script = chance.choice(WORLDS)(chance.choice).script()
            expected = answers(script, one_by_one)
            assert answers(script, in_batches) == expected
            assert answers(script, one_by_one, reloaded=True) == expected
            told_as_evaluated(script, chance)


class Bounded:
    """Entries in a dict, in order of their last firings; at most this many are kept."""

    def __init__(self, rules: Sequence[tuple[int, str]], keys_max: int) -> None:
        self.rules, self.keys_max, self.evicted = rules, keys_max, 0
        self.entries: dict[tuple[int, Any], tuple[int, int]] = {}
        """From when each may act again, in ms, and how many were held back."""

    def observe(self, fields: dict[str, Any], now_ms: int) -> list[int]:
        """Take an event at which all rules are true; return what the actions held back report."""
        told = []
        for place, (every_ms, name) in enumerate(self.rules):
            key = place, fields.get(name)
            free_ms, held = self.entries.pop(key, (now_ms, 0))
            if now_ms >= free_ms:
                told.append(held)
                self.entries[key] = now_ms + every_ms, 0
            else:
                self.entries[key] = free_ms, held + 1
        while len(self.entries) > self.keys_max:
            expired = [key for key, (free_ms, held) in self.entries.items() if not held and free_ms <= now_ms]
            for key in expired or [next(iter(self.entries))]:
                del self.entries[key]
            self.evicted += not expired
        return told


def bounded_as_expected(chance: random.Random) -> bool:
    rules = [(chance.choice((1_000, 3_000)), chance.choice("kj")) for _ in range(chance.choice((1, 2, 3)))]
    expected = Bounded(rules, chance.choice((2, 5, 9)))
    limits, evicted = Limits(keys_max=expected.keys_max), 0
    detector = Detector(limits=limits)
    for every_ms, name in rules:
        rule_id = detector.add_rule("r", "exists a", every_secs=every_ms / 1_000, every_by=[name])
    if chance.random() < 0.5:
        detector.add_rule("draft", "exists a", shadow=True, draft_of=rule_id)
    now_ms = 0
    for _ in range(60):
        now_ms += chance.choice((0, 0, 100, 100, 1_000))
        fields = {"a": 1, "k": chance.randrange(6), "j": chance.choice(("x", "y", None))}
        told = [action.get("suppressed", 0) for action in detector.evaluate(fields, now_ms)]
        if told != expected.observe(fields, now_ms):
            return False
        if chance.random() < 0.1:
            evicted += detector.keys_evicted
            detector = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=limits)
        audit(detector)
    return evicted + detector.keys_evicted == expected.evicted


@pytest.mark.parametrize("mode", TRIED)
def test_past_the_bound_those_are_evicted_that_have_not_fired_for_longest(
    mode: str, examples: Examples
) -> None:
    with in_mode(mode):
        assert all(map(bounded_as_expected, examples(100, mode)))
