"""Rules of different births come to share histories of histories, once these cannot tell the births apart."""

import itertools
from dataclasses import replace

import msgpack
import pytest

from engine import Detector, Limits
from engine.evaluation.dispatch import rule_set
from engine.evaluation.explanation.between_events.standing import standing
from engine.evaluation.persistence import saved
from engine.evaluation.persistence.capturing import capture
from engine.evaluation.state import joining
from engine.evaluation.state.node_names import NodeName
from engine.evaluation.state.removal.eviction import PAGES_AT_ONCE
from engine.evaluation.state.removal.expiry import until_us
from engine.evaluation.state.slices import SETTLE_EVERY
from engine.evaluation.state.storage.pages import PAGE_SLOTS
from engine.language.text.parser import parse
from tests.differential import fused

BOUNDED = (
    "once within 1s ({})",
    "(one == 1 since within 1s ({}))",
    "not historically for 1s not ({})",
    "earlier within 1s ({})",
    "count({}) within 1s >= 1",
    "distinct(one where {}) within 1s >= 1",
    "sum(one where {}) within 1s >= 1",
    "avg(one where {}) within 1s >= 1",
)
PANE_MS = 4
"""No less than the width of a pane of a second."""

COUNTRIES = ("DE", "FR", "US", "CN", "BR", "IN", "GB", "JP")
NESTED = "per k once within 2s (p == 1 and once within 1s q == 1)"


@pytest.fixture(autouse=True)
def _indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_set, "index_pays", fused.up_to(0))


def fired(detector: Detector, fields: dict[str, int], time_ms: int) -> list[str]:
    return [action["name"] for action in detector.evaluate({"k": 1, "one": 1, **fields}, time_ms)]


def reloaded(detector: Detector) -> Detector:
    return Detector.load(detector.dump(), Detector.STATE_VERSION, limits=detector.limits)


def test_many_rules_made_apart_come_to_have_the_memories_of_those_made_together() -> None:
    together, apart = Detector(), Detector()
    for number in range(200):
        country = COUNTRIES[number % 8]
        rule = f'per user once within 10m (ok == true and once within 5m country == "{country}")'
        condition = parse(f"type == {number} and {rule}")
        for detector in (together, apart):
            detector.add_rule(f"rule {number}", condition)
        apart.evaluate({"user": "a"}, number)
    assert len(together.state.stores) == 16
    assert len(apart.state.stores) == 208
    for number in range(200 // joining.JOINED_AT_ONCE + 1):
        # By then, all windows of the last rule have passed.
        apart.evaluate({}, 200 + 15 * 60_000 + number)
    assert len(apart.state.stores) == 16
    event = {"user": "a", "ok": True, "country": "FR", "type": 9}
    assert [rule["name"] for rule in apart.evaluate(event, 2_000_000)] == ["rule 9"]


@pytest.mark.parametrize("per", ["", "per k "])
@pytest.mark.parametrize("outer", BOUNDED)
def test_births_are_told_apart_until_all_windows_have_passed_one_after_another(outer: str, per: str) -> None:
    for middle, inner in itertools.product(BOUNDED, (BOUNDED[0], outer)):
        chain = outer.format("p == 1 and " + middle.format("q == 1 and " + inner.format("r == 1")))
        detector = Detector()
        detector.add_rule("old", f"{per}({chain})")
        fired(detector, {"r": 1}, 0)
        detector.add_rule("young", f"{per}({chain})")
        fired(detector, {"q": 1}, 1_000)
        fired(detector, {"p": 1}, 2_000)
        assert fired(detector, {}, 3_000) == ["old"], chain
        fired(detector, {}, 3_001 + 3 * PANE_MS)
        assert len(detector.state.stores) == 3, chain
        for name, time_ms in (("r", 5_000), ("q", 6_000), ("p", 7_000)):
            fired(detector, {name: 1}, time_ms)
        assert fired(detector, {}, 8_000) == ["old", "young"], chain


@pytest.mark.parametrize(
    "rule",
    [
        "per k once (p == 1 and once within 1s q == 1)",
        "per k once within 1s earlier p == 1",
        "per k once within 1s previous p == 1",
        "per k once within 1s once p == 1",
        "per k once within 1s historically q != 1",
        "per k once within 1s historically for 1s strong p == 1",
        "per k once within 1s historically for 0s strong once within 1s p == 1",
        "per k once within 1s (p == 1 since q == 1)",
        "per k once within 1s count(p == 1) == 2",
        "once within 1s (per k where (once within 1s q == 1) once within 1s p == 1)",
    ],
)
def test_what_may_tell_births_apart_for_ever_stays_apart(rule: str) -> None:
    detector = Detector()
    for time_ms in (0, 1):
        detector.add_rule(str(time_ms), rule)
        detector.evaluate({"k": 1, "p": 1}, time_ms)
    for time_ms in range(10_000, 100_000, 5_000):
        detector.evaluate({"k": 1, "p": 1, "q": 1}, time_ms)
    outer = [name for name in detector.state.stores if name.condition.__class__.__name__.startswith("Once")]
    assert {name.birth for name in outer} == {0, 1}
    assert not detector.state.inner


@pytest.mark.parametrize("reloads", [False, True])
def test_a_shared_memory_keeps_those_inside_it_when_the_rules_of_its_birth_go(*, reloads: bool) -> None:
    detector = Detector()
    ids = []
    for number, rule in enumerate(("per k once within 1s q == 1", NESTED, NESTED, NESTED)):
        ids.append(detector.add_rule(f"{number}", rule))
        detector.evaluate({"k": 2}, number)
    fired(detector, {"p": 1, "q": 1}, 3_003)
    assert len(detector.state.stores) == 2
    for gone, rule_id in enumerate(ids):
        if reloads:
            detector = reloaded(detector)
        now_ms = 10_000 * (gone + 1)
        assert fired(detector, {"q": 1}, now_ms) == ["0"] * (not gone)
        names = [str(number) for number in range(gone, 4)]
        assert fired(detector, {"p": 1}, now_ms + 1_000) == names
        assert fired(detector, {}, now_ms + 3_000) == names[not gone :]
        assert len(detector.state.stores) == 2
        assert [len(detector.state.readers), len(detector.state.inner)] == [2, 1]
        detector.remove_rule(rule_id)
    state, rules = detector.state, detector.rule_set
    assert (state.stores, state.users, state.joined, state.inner, rules.nodes) == ({}, {}, {}, {}, 0)


def test_what_is_inside_a_shared_memory_goes_with_its_last_reader() -> None:
    detector = Detector()
    detector.add_rule("that keeps rules indexed", "q == 1")
    ids = []
    for time_ms in (0, 1):
        ids.append(detector.add_rule("rule", NESTED))
        fired(detector, {}, time_ms)
    fired(detector, {}, 4_000)
    state = detector.state
    detector.remove_rule(ids[0])
    assert [len(state.stores), len(state.inner), state.indexed] == [2, 1, True]
    detector.remove_rule(ids[1])
    assert (state.stores, state.users, state.inner, state.indexed) == ({}, {}, {}, True)


def test_what_is_inside_a_shared_memory_is_updated_after_a_reload_though_no_rule_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining, "JOINED_AT_ONCE", 1)
    detector = Detector()
    rule = "per k once within 0s (p == 1 and once within 0s q == 1)"
    old = detector.add_rule("old", rule)
    fired(detector, {}, 0)
    detector.add_rule("young", rule)
    fired(detector, {}, 1)
    detector.remove_rule(old)
    # The memory inside has not joined the older one, which the shared memory reads.
    assert [len(detector.state.stores), len(detector.state.joined)] == [3, 1]
    detector = reloaded(detector)
    assert [fired(detector, {name: 1}, 5) for name in "qp"] == [[], ["young"]]


def test_an_older_program_refuses_shared_histories_of_histories_until_they_are_gone() -> None:
    detector = Detector()
    ids = []
    for time_ms in (0, 1):
        ids.append(detector.add_rule("rule", NESTED))
        detector.evaluate({"k": 1}, time_ms)
    assert saved.version_of(capture(detector)) == 7
    detector.evaluate({"k": 1}, 4_000)
    assert saved.version_of(capture(detector)) == 9
    detector.remove_rule(ids[0])
    assert saved.version_of(capture(detector)) == 9
    detector.remove_rule(ids[1])
    assert saved.version_of(capture(detector)) == 7


def test_histories_of_histories_that_an_older_program_saved_come_to_be_shared_too() -> None:
    detector = Detector()
    for _ in range(2):
        detector.add_rule("rule", "per k once within 1s r == 1")
        detector.add_rule("rule", NESTED)
        detector.evaluate({"k": 1}, 0)
    document = saved.unpack(detector.dump())
    waiting = [each for each in document["joining"] if b'"p"' not in each[0]]
    assert [len(document["joining"]), len(waiting)] == [3, 2]
    document["joining"] = waiting
    detector = Detector.load(msgpack.packb(document), 7)
    detector.evaluate({"k": 1}, 3_001)
    assert len(detector.state.stores) == 3


def test_memories_with_many_entries_join_at_one_event_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "DROPPED_AT_ONCE", 5)
    detector = Detector()
    for number in range(4):
        detector.add_rule("rule", NESTED)
        detector.evaluate({}, number)
    for key in range(6):
        detector.evaluate({"k": key, "p": 1, "q": 1}, 10)
    stores = []
    for time_ms in range(4_000, 4_005):
        detector.evaluate({}, time_ms)
        stores.append(len(detector.state.stores))
    assert stores == [4, 3, 2, 2, 2]


@pytest.mark.parametrize(
    "rule",
    ["per k once within 2s count(p == 1) within 1s == 1", "per k once within 2s not once within 1s p == 1"],
)
def test_it_is_known_when_keys_expire_after_a_memory_has_gone_that_held_them_for_longer(rule: str) -> None:
    detector = Detector(limits=replace(Limits(), keys_max=64))
    detector.add_rule("other", "per k earlier k == 3")
    detector.add_rule("old", rule)
    for key in range(60):
        detector.evaluate({"k": key, "p": 1}, 0)
    detector.add_rule("young", rule)
    for key in range(60):
        # Of these events, one is the second for the older rule where it is the first for the younger one.
        detector.evaluate({"k": key, "p": key % 2}, 500)
    assert detector.state.tracking
    for _ in range(SETTLE_EVERY):
        detector.evaluate({}, 3_600)
    assert detector.state.inner
    (table,) = detector.state.tables.values()
    tracked = detector.state.eviction._tracked[table.path]
    assert list(tracked._until_us) == [until_us(table, slot) for slot in range(len(table.keys))]


def test_no_event_waits_until_all_keys_are_tracked_anew_after_a_memory_has_gone() -> None:
    count = (PAGES_AT_ONCE + 2) * PAGE_SLOTS
    detector = Detector(limits=replace(Limits(), keys_max=count + 1))
    detector.add_rule("old", NESTED)
    detector.evaluate({}, 0)
    detector.add_rule("young", NESTED)
    for key in range(count):
        detector.evaluate({"k": key, "p": 1, "q": 1}, 1)
    pages = []
    for _ in range(2 * SETTLE_EVERY):
        detector.evaluate({}, 4_000)
        tracked = detector.state.eviction._tracked
        pages += [tracked[path]._pages if path in tracked else 0 for path in detector.state.tables]
    assert detector.state.inner
    assert list(dict.fromkeys(pages)) == [0, PAGES_AT_ONCE, PAGES_AT_ONCE + 2]


def test_a_listing_counts_the_rules_that_use_a_shared_history() -> None:
    detector = Detector()
    for time_ms in (0, 0, 1):
        detector.add_rule("rule", NESTED)
        detector.add_rule("rule", NESTED)
        detector.evaluate({"k": 1}, time_ms)
    detector.evaluate({"k": 1}, 4_000)
    uses = detector.rule_set.uses
    assert {name.birth: count for name, count in uses.items()} == {0: 2, 1: 2, 2: 2}
    names = [NodeName(*name[:2], 0) for name in uses if name.birth == 2]
    assert list(detector.state.stores) == names


@pytest.mark.parametrize("rule", ["count({}) within 1s >= 1", "sum(one where {}) within 1s >= 1"])
def test_nothing_is_told_of_what_counted_for_rules_of_an_older_birth_alone(rule: str) -> None:
    detector = Detector()
    old = detector.add_rule("old", rule.format("once within 1s p == 1"))
    fired(detector, {"p": 1}, 0)
    young = detector.add_rule("young", rule.format("once within 1s p == 1"))
    assert fired(detector, {}, 500) == ["old"]
    detector.evaluate({}, 3_000)
    assert detector.state.inner
    told = [standing(detector, rule_id, {})["node"] for rule_id in (old, young)]
    assert ["since_ms" in node for node in told] == [True, False]
