"""The bounds on keys and on their memory: what goes first, what it costs, and what is said about it."""

from typing import Any

import pytest

from engine import Detector, Limits
from engine.evaluation.events.outcomes import Outcome
from engine.evaluation.slices.bounds import eviction
from engine.evaluation.slices.bounds.eviction import SETTLED_EVERY
from engine.evaluation.slices.bounds.minima import Minima
from engine.evaluation.slices.slices import Slices


def detector(*rules: str, **limits: int) -> Detector:
    made = Detector(limits=Limits(**limits))
    for number, rule in enumerate(rules):
        made.add_rule(f"r{number}", rule)
    return made


def codes(outcome: Outcome) -> list[int]:
    return [entry.code for entry in outcome.messages]


def fires(made: Detector, time_ms: int, **fields: Any) -> bool:
    return bool(made.evaluate(fields, time_ms))


def test_keys_that_remember_nothing_are_not_live() -> None:
    made = detector("per k once a == 1", "per k historically for 0s strong a == 1", keys_max=1)
    for time_ms in range(100):
        assert codes(made.submit({"k": time_ms, "a": 0}, time_ms)) == []
    assert made.histories.live == 0
    # What a run of no length remembers makes no difference, so it keeps no key.
    made.add_rule("another path", "per j once a == 1")
    made.evaluate({"j": 1, "a": 1}, 100)
    for number in range(20):
        assert codes(made.submit({"k": number, "a": 0}, 100 + number)) == []
    assert fires(made, 200, j=1, a=0)


def test_a_key_that_is_larger_than_the_bound_is_not_kept() -> None:
    made = detector("per k once a == 1", state_bytes_max=100)
    assert [codes(made.submit({"k": "A", "a": 1}, 0)) for _ in range(2)] == [[2002]] * 2
    assert (made.histories.live, made.histories.bytes) == (0, 0)


def test_no_key_is_evicted_for_what_is_remembered_without_keys() -> None:
    made = detector("count(a >= 0) >= 300", "per k once a == 0", state_bytes_max=60_000)
    made.histories.bytes_max = 10_000
    for number in range(500):
        made.submit({"k": number % 25, "a": 0}, number)
    assert (made.histories.live, made.keys_evicted) == (25, 0)
    assert made.histories.bytes > 10_000 > made.histories.keyed_bytes


def test_keys_that_live_no_longer_since_a_rule_was_removed_go_first() -> None:
    made = detector("per k once within 1s a == 1", "per k once a == 1", "per j once a == 1", keys_max=40)
    for name in "jk":
        for number in range(20):
            made.evaluate({name: number, "a": 1}, number)
    for _ in range(SETTLED_EVERY):
        made.evaluate({}, 40)
    assert made.histories.tracking
    made.remove_rule(made.rules()[1].id)
    for number in range(20, 40):
        assert codes(made.submit({"j": number, "a": 1}, 5_000)) == []
    assert all(fires(made, 5_001, j=number, a=0) for number in range(40))


@pytest.mark.parametrize("lowered", [{"live_max": 50}, {"bytes_max": 20_000}])
def test_a_bound_that_was_lowered_is_held_in_steps_from_the_next_event_on(lowered: dict[str, int]) -> None:
    made = detector("per k once a == 1", keys_max=1_000)
    for number in range(1_000):
        made.evaluate({"k": number, "a": 1}, number)
    histories = made.histories
    for name, value in lowered.items():
        setattr(histories, name, value)
    histories.due = True
    forgotten = []
    while histories.due:
        before = histories.live
        (message,) = made.submit({"k": 0, "a": 0}, 1_000).messages
        forgotten.append(before - histories.live)
        assert message.code == 2002
        assert message.message.startswith(f"evicted {forgotten[-1]} keys")
    *steps, last = forgotten
    assert set(steps) == {eviction.DROPPED_AT_ONCE}
    assert 0 < last <= eviction.DROPPED_AT_ONCE
    assert histories.live == 50 or histories.keyed_bytes <= 20_000 < histories.keyed_bytes + 500
    # The event's own key was seen, and is the last to go.
    unseen = [number for number in range(1_000) if not fires(made, 1_001, k=number, a=0)]
    assert unseen == list(range(1, 1 + sum(forgotten)))


def test_far_from_the_bounds_nothing_is_tracked() -> None:
    made = detector("per k once a == 1", keys_max=1_000)
    for number in range(870):
        made.evaluate({"k": number, "a": 1}, number)
    assert not made.histories.tracking
    for number in range(870, 928):
        made.evaluate({"k": number, "a": 1}, number)
    assert made.histories.tracking
    (slices,) = made.histories.slices.values()
    assert len(slices.touched) <= SETTLED_EVERY
    made.remove_rule(made.rules()[0].id)
    made.add_rule("again", "per k once a == 1")
    for number in range(64):
        made.evaluate({"k": number, "a": 1}, number + 1_000)
    assert not made.histories.tracking
    assert not any(slices.touched for slices in made.histories.slices.values())


class Work:
    """Counts what evictions look at: slices, and parts of the tracked ones."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done = 0
        for of, name in ((Slices, "first_until_us"), (Minima, "_look")):
            patch.setattr(of, name, self.counting(getattr(of, name)))

    def counting(self, function: Any) -> Any:
        def counted(*given: Any) -> Any:
            self.done += 1
            return function(*given)

        return counted

    def of(self, made: Detector, fields: dict[str, Any], time_ms: int) -> int:
        before = self.done
        made.evaluate(fields, time_ms)
        return self.done - before


@pytest.mark.storm
@pytest.mark.parametrize("keys", [1_500, 24_000])
@pytest.mark.parametrize("rule", ["per k once within 100s a == 1", "per k historically a == 0"])
def test_the_work_of_an_eviction_does_not_grow_with_the_keys(
    keys: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = detector(rule, keys_max=keys)
    work = Work(monkeypatch)
    worst = 0
    # All keys come, and come again in another order, remembered for longer; half of them never come again.
    for number in range(keys):
        worst = max(worst, work.of(made, {"k": number, "a": 1}, number * 50_000 // keys))
    for number in range(keys):
        worst = max(worst, work.of(made, {"k": number * 7 % keys, "a": 1}, 50_000 + number * 50_000 // keys))
    for number in range(keys // 2):
        worst = max(worst, work.of(made, {"k": number, "a": 0}, 100_000))
    assert work.done > keys
    # New keys come; then more, when the windows of the first ones are over.
    for time_ms in (100_000, 175_000):
        for number in range(keys // 3):
            worst = max(worst, work.of(made, {"k": f"{time_ms} {number}", "a": 1}, time_ms))
    assert worst <= 2 * eviction.TRACKED_AT_ONCE + eviction.DROPPED_AT_ONCE
    assert made.histories.live <= keys
