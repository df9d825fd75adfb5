"""Thousands of keys: the engine keeps exactly those that a dict keeps which scans all keys at each event."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine import Detector, Limits
from engine.evaluation.facts.values import part_of_key, scalar_of
from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.slices.slices import PLACE_BYTES, SLICE_BYTES
from tests.differential.modes import in_mode

PATHS = (("u",), ("v",), ("u", "v"))
NEVER, FOREVER = float("-inf"), float("inf")
UNBOUNDED = 1 << 62

Key = tuple[tuple[str, ...], Any]


class Memory:
    """The state of one rule for one key, and until when it matters."""

    def __init__(self, kind: str, window_ms: int) -> None:
        self.kind, self.window_ms = kind, window_ms

    @property
    def text(self) -> str:
        window = f"{self.window_ms}ms"
        return {
            "within": f"once within {window} p == 1",
            "held": f"historically for {window} not p == 1",
            "since": f"(not q == 1 since within {window} p == 1)",
            "not": f"once within {window} not p == 1",
            "ever": "once r == 1",
        }[self.kind]

    @property
    def remembered(self) -> str:
        """Equal for two that have the same state."""
        return "within" if self.kind == "held" else self.kind

    def after(self, past_ms: float, now_ms: int, fields: dict[str, Any]) -> float:
        """Return the time that the state holds after an event."""
        match self.kind:
            case "within" | "held":
                return now_ms if fields["p"] == 1 else past_ms
            case "since":
                return now_ms if fields["p"] == 1 else NEVER if fields["q"] == 1 else past_ms
            case "not":
                return now_ms if fields["p"] != 1 else past_ms
            case _:
                return FOREVER if fields["r"] == 1 else past_ms

    def until(self, past_ms: float) -> float:
        return past_ms + self.window_ms


class Naive:
    """The keys of some rules in a dict: when each was last seen, and the state of each rule for it."""

    def __init__(self, rules: list[tuple[tuple[str, ...], Memory]], keys_max: int, bytes_max: int) -> None:
        self.rules, self.keys_max, self.bytes_max = rules, keys_max, bytes_max
        self.kept: dict[Key, tuple[int, list[float], float]] = {}
        """When each key was last seen, its state, and until when that matters."""

    def expired(self, key: Key, now_ms: int) -> bool:
        return self.kept[key][2] < now_ms

    def memories(self, path: tuple[str, ...]) -> list[Memory]:
        return [memory for of, memory in self.rules if of == path]

    def bytes_of(self, key: Key) -> int:
        path, parts = key
        places = len({memory.remembered for memory in self.memories(path)})
        held = key_bytes(tuple(map(part_of_key, parts)) if len(parts) > 1 else parts[0])
        return SLICE_BYTES + held + PLACE_BYTES * places

    def observe(self, tick: int, now_ms: int, fields: dict[str, Any]) -> list[Key]:
        """Take an event; return the keys that are evicted."""
        for path in PATHS:
            if not all(name in fields for name in path) or not self.memories(path):
                continue
            key = (path, tuple(fields[name] for name in path))
            rules = self.memories(path)
            pasts = self.kept[key][1] if key in self.kept else [NEVER] * len(rules)
            after = [rule.after(past, now_ms, fields) for rule, past in zip(rules, pasts, strict=True)]
            self.kept[key] = (
                tick,
                after,
                max(rule.until(past) for rule, past in zip(rules, after, strict=True)),
            )
            if all(past == NEVER for past in after):
                del self.kept[key]
        evicted = []
        while (many := len(self.kept) > self.keys_max) or (self.kept and self.weight() > self.bytes_max):
            dead = sorted((kept[2], key) for key, kept in self.kept.items() if kept[2] < now_ms)
            if dead:
                for _, key in dead if many else dead[:1]:
                    del self.kept[key]
                continue
            evicted.append(min(self.kept, key=lambda key: (self.kept[key][0], key[0])))
            del self.kept[evicted[-1]]
        return evicted

    def alive(self, now_ms: int) -> set[Key]:
        return {key for key in self.kept if not self.expired(key, now_ms)}

    def weight(self) -> int:
        return 0 if self.bytes_max >= UNBOUNDED else sum(map(self.bytes_of, self.kept))


def kept_by(detector: Detector, now_us: int) -> set[Key]:
    """Return the keys that a detector keeps and that are not expired."""
    return {
        (path, tuple(map(scalar_of, key)) if len(path) > 1 else (key,))
        for path, slices in detector.histories.slices.items()
        for shard in slices.shards
        for key, slice_ in shard.items()
        if slices.until_us(slice_) >= now_us
    }


def drawn_rules(
    choose: Callable[[Any], Any], kinds: list[str], keys_max: int
) -> list[tuple[tuple[str, ...], Memory]]:
    """Return rules; the first has such a long window that the keys become too many."""
    paths = choose((PATHS[:1], PATHS[:2], PATHS[1:], PATHS))
    windows_ms = (0, 1, keys_max // 8, keys_max, 4 * keys_max)
    rules = [
        (path, Memory(choose(kinds), choose(windows_ms))) for path in paths for _ in range(choose((0, 1, 2)))
    ]
    return [(paths[0], Memory(kinds[0], 8 * keys_max)), *rules]


@pytest.mark.parametrize(
    ("keys_max", "mode", "reloads"),
    [
        (7, "fused", False),
        (7, "indexed", True),
        (60, "fused, swept at every event, looked up", True),
        (400, "indexed, with few places, looked up", True),
        (400, "indexed", False),
        pytest.param(1_500, "fused", True, marks=pytest.mark.storm),
    ],
)
@pytest.mark.parametrize("kinds", ["within held since ever", "within since not"])
def test_the_keys_that_are_kept_are_those_of_a_dict_that_is_looked_through_each_time(
    keys_max: int, mode: str, reloads: bool, kinds: str, seed: int
) -> None:
    drawn = random.Random(f"{seed} {keys_max} {mode} {kinds}")
    rules = drawn_rules(drawn.choice, kinds.split(), keys_max)
    naive = Naive(rules, keys_max, UNBOUNDED)
    limits = Limits(keys_max=keys_max)
    evictions = 0
    with in_mode(mode):
        detector = detector_of(rules, limits)
        for tick, (now_ms, fields) in enumerate(
            events_drawn(drawn, keys_max, 5 * keys_max // 2 + 300), start=1
        ):
            evicted = len(naive.observe(tick, now_ms, fields))
            evictions += evicted
            messages = detector.submit(fields, now_ms).messages
            said = f"evicted {evicted} keys: limit of {keys_max} live keys"
            assert [entry.message for entry in messages] == ([said] if evicted else []), (rules, tick)
            if tick % (keys_max // 4 + 20) == 0:
                assert kept_by(detector, now_ms * 1_000) == naive.alive(now_ms)
                if reloads:
                    detector = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=limits)
    assert evictions


def detector_of(rules: list[tuple[tuple[str, ...], Memory]], limits: Limits) -> Detector:
    detector = Detector(limits=limits)
    for place, rule in enumerate(rules):
        detector.add_rule(f"r{place}", text_of(*rule))
    return detector


def text_of(path: tuple[str, ...], memory: Memory) -> str:
    return " ".join(f"per {name}" for name in path) + f" ({memory.text})"


def events_drawn(drawn: random.Random, keys: int, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield events of several times as many keys, some far more frequent, with a few pauses."""
    now_ms = 0
    for _ in range(count):
        now_ms += drawn.choice((keys // 4, keys)) if drawn.random() < 0.001 else drawn.choice((0, 0, 1))
        fields = {name: drawn.choice((0, 1, 1)) for name in "pr"} | {"q": drawn.choice((0, 0, 0, 1))}
        # Each event has the key of one path, or of all paths.
        for name in drawn.choice(("u", "v", "uv")):
            fields[name] = min(drawn.randrange(5 * keys), drawn.randrange(5 * keys))
        yield now_ms, fields


@pytest.mark.slow
@pytest.mark.parametrize("bytes_max", [3_000, 12_000])
@pytest.mark.parametrize("mode", ["fused", "indexed", "indexed, swept at every event"])
def test_the_keys_that_are_kept_for_their_weight_are_those_of_a_dict_that_is_weighed_each_time(
    mode: str, bytes_max: int, seed: int
) -> None:
    drawn = random.Random(f"{seed} {bytes_max} {mode}")
    first, *others = drawn.sample(("within", "held", "since"), 3)
    kinds = ((PATHS[0], first), (PATHS[0], others[0]), (PATHS[1], others[1]), (PATHS[2], first))
    rules = [(path, Memory(kind, 60)) for path, kind in kinds]
    limits = Limits(keys_max=UNBOUNDED, state_bytes_max=bytes_max)
    naive = Naive(rules, UNBOUNDED, bytes_max)
    evictions = 0
    with in_mode(mode):
        # State that several rules share counts once, and their keys are those of one path.
        detector = detector_of([*rules, rules[0]], limits)
        late = ""
        for tick in range(1, 800):
            now_ms = tick + tick // 300 * 100
            fields = {name: drawn.choice((0, 1)) for name in "pqr"}
            for name in drawn.choice(("u", "v", "uv")):
                number = drawn.randrange(60)
                fields[name] = drawn.choice(("x", "y", "\u0416")) * number if number % 4 else number
            evicted = len(naive.observe(tick, now_ms, fields))
            evictions += evicted
            said = f"evicted {evicted} keys: limit of {bytes_max} bytes of keyed state"
            messages = [entry.message for entry in detector.submit(fields, now_ms).messages]
            assert messages == ([said] if evicted else []), tick
            assert kept_by(detector, now_ms * 1_000) == naive.alive(now_ms)
            if tick % 150 == 70:
                late = detector.add_rule("late", text_of(*rules[tick % 4]))
            if tick % 150 == 100:
                detector.remove_rule(late)
            if tick % 50 == 0:
                detector = Detector.load(detector.dump(), Detector.STATE_VERSION, limits=limits)
    assert evictions
