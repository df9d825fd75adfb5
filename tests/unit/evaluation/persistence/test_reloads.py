"""A detector that is saved and loaded between any two events goes on as if it never had been."""

import pytest
from engine.evaluation.state.storage import columns

from engine import Detector
from tests.differential.modes import MODES, in_mode

P, NOT_P, Q, P_AND_Q = {"k": 1, "p": 1}, {"k": 1, "p": 0}, {"k": 1, "q": 1}, {"k": 1, "p": 1, "q": 1}

LIVES = {
    "once within 10s p == 1": [(P, 0, 1), (P, 1_000, 1), (Q, 5_000, 1), (Q, 11_000, 1), (Q, 11_001, 0)],
    "once within 10s not p == 1": [(NOT_P, 0, 1), (P, 5_000, 1), (P, 10_000, 1), (P, 10_001, 0)],
    "historically for 10s strong not p == 1": [
        (NOT_P, 0, 0),
        (NOT_P, 10_000, 1),
        (P, 10_001, 0),
        (NOT_P, 10_002, 0),
        (NOT_P, 20_001, 0),
        (NOT_P, 20_002, 1),
    ],
    "historically for 10s not p == 1": [(NOT_P, 0, 1), (P, 1, 0), (NOT_P, 10_001, 0), (NOT_P, 10_002, 1)],
    "(not p == 1) since within 10s q == 1": [
        (Q, 0, 1),
        (NOT_P, 10_000, 1),
        (P, 10_000, 0),
        (NOT_P, 10_000, 0),
        (Q, 10_001, 1),
        (P, 10_001, 0),
        (NOT_P, 10_001, 0),
    ],
    "(not p == 1) since within 10s not q == 1": [
        (NOT_P, 0, 1),
        (P_AND_Q, 5_000, 0),
        (Q, 6_000, 0),
        (NOT_P, 7_000, 1),
        (Q, 8_000, 1),
        (P_AND_Q, 9_000, 0),
        (Q, 9_000, 0),
        (P_AND_Q, 9_100, 0),
        (NOT_P, 9_200, 1),
        (Q, 9_300, 1),
    ],
    "(not p == 1) since not q == 1": [
        (NOT_P, 0, 1),
        (Q, 1, 1),
        (P_AND_Q, 2, 0),
        (Q, 3, 0),
        (NOT_P, 4, 1),
        (Q, 5, 1),
    ],
    "previous p == 1": [(P, 0, 0), (NOT_P, 1, 1), (NOT_P, 2, 0)],
    "earlier p == 1": [(NOT_P, 0, 0), (P, 1, 0), (NOT_P, 2, 1)],
    "count(p == 1) within 10s >= 2": [(P, 0, 0), (P, 10_000, 1), (P, 10_001, 1), (NOT_P, 20_001, 0)],
    "distinct(p) within 10s >= 2": [(P, 0, 0), (NOT_P, 10_000, 1), (NOT_P, 10_001, 0)],
    "sum(p) within 10s >= 2": [(P, 0, 0), (P, 5_000, 1), (NOT_P, 5_001, 1), (NOT_P, 10_100, 0)],
    "avg(p) within 10s < 1": [(P, 0, 0), (NOT_P, 5_000, 1), (P, 5_001, 1), (P, 15_100, 0)],
}
"""Events, each with its time since the first one and whether the rule fires."""

BEGIN_MS = 1_700_000_000_000

OTHER = {**P_AND_Q, "k": 2}
OTHER_SLICES = {"": (), "per k ": (OTHER,), "per k where (not x == 1) ": (OTHER, {"k": 1, "x": 1})}
"""What comes before each event, by what a rule has before its condition."""


def reloaded(detector: Detector) -> Detector:
    return Detector.load(detector.dump(), Detector.STATE_VERSION)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("per", OTHER_SLICES)
@pytest.mark.parametrize("rule", LIVES)
def test_a_rule_fires_at_the_same_events(rule: str, per: str, mode: str) -> None:
    with in_mode(mode):
        stays, rests = Detector(), Detector()
        for detector in (stays, rests):
            detector.add_rule("rule", f"{per}({rule})", rule_id="1" * 32)
        for fields, time_ms, fires in LIVES[rule]:
            rests = reloaded(rests)
            for event in (*OTHER_SLICES[per], fields):
                actions = stays.evaluate(event, BEGIN_MS + time_ms)
                assert rests.evaluate(event, BEGIN_MS + time_ms) == actions
            assert len(actions) == fires
            assert reloaded(rests).dump() == rests.dump() == stays.dump()


@pytest.mark.parametrize("keys", [("a", "b"), ("a", 1, True, 1.5, 10**30, "x" * 300), (1, 2)])
def test_keys_are_those_of_before_and_slots_that_are_free_stay_free(keys: tuple[object, ...]) -> None:
    detector = Detector()
    gone = detector.add_rule("gone", "per k once p == 1")
    detector.add_rule("stays", "per k once q == 1")
    detector.evaluate({"k": "gone", "p": 1}, 0)
    for key in keys:
        detector.evaluate({"k": key, "q": 1}, 0)
    detector.remove_rule(gone)
    (before,), (after,) = detector.state.tables.values(), reloaded(detector).state.tables.values()
    assert before.keys[0] is None
    assert after.keys == before.keys
    assert list(map(type, after.keys)) == list(map(type, before.keys))
    detector = reloaded(detector)
    assert all(detector.evaluate({"k": key}, 1) for key in keys)


def test_pages_are_those_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "PAGED_FROM", 1)
    detector = Detector()
    for rule in ("per k once p == 1", "per k count(p == 1) >= 2"):
        detector.add_rule(rule, rule)
    for key in range(1_000):
        detector.evaluate({"k": key, "p": 1}, key)
    assert reloaded(detector).dump() == detector.dump()


@pytest.mark.parametrize("events", [0, 1])
def test_memories_that_an_older_program_did_not_have_wait_join_once_what_they_did_not_see_has_expired(
    events: int,
) -> None:
    with in_mode("indexed"):
        detector = Detector()
        for name in ("old", "young"):
            detector.add_rule(name, "per k once within 10s p == 1")
            if name == "old" or events:
                detector.evaluate({"k": 1, "p": int(name == "old")}, 5_000)
        detector.rule_set.joins.clear()
        detector = reloaded(detector)
        fired, joined = [], []
        for time_ms in (5_001, 15_000, 15_001):
            fired.append([action["name"] for action in detector.evaluate({"k": 1}, time_ms)])
            joined.append(len(detector.state.joined))
    assert fired == [["old"], ["old"], []]
    # The one that no event had reached joins at the next event.
    assert joined == ([0, 0, 1] if events else [1, 1, 1])
