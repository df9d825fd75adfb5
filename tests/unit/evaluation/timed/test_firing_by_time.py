"""What timed rules do as time passes, told by hand."""

import sys
from typing import Any

import pytest

from engine import Detector, Refusal, explain
from engine.evaluation.events.intake import Intake
from engine.evaluation.explanation.firings import dry_run, evaluate_explained
from engine.evaluation.inspecting.states import standing
from engine.evaluation.persistence import saved
from engine.evaluation.slices import slices
from engine.evaluation.timed import queue, timing
from engine.language.limits import Limits
from tests.differential.modes import in_mode

SILENT = "per host (not once within 5m exists beat)"
MINUTE = 60_000_000
DAY = 24 * 60 * MINUTE

MANY = "per k (" + "".join(f"once b == {number} or " for number in range(16)) + "not once within 5m a == 1)"
"""Of so many memories, the last has no place in the list of a slice."""
RUNS = "per k (" + "".join(f"once b == {number} and c == 1 or " for number in range(17))
"""The last of these memories and of what follows has its entries elsewhere."""
TWO = [(0, {"k": "x", "u": 1, "a": 1}), (1, {"k": "x", "u": 2})]
NUMBERS = [(1_000, {"k": "x", "n": -2}), (2_000, {"k": "x", "n": 0}), (3_000, {"k": "x", "n": 5})]
THRICE = [(second * 1_000, {"k": "x", "a": 1}) for second in range(3)]
FIRINGS: list[tuple[str, list[tuple[int, dict[str, Any]]], int, list[tuple[Any, ...]]]] = [
    # Conditions of no key wait from the first event, whatever that is.
    ("minute() >= 5 and not once within 5m g == 1", [(0, {})], 6 * MINUTE, [(5 * MINUTE,)]),
    ('clock() == "00:05"', [(0, {})], 2 * DAY, [(5 * MINUTE,), (DAY + 5 * MINUTE,)]),
    ("per k (once down == 1) and hour() >= 22", [(0, {"k": "x", "down": 1})], DAY, [(22 * 60 * MINUTE, "x")]),
    ("per k (once down == 1 and hour() >= k)", [(0, {"k": 22, "down": 1})], DAY, [(22 * 60 * MINUTE, 22)]),
    ("per k (age(a == 1) > 2.5)", [(1_000, {"k": 7, "a": 1}), (2_000, {"k": 7})], MINUTE, [(3_500_001, 7)]),
    # What has left its window long ago turns no more.
    (
        "per k (not distinct(u) within 1s > 1 and not once within 1m a == 1)",
        TWO,
        2 * MINUTE,
        [(MINUTE + 1, "x")],
    ),
    (MANY, [(0, {"k": "x", "a": 1})], 10 * MINUTE, [(5 * MINUTE + 1, "x")]),
    (
        f"{RUNS} historically for 5s strong not a == 1)",
        [(0, {"k": "x", "b": 16}), (1_000, {"k": "x"})],
        MINUTE,
        [(5_000_000, "x")],
    ),
    # What is not old enough yet will be, before another part turns.
    (
        "per k (once within [2s, 10s] a == 1 or not once within 8s b == 1)",
        [(0, {"k": "x", "b": 1}), (1_000, {"k": "x", "a": 1})],
        5_000_000,
        [(3_000_000, "x")],
    ),
    # A sum rises when what is negative leaves, and falls otherwise. Its panes are 39 063 microseconds wide.
    ("per k (sum(n) within 10s > 4)", NUMBERS, MINUTE, [(11_015_638, "x")]),
    ("per k (not sum(n) within 10s > 4)", NUMBERS, MINUTE, [(13_007_851, "x")]),
    ("per k (sum(n) within 10s < 1)", NUMBERS, MINUTE, [(13_007_851, "x")]),
    ("per k (not sum(n) within 10s < 4)", NUMBERS, MINUTE, [(11_015_638, "x")]),
    ("per k (sum(n) within 10s == 5)", NUMBERS, MINUTE, [(11_015_638, "x")]),
    # What time can only make false.
    ("per k (count(a == 1) within 5m >= 2)", THRICE, 10 * MINUTE, []),
    ("per k (not age(a == 1) > 5 and once within 5m a == 1)", THRICE, 10 * MINUTE, []),
    # Several keys, and what they share.
    (
        "per a (not once within 1s x == 1) and per b (once y == 1)",
        [(0, {"a": 1, "b": 2, "x": 1, "y": 1}), (500, {"a": 1, "x": 1}), (500, {"b": 3, "y": 1})],
        MINUTE,
        [(1_500_001, 1, 2)],
    ),
    (
        "per host (once a == 1) and not once within 5m g == 1",
        [(0, {"host": "x", "a": 1}), (0, {"host": "y", "a": 1}), (1_000, {"g": 1})],
        10 * MINUTE,
        [(5 * MINUTE + 1_000_001, "x"), (5 * MINUTE + 1_000_001, "y")],
    ),
    # A slice waits from its first event, where others remember something of it.
    (
        "(per user once within 1s a == 0) or per host (not once within 5s b == 0)",
        [(0, {"b": 0, "user": "x", "host": "h"}), (1, {"user": "y", "host": "h"})],
        MINUTE,
        [(5_000_001, "x", "h"), (5_000_001, "y", "h")],
    ),
]
"""A rule, the times in ms and the fields of its events, until when time passes in µs, and what fires."""


def timed(condition: str, **more: Any) -> Detector:
    detector = Detector(**more)
    detector.add_rule("rule", condition, timed=True)
    return detector


def told(detector: Detector, time_us: int) -> list[tuple[int, Any]]:
    return [(one.time_us, *one.keys.values()) for one in detector.tick(time_us)]


@pytest.fixture(params=["fused", "indexed"])
def mode(request: pytest.FixtureRequest) -> Any:
    with in_mode(request.param):
        yield


@pytest.mark.usefixtures("mode")
class TestFiring:
    @pytest.mark.parametrize(("condition", "events", "until_us", "fired"), FIRINGS)
    def test_what_fires_as_time_passes(
        self,
        condition: str,
        events: list[tuple[int, dict[str, Any]]],
        until_us: int,
        fired: list[tuple[Any, ...]],
    ) -> None:
        detector = timed(condition)
        for time_ms, fields in events:
            detector.evaluate(fields, time_ms)
        assert told(detector, until_us) == fired

    def test_what_time_can_only_make_false_is_not_due_before_it_is_forgotten(self) -> None:
        detector = timed("per k (count(a == 1) within 5m >= 2)")
        for time_ms, fields in THRICE:
            detector.evaluate(fields, time_ms)
        assert told(detector, 5 * MINUTE + 1) == []
        assert detector.next_due_us == 5 * MINUTE + 2_000_001

    def test_keys_that_are_variables_or_long(self) -> None:
        detector = timed("per $user per id (not once within 1s exists x)")
        detector.evaluate({"id": "i" * 2_000, "x": 1}, 0, {"user": 1.5})
        (fired,) = detector.tick(MINUTE)
        assert fired.keys == {"$user": 1.5, "id": "i" * 2_000}

    def test_what_fired_by_time_for_another_key_holds_back_an_event_that_is_explained(self) -> None:
        detector = timed(SILENT)
        detector.change_rule(detector.rules()[0].id, every_secs=3_600, every_by=[])
        detector.evaluate({"host": "a", "beat": 1}, 0)
        assert evaluate_explained(detector, {"host": "b"}, 301_000, {}).rules == ()

    def test_a_host_is_silent_a_microsecond_after_five_minutes(self) -> None:
        detector = timed(SILENT)
        for second, host in enumerate("ab"):
            detector.evaluate({"host": host, "beat": 1}, second * 1_000)
        assert detector.next_due_us == 5 * MINUTE + 1
        assert told(detector, 5 * MINUTE) == []
        assert told(detector, 5 * MINUTE + 1) == [(5 * MINUTE + 1, "a")]
        assert told(detector, 5 * MINUTE + 1) == []
        assert told(detector, 10 * MINUTE) == [(5 * MINUTE + 1_000_001, "b")]
        assert detector.next_due_us is None
        assert (detector.events_seen, detector.clock_us) == (2, 10 * MINUTE)
        detector.evaluate({"host": "a", "beat": 1}, 600_000)
        assert told(detector, 20 * MINUTE) == [(15 * MINUTE + 1, "a")]
        assert detector.verdicts.counts() == {1: 3}

    def test_what_is_due_fires_before_the_event_and_never_among_its_actions(self) -> None:
        detector = timed(SILENT)
        detector.fired_by_time = fired = []
        detector.evaluate({"host": "a", "beat": 1}, 0)
        assert detector.evaluate({"host": "a", "beat": 1}, 300_000.001) == []
        assert [(one.time_us, one.keys) for one in fired] == [(5 * MINUTE + 1, {"host": "a"})]

    @pytest.mark.parametrize("product", [0.5, 2, 9, 1e6])
    def test_products_and_quotients_of_ages_turn_at_the_microsecond(self, product: float) -> None:
        """A value that only grows, or only falls, turns once. The times by hand: t is the age of b."""
        begun_us = 3_000_000
        cases = {
            f"age(a == 1) * age(b == 1) > {product}": lambda t: (t + 3) * t > product,
            f"2 * age(b == 1) * age(a == 1) * age(b == 1) >= {product}": lambda t: (
                2 * t * (t + 3) * t >= product
            ),
            f"age(a == 1) / age(b == 1) < {1 + product}": lambda t: t != 0 and (t + 3) / t < 1 + product,
            f"age(b == 1) / age(a == 1) > {1 - 1 / (1 + product)}": lambda t: (
                t / (t + 3) > 1 - 1 / (1 + product)
            ),
        }
        for condition, holds in cases.items():
            detector = timed(f"per host ({condition})")
            detector.evaluate({"host": "h", "a": 1}, 0)
            detector.evaluate({"host": "h", "b": 1}, begun_us / 1_000)
            [(time_us, _)] = told(detector, 10**15)
            assert holds((time_us - begun_us) / 1e6), condition
            assert not holds((time_us - 1 - begun_us) / 1e6), condition

    @pytest.mark.parametrize("maintained", ["", " and not once within 2m maintenance == 1"])
    def test_others_go_on_between_the_firings_of_a_tick(self, maintained: str) -> None:
        detector = timed(f"(per host (not once within 5m exists beat)){maintained}")
        detector.evaluate_many(
            [({"host": f"{n}", "beat": 1, "maintenance": 1}, 0.0, None) for n in range(600)]
        )
        fired = list[int]()
        detector.fired_by_time = []
        detector.tick(5 * MINUTE + 1, lambda: fired.append(1))
        assert len(fired) > 3

    def test_a_rule_that_becomes_timed_waits_for_slices_that_have_events_from_then_on(self) -> None:
        detector = Detector()
        condition = "per host (once within 5m beat == 1 and not once within 2m x == 1)"
        rule_id = detector.add_rule("rule", condition)
        for host in "abc":
            detector.evaluate({"host": host, "beat": 1, "x": 1}, 0)
        detector.change_rule(rule_id, timed=True)
        detector.evaluate({"host": "b"}, 60_000)
        detector.evaluate({"host": "c", "beat": 1}, 60_000)
        assert told(detector, 10 * MINUTE) == [(2 * MINUTE + 1, "b"), (2 * MINUTE + 1, "c")]

    @pytest.mark.parametrize("changes", ["its condition", "places with its draft"])
    def test_a_rule_that_became_timed_waits_on_for_such_slices_when_it_changes(self, changes: str) -> None:
        detector = Detector()
        condition = "per host (once beat == 1 and not once within {}m beat == 1)"
        rule_id = detector.add_rule("rule", condition.format(3))
        detector.add_rule("draft", condition.format(2), shadow=True, draft_of=rule_id)
        detector.evaluate({"host": "a", "beat": 1}, 0)
        for rule in detector.rules():
            detector.change_rule(rule.id, timed=True)
        if changes == "its condition":
            detector.change_rule(rule_id, condition=condition.format(2), history="keep")
        else:
            detector.promote(rule_id)
        detector.evaluate({"host": "a"}, 60_000)
        assert (2 * MINUTE + 1, "a") in told(detector, 10 * MINUTE)

    @pytest.mark.parametrize("reloads", [False, True])
    def test_a_rule_that_loses_a_key_waits_for_slices_that_have_events_from_then_on(
        self, *, reloads: bool
    ) -> None:
        kept = "per host (once within 5m beat == 1 and not once within 2m beat == 1)"
        detector = timed(f"{kept} or per user (x == 1)")
        [rule] = detector.rules()
        for host in "ab":
            detector.evaluate({"host": host, "beat": 1}, 0)
        detector.change_rule(rule.id, condition=kept, history="keep")
        if reloads:
            detector = Detector.load(detector.dump(), Detector.STATE_VERSION)
        detector.evaluate({"host": "b"}, 60_000)
        assert told(detector, 10 * MINUTE) == [(2 * MINUTE + 1, "b")]

    def test_an_event_that_is_refused_and_a_dry_run_change_nothing(self) -> None:
        detector = timed(SILENT, now_us=lambda: 3 * MINUTE)
        detector.evaluate({"host": "a", "beat": 1}, 0)
        with pytest.raises(Refusal) as refused:
            detector.tick(5 * MINUTE)
        assert refused.value.code == 1402
        with pytest.raises(Refusal):
            detector.evaluate({"host": "a", "beat": 1}, 300_000)
        detector.live_at(lambda: 10 * MINUTE)
        before = detector.dump()
        dry_run(detector, *Intake(detector.limits).event({"host": "a", "beat": 1}, 400_000, None))
        copied = detector.fork([({"host": "a"}, 400_000, None)])
        assert copied.evaluate({"host": "a"}, 400_000) != []
        assert detector.dump() == before
        assert told(detector, 5 * MINUTE + 1) == [(5 * MINUTE + 1, "a")]

    def test_what_fired_by_time_before_an_event_holds_back_what_the_event_would_fire(self) -> None:
        detector = timed(SILENT)
        detector.change_rule(detector.rules()[0].id, every_secs=3_600, every_by=["host", "zone"])
        detector.evaluate({"host": "a", "beat": 1}, 0)
        for fields, fires in (({"host": "a"}, 0), ({"host": "a", "zone": 1}, 1)):
            copies = [Detector.load(detector.dump(), Detector.STATE_VERSION) for _ in range(2)]
            assert len(copies[0].evaluate(fields, 301_000)) == fires
            assert len(evaluate_explained(copies[1], fields, 301_000, {}).rules) == fires
            assert copies[1].dump() == copies[0].dump()
            before = detector.dump()
            assert len(dry_run(detector, fields, 301_000, {}).rules) == fires
            event = (fields, 301_000, None)
            assert len(detector.fork([event]).evaluate(*event)) == fires
            assert detector.dump() == before

    def test_a_tick_moves_the_clock_so_that_events_are_late(self) -> None:
        detector = timed(SILENT)
        detector.evaluate({"host": "a", "beat": 1}, 0)
        detector.tick(10 * MINUTE)
        with pytest.raises(Refusal) as refused:
            detector.evaluate({"host": "a", "beat": 1}, 0)
        assert refused.value.code == 1402
        assert detector.submit({"host": "a", "beat": 1}, 599_000).messages[0].code == 2001
        assert told(detector, 15 * MINUTE + 1) == [(15 * MINUTE + 1, "a")]
        detector.tick(0)
        assert detector.clock_us == 15 * MINUTE + 1

    def test_in_order_of_time_priority_and_first_event(self) -> None:
        detector = timed(SILENT)
        detector.add_rule("other", SILENT, timed=True)
        for host in "ba":
            detector.evaluate({"host": host, "beat": 1}, 0)
        detector.evaluate({"host": "b", "beat": 1}, 0)
        fired = [(one.rule.priority, one.keys["host"]) for one in detector.tick(10 * MINUTE)]
        assert fired == [(1, "b"), (1, "a"), (2, "b"), (2, "a")]

    def test_a_count_falls_when_what_came_before_the_last_look_leaves(self) -> None:
        detector = timed("per k (count(a == 1) within 10s <= 5)")
        for time_ms in (0, 1_000, 2_000, 3_000):
            detector.evaluate({"k": "x", "a": 1}, time_ms)
        assert told(detector, 10_050_000) == []
        for time_ms in (10_100, 10_200, 10_300, 10_400):
            detector.evaluate({"k": "x", "a": 1}, time_ms)
        assert told(detector, MINUTE) == [(12_000_001, "x")]

    def test_changes_of_rules(self) -> None:
        detector = timed(SILENT)
        rule_id = detector.rules()[0].id
        detector.evaluate({"host": "a", "beat": 1}, 0)
        detector.change_rule(rule_id, name="other")
        assert detector.next_due_us == 5 * MINUTE + 1
        for changes in ({"timed": False}, {"enabled": False}, {"condition": f"{SILENT} and true_ == 1"}):
            detector.change_rule(rule_id, **changes)
            assert told(detector, (detector.clock_us or 0) + 10 * MINUTE) == []
            detector.change_rule(rule_id, timed=True, enabled=True, condition=SILENT)
            detector.evaluate({"host": "a", "beat": 1}, (detector.clock_us or 0) / 1_000)
        detector.remove_rule(rule_id)
        assert detector.next_due_us is None

    def test_a_change_that_keeps_history_keeps_what_waits(self) -> None:
        detector = timed(SILENT)
        rule_id = detector.rules()[0].id
        detector.evaluate({"host": "a", "beat": 1}, 0)
        detector.change_rule(rule_id, condition=SILENT.replace("5m", "4m"), history="keep")
        assert told(detector, 10 * MINUTE) == [(4 * MINUTE + 1, "a")]

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("per host (once beat == 1)", "per host (once beat == 1) and not once within 5m g == 1"),
            ("per host (once beat == 1)", "per host (once beat == 1) and minute() >= 5"),
            ("per host (count(beat == 1) >= 1)", "per host (count(beat == 1) within 5m < 1)"),
            ("count(beat == 1) >= 1", "count(beat == 1) within 5m < 1"),
        ],
    )
    def test_a_rule_that_time_never_turns_knows_its_slices_when_a_change_has_time_turn_it(
        self, before: str, after: str
    ) -> None:
        long = "h" * 2_000
        detector = timed(before)
        rule_id = detector.rules()[0].id
        for host in ("a", long):
            detector.evaluate({"host": host, "beat": 1}, 0)
        assert detector.next_due_us is None
        # A count begins anew where its window grows.
        for condition in (after, before, after) if before in after else (after,):
            detector = Detector.load(detector.dump(), Detector.STATE_VERSION)
            detector.change_rule(rule_id, condition=condition, history="keep")
        detector.evaluate({"g": 1}, 0)
        fired = told(detector, 10 * MINUTE)
        assert [host for _, *host in fired] == ([["a"], [long]] if "host" in after else [[]])
        assert {us // MINUTE for us, *_ in fired} == {5}

    def test_a_state_in_which_a_rule_that_time_never_turns_lists_no_slices_goes_on(self) -> None:
        """Programs before this one saved it so."""
        detector = timed("per host (once beat == 1)")
        detector.add_rule("other", SILENT, timed=True)
        detector.evaluate({"host": "a", "beat": 1}, 0)
        document = saved.unpack(detector.dump())
        del document["waiting"][1]
        other = Detector()
        saved.load(other, document, Detector.STATE_VERSION)
        other.evaluate({"host": "b", "beat": 1}, 1)
        other.change_rule(
            other.rules()[0].id, condition="per host (once beat == 1) and minute() >= 3", history="keep"
        )
        assert told(other, 4 * MINUTE) == [(3 * MINUTE, "b")]
        other.remove_rule(other.rules()[0].id)
        assert [host for _, host in told(other, 10 * MINUTE)] == ["a", "b"]

    @pytest.mark.parametrize("more", ["per host where beat == 1 (once gone == 1)", "once gone == 1"])
    def test_what_waits_goes_on_under_other_paths(self, more: str) -> None:
        long = "h" * 2_000
        detector = timed(SILENT)
        rule_id = detector.rules()[0].id
        for host in ("a", long, "b"):
            detector.evaluate({"host": host, "beat": 1}, 0)
        detector.change_rule(rule_id, condition=f"{SILENT} or {more}", history="keep")
        detector.evaluate({"host": "b", "beat": 1}, 1_000)
        assert told(detector, 5 * MINUTE + 1) == [(5 * MINUTE + 1, host) for host in ("a", long)]
        detector.change_rule(rule_id, condition=SILENT, history="keep")
        assert told(detector, 10 * MINUTE) == [(5 * MINUTE + 1_000_001, "b")]

    @pytest.mark.parametrize("moving", ["age(a == 1) > 2 * age(b == 1)", "now() > last(t) + 120"])
    @pytest.mark.parametrize(
        "before",
        [
            "per k (once within 5m ({}))",
            "per k where (once a == 1) (once within 5m ({}))",
            "per k where (once within 1h ({})) (once within 5m a == 1)",
            "per k (once within 5m (per k where (previous a == 1) ({})))",
            "per k where (previous a == 1) ({})",
        ],
    )
    def test_what_moves_inside_of_what_a_change_keeps(self, moving: str, before: str) -> None:
        def fired(*, is_changed: bool) -> list[tuple[int, Any]]:
            after = f"not ({before.format(moving)}) or per k (once never == 1)"
            detector = timed(before.format(moving) if is_changed else after)
            for number, event in enumerate([{"a": 1}, {"b": 1, "t": 60}, {"a": 1}, {"a": 1, "b": 1}]):
                detector.evaluate({"k": "x", **event}, number * 1_000)
            if is_changed:
                detector.change_rule(detector.rules()[0].id, condition=after, history="keep")
            detector.evaluate({"k": "x", "a": 1}, 5_000)
            return told(detector, 60 * MINUTE)

        assert fired(is_changed=True) == fired(is_changed=False)

    def test_a_draft_of_other_keys_takes_the_place_of_its_rule(self) -> None:
        detector = timed(SILENT)
        rule_id = detector.rules()[0].id
        condition = SILENT.replace("host", "user")
        detector.add_rule("draft", condition, timed=True, shadow=True, draft_of=rule_id)
        for number in range(5):
            detector.evaluate({"host": number, "user": str(number), "beat": 1}, 0)
        detector.promote(rule_id)
        assert told(detector, 5 * MINUTE + 1)[:5] == [(5 * MINUTE + 1, str(number)) for number in range(5)]

    def test_a_timed_rule_goes_on_with_its_keys_when_a_draft_that_is_not_timed_takes_its_place(self) -> None:
        detector = timed(SILENT)
        rule_id = detector.rules()[0].id
        draft_id = detector.add_rule("draft", SILENT.replace("5m", "4m"), shadow=True, draft_of=rule_id)
        detector.evaluate({"host": "a", "beat": 1}, 0)
        detector.promote(rule_id)
        assert told(detector, 4 * MINUTE + 1) == [(4 * MINUTE + 1, "a")]
        detector.evaluate({"host": "a", "beat": 1}, 300_000)
        detector.promote(rule_id)
        assert told(detector, 60 * MINUTE) == [(10 * MINUTE + 1, "a")]
        assert detector.verdicts.times_fired(detector.rule(draft_id).priority) == 0

    @pytest.mark.parametrize("mode", ["fused", "indexed"])
    def test_slices_that_only_the_draft_remembered_wait_from_their_next_event(self, mode: str) -> None:
        with in_mode(mode):
            detector = timed("per host (count(a == 1) within 1m == 2)")
            rule_id = detector.rules()[0].id
            detector.add_rule("draft", SILENT, shadow=True, draft_of=rule_id)
            detector.evaluate({"host": "a", "beat": 1}, 0)
            detector.promote(rule_id)
            detector.evaluate({"host": "a"}, 60_000)
            assert told(detector, 60 * MINUTE) == [(5 * MINUTE + 1, "a")]

    def test_a_draft_of_other_keys_that_is_not_timed_takes_the_place_of_its_rule(self) -> None:
        detector = timed(SILENT)
        [rule] = detector.rules()
        detector.add_rule("draft", SILENT.replace("host", "user"), shadow=True, draft_of=rule.id)
        for user in "ab":
            detector.evaluate({"host": 1, "user": user, "beat": 1}, 0)
        detector.promote(rule.id)
        detector.evaluate({"user": "b"}, 60_000)
        assert told(detector, 60 * MINUTE) == [(5 * MINUTE + 1, "b")]

    def test_what_a_change_leaves_nothing_to_wait_for_is_forgotten(self) -> None:
        detector = timed("per host (once a == 1 or count(b == 1) >= 1)")
        rule_id = detector.rules()[0].id
        for host in ("dead", "live"):
            detector.evaluate({"host": host, "b": 1}, 0)
            detector.evaluate({"host": "live", "b": 1}, 6_000)
        detector.change_rule(rule_id, condition="per host (count(b == 1) within 5s >= 1)", history="keep")
        assert [len(watch.table) for watch in detector.timing.watches.values()] == [1]

    def test_a_key_that_is_evicted_begins_anew(self) -> None:
        detector = timed(SILENT, limits=Limits(keys_max=2))
        for host in "abc":
            detector.evaluate({"host": host, "beat": 1}, 0)
        assert [one[1] for one in told(detector, 10 * MINUTE)] == ["b", "c"]
        assert detector.histories.bytes < 10_000

    @pytest.mark.slow
    @pytest.mark.parametrize("window", ["", "within 5m "])
    def test_combinations_of_keys_whose_slices_were_evicted_wait_no_more(self, window: str) -> None:
        detector = timed(f"per a (once x == 1) and per b (once {window}x == 1)", limits=Limits(keys_max=50))
        for number in range(2_000):
            detector.evaluate({"a": number, "b": number, "x": 1}, number)
        [watch] = detector.timing.watches.values()
        assert 25 <= len(watch.table) < 1_000

    def test_a_standing_verdict_says_when_the_rule_fires(self) -> None:
        detector = timed(SILENT)
        rule_id = detector.rules()[0].id
        detector.evaluate({"host": "a", "beat": 1}, 1_000)
        assert standing(detector, rule_id, {"host": "a"})["fires_ms"] == 301_000.001
        assert "fires_ms" not in standing(detector, rule_id, {"host": "b"})
        detector.tick(10 * MINUTE)
        assert "fires_ms" not in standing(detector, rule_id, {"host": "a"})

    def test_what_is_held_back_by_time_is_not_said_to_fire(self) -> None:
        detector = timed(SILENT)
        rule_id = detector.rules()[0].id
        # Time fires for the host alone, without a zone.
        detector.change_rule(rule_id, every_secs=3_600, every_by=["host", "zone"])
        beat = {"host": "a", "zone": 1, "beat": 1}
        detector.evaluate(beat, 0)
        assert explain(detector, beat, 1_000).rules[0].fires_us == 5 * MINUTE + 1_000_001
        detector.tick(5 * MINUTE + 1)
        assert explain(detector, beat, 310_000).rules[0].fires_us is None
        detector.evaluate(beat, 310_000)
        assert "fires_ms" not in standing(detector, rule_id, {"host": "a"})
        assert explain(detector, beat, 3_600_000).rules[0].fires_us == 65 * MINUTE + 1

    def test_saved_and_loaded(self) -> None:
        detector = timed(SILENT)
        detector.add_rule("several", "per a (not once within 1s x == 1) and per b (once y == 1)", timed=True)
        for number in range(40):
            host = str(number) * (1 + 400 * (number % 2))
            detector.evaluate({"host": host, "beat": 1, "a": host, "b": 1, "x": 1, "y": 1}, number)
        loaded = Detector.load(detector.dump(), Detector.STATE_VERSION)
        assert loaded.dump() == detector.dump()
        assert loaded.next_due_us == detector.next_due_us
        assert loaded.histories.bytes == detector.histories.bytes
        plain = [
            [(one.time_us, one.rule.name, one.keys) for one in each.tick(MINUTE * 9)]
            for each in (loaded, detector)
        ]
        assert plain[0] == plain[1]
        assert len(plain[0]) == 80


def test_a_capture_is_not_changed_by_what_comes_later() -> None:
    detector = timed(SILENT)
    for number in range(3 * slices.SHARDS):
        detector.evaluate({"host": str(number), "beat": 1}, number)
    watch = detector.timing.watches[1]
    captured = watch.table.captured()
    before = [dict(shard) for shard in captured]
    detector.tick(10 * MINUTE)
    assert captured == before
    assert len(watch.table) == 0


def test_rules_that_are_not_timed_pay_nothing() -> None:
    detector = Detector()
    detector.add_rule("rule", SILENT)
    assert "timing" not in detector.code()
    rule_id = detector.add_rule("idle", "per host a == 1 and once b == 1", timed=True)
    assert "timing" not in detector.code()
    assert detector.next_due_us is None
    detector.change_rule(rule_id, condition=SILENT)
    assert "timing" in detector.code()


def test_the_queue_has_no_more_than_twice_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "_SPARE", 8)
    detector = timed(SILENT, limits=Limits(keys_max=100))
    for number in range(1_000):
        detector.evaluate({"host": number, "beat": 1}, 0)
    assert len(detector.timing.watches[1].table) == 100
    assert len(detector.timing.queue) <= 209


def test_a_replay_that_fires_otherwise_has_another_checksum() -> None:
    checksums = set[int]()
    for beat_ms in (0, 1):
        detector = timed(SILENT)
        detector.evaluate({"host": "a", "beat": 1}, beat_ms)
        detector.tick(10 * MINUTE)
        checksums.add(detector.verdicts.take())
        assert detector.verdicts.take() == 0
    assert len(checksums) == 2


@pytest.mark.slow
def test_few_of_many_slices_are_looked_at_between_two_events() -> None:
    detector = timed("per host (not once within 10m beat == 1)")
    for event in range(40_000):
        detector.evaluate({"host": event % 20_000, "beat": 1}, event)
    calls = most = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    for second in range(500, 620):
        calls = 0
        sys.setprofile(count)
        detector.evaluate({"host": "other", "beat": 1}, second * 1_000)
        sys.setprofile(None)
        most = max(most, calls)
    assert most < 100_000
    assert len(told(detector, 11 * MINUTE)) == 20_000


@pytest.mark.usefixtures("mode")
class TestLongSilence:
    """Nobody can wait for what has turned each minute of years."""

    @pytest.fixture(autouse=True)
    def few_looks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(timing, "LOOKS_MAX", 10)

    def test_what_is_far_in_the_past_is_skipped_and_what_comes_after_fires(self) -> None:
        detector = timed('clock() == "00:05"')
        detector.evaluate({}, 0)
        day_us, at_us = 24 * 60 * MINUTE, 5 * MINUTE
        assert told(detector, 30 * day_us) == [(day * day_us + at_us,) for day in range(6)]
        assert told(detector, 31 * day_us) == [(30 * day_us + at_us,)]

    def test_each_slice_fires_once_however_many_there_are(self) -> None:
        detector = timed(SILENT)
        for host in range(50):
            detector.evaluate({"host": host, "beat": 1}, host)
        assert [host for _, host in told(detector, 60 * MINUTE)] == [*range(50)]

    def test_a_slice_that_is_skipped_past_its_end_waits_no_more(self) -> None:
        detector = timed(
            "per host (once within 1h exists beat and minute() in [1, 3, 5, 7, 9, 11, 13, 15, 17])"
        )
        detector.evaluate({"host": 1, "beat": 1}, 0)
        assert len(told(detector, 1_000 * MINUTE)) == 6
        assert detector.next_due_us is None
        detector.evaluate({"host": 1, "beat": 1}, 1_020 * 60_000)
        assert told(detector, 1_022 * MINUTE) == [(1_021 * MINUTE, 1)]

    @pytest.mark.parametrize("window", ["3h", "[30m, 3h]"])
    def test_what_slices_share_turns_at_its_time_after_others_are_skipped(self, window: str) -> None:
        detector = timed(f"minute() in {[*range(1, 60, 2)]}")
        condition = f"per host (once within 9h exists beat) and not once within {window} deploy == 1"
        rule_id = detector.add_rule("r", condition, timed=True)
        for host in (1, 2):
            detector.evaluate({"host": host, "beat": 1}, host)
        detector.evaluate({"deploy": 1}, 3)
        fired = [one for minute in range(60, 190, 2) for one in detector.tick(minute * MINUTE)]
        assert [(one.time_us, one.keys) for one in fired if one.rule.id == rule_id] == [
            (180 * MINUTE + 3_001, {"host": host}) for host in (1, 2)
        ]
        assert len(fired) < 100

    def test_how_much_is_skipped_does_not_depend_on_a_reload(self) -> None:
        def played(*, reloaded: bool) -> list[tuple[int, Any]]:
            detector = timed(f"minute() in {[*range(1, 60, 2)]}")
            detector.add_rule(
                "r", "per host not (once within 5m a == 1 or once within 1m b == 1)", timed=True
            )
            for host in range(30):
                # The second event brings the time forward, and leaves the first one's in the queue.
                detector.evaluate({"host": host, "a": 1}, host)
                detector.evaluate({"host": host, "b": 1}, 1_000 + host)
            if reloaded:
                detector = Detector.load(detector.dump(), Detector.STATE_VERSION)
            return [(one.time_us, *one.keys.values()) for one in detector.tick(180 * MINUTE)]

        assert played(reloaded=False) == played(reloaded=True)


@pytest.mark.usefixtures("mode")
def test_what_a_change_keeps_may_have_keys_inside_with_a_past_of_their_own() -> None:
    kept = "x == 1 since within 1m per m where (earlier within [1s, 2s] b == 0) (once within 1s a == 1)"
    detector = Detector()
    rule_id = detector.add_rule("rule", f"per k ({kept})")
    detector.evaluate({"k": "x", "m": 1, "a": 1, "b": 0}, 0)
    detector.change_rule(rule_id, condition=f"not per k ({kept})", history="keep")
    assert len(detector.evaluate({"k": "y", "a": 1}, 1_000)) == 1
    assert detector.evaluate({"k": "x", "m": 1, "a": 1}, 1_000) == []
    assert detector.evaluate({"k": "x", "x": 1}, 2_000) == []
    assert len(detector.evaluate({"k": "x"}, 3_000)) == 1
