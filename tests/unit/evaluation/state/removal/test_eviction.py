"""The bounds on live keys and on their memory at any size: what goes first, what it costs, what is said."""

import random
import sys
from array import array
from typing import Any

import pytest

from engine import Detector, Limits
from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.state import slices
from engine.evaluation.state.removal import eviction, expiry, minima
from engine.evaluation.state.removal.expiry import page_until_us, until_us
from engine.evaluation.state.storage import columns, pages
from engine.evaluation.state.storage.sizes import ENTRY_BYTES, SLOT_BYTES
from tests.audit import keyed_bytes
from tests.differential.modes import MODES, in_mode
from tests.worlds.remembering import RECORDS, TIMES

UNBOUNDED = 1 << 62


def detector(*rules: str, **limits: int) -> Detector:
    made = Detector(limits=Limits(**limits))
    for number, rule in enumerate(rules):
        made.add_rule(f"r{number}", rule)
    return made


def reloaded(made: Detector) -> Detector:
    return Detector.load(made.dump(), Detector.STATE_VERSION, limits=made.limits)


def fires(made: Detector, time_ms: int, **fields: Any) -> bool:
    return bool(made.evaluate(fields, time_ms))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("rules", "bytes_max"), [(TIMES, 25_000), (RECORDS, 130_000)], ids=["times", "records"]
)
def test_what_keys_weigh_is_known_at_any_time(rules: tuple[str, ...], bytes_max: int, mode: str) -> None:
    drawn = random.Random(mode)
    with in_mode(mode):
        made = detector(*rules, keys_max=60, state_bytes_max=bytes_max)
        ids = [rule.id for rule in made.rules()]
        for number in range(700):
            key = drawn.choice((drawn.randrange(90), f"text {drawn.randrange(40)}", drawn.random() < 0.5))
            fields = {
                "k": key,
                "j": "é" * drawn.randrange(4),
                "a": drawn.choice((0, 1)),
                "b": drawn.choice((0, 1)),
            }
            made.evaluate({**fields, "t": drawn.choice((0, 0, 1))}, number * 2)
            assert made.state.bytes == keyed_bytes(made.state) <= bytes_max
            assert made.state.live == sum(table.live for table in made.state.tables.values()) <= 60
            if number % 97 == 0:
                made.change_rule(drawn.choice(ids), enabled=drawn.choice((True, True, False)))
                made = reloaded(made)
                assert made.state.bytes == keyed_bytes(made.state)
        for rule_id in ids:
            made.remove_rule(rule_id)
        assert (made.state.bytes, made.state.live) == (0, 0)


def test_past_the_bound_on_bytes_the_longest_unseen_go_and_the_reply_says_so() -> None:
    key = "x" * 100
    of_key = SLOT_BYTES + key_bytes("0" + key) + ENTRY_BYTES
    made = detector("per k once a == 1", state_bytes_max=3 * of_key)
    for number in range(3):
        assert made.submit({"k": f"{number}{key}", "a": 1}, number).messages == []
    assert fires(made, 3, k=f"0{key}", a=0)
    messages = made.submit({"k": f"3{key}", "a": 1}, 4).messages
    said = f"1 keys were forgotten: the detector's keys may take {3 * of_key} bytes"
    assert [tuple(message) for message in messages] == [(2002, said)]
    assert [fires(made, 5, k=f"{number}{key}", a=0) for number in range(4)] == [True, False, True, True]
    # One large key takes the place of several small ones.
    assert len(made.submit({"k": "é" * 200, "a": 1}, 6).messages) == 1
    assert made.state.live == 2


def test_past_the_bound_on_bytes_what_has_expired_goes_first() -> None:
    of_key = SLOT_BYTES + key_bytes("A") + ENTRY_BYTES
    made = detector("per k once within 10s a == 1", state_bytes_max=2 * of_key)
    made.evaluate({"k": "A", "a": 1}, 0)
    made.evaluate({"k": "B", "a": 1}, 9_000)
    assert not fires(made, 12_000, k="A", a=0)
    assert made.submit({"k": "C", "a": 1}, 12_000).messages == []
    assert [fires(made, 12_000, k=key, a=0) for key in "ABC"] == [False, True, True]


def test_a_key_that_is_larger_than_the_bound_is_not_kept() -> None:
    made = detector("per k once a == 1", state_bytes_max=100)
    assert [len(made.submit({"k": "A", "a": 1}, 0).messages) for _ in range(2)] == [1, 1]
    assert (made.state.live, made.state.bytes) == (0, 0)


@pytest.mark.parametrize("lowered", [{"keys_max": 50}, {"state_bytes_max": 20_000}])
def test_a_bound_that_was_lowered_is_held_in_steps_from_the_next_event_on(lowered: dict[str, int]) -> None:
    made = detector("per k once a == 1", keys_max=1_000)
    for number in range(1_000):
        made.evaluate({"k": number, "a": 1}, number)
    bounded = Detector.load(made.dump(), Detector.STATE_VERSION, limits=Limits(**lowered))
    forgotten = []
    while bounded.state.due:
        before = bounded.state.live
        (message,) = bounded.submit({"k": 0, "a": 0}, 1_000).messages
        forgotten.append(before - bounded.state.live)
        assert message.code == 2002
        assert message.message.startswith(f"{forgotten[-1]} keys")
        # How far it has come is part of the state.
        bounded = reloaded(bounded)
    kept = bounded.state.live
    *steps, last = forgotten
    assert steps
    assert set(steps) == {eviction.DROPPED_AT_ONCE}
    assert 0 < last <= eviction.DROPPED_AT_ONCE
    assert kept == 50 or bounded.state.bytes <= 20_000 < bounded.state.bytes + 500
    # The event's own key was seen, and is the last to go.
    unseen = [number for number in range(1_000) if not fires(bounded, 1_001, k=number, a=0)]
    assert unseen == list(range(1, 1_001 - kept))


def test_a_run_of_no_length_makes_no_difference_and_keeps_no_key() -> None:
    made = detector("per k historically for 0s strong a == 1", "per j once a == 1", keys_max=2)
    made.evaluate({"j": 1, "a": 1}, 0)
    for number in range(20):
        assert made.submit({"k": number, "a": 1}, number + 1).messages == []
    assert fires(made, 21, j=1, a=0)


def test_of_several_paths_the_longest_unseen_key_goes_whatever_its_path() -> None:
    made = detector("per k once a == 1", "per j once a == 1", keys_max=1_000)
    for number in range(500):
        made.evaluate({"k": number, "a": 1}, number)
        made.evaluate({"j": number, "a": 1}, number)
    for number in range(0, 500, 2):
        made.evaluate({"k": number, "a": 0}, 500)
    for number in range(300):
        assert len(made.submit({"k": f"new {number}", "a": 1}, 501).messages) == 1
    gone = {
        name: [number for number in range(500) if not fires(made, 502, **{name: number}, a=0)]
        for name in "kj"
    }
    # Of each two numbers one k went, and both j.
    assert gone == {"k": list(range(1, 200, 2)), "j": list(range(200))}


def test_keys_that_live_no_longer_since_a_rule_was_removed_go_first() -> None:
    made = detector("per k once within 1s a == 1", "per k once a == 1", "per j once a == 1", keys_max=40)
    for number in range(20):
        made.evaluate({"j": number, "a": 1}, number)
    for number in range(20):
        made.evaluate({"k": number, "a": 1}, 20 + number)
    for _ in range(32):
        made.evaluate({}, 40)
    assert made.state.tracking
    made.remove_rule(made.rules()[1].id)
    for number in range(20, 40):
        assert made.submit({"j": number, "a": 1}, 5_000).messages == []
    assert all(fires(made, 5_001, j=number, a=0) for number in range(40))


@pytest.mark.parametrize("mode", MODES)
def test_how_long_a_key_is_live_is_the_same_told_by_page_and_one_by_one(mode: str) -> None:
    rules = (
        "per k once within 1s a == 1",
        "per k historically for 3s a between 0 and 1",
        "per k (not b == 1 since a == 1)",
        "t == 1 and per k once within 2s not a == 1",
        "t == 1 and per k historically for 1s strong not a == 1",
    )
    drawn = random.Random(mode)
    for count in (1, 2, 4, 5):
        with in_mode(mode):
            made = detector(*rules[:count])
            for number in range(800):
                fields = {name: drawn.choice((0, 1, 2)) for name in "abt"}
                made.evaluate({"k": drawn.randrange(330), **fields}, number)
            (table,) = made.state.tables.values()
            one_by_one = [until_us(table, slot) for slot in range(len(table.keys))]
            by_page = [
                until
                for number in range(len(table.free_slots.room))
                for until in page_until_us(table, number)
            ]
            assert by_page == one_by_one
            # With the last rule, nearly all live for ever.
            assert len(set(one_by_one)) > 2 or count == len(rules)


class Work:
    """Counts what evictions look at: keys one by one, keys of parts, pages."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done = 0
        for module, name in (
            (eviction, "until_us"),
            (eviction, "page_until_us"),
            (expiry, "until_us"),
            (minima.Minima, "_look"),
        ):
            patch.setattr(module, name, self.counting(getattr(module, name)))

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
@pytest.mark.parametrize(
    ("keys", "swept_from", "work_max"),
    [(1_500, UNBOUNDED, 150), (24_000, UNBOUNDED, 150), (24_000, 0, 1_500)],
    ids=["few", "many", "many, and tidied"],
)
@pytest.mark.parametrize("rule", ["per k once within 100s a == 1", "per k historically a == 0"])
def test_the_work_of_an_eviction_does_not_grow_with_the_keys(
    keys: int, swept_from: int, work_max: int, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = detector(rule, keys_max=keys)
    made.state.swept_from = swept_from
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
    assert worst <= work_max
    assert made.state.live <= keys


def test_far_from_the_bounds_nothing_is_tracked() -> None:
    made = detector("per k once a == 1", keys_max=1_000)
    for number in range(870):
        made.evaluate({"k": number, "a": 1}, number)
    assert not made.state.tracking
    for number in range(870, 928):
        made.evaluate({"k": number, "a": 1}, number)
    assert made.state.tracking
    (table,) = made.state.tables.values()
    assert len(table.log) <= 32
    made.remove_rule(made.rules()[0].id)
    made.add_rule("again", "per k once a == 1")
    for number in range(64):
        made.evaluate({"k": number, "a": 1}, number + 1_000)
    assert not made.state.tracking
    assert not any(table.log for table in made.state.tables.values())


@pytest.mark.parametrize(
    "key_of",
    [
        lambda number: number,
        lambda number: 251 * number,
        lambda number: 256 * number,
        lambda number: -65_536 * number,
        lambda number: number << 41,
        lambda number: 65_521 * number,
        lambda number: (number << 20) + 2**59,
        lambda number: number + 0.5,
        lambda number: number / 1_024,
        lambda number: number * 2.0**-40,
        lambda number: f"user-{number:07d}",
        lambda number: str(number << 8),
        lambda number: str(number)[::-1] + "x" * 300,
    ],
)
@pytest.mark.parametrize(("path", "mode"), [("per k", "fused"), ("per j per k", "indexed")])
def test_no_shard_has_many_times_its_share_of_the_keys(key_of: Any, path: str, mode: str) -> None:
    """A dict that moves as a whole takes longer the larger it is: 38 ms where all keys were in one."""
    with in_mode(mode):
        made = detector(f"{path} once a == 1")
        made.evaluate_many([({"k": key_of(number), "j": 1, "a": 1}, 0, None) for number in range(1, 5_001)])
    (table,) = made.state.tables.values()
    assert sum(map(len, table.shards)) == 5_000
    assert max(map(len, table.shards)) <= 3 * 5_000 / len(table.shards)


@pytest.mark.storm
@pytest.mark.parametrize(
    "mode",
    [
        "fused, tidied at every event, looked up",
        "indexed, tidied at every event",
        "indexed, in pages, looked up",
    ],
)
def test_what_is_evicted_for_bytes_depends_on_the_past_alone(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expired keys count until they are dropped, so they must go at the same event after a load."""
    monkeypatch.setattr(columns, "PAGED_FROM", 20)
    rules = (
        "per k once within 50ms a == 1",
        "per k historically for 20ms a == 1",
        "per j (not b == 1 since a == 1)",
    )
    evictions = 0
    with in_mode(mode):
        stayed = detector(*rules, keys_max=UNBOUNDED, state_bytes_max=9_000)
        rested = reloaded(stayed)
        for number in range(3_000):
            fields = {"k": number * 7919 % 397, "j": number * 31 % 211, "a": number % 3 % 2, "b": number % 2}
            outcome = stayed.submit(fields, number)
            assert outcome == rested.submit(fields, number)
            evictions += len(outcome.messages)
            if number % 37 == 0:
                rested = reloaded(rested)
    assert evictions > 100
    assert reloaded(rested).dump() == rested.dump() == stayed.dump()


def test_keys_that_are_dropped_together_have_their_part_looked_through_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SWEPT_FROM", 0)
    looks = 0
    look = minima.Minima._look

    def counted(self: minima.Minima, part: int) -> None:
        nonlocal looks
        looks += 1
        look(self, part)

    monkeypatch.setattr(minima.Minima, "_look", counted)
    made = detector("per k once within 10s a == 1", keys_max=4_000)
    for number in range(4_000):
        made.evaluate({"k": number, "a": 1}, 0)
    assert made.state.tracking
    most, dropped = 0, 0
    for number in range(200):
        looks, before = 0, made.state.live
        made.evaluate({"k": -1, "a": 1}, 20_000 + number)
        most, dropped = max(most, looks), max(dropped, before - made.state.live)
    assert dropped >= 200
    assert most < dropped / 4


def test_however_many_keys_expire_at_once_one_event_drops_a_page_of_them_at_most() -> None:
    made = detector("per k once within 1s a == 1")
    made.state.swept_from = 1
    for number in range(20_000):
        made.evaluate({"k": number, "a": 1}, 0)
    dropped = []
    for number in range(8_000):
        before = made.state.live
        made.evaluate({"k": -number, "a": 1}, 10_000)
        dropped.append(before + 1 - made.state.live)
    assert pages.PAGE_SLOTS // 2 < max(dropped) <= pages.PAGE_SLOTS
    assert made.state.live < 8_100, "nearly all that expired are gone"


def test_the_shards_of_keys_shrink_as_their_keys_expire() -> None:
    made = detector("per k once within 1s a == 1")
    made.evaluate_many([({"k": f"key {number}", "a": 1}, 0, None) for number in range(60_000)])
    (table,) = made.state.tables.values()
    before = max(map(sys.getsizeof, table.shards))
    made.state.swept_from = 1
    made.evaluate_many([({"k": "key 0", "a": 0}, 10_000, None)] * 32_000)
    assert made.state.live < 1_000
    assert max(map(sys.getsizeof, table.shards)) < 5_000 < before


def test_of_equal_numbers_the_first_is_found_whichever_became_so_last() -> None:
    numbers = array("q", [5, 5, 3])
    found = minima.Minima(numbers)
    found.look(0, 3)
    numbers[0] = 3
    found.changed(0)
    assert found.least() == (3, 0)
