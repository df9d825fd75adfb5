"""A detector that is saved and loaded between any two events goes on as if it never had been."""

import pytest

from engine import Detector, parse
from engine.evaluation.slices import slices
from tests.differential.modes import TRIED, in_mode

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


@pytest.mark.parametrize("mode", TRIED)
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
@pytest.mark.parametrize("path", ["per k", "per k per k"])
def test_keys_are_those_of_before(path: str, keys: tuple[object, ...]) -> None:
    detector = Detector()
    detector.add_rule("rule", f"{path} once q == 1")
    for key in keys:
        detector.evaluate({"k": key, "q": 1}, 0)
    found = []
    for one in (detector, reloaded(detector)):
        (slices,) = one.histories.slices.values()
        found.append([(key, type(key)) for shard in slices.shards for key in shard])
    assert found[0] == found[1]
    detector = reloaded(detector)
    assert all(detector.evaluate({"k": key}, 1) for key in keys)


def test_a_version_that_is_not_known_yet_is_no_detector() -> None:
    with pytest.raises(AssertionError, match="unknown"):
        Detector.load(b"", Detector.STATE_VERSION + 1)


WRITTEN = "per k  # a key\n  (once a == 1)"


def test_conditions_are_kept_as_they_were_written() -> None:
    made = Detector()
    given = (WRITTEN, "a == 1", '{"not": {"leaf": {"fact": "a", "op": "eq", "value": 1}}}', parse("a  == 2"))
    ids = [made.add_rule("rule", one) for one in given]

    def sources(detector: Detector) -> list[str | None]:
        return [detector.rule(one).source for one in ids]

    assert sources(made) == [WRITTEN, None, given[2], None]
    assert sources(reloaded(made)) == sources(made)
    made.evaluate({"k": 1, "a": 1}, 0)
    history = made.live[ids[0]].birth
    made.change_rule(ids[0], condition=f"{WRITTEN} # and more")
    made.change_rule(ids[0], name="other")
    assert made.rule(ids[0]).source == f"{WRITTEN} # and more"
    assert made.live[ids[0]].birth == history, "the same condition goes on with its history"
    made.change_rule(ids[0], condition="a == 1")
    assert made.rule(ids[0]).source is None


def test_shadow_rules_and_what_was_compared_are_those_of_before() -> None:
    made = Detector()
    rule_id = made.add_rule("rule", "per k once a == 1")
    made.add_rule("shadow", "a == 2", shadow=True)
    made.add_rule("draft", "per k once a == 2", shadow=True, draft_of=rule_id)
    for number in range(12):
        made.submit({"k": number % 3, "a": number % 4}, number)
    again = reloaded(made)
    assert again.rules() == made.rules()
    assert again.comparison(rule_id).dump() == made.comparison(rule_id).dump()
    assert min(made.comparison(rule_id).counts.values()) > 0


def size_of(detector: Detector) -> tuple[int, int, int]:
    histories = detector.histories
    return histories.live, histories.keyed_bytes, histories.unkeyed_bytes


@pytest.mark.parametrize("places", [1, 2, 16])
def test_sizes_go_on_as_they_did_when_rules_had_come_and_gone(
    places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "PLACES_MAX", slices.FIRST + places)
    made = Detector()
    conditions = (
        "per k count(p == 1) >= 30",
        "per k once q == 1",
        "per k count(p == 1) >= 2",
        "per k sum(p) > 2",
    )
    ids = [made.add_rule("rule", condition) for condition in conditions]
    for number in range(20):
        made.evaluate({"k": number % 2, "p": 1, "q": number % 3}, number)
    for rule_id, condition in zip(ids[:2], ("per k once r == 1", "per k distinct(q) > 1"), strict=True):
        # A record stays as long as the rule that is gone asked for. Another memory has its place.
        made.remove_rule(rule_id)
        made.add_rule("rule", condition)
    again = reloaded(made)
    for number in range(20, 90):
        for detector in (made, again):
            detector.evaluate({"k": number % 3, "p": 1, "q": number % 4, "r": number % 2}, number)
        assert size_of(again) == size_of(made), number
    assert again.dump() == made.dump()
