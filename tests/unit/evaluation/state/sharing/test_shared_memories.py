"""Rules of different births come to read one memory, at the same event in every life of a detector.

It costs no event much.
"""

from array import array
from dataclasses import replace

import pytest

from engine import Detector, Limits, explain
from engine.evaluation.dispatch import rule_set
from engine.evaluation.kernel.buckets.buckets import Group
from engine.evaluation.persistence.capturing import capture
from engine.evaluation.persistence.saved import version_of
from engine.evaluation.requirements import RULE_STAGE
from engine.evaluation.state import joining
from engine.evaluation.state.removal import eviction
from tests.differential import fused

ONE = "per k once within 10s p == 1"
APART = "per k historically for 10s not p == 1"
STRONG = "per k historically for 10s strong not p == 1"
NESTED = "per k once within 2s (p == 1 and not once within 1s k == 3)"


@pytest.fixture(autouse=True)
def _indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(0))


def test_memories_join_older_ones_without_a_look_at_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector(limits=replace(Limits(), keys_max=100))
    detector.add_rule("old", ONE)
    for key in range(96):
        detector.evaluate({"k": key, "p": 1}, 0)
    assert detector.state.tracking
    detector.add_rule("young", ONE)
    looked_at: list[int] = []
    monkeypatch.setattr(eviction, "page_until_us", lambda _, number: looked_at.append(number))
    detector.evaluate({"k": 1}, 1)
    assert detector.state.joined
    assert not looked_at


def test_an_event_has_few_of_many_memories_join_older_ones() -> None:
    detector = Detector()
    for _ in range(2):
        for number in range(40):
            detector.add_rule("rule", f"once within 10s p == {number}")
        detector.evaluate({"p": 1}, detector.events_seen)
    joined = [len(detector.state.joined)]
    for _ in range(3):
        detector.evaluate({"p": 1}, detector.events_seen)
        joined.append(len(detector.state.joined))
    assert joined == [16, 32, 40, 40]


def test_an_event_drops_few_entries_of_memories_that_join_older_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "DROPPED_AT_ONCE", 0)
    detector = Detector()
    for _ in range(2):
        for rule in ("once within 10s p == 1", ONE, "per k once within 10s p == 2"):
            detector.add_rule("rule", rule)
        for p in (1, 2):
            # At the very time of a birth, so that the memories wait until these entries have expired.
            detector.evaluate({"k": 1, "p": p}, 0)
    joined = []
    for time_ms in (10_000, 10_001, 10_002):
        detector.evaluate({}, time_ms)
        joined.append(len(detector.state.joined))
    assert joined == [0, 2, 3]


def test_a_memory_joins_an_older_one_only_after_its_window_though_others_join_at_this_event() -> None:
    detector = Detector()
    for name in ("old", "young"):
        for seconds in (9, 10):
            detector.add_rule(f"{name} {seconds}", f"once within {seconds}s p == 1")
        detector.evaluate({"p": int(name == "old")}, 0)
    assert [action["name"] for action in detector.evaluate({}, 10_000)] == ["old 10"]
    assert len(detector.state.joined) == 1


def test_memories_without_a_window_join_before_any_event_has_had_a_key() -> None:
    detector = Detector()
    for _ in range(2):
        detector.add_rule("rule", "per k once p == 1")
        detector.evaluate({}, 0)
    detector.evaluate({}, 1)
    assert len(detector.state.joined) == 1


@pytest.mark.parametrize("per", ["", "per k "])
def test_a_memory_that_triggers_only_a_younger_rule_triggers_it_once_they_share_it(per: str) -> None:
    detector = Detector()
    for name, rule in (("old", f"a == 1 and {per}once p == 1"), ("young", f"{per}once p == 1")):
        detector.add_rule(name, rule)
        detector.evaluate({"k": 1, "p": 1}, detector.events_seen)
    assert detector.state.joined
    told = ({"k": 1}, {"k": 1, "a": 1}, {"k": 1, "p": 1}, {"k": 1})
    fired = [[action["name"] for action in detector.evaluate(fields, 2)] for fields in told]
    assert fired == [["young"], ["old", "young"], ["young"], ["young"]]


def test_a_memory_that_holds_what_no_event_wrote_joins_once_it_holds_the_same() -> None:
    detector = Detector()
    for p in (0, 1):
        detector.add_rule("rule", "once not p == 1")
        detector.evaluate({"p": p}, 0)
    for time_ms in (1, 10_002):
        detector.evaluate({}, time_ms)
    assert len(detector.state.joined) == 1


def test_a_memory_that_no_event_wrote_and_one_that_an_event_kept_are_compared_as_they_read() -> None:
    detector = Detector()
    for name, p in (("old", 0), ("young", 1)):
        detector.add_rule(name, "once not p == 1")
        detector.evaluate({"p": p}, 0)
    fired = [[action["name"] for action in detector.evaluate({"p": p}, 2)] for p in (1, 1, 0)]
    assert fired == [["old"], ["old"], ["old", "young"]]


@pytest.mark.parametrize("per", ["", "per k "])
@pytest.mark.parametrize("member", ["count(p == 1) >= 2", "sum(p) >= 2", "sum(p) > 1"])
def test_records_without_a_window_stay_apart_though_the_latest_time_is_the_same(
    member: str, per: str
) -> None:
    detector = Detector()
    for name in ("old", "young"):
        detector.add_rule(name, f"{per}({member})")
        detector.evaluate({"k": 1, "p": int(name == "old")}, 0)
    fired = [
        [action["name"] for action in detector.evaluate({"k": 1, "p": p}, time_ms)]
        for p, time_ms in ((1, 20_000), (0, 40_000), (0, 60_000))
    ]
    assert fired == [["old"]] * 3


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_memory_born_when_rules_come_to_be_indexed_joins_an_older_one_at_the_next_event(
    monkeypatch: pytest.MonkeyPatch, *, reloaded: bool
) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(1_000))
    detector = Detector()
    for time_ms, name in enumerate(("old", "middle")):
        detector.add_rule(name, ONE)
        detector.evaluate({"k": 1, "p": time_ms}, time_ms)
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(0))
    detector.add_rule("young", ONE)
    if reloaded:
        detector = Detector.load(detector.dump(), Detector.STATE_VERSION)
    assert [action["name"] for action in detector.evaluate({"k": 1}, 2)] == ["old", "middle"]
    assert [name.birth for name in detector.state.joined] == [2]


def test_memories_join_older_ones_at_the_same_event_after_a_reload() -> None:
    first, second = Detector(), Detector()
    joined = []
    for place, time_ms in enumerate(
        (0, 0, 3_000, 3_000, 3_001, 9_999, 10_000, 10_001, 13_000, 13_001, 13_002)
    ):
        for text in (ONE, APART, STRONG, NESTED, "per k once p == 1"):
            for life in (first, second) if place < 8 else ():
                life.add_rule("rule", text, rule_id=f"{place} {text}")
        second = Detector.load(second.dump(), Detector.STATE_VERSION)
        for life in (first, second):
            life.evaluate({"k": place, "p": place % 2}, time_ms)
        second = Detector.load(second.dump(), Detector.STATE_VERSION)
        assert first.state.joined == second.state.joined
        assert first.state.bytes == second.state.bytes
        joined.append(len(first.state.joined))
    assert joined == sorted(joined)
    assert joined[-1] > joined[-4] > 0


@pytest.mark.parametrize("differs", [0, 3, 199])
def test_memories_without_a_window_join_once_they_hold_the_same(differs: int) -> None:
    detector = Detector()
    detector.add_rule("old", STRONG)
    for key in range(200):
        detector.evaluate({"k": key}, 0)
    detector.add_rule("young", STRONG)
    # At the very time of its birth, so that time cannot tell what came after it.
    detector.evaluate({"k": 1}, 0)
    joined = []
    for turn, seconds in enumerate(range(20, 180, 20)):
        for key in range(200):
            # In one slice the run of the older rule goes on, until the fourth turn ends it.
            ends = turn == (4 if key == differs else 0)
            detector.evaluate({"k": key, "p": int(ends)}, seconds * 1_000)
        joined.append(len(detector.state.joined))
    assert joined == [0, 0, 0, 0, 0, 1, 1, 1]
    assert len(detector.state.stores) == 1


@pytest.mark.parametrize("inner", ["p != 1", "not p == 1"])
@pytest.mark.parametrize("reloaded", [False, True])
def test_a_run_begins_for_a_rule_at_the_first_event_after_its_birth(inner: str, *, reloaded: bool) -> None:
    rule = f"per k historically for 10s strong {inner}"
    detector = Detector()
    for name, time_ms in (("oldest", 0), ("old", 4_000), ("young", 8_000)):
        detector.add_rule(name, rule, rule_id=name.rjust(32, "0"))
        for key in (1, 2):
            detector.evaluate({"k": key, "p": 0}, time_ms + 1_000 * key)
    assert len(detector.state.stores) == 1
    fired = []
    for time_ms in range(11_000, 21_000, 1_000):
        if reloaded:
            detector = Detector.load(detector.dump(), Detector.STATE_VERSION)
        fired.append(len(detector.evaluate({"k": 1, "p": 0}, time_ms)))
    assert fired == [1, 1, 1, 1, 2, 2, 2, 2, 3, 3]
    detector.remove_rule("oldest".rjust(32, "0"))
    assert [len(detector.evaluate({"k": 2, "p": 0}, time_ms)) for time_ms in (20_000, 21_000)] == [2, 2]
    detector.remove_rule("old".rjust(32, "0"))
    detector.evaluate({"k": 1, "p": 1}, 21_000)
    assert [len(detector.evaluate({"k": 1, "p": 0}, time_ms)) for time_ms in (22_000, 31_999, 32_000)] == [
        0,
        0,
        1,
    ]
    detector.remove_rule("young".rjust(32, "0"))
    assert (detector.state.live, detector.state.bytes, detector.state.tables) == (0, 0, {})


def test_few_starts_are_kept_of_a_run_that_is_older_than_many_rules() -> None:
    detector = Detector()
    for number in range(200):
        detector.add_rule("rule", STRONG)
        detector.add_rule("rule", STRONG.removeprefix("per k "))
        detector.evaluate({"k": 1, "p": 0}, number * 1_000)
    (table,) = detector.state.tables.values()
    assert [len(table.starts.times[0]), len(detector.state.globals.starts.times[0])] == [11, 11]
    assert len(detector.evaluate({"k": 1, "p": 0}, 200_000)) == 2 * 191


def test_a_run_begins_after_a_reload_for_a_rule_that_is_younger_than_the_slice() -> None:
    detector = Detector()
    detector.add_rule("of a key that is kept", "per k earlier k == 1")
    oldest = detector.add_rule("oldest", STRONG)
    detector.evaluate({"k": 1}, 0)
    detector.add_rule("young", STRONG)
    detector.evaluate({"k": 2}, 1)
    assert detector.state.joined
    detector.remove_rule(oldest)
    detector = Detector.load(detector.dump(), Detector.STATE_VERSION)
    assert [len(detector.evaluate({"k": 1}, time_ms)) for time_ms in (1_000, 11_000)] == [1, 2]


def test_a_slice_begins_a_run_for_a_younger_rule_at_its_first_event_after_a_reload() -> None:
    detector = Detector()
    detector.add_rule("old", STRONG)
    detector.evaluate({"k": 1}, 0)
    detector.add_rule("young", STRONG)
    detector.evaluate({"k": 2}, 1)
    assert detector.state.joined
    detector = Detector.load(detector.dump(), Detector.STATE_VERSION)
    assert [len(detector.evaluate({"k": 1}, time_ms)) for time_ms in (1_000, 10_000, 11_000)] == [0, 1, 2]


@pytest.mark.parametrize(
    "rule",
    [
        "once earlier p == 1",
        "per k where (once q == 1) (once earlier p == 1)",
        "once (per k where (once q == 1) (earlier p == 1))",
    ],
)
def test_a_memory_of_a_later_birth_reads_the_memories_inside_it(rule: str) -> None:
    detector = Detector()
    detector.evaluate({}, 0)
    detector.add_rule("rule", rule)
    event = {"k": 1, "p": 1, "q": 1}
    assert [bool(detector.evaluate(event, time_ms)) for time_ms in (1, 2)] == [False, True]


def test_a_comparison_goes_on_with_the_next_oldest_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "COMPARED_EVERY_US", 0)
    detector = Detector()
    oldest = detector.add_rule("oldest", STRONG)
    for number, name in enumerate(("old", "young")):
        detector.evaluate({"k": 0}, number)
        detector.evaluate({"k": 1}, number)
        detector.add_rule(name, STRONG)
        detector.evaluate({"k": 2}, number)
    for time_ms in (2, 3):
        detector.evaluate({"k": 0, "p": 1}, time_ms)
    assert [entry.same for entry in detector.rule_set.joins.waiting] == [1, 1]
    detector.remove_rule(oldest)
    for key in (1, 2):
        detector.evaluate({"k": key, "p": 1}, 4)
    detector.evaluate({"k": 1}, 5)
    assert len(detector.state.joined) == 1


def test_memories_without_keys_join_once_they_hold_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "COMPARED_EVERY_US", 0)
    detector = Detector()
    for name, times_ms in (("old", (0, 5_000)), ("young", (5_000,))):
        detector.add_rule(name, STRONG.removeprefix("per k "))
        for time_ms in times_ms:
            detector.evaluate({}, time_ms)
    assert [action["name"] for action in detector.evaluate({}, 14_999)] == ["old"]
    assert not detector.state.joined
    detector.evaluate({"p": 1}, 15_000)
    detector.evaluate({}, 15_001)
    assert len(detector.state.joined) == 1
    assert [len(detector.evaluate({}, time_ms)) for time_ms in (25_000, 25_001)] == [0, 2]


def test_a_memory_that_no_event_has_reached_joins_though_one_of_its_rules_has_gone() -> None:
    detector = Detector()
    detector.add_rule("old", ONE)
    detector.evaluate({"k": 1}, 0)
    gone, _ = (detector.add_rule("young", ONE) for _ in range(2))
    detector.remove_rule(gone)
    detector.evaluate({"k": 1}, 1)
    assert len(detector.state.joined) == 1


@pytest.mark.parametrize("per", ["", "per k "])
def test_what_came_at_the_time_of_a_birth_is_remembered_by_the_rules_that_have_seen_it(per: str) -> None:
    detector = Detector()
    for _ in range(2):
        detector.add_rule("rule", f"{per}once p == 1")
        detector.evaluate({"k": 1, "p": int(detector.events_seen == 1)}, 0)
    assert [len(detector.evaluate({"k": 1}, time_ms)) for time_ms in (1, 2)] == [2, 2]
    assert len(detector.state.joined) == 1


def _group() -> Group:
    return Group(RULE_STAGE, lambda *_: None, [[], []], [], 1)


def test_rows_are_taken_over_in_place() -> None:
    rules = _group()
    rules.add([1, "a"], [1])
    for number in range(2, 5):
        other = _group()
        other.add([number, "b"], [number])
        texts = rules.constants[1]
        rules.take_over(other)
        assert rules.constants[1] is texts
    odd = _group()
    odd.add([1.5, "c"], [5])
    rules.take_over(odd)
    assert rules.constants == [[1, 2, 3, 4, 1.5], ["a", "b", "b", "b", "c"]]
    assert rules.rest == [1, 2, 3, 4, 5]
    assert odd.constants[0] == array("d", [1.5])


def test_a_run_that_needs_no_time_is_not_shown_to_begin_before_its_rule() -> None:
    detector = Detector()
    rule = "per k historically for 0s strong not p == 1"
    detector.add_rule("old", rule)
    detector.evaluate({"k": 1}, 0)
    young = detector.add_rule("young", rule)
    # This event has the time of the birth.
    detector.evaluate({"k": 2}, 0)
    assert detector.state.joined
    [explained] = explain(detector, {"k": 1}, 5, rule_id=young).rules
    assert [(node.verdict, node.witness_us) for node in explained.node.nodes] == [(True, 5_000)]


@pytest.mark.parametrize("per", ["", "per k "])
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("member", ["count(p == 1) >= 2", "distinct(v where p == 1) >= 2"])
def test_records_without_a_window_join_once_all_that_counts_is_later_than_the_birth(
    per: str, others: int, member: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "COMPARED_EVERY_US", 0)
    detector = Detector()
    detector.add_rule("of a key that has counted nothing", "per k once q == 1")
    for number in range(others):
        detector.evaluate({"k": f"other {number}", "q": 1}, 0)
    for name in ("old", "young"):
        detector.add_rule(name, f"{per}({member})", rule_id=name.rjust(32, "0"))
        # The second one is at the very time of the birth of the younger rule.
        detector.evaluate({"k": 1, "p": 1, "v": 1}, 0)
    fired, joined = [], []
    for number in range(2, 7):
        detector = Detector.load(detector.dump(), version_of(capture(detector)))
        fired.append(len(detector.evaluate({"k": 1, "p": int(number > 2), "v": number}, number)))
        joined.append(len(detector.state.joined))
    assert fired == [0 if "distinct" in member else 1, 2, 2, 2, 2]
    assert joined == [0, 0, 0, 1, 1]
    assert version_of(capture(detector)) < Detector.STATE_VERSION, "older programs can read it again"


NEST = "per k once within 1s once within 1s p == 1"
COUNT = "per k (count(p == 1) >= 2)"


@pytest.mark.parametrize(
    ("rule", "last_ms", "shadow", "version"),
    [
        (ONE, 0, False, 7),
        ("per k once p == 1", 0, False, 7),
        ("per k once p == 1", 0, True, 8),
        (NEST, 0, False, 7),
        (NEST, 3_000, False, 9),
        (COUNT, 0, False, 10),
        (COUNT, 0, True, 10),
    ],
)
def test_a_document_has_the_lowest_version_that_tells_what_is_in_it(
    rule: str, last_ms: int, version: int, *, shadow: bool
) -> None:
    detector = Detector()
    for _ in range(2):
        detector.add_rule("rule", rule, shadow=shadow)
        detector.evaluate({"k": 1, "p": detector.events_seen}, 0)
    detector.evaluate({"k": 1, "p": 1}, last_ms)
    assert [bool(detector.state.joined), bool(detector.rule_set.joins.waiting)] == [last_ms > 0, last_ms == 0]
    assert version_of(capture(detector)) == version
    assert Detector.STATE_VERSION == 10


def test_a_birth_whose_time_is_not_known_is_no_later_than_the_next() -> None:
    detector = Detector()
    ids = []
    for time_ms in (0, 0, 2, 4):
        ids.append(detector.add_rule("rule", "per k (count(p == 1) >= 2)"))
        detector.evaluate({"k": 1, "p": 1}, time_ms)
    # As an older program would save it, which did not have this memory wait.
    detector.rule_set.joins.clear()
    detector = Detector.load(detector.dump(), Detector.STATE_VERSION)
    detector.evaluate({"k": 1}, 20)
    for time_ms in (21, 22):
        detector.evaluate({"k": 2, "p": 1}, time_ms)
    for time_ms in range(30, 33):
        detector.evaluate({"k": 1, "p": 1}, time_ms * 1_000_000)
    assert len(detector.state.joined) == 3
    since_us = [detector.state.joined[name].since_us for name in next(iter(detector.state.readers.values()))]
    assert since_us == sorted(since_us)
