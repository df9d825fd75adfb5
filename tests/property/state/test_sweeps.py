"""The sweep's position decides nothing: a replay in another process, with other hashes, evicts the same."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import Detector, Limits
from engine.evaluation.slices import slices
from engine.evaluation.slices.bounds import eviction
from tests.audit import audit

Patches = tuple[tuple[Any, str, int], ...]

NEVER: Patches = ((eviction, "SWEPT_FROM", 1 << 62),)
ALWAYS: Patches = (
    (eviction, "SWEPT_FROM", -1),
    (eviction, "SETTLED_EVERY", 1),
    (eviction, "LOOKED_EVERY", 1),
)
SWEEPS: dict[str, Patches] = {
    "at every event": (*ALWAYS, (slices, "SHARDS", 1)),
    "a slice at a time": (*ALWAYS, (eviction, "LOOKED_AT", 1)),
    "shards in another order": (*ALWAYS, (eviction, "LOOKED_AT", 2), (slices, "SHARDS", 3)),
}

RULES = (
    "per k (count(a > 0) within 3s >= 30)",
    "per k (count(a > 0) within 9s >= 20)",
    "per k (distinct(j) within 2s > 12)",
    "per k (distinct(j) within 8s > 9)",
    "per k (sum(a where b > 1) within 3s > 20)",
    "per k once within 1s a == 1",
    "per k once b == 4",
    "per k (historically for 2s strong a < 3)",
    "per k per b (count(a == 1) within 1s >= 9)",
    "per k previous a == 2",
)


def answers(seed: str, sweep: Patches, *, reloads: bool) -> list[Any]:
    """Play a random script with sometimes few, sometimes too many keys; return each event's outcome."""
    drawn, given, clock_ms = random.Random(seed), [], 0
    limits = Limits(
        keys_max=drawn.choice((1 << 40, 25)), state_bytes_max=drawn.choice((20_000, 30_000, 40_000))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "PLACES_MAX", drawn.choice((16, 5)))
        patch.setattr(slices, "EXTENDED_MAX", drawn.choice((3, 1 << 40)))
        for module, name, value in sweep:
            patch.setattr(module, name, value)
        detector = Detector(limits=limits)
        for number in range(600):
            if number % 60 == 0:
                for condition in drawn.sample(RULES, 2):
                    detector.add_rule(f"{number} {condition}", condition)
            if number % 60 == 50:
                detector.remove_rule(drawn.choice(detector.rules()).id)
            if reloads and number % 40 == 7:
                detector = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=limits)
            clock_ms += drawn.choice((0, 1, 10, 30, 3_500 if number % 60 < 30 else 60))
            fields = {"k": drawn.randrange(4 if number % 60 < 40 else 60), "a": drawn.randrange(4)}
            fields |= {"b": drawn.randrange(5), "j": drawn.randrange(20)}
            outcome = detector.submit(fields, clock_ms)
            given.append(([action["name"] for action in outcome.actions], outcome.messages))
        audit(detector)
    return given


@pytest.mark.slow
@pytest.mark.parametrize("sweep", SWEEPS)
def test_what_is_evicted_does_not_depend_on_the_sweep(
    sweep: str, examples: Callable[..., Iterator[random.Random]], scaled: Callable[[int], int]
) -> None:
    evicted = 0
    for number, drawn in enumerate(examples(20, sweep, until=lambda: evicted > scaled(1_000))):
        seed = str(drawn.random())
        expected = answers(seed, NEVER, reloads=False)
        given = answers(seed, SWEEPS[sweep], reloads=number % 2 == 1)
        for place, (one, other) in enumerate(zip(given, expected, strict=True)):
            assert one == other, (seed, place)
        evicted += sum(any(message.code == 2002 for message in messages) for _, messages in expected)
    assert evicted > scaled(1_000)
