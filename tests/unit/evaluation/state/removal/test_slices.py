"""The bound on live keys: what is dropped, when, and what is said about it."""

import pytest

from engine import Detector
from engine.language.limits import Limits
from tests.differential.modes import MODES, in_mode


def detector(keys_max: int, *rules: str) -> Detector:
    made = Detector(limits=Limits(keys_max=keys_max))
    for number, rule in enumerate(rules):
        made.add_rule(name=f"r{number}", condition=rule)
    return made


def codes(outcome) -> list[int]:
    return [entry.code for entry in outcome.messages]


def fires(made: Detector, time_ms: int, **fields) -> bool:
    return bool(made.evaluate(fields, time_ms))


def test_the_longest_unseen_key_is_evicted_and_the_reply_says_so():
    made = detector(2, "per k once a == 1")
    for time_ms, key in enumerate("AB"):
        assert codes(made.submit({"k": key, "a": 1}, time_ms)) == []
    # A is seen again, though nothing new is remembered for it: B is now the longest unseen.
    assert fires(made, 2, k="A", a=0)
    outcome = made.submit({"k": "C", "a": 1}, 3)
    assert [entry.message for entry in outcome.messages] == ["1 keys were forgotten: the detector keeps 2"]
    assert codes(outcome) == [2002]
    assert [fires(made, 4, k=key, a=0) for key in "ABC"] == [True, False, True]


def test_an_expired_key_makes_room_before_a_live_one_is_evicted():
    made = detector(2, "per k once within 10s a == 1")
    made.evaluate({"k": "A", "a": 1}, 0)
    made.evaluate({"k": "B", "a": 1}, 9_000)
    # A has expired, though it was seen last.
    assert not fires(made, 12_000, k="A", a=0)
    assert codes(made.submit({"k": "C", "a": 1}, 12_000)) == []
    assert [fires(made, 12_000, k=key, a=0) for key in "ABC"] == [False, True, True]


def test_a_key_that_was_evicted_begins_its_slice_anew():
    made = detector(1, "per k historically a == 1")
    assert fires(made, 0, k="A", a=1)
    assert not fires(made, 1, k="A", a=0)
    assert not fires(made, 2, k="B", a=0)
    assert fires(made, 3, k="A", a=1)


def test_keys_that_remember_nothing_are_not_live():
    made = detector(1, "per k once a == 1")
    for time_ms in range(100):
        assert codes(made.submit({"k": time_ms, "a": 0}, time_ms)) == []
    assert made.state.live == 0


def test_the_bound_is_over_all_paths_together():
    made = detector(3, "per k once a == 1", "per j once a == 1")
    assert codes(made.submit({"k": 1, "j": 1, "a": 1}, 0)) == []
    outcome = made.submit({"k": 2, "j": 2, "a": 1}, 1)
    assert codes(outcome) == [2002]
    assert made.state.live == 3


@pytest.mark.parametrize(
    ("rule", "remembers", "forgets"),
    [
        ("per k once within 1s a == 1", {"a": 1}, {"a": 0}),
        ("per k historically for 1s a == 1", {"a": 0}, {"a": 1}),
        ("per k (a == 1 since within 1s b == 1)", {"a": 1, "b": 1}, {"a": 1, "b": 0}),
    ],
)
def test_memory_is_bounded_by_the_keys_active_within_the_window(rule, remembers, forgets):
    made = detector(1_000_000, rule)
    made.state.swept_from = 100
    most = 0
    for time_ms in range(0, 60_000, 5):
        made.evaluate({"k": time_ms, **remembers}, time_ms)
        most = max(most, made.state.live)
    assert most <= 3 * 256 + 201
    for time_ms in range(60_000, 64_000, 5):
        made.evaluate({"k": "other", **forgets}, time_ms)
    assert made.state.live <= 100
    assert sum(len(store.slots()) for store in made.state.stores.values()) <= 100


def test_slices_that_only_their_clock_keeps_are_given_back_after_the_window():
    """If rules are indexed, each key is live until its last event is too old to matter."""
    with in_mode("indexed"):
        made = detector(1_000_000, "t == 1 and per k once within 1s not a == 1")
        made.state.swept_from = 100
        most = 0
        for time_ms in range(0, 60_000, 5):
            made.evaluate({"k": time_ms, "a": 0}, time_ms)
            most = max(most, made.state.live)
    assert most <= 3 * 256 + 201


@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_what_is_remembered_of_many_keys_is_told_apart(mode):
    with in_mode(mode):
        made = detector(10_000, "per k once a == 1", "per k (a == 1 since not b == 1)")
        for key in range(3_000):
            made.evaluate({"k": key, "a": key % 7 == 0, "b": key % 5 == 0}, key)
            made.evaluate({"k": key, "a": int(key % 3 == 0), "b": 1}, key)
        for key in range(3_000):
            fired = [
                rule["name"] for rule in made.evaluate({"k": key, "a": 1 if key % 2 else 0, "b": 1}, key)
            ]
            since = key % 3 == 0 and key % 2 == 1
            assert fired == ["r0"] * (key % 3 == 0 or key % 2 == 1) + ["r1"] * since


@pytest.mark.parametrize("mode", MODES)
def test_what_a_clock_told_takes_the_place_of_what_was_kept_before(mode):
    with in_mode(mode):
        made = detector(10, "t == 1 and per k once within 1s not a == 1")
        for time_ms in (0, 5_000):
            for key in (1, 2):
                made.evaluate({"k": key, "a": 0}, time_ms)
                made.evaluate({"k": key, "a": 1}, time_ms)
        assert [fires(made, 6_000, k=key, a=1, t=1) for key in (1, 2)] == [True, True]
        assert [fires(made, 6_001, k=key, a=1, t=1) for key in (1, 2)] == [False, False]


def test_a_path_that_was_swept_empty_can_be_let_go():
    made = detector(2, "per u once a == 1", "per v once within 1s a == 1")
    for key in range(2):
        made.evaluate({"v": key, "a": 1}, 0)
    for key in range(2):
        assert codes(made.submit({"u": key, "a": 1}, 5_000)) == []
    made.change_rule(made.rules()[1].id, enabled=False)
    assert codes(made.submit({"u": 0, "a": 1}, 5_000)) == []


def test_a_removed_rule_leaves_nothing_behind():
    made = detector(
        10, "per k once a == 1", "per k once a == 1", "per k once within 1h b == 1", "once a == 1"
    )
    made.evaluate({"k": 1, "a": 1, "b": 0}, 0)
    made.evaluate({"k": 2, "a": 0, "b": 1}, 0)
    first, second, third, fourth = made.rules()
    made.remove_rule(first.id)
    assert fires(made, 1, k=1)
    made.remove_rule(second.id)
    made.remove_rule(fourth.id)
    assert made.state.live == 1
    made.change_rule(third.id, enabled=False)
    assert (made.state.live, made.state.stores, made.state.tables) == (0, {}, {})


def test_rules_born_together_share_their_memory_and_others_do_not():
    made = detector(10, "once a == 1", "b == 2 and once a == 1")
    assert len(made.state.stores) == 1
    made.evaluate({"a": 0}, 0)
    made.add_rule(name="later", condition="once a == 1")
    assert len(made.state.stores) == 2


def test_a_detector_whose_rules_were_indexed_stays_indexed_after_a_reload_though_few_are_left():
    """Fused, it would take what the clocks of slices say for what it remembers."""
    with in_mode("becoming indexed"):
        stayed = detector(1_000, "t == 1 and per k once within 10s not a == 1", "a == 5", "a == 6")
        for rule in stayed.rules()[1:]:
            stayed.remove_rule(rule.id)
        assert fires(stayed, 0, k="A", t=1, a=0)
        # Nothing has to see this, and of it the clock alone knows.
        assert not fires(stayed, 9_000, k="A", t=0, a=0)
        rested = Detector.load(stayed.dump(), Detector.STATE_VERSION)
        for time_ms in (12_000, 19_001):
            fields = {"k": "A", "t": 1, "a": 1}
            assert (
                len(stayed.evaluate(fields, time_ms))
                == len(rested.evaluate(fields, time_ms))
                == (time_ms < 19_000)
            )


def test_a_run_that_ended_for_one_key_says_nothing_of_the_next_key_in_its_slot():
    with in_mode("indexed"):
        made = detector(1, "t == 1 and per k historically for 1s strong not a == 1")
        made.evaluate({"k": "A", "a": 1}, 0)
        made.evaluate({"k": "B", "a": 1}, 1)
        # It comes into the slot of A, which was evicted; nothing has to see its first event.
        made.evaluate({"k": "C"}, 2)
        assert not fires(made, 1_001, k="C", t=1)
        assert fires(made, 1_002, k="C", t=1)


def test_slots_may_be_given_back_while_a_sweep_still_speaks_of_them():
    with in_mode("indexed, tidied at every event"):
        made = detector(10_000, "t == 1 and per k once within 10s not a == 1")
        time_ms = 0
        for first in (0, 1, 2):
            for a in (0, 1):
                for key in range(500):
                    time_ms += 1
                    made.evaluate({"k": key * 7 % 500 + first, "a": a}, time_ms)
            time_ms += 20_000
            for key in range(40):
                made.evaluate({"k": key, "a": 1, "t": 1}, time_ms + key)
    assert made.state.live <= 500


def test_evictions_go_on_as_before_after_a_reload():
    """What is evicted depends on the past alone, not on whether the detector was passive in between."""
    rules = ["per k once a == 1", "per k per j once within 50ms a == 1", "per j historically for 20ms a == 1"]
    steps = [
        ({"k": (time_ms * 7919) % 97, "j": (time_ms * 31) % 11, "a": time_ms % 3}, time_ms)
        for time_ms in range(3_000)
    ]
    stayed = detector(90, *rules)
    rested = Detector.load(stayed.dump(), Detector.STATE_VERSION, limits=stayed.limits)
    evictions = 0
    for number, (fields, time_ms) in enumerate(steps):
        outcome = stayed.submit(fields, time_ms)
        evictions += len(outcome.messages)
        assert outcome == rested.submit(fields, time_ms)
        if number % 37 == 0:
            rested = Detector.load(rested.dump(), Detector.STATE_VERSION, limits=stayed.limits)
    assert evictions > 400
    assert rested.dump() == Detector.load(rested.dump(), Detector.STATE_VERSION, limits=stayed.limits).dump()


@pytest.mark.parametrize(
    "key",
    [
        True,
        False,
        0,
        1,
        -0.0,
        1.5,
        "1",
        "",
        10**30,
        -(10**400),
        2**63,
        2**60,
        1e300,
        -(2.0**60),
        2.0**60 - 2**8,
        "true",
    ],
)
@pytest.mark.parametrize("rule", ["per k once a == 1", "per j per k once a == 1"])
def test_keys_of_every_kind_come_back_from_a_dump(key, rule):
    made = detector(10, rule)
    made.evaluate({"k": key, "j": True, "a": 1}, 0)
    back = Detector.load(made.dump(), Detector.STATE_VERSION)
    others = [other for other in (True, 1, "1", False, 0, "true") if (type(other), other) != (type(key), key)]
    assert fires(back, 1, k=key, j=True)
    assert not any(fires(back, 2, k=other, j=True) for other in others if not _same_number(other, key))


def _same_number(left, right) -> bool:
    return not isinstance(left, bool) and not isinstance(right, bool) and left == right


@pytest.mark.parametrize("mode", MODES)
def test_what_is_at_the_edge_of_its_window_is_still_there_when_others_expire(mode):
    with in_mode(mode):
        made = detector(10, "per k once within 10s a == 1")
        assert fires(made, 0, k="A", a=1)
        # Expiry comes with the events of other keys, at the last moment that still belongs to the window.
        assert not any(fires(made, 10_000, k="B", a=0) for _ in range(4))
        assert fires(made, 10_000, k="A", a=0)
        assert not fires(made, 10_001, k="A", a=0)


def test_of_two_rules_younger_than_their_slice_each_begins_its_run_with_the_next_event():
    rule = "per k historically for 1s strong not a == 1"
    with in_mode("indexed"):
        made = detector(10, "per k once b == 1")
        made.evaluate({"k": "A"}, 0)
        made.add_rule("elder", rule)
        made.evaluate({"k": "A"}, 1_000)
        made.add_rule("younger", rule)
        assert not fires(made, 1_500, k="A")
        assert [action["name"] for action in made.evaluate({"k": "A"}, 2_000)] == ["elder"]
        assert [action["name"] for action in made.evaluate({"k": "A"}, 2_500)] == ["elder", "younger"]
