"""What is left of memories that rules shared: when some of the rules are removed, and when all are fused."""

from dataclasses import replace

import pytest

from engine import Detector, Limits, explain
from engine.evaluation.dispatch import rule_set
from engine.language.condition import Condition, Keyed
from tests.differential import fused
from tests.differential.modes import in_mode
from tests.unit.evaluation.state.sharing.test_shared_memories import ONE, STRONG
from tests.worlds.evictions import AWAITED, CLOCKED


@pytest.fixture(autouse=True)
def _indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(0))


def test_what_only_a_removed_rule_remembered_goes_with_it() -> None:
    detector = Detector()
    ids = []
    for number in range(2):
        ids.append(detector.add_rule("rule", ONE))
        detector.evaluate({"k": number, "p": 1}, number)
    assert [len(detector.state.joined), detector.state.live] == [1, 2]
    detector.remove_rule(ids[0])
    assert [len(detector.state.joined), detector.state.live] == [1, 1]


def test_what_a_removed_rule_saw_stays_for_the_oldest_of_those_that_are_left() -> None:
    detector = Detector()
    ids = []
    for name in ("old", "middle", "young"):
        ids.append(detector.add_rule(name, ONE))
        detector.evaluate({"k": name, "p": 1}, detector.events_seen)
    detector.evaluate({}, 5)
    assert len(detector.state.joined) == 2
    detector.remove_rule(ids[0])
    fired = [
        [action["name"] for action in detector.evaluate({"k": key}, 6)] for key in ("old", "middle", "young")
    ]
    assert fired == [[], ["middle"], ["middle", "young"]]


def test_only_runs_begin_after_a_birth_when_the_oldest_rule_is_removed() -> None:
    detector = Detector()
    rules = ("per k once within 1h b == 1", STRONG)
    ids = []
    for number in range(2):
        ids += [detector.add_rule(f"{number} {rule}", rule) for rule in rules]
        detector.evaluate({"k": 1, "b": 1 - number}, number)
    detector.evaluate({"k": 1}, 2)
    assert len(detector.state.joined) == 2
    detector.remove_rule(ids[0])
    assert detector.evaluate({"k": 1}, 3) == [], "the younger rule has seen no b"


def test_a_run_that_has_ended_does_not_begin_when_the_oldest_rule_is_removed() -> None:
    detector = Detector()
    old = detector.add_rule("old", STRONG)
    detector.evaluate({"k": 1}, 0)
    detector.add_rule("young", STRONG)
    detector.evaluate({"k": 1}, 1_000)
    detector.evaluate({"k": 1, "p": 1}, 2_000)
    assert detector.state.joined
    detector.remove_rule(old)
    assert [len(detector.evaluate({"k": 1}, time_ms)) for time_ms in (12_000, 21_999, 22_000)] == [0, 0, 1]


def test_a_key_that_only_a_removed_rule_remembered_for_long_expires_earlier() -> None:
    detector = Detector(limits=replace(Limits(), keys_max=3))
    long, short = "per k once within 1000s p == 1", "per k once within 50s s == 1"
    for rule in (short, "per k once within 1000s q == 1"):
        detector.add_rule(rule, rule)
    old = detector.add_rule("old", long)
    detector.evaluate({"k": "a", "q": 1}, 0)
    detector.evaluate({"k": "b", "p": 1, "s": 1}, 1)
    detector.add_rule("young", long)
    detector.evaluate({"k": "c", "q": 1}, 2)
    while not detector.state.tracking:
        detector.evaluate({}, 2)
    assert len(detector.state.joined) == 1
    detector.remove_rule(old)
    detector.evaluate({"k": "d", "p": 1}, 100_000)
    (table,) = detector.state.tables.values()
    assert {key for key in table.keys if key is not None} == {"a", "c", "d"}


@pytest.mark.parametrize("rule", ["once p == 1", "per k once p == 1", "per k once within 10s p == 1"])
def test_what_came_at_the_time_of_a_birth_is_not_remembered_once_rules_are_fused(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = Detector()
    detector.add_rule("old", rule)
    detector.evaluate({"k": 1, "p": 1}, 0)
    detector.add_rule("young", rule)
    detector.evaluate({"k": 1}, 1)
    assert detector.state.joined
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(1_000))
    detector.add_rule("other", "q == 1")
    assert not detector.state.indexed
    assert [action["name"] for action in detector.evaluate({"k": 1}, 2)] == ["old"]


BUSY = ((0, 1, 1), (0, 2, 0), (500, 3, 2), (700, 2, 0), (900, 1, 1), (900, 4, 0))


QUIET = ((0, 2, 0), (900, 4, 0))


@pytest.mark.parametrize("per", ["", "per k "])
@pytest.mark.parametrize(
    "rule",
    [
        "once p == 1",
        "once within 10s p == 1",
        "historically for 10s not p == 1",
        "historically for 10s strong not p == 1",
        "not p == 1 since within 10s p == 2",
        "count(p == 1) within 10s >= 2",
    ],
)
@pytest.mark.parametrize(("events", "last"), [(BUSY, 0), (QUIET, 0), (BUSY, 1), (QUIET, 1)])
def test_once_they_are_fused_rules_answer_as_if_they_were_still_indexed(
    events: tuple[tuple[int, int, int], ...],
    last: int,
    rule: str,
    per: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detectors = Detector(), Detector()
    for detector, fused_from in zip(detectors, (1_000, 0), strict=True):
        detector.add_rule("old", f"{per}({rule})")
        detector.evaluate({"k": 6, "p": 0}, 0)
        for time_ms, key, p in events:
            detector.evaluate({"k": key, "p": p}, time_ms)
        detector.add_rule("young", f"{per}({rule})")
        for time_ms, key, p in events:
            detector.evaluate({"k": key, "p": p}, time_ms + 1_000)
        # At this time, the window of the last of them that had `p` ends.
        detector.evaluate({"k": 5, "p": last}, 11_900)
        assert detector.state.joined
        with monkeypatch.context() as patched:
            patched.setattr(rule_set, "index_pays", fused.up_to(fused_from))
            detector.add_rule("other", "q == 1")
    assert [detector.state.indexed for detector in detectors] == [False, True]
    for time_ms in (11_900, 11_901, 12_400, 20_000, 21_899, 21_900, 21_901, 22_000, 32_000):
        for key in range(1, 7):
            event = {"k": key, "p": int(key == 2 and time_ms == 12_400)}, time_ms
            answers = [[action["name"] for action in each.evaluate(*event)] for each in detectors]
            assert answers[0] == answers[1], event
    for each in detectors[0].rules():
        detectors[0].remove_rule(each.id)
    assert not detectors[0].state.tables


def test_what_has_expired_is_not_written_when_rules_are_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector()
    detector.add_rule("old", ONE)
    detector.evaluate({"k": 1, "p": 1}, 0)
    detector.add_rule("young", ONE)
    for time_ms, key in ((1, 1), (2, 2), (10_002, 3)):
        detector.evaluate({"k": key, "p": 1}, time_ms)
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(1_000))
    detector.add_rule("other", "q == 1")
    assert [list(store.slots()) for store in detector.state.stores.values()] == [[0, 1, 2], [1, 2]]


def test_an_explanation_reads_what_fused_rules_have_written(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector()
    detector.add_rule("rule", "once within 1s not p == 1")
    detector.evaluate({}, 0)
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(1_000))
    detector.add_rule("other", "q == 1")
    detector.evaluate({}, 5_000)
    assert [rule.verdict for rule in explain(detector, {"p": 1}, 5_500).rules] == [True, False]


def test_starts_go_with_the_last_rule_that_needs_them() -> None:
    detector = Detector()
    detector.add_rule("other", "per k once p == 1")
    detector.evaluate({"k": 1, "p": 1}, 0)
    alone = detector.state.bytes
    ids = []
    without_key = STRONG.removeprefix("per k ")
    rules = STRONG, without_key, without_key.replace("10s", "5s")
    for number in range(1, 4):
        ids += [detector.add_rule("rule", rule) for rule in rules]
        detector.evaluate({"k": 1, "p": 0}, number)
    (table,) = detector.state.tables.values()
    assert table.starts.times == detector.state.globals.starts.times == {0: (2_000, 3_000)}
    for rule_id in ids:
        detector.remove_rule(rule_id)
    assert table.starts.times == detector.state.globals.starts.times == {}
    assert detector.state.bytes == alone


def test_starts_of_a_key_that_is_evicted_go_with_it() -> None:
    detector = Detector(limits=replace(Limits(), keys_max=2))
    for number in range(3):
        detector.add_rule("rule", STRONG)
        for key in (1, 2):
            detector.evaluate({"k": key, "p": 0}, number)
    (table,) = detector.state.tables.values()
    assert set(table.starts.times) == {0, 1}
    before = detector.state.bytes
    detector.evaluate({"k": 3, "p": 0}, 3)
    assert len(table.starts.times) == 1
    assert detector.state.bytes < before


def test_what_has_gone_does_not_wait_to_join() -> None:
    detector = Detector()
    for name in ("old", "young"):
        detector.add_rule(name, "once within 1000000s p == 1")
        detector.evaluate({"p": 1}, 0)
    for _ in range(200):
        rule_id = detector.add_rule("gone", "once within 1000000s p == 1")
        detector.evaluate({"p": 1}, 0)
        detector.remove_rule(rule_id)
        assert len(detector.rule_set.joins.waiting) < 25
    rule_id = detector.add_rule("young", "once within 1000000s p == 1")
    detector.evaluate({"p": 1}, 0)
    for _ in range(200):
        detector.remove_rule(detector.add_rule("younger", "once within 1000000s p == 1"))
    assert not detector.rule_set.joins.newborn
    detector.evaluate({}, 1_000_000_000)
    assert not detector.state.joined
    detector.evaluate({}, 1_000_000_001)
    assert len(detector.state.joined) == 2


def test_nothing_waits_to_join_once_rules_are_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector()
    for time_ms in (0, 0):
        detector.add_rule("rule", ONE)
        detector.evaluate({"k": 1, "p": 1}, time_ms)
    without_key = STRONG.removeprefix("per k ")
    for time_ms in (1, 2):
        for rule in (STRONG, without_key):
            detector.add_rule("rule", rule)
        detector.evaluate({"k": 1}, time_ms)
    detector.add_rule("newborn", ONE)
    joins, (table,), without = detector.rule_set.joins, detector.state.tables.values(), detector.state.globals
    assert (len(joins.waiting), len(joins.newborn)) == (1, 1)
    assert (len(table.starts.times), len(without.starts.times)) == (1, 1)
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(1_000))
    detector.add_rule("other", "q == 1")
    assert (joins.waiting, joins.newborn) == ([], {})
    assert (table.starts.times, without.starts.times) == ({}, {})


@pytest.mark.parametrize("history", AWAITED + CLOCKED, ids=repr)
def test_keys_that_only_a_removed_rule_remembered_are_not_live(history: Condition) -> None:
    detector = Detector()
    condition = Keyed(history, "k")
    ids = []
    for number in range(4):
        ids.append(detector.add_rule("rule", condition))
        for p in (0, 1):
            for q in (0, 1):
                detector.evaluate({"k": f"{number} {p} {q}", "p": p, "q": q}, number + 1)
    alone = Detector()
    alone.add_rule("rule", condition)
    for p in (0, 1):
        for q in (0, 1):
            alone.evaluate({"k": f"3 {p} {q}", "p": p, "q": q}, 4)
    for place in (1, 0, 2):
        detector.remove_rule(ids[place])
    # A key that comes is live for what any event changes, until it is seen that it need not be.
    assert 0 < detector.state.live <= alone.state.live
    assert 0 < detector.state.bytes <= alone.state.bytes
    detector.remove_rule(ids[3])
    assert (detector.state.live, detector.state.bytes, detector.state.readers) == (0, 0, {})


def test_a_memory_that_waits_to_join_keeps_what_the_others_ignore() -> None:
    rule = "per k (q == 1 since within 1s p == 1)"
    with in_mode("indexed"):
        made = Detector()
        oldest = made.add_rule("oldest", rule)
        made.evaluate({"k": 2}, 600)
        made.add_rule("waits", rule)
        # At the very time of its birth: it joins when its window has passed.
        made.evaluate({"k": 2}, 600)
        made.evaluate({"k": 1, "p": 1}, 1_500)
        made.add_rule("joins", rule)
        made.evaluate({"k": 2}, 1_501)
        made.remove_rule(oldest)
        assert [action["name"] for action in made.evaluate({"k": 1, "q": 1}, 1_800)] == ["waits"]


@pytest.mark.parametrize(
    "member",
    ["once within 10s p == {}", "(count(p == {}) within 10s >= 3)", "historically for 10s not p == {}"],
)
def test_the_state_of_many_rules_that_share_memories_is_that_of_a_rule_for_each(member: str) -> None:
    def state_bytes(rules: int) -> int:
        detector = Detector()
        for number in range(400):
            if number < rules:
                detector.add_rule("rule", f"q == {number} and per k {member.format(number % 8)}")
            detector.evaluate({"k": "first", "p": number % 8}, 20_000 * number)
        for number in range(400):
            detector.evaluate({"k": number % 50, "p": number % 8}, 8_000_000 + number)
        return detector.state.bytes

    assert state_bytes(200) == state_bytes(8) > 0


def test_only_runs_begin_after_a_birth_when_rules_are_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = ("per k once within 1h b == 1", "per k historically for 1s strong a == 1")
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(0))
    made = Detector()
    for birth in ("old", "new"):
        for number, rule in enumerate(rules):
            made.add_rule(f"{birth} {number}", rule)
        made.evaluate({"k": 1, "a": 1, "b": int(birth == "old")}, 0 if birth == "old" else 10)
    made.evaluate({"k": 1, "a": 1}, 20)
    assert len(made.state.joined) == 2
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(100))
    made.add_rule("other", "z == 1")
    assert not made.state.indexed
    # The younger rule has seen no b, though the slice had an event since its birth.
    assert [action["name"] for action in made.evaluate({"k": 1, "a": 1}, 30)] == ["old 0"]
    fired = made.evaluate({"k": 1, "a": 1}, 1_009), made.evaluate({"k": 1, "a": 1}, 1_010)
    assert [[action["name"] for action in each] for each in fired] == [
        ["old 0", "old 1"],
        ["old 0", "old 1", "new 1"],
    ]
