"""Contestants judge the same events, and are found out where they do not."""

import pytest

from tests.bench.measuring import race as bench_race
from tests.bench.measuring.effort import PROBE_EVENTS, TINY
from tests.bench.measuring.race import Contestant, Disagreement, Event, Raced, race

EVENTS: list[Event] = [({"x": number % 3}, float(number), None) for number in range(TINY.events)]


class Honest:
    """Fires one rule where x is 1, and remembers which events it was shown."""

    def __init__(self, events: list[Event] = EVENTS) -> None:
        self.shown: list[float] = []
        self.events = events

    def run(self, events: list[Event]) -> list[list[int]]:
        self.shown += [time_ms for _, time_ms, _ in events]
        return [[0] if fields["x"] == 1 else [] for fields, _, _ in events]

    def contestant(self, name: str, pass_events_max: int | None = None) -> Contestant:
        return Contestant(name, self.run, pass_events_max=pass_events_max)


def test_each_contestant_sees_the_events_in_order_and_none_twice() -> None:
    one, other = Honest(), Honest()
    raced = race([one.contestant("one"), other.contestant("other", 7)], EVENTS, TINY)
    for honest, name in ((one, "one"), (other, "other")):
        assert honest.shown == [float(number) for number in range(raced.events[name])]
        assert raced.cost_s[name] > 0
    # How much it warms up depends on its speed.
    most = 11 * PROBE_EVENTS + TINY.warm_events + 7 * (1 + TINY.passes)
    assert most - TINY.warm_events < raced.events["other"] <= most


def test_what_is_slow_until_it_is_warm_is_timed_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, judged = 0.0, 0

    def run(events: list[Event]) -> list[tuple[()]]:
        nonlocal now_s, judged
        for _ in events:
            now_s += 1e-4 if judged < PROBE_EVENTS + TINY.warm_events else 1e-6
            judged += 1
        return [()] * len(events)

    monkeypatch.setattr(bench_race.time, "process_time", lambda: now_s)
    raced = race([Contestant("cold", run)], EVENTS, TINY)
    assert raced.cost_s["cold"] == pytest.approx(1e-6)
    # A pass has as many events as a warm contestant needs for it to be long enough.
    assert raced.events["cold"] == 11 * PROBE_EVENTS + TINY.warm_events + 3 * TINY.pass_events_max


@pytest.mark.parametrize("place", [1, PROBE_EVENTS + 5, PROBE_EVENTS + 32])
def test_an_event_at_which_another_rule_fires_is_noticed_before_anything_is_timed(place: int) -> None:
    honest, shown = Honest(), 0

    def run(events: list[Event]) -> list[list[int]]:
        nonlocal shown
        shown += len(events)
        return [[int(time_ms == place)] if fields["x"] == 1 else [] for fields, time_ms, _ in events]

    with pytest.raises(Disagreement, match=rf"event {place}, .*rules \([01],\) fire for"):
        race([honest.contestant("honest"), Contestant("liar", run)], EVENTS, TINY)
    assert shown <= 11 * PROBE_EVENTS + TINY.warm_events


def test_what_is_judged_otherwise_while_it_is_timed_is_noticed_too() -> None:
    def run(events: list[Event]) -> list[list[int]]:
        return [[0] * (fields["x"] == 1 or time_ms == 500) for fields, time_ms, _ in events]

    with pytest.raises(Disagreement, match="event 500, "):
        race([Honest().contestant("honest"), Contestant("liar", run)], EVENTS, TINY)


def test_a_ratio_is_the_median_of_neighbours_not_of_all() -> None:
    raced = Raced({"ours": [2.0, 20.0, 6.0], "floor": [1.0, 10.0, 1.0]}, {}, {})
    assert raced.ratio == 2.0
    assert raced.cost_s == {"ours": 6.0, "floor": 1.0}
