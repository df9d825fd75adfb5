"""How much a run measures: the sizes of the worlds and the time that each measurement may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The sizes of one kind of run. Counts of rules, events and keys; times in seconds.

    A pass is one timed stretch of one contestant. It takes at most about `pass_s`, whatever the contestant:
    a slow one gets through fewer events.
    """

    name: str
    warm_events: int
    warm_s: float
    passes: int
    pass_s: float
    pass_events_max: int
    stateless_rules: tuple[int, ...]
    curve_rules: tuple[int, ...]
    indexed_rules: tuple[int, ...]
    restless_rules: tuple[int, ...]
    shared_rules: tuple[int, ...]
    shared_users: int
    keys_of_stream: int
    pattern_rules: int
    growth_rules: int
    growth_adds: int
    keys: int
    keys_max: int
    tried_events: int
    narrow_rules: int
    keys_of_narrow_rule: int
    long_runs: int
    worst_share: float
    """The share of the largest bodies and numbers of rules that is tried."""
    transport_calls: int
    transport_s: float
    front_rounds: int
    front_round_s: float
    front_calls: int
    front_flood_s: float
    front_long: bool
    front_idle: int
    front_idle_rounds: int

    @property
    def events(self) -> int:
        """Events that no contestant comes to the end of: a probe, what warms up, and the timed ones."""
        return 11 * PROBE_EVENTS + self.warm_events + (1 + self.passes) * self.pass_events_max


PROBE_EVENTS = 20
"""Events that tell how fast a contestant is, before its passes are planned."""

FULL = Effort(
    name="full",
    warm_events=45_000,
    warm_s=16,
    passes=9,
    pass_s=0.14,
    pass_events_max=12_000,
    stateless_rules=(1, 100, 1_000),
    curve_rules=(1, 2, 4, 8, 16, 24, 32, 33, 40, 48, 64, 80, 81, 100, 150, 200),
    indexed_rules=(1_000, 10_000, 100_000),
    restless_rules=(100, 300, 1_000),
    shared_rules=(1_000, 20_000, 100_000),
    shared_users=1_000,
    keys_of_stream=10_000,
    pattern_rules=1_000,
    growth_rules=100_000,
    growth_adds=200,
    keys=1_000_000,
    keys_max=100_000,
    tried_events=1_000_000,
    narrow_rules=1_000,
    keys_of_narrow_rule=100,
    long_runs=3,
    worst_share=1.0,
    transport_calls=3_000,
    transport_s=6,
    front_rounds=10,
    front_round_s=1.2,
    front_calls=3_000,
    front_flood_s=8,
    front_long=True,
    front_idle=10_000,
    front_idle_rounds=3,
)

QUICK = Effort(
    name="quick",
    warm_events=2_000,
    warm_s=0.2,
    passes=7,
    pass_s=0.04,
    pass_events_max=10_000,
    stateless_rules=(1, 100, 1_000),
    curve_rules=(1, 4, 16, 24, 32, 48, 64, 80, 81, 100, 200),
    indexed_rules=(1_000, 10_000),
    restless_rules=(100, 1_000),
    shared_rules=(1_000, 5_000),
    shared_users=1_000,
    keys_of_stream=10_000,
    pattern_rules=1_000,
    growth_rules=5_000,
    growth_adds=50,
    keys=50_000,
    keys_max=5_000,
    tried_events=50_000,
    narrow_rules=100,
    keys_of_narrow_rule=100,
    long_runs=1,
    worst_share=0.2,
    transport_calls=500,
    transport_s=2,
    front_rounds=3,
    front_round_s=0.4,
    front_calls=300,
    front_flood_s=1.5,
    front_long=False,
    front_idle=2_000,
    front_idle_rounds=2,
)

TINY = Effort(
    name="tiny",
    warm_events=40,
    warm_s=0.01,
    passes=2,
    pass_s=0.01,
    pass_events_max=400,
    stateless_rules=(1, 20),
    curve_rules=(1, 3),
    indexed_rules=(100, 200),
    restless_rules=(6, 12),
    shared_rules=(20, 40),
    shared_users=10,
    keys_of_stream=20,
    pattern_rules=20,
    growth_rules=60,
    growth_adds=5,
    keys=600,
    keys_max=100,
    tried_events=2_000,
    narrow_rules=5,
    keys_of_narrow_rule=10,
    long_runs=1,
    worst_share=0.002,
    transport_calls=20,
    transport_s=0.1,
    front_rounds=1,
    front_round_s=0.1,
    front_calls=10,
    front_flood_s=0.2,
    front_long=False,
    front_idle=20,
    front_idle_rounds=1,
)
"""Worlds in which nothing is worth measuring, for tests of the benchmarks themselves."""
