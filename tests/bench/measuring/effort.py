"""How much a run measures: the sizes of the worlds, and the time of each measurement."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The sizes of one kind of run. Counts of rules, events and keys; times in seconds.

    A pass is one timed stretch of one contestant. It takes at most about `pass_s`, whatever the contestant:
    a slow one gets through fewer events.
    """

    warm_events: int
    warm_s: float
    passes: int
    pass_s: float
    pass_events_max: int
    stateless_rules: tuple[int, ...]
    curve_rules: tuple[int, ...]
    indexed_rules: tuple[int, ...]
    shared_rules: int
    keys: int
    keys_of_stream: int
    worst_share: float
    """The share of the largest bodies and numbers of rules that is tried."""
    front_rounds: int
    front_round_s: float
    front_calls: int

    @property
    def events(self) -> int:
        """Enough events for any contestant: a probe, the warm-up, and the timed ones."""
        return 11 * PROBE_EVENTS + self.warm_events + (1 + self.passes) * self.pass_events_max


PROBE_EVENTS = 20
"""Events that tell how fast a contestant is, before its passes are planned."""

FULL = Effort(
    warm_events=45_000,
    warm_s=16,
    passes=9,
    pass_s=0.14,
    pass_events_max=12_000,
    stateless_rules=(1, 100, 1_000),
    curve_rules=(1, 2, 4, 8, 16, 24, 32, 33, 40, 48, 64, 80, 81, 100, 150, 200),
    indexed_rules=(1_000, 10_000, 100_000),
    shared_rules=300,
    keys=100_000,
    keys_of_stream=10_000,
    worst_share=1.0,
    front_rounds=10,
    front_round_s=1.2,
    front_calls=3_000,
)

TINY = Effort(
    warm_events=40,
    warm_s=0.01,
    passes=2,
    pass_s=0.01,
    pass_events_max=400,
    stateless_rules=(1, 20),
    curve_rules=(1, 3),
    indexed_rules=(100, 200),
    shared_rules=20,
    keys=100,
    keys_of_stream=20,
    worst_share=0.002,
    front_rounds=1,
    front_round_s=0.1,
    front_calls=10,
)
"""Worlds too small to measure, for tests of the benchmarks themselves."""
