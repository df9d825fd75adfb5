"""What a detector says that it holds: numbers, keys, memories, rules and what they cost."""

import json
import random
from typing import Any

import msgspec
import pytest

from engine import Detector
from engine.evaluation.inspecting import holdings
from engine.evaluation.inspecting.comparisons import comparison_of
from engine.evaluation.inspecting.explanations import dry_run_body, evaluate_explained_body, explain_body
from engine.evaluation.inspecting.holdings import (
    FIRST,
    KeyPlace,
    SeenKey,
    costliest,
    listed_keys,
    overview,
    seen_keys,
)
from engine.evaluation.inspecting.states import StateAsked, after_of, standing, state_of
from engine.evaluation.inspecting.timelines import TimelineAsked, timeline
from engine.evaluation.kernel import rule_set
from engine.evaluation.kernel.indexing import indexed_stream
from engine.evaluation.key_sizes import key_bytes
from engine.evaluation.rule_book import verdicts
from engine.evaluation.slices.slices import FIRST as FIRST_PLACE
from engine.evaluation.slices.slices import PLACE_BYTES, SLICE_BYTES
from engine.evaluation.wire.events import Done


def ask(detector: Detector, **asked: Any) -> dict[str, Any]:
    return msgspec.json.decode(state_of(detector, msgspec.json.encode(StateAsked(**asked))).result)


def all_seen(detector: Detector, prefix: str, before: tuple[int, int], limit: int) -> list[SeenKey]:
    """Read all keys in as many looks as it takes."""
    found: list[SeenKey] = []
    place: KeyPlace | None = KeyPlace()
    while place is not None:
        read, place = seen_keys(detector.histories, prefix, before, limit, place)
        assert len(read) <= limit
        found += read
    return sorted(found, key=lambda one: (-one.event, one.path))[:limit]


def submit(detector: Detector, *events: tuple[dict[str, Any], float]) -> None:
    detector.submit_clean([(fields, timestamp_ms, {}) for fields, timestamp_ms in events])
    detector.forget_lookups()


@pytest.mark.parametrize("slices", [1, 7, 8_192])
def test_keys_come_page_by_page_those_seen_last_first(
    slices: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holdings, "SLICES_AT_ONCE", slices)
    drawn = random.Random(seed)
    detector = Detector()
    detector.add_rule("r", "per user (once a == 1) and per ip (once a == 1) and per user per ip once a == 1")
    last: dict[tuple, int] = {}
    for number in range(1, 200):
        user, ip = f"u{drawn.randrange(40)}", drawn.choice((1, 2, 10**30, True, "x" * 2_000))
        submit(detector, ({"user": user, "ip": ip, "a": 1}, number))
        shown = repr(ip)
        last[("ip", shown)] = last[("user", user)] = last[("both", user, shown)] = number
    found, before = [], FIRST
    while page := all_seen(detector, "", before, 10):
        found += page
        before = page[-1].event, page[-1].path
    assert [one.event for one in found] == sorted(last.values(), reverse=True)
    assert len({(one.path, repr(one.key)) for one in found}) == len(found)
    assert all(one.memories == 1 for one in found)
    users = {one.key["user"] for one in found if [*one.key] == ["user"]}
    assert users == {name[1] for name in last if name[0] == "user"}
    fitting = all_seen(detector, "u1", FIRST, 1_000)
    assert {one.key["user"] for one in fitting} == {user for user in users if user.startswith("u1")}
    assert {type(one.key["ip"]) for one in found if [*one.key] == ["ip"]} == {int, bool, str}
    assert any(str(one.key["ip"]).startswith("SHA-256 ") for one in found if "ip" in one.key)


def test_the_keys_seen_last_are_listed_in_whatever_order_they_were_first_seen() -> None:
    detector = Detector()
    detector.add_rule("r", "per user once a == 1")
    for number, user in enumerate("abcacb"):
        submit(detector, ({"user": user, "a": 1}, number))
    assert [(one.event, one.key["user"]) for one in all_seen(detector, "", FIRST, 2)] == [(6, "b"), (5, "c")]


@pytest.mark.parametrize("limit", [1, 7, 1_000])
def test_pages_have_each_key_once_whatever_comes_and_goes_between_them(limit: int) -> None:
    drawn = random.Random(1)
    detector = Detector()
    detector.add_rule("r", "per user (once within 1s a == 1) and per user per ip (once within 1s a == 1)")
    lasting = {(f"u{number}", *ip) for number in range(300) for ip in ((), (10**30,), ("x" * 2_000,))}

    def come(user: str, at: int) -> None:
        for ip in (10**30, "x" * 2_000):
            submit(detector, ({"user": user, "ip": ip, "a": 1}, at))

    for number in range(300):
        come(f"u{number}", 0)
    found: list[SeenKey] = []
    place: KeyPlace | None = KeyPlace()
    while place is not None:
        page, place = listed_keys(detector.histories, "", limit, place)
        assert len(page) <= limit
        found += page
        # Old ones are seen again, and new ones come.
        come(f"u{drawn.randrange(300)}", 0)
        if len(found) % 50 == 0:
            come(f"v{len(found)}", 0)
    keys = [(one.path, *one.key.values()) for one in found]
    assert len(set(keys)) == len(keys)
    users = {one.key["user"] for one in found if len(one.key) == 1}
    assert users >= {user for user, *ip in lasting if not ip}
    assert len({key for key in keys if len(key) == 3 and key[1] in users and key[1][0] == "u"}) == 600
    fitting, place = listed_keys(detector.histories, "u29", 1_000, KeyPlace())
    assert {one.key["user"] for one in fitting} == {"u29", *(f"u29{number}" for number in range(10))}


def test_reading_the_keys_ends_with_the_last_path_and_finds_a_prefix_in_any_part() -> None:
    detector = Detector()
    detector.add_rule("r", "per user per ip once a == 1")
    submit(detector, ({"user": "ada", "ip": "x" * 40, "a": 1}, 0))
    for prefix, count in (("", 1), ("ad", 1), ("b", 0), ("xx", 1)):
        found, place = seen_keys(detector.histories, prefix, FIRST, 9, KeyPlace())
        assert (len(found), place) == (count, None if len(detector.histories.slices) == 1 else KeyPlace(1))


def test_a_rule_and_its_memory_tell_since_when_and_whether_it_is_in_shadow() -> None:
    detector = Detector()
    submit(detector, ({}, 0), ({}, 0))
    ids = [detector.add_rule("r", "once a == 1"), detector.add_rule("s", "a == 1", shadow=True)]
    page = ask(detector, about="rules", limit=2)
    assert [(rule["since_event"], rule.get("shadow")) for rule in page["rules"]] == [(2, None), (2, True)]
    # A full page may have a successor.
    assert page["after"] == "2"
    assert "after" not in ask(detector, about="rules", limit=3)
    (memory,) = ask(detector, about="nodes")["nodes"]
    assert memory["since_event"] == 2
    assert [standing(detector, rule_id, {}).get("shadow") for rule_id in ids] == [None, True]


def test_a_name_with_a_dollar_is_another_one_than_that_without() -> None:
    detector = Detector()
    rule = detector.add_rule("r", "per $ser once a == 1 or per user once a == 1")
    one, other = standing(detector, rule, {"user": 7})["node"]["nodes"]
    assert one["note"] == "`$ser` is missing, so the event belongs to no slice"
    assert other["key"] == {"user": 7}


@pytest.mark.parametrize("prefix", ["", "b"])
def test_a_key_whose_only_memory_was_dropped_is_not_listed(prefix: str) -> None:
    detector = Detector()
    rule = detector.add_rule("r", "per user once a == 1")
    submit(detector, ({"user": "ada", "a": 1}, 0))
    detector.add_rule("younger", "per user once b == 1")
    submit(detector, ({"user": "bob", "b": 1}, 1))
    detector.remove_rule(rule)
    assert [one.key for one in all_seen(detector, prefix, FIRST, 5)] == [{"user": "bob"}]


def test_the_whole_in_numbers() -> None:
    detector = Detector()
    assert "clock_ms" not in overview(detector)
    detector.add_rule("one", "per user where b == 1 once a == 1")
    off = detector.add_rule("two", "a == 1")
    detector.change_rule(off, enabled=False)
    submit(detector, ({"user": "ada", "a": 1, "b": 1}, 5), ({"user": "bob", "a": 1}, 7.5))
    told = overview(detector)
    assert (told["clock_ms"], told["events"]) == (7.5, 2)
    assert told["rules"] == {"total": 2, "enabled": 1}
    assert told["nodes"] == {"total": 4, "temporal": 1}
    assert told["keys"]["live"] == 1
    assert told["keys"]["paths"] == [{"per": ["user where b == 1"], "live": 1}]
    assert 0 < told["bytes"]["held"] < 1_000


def test_memories_tell_who_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "USERS_SHOWN", 2)
    detector = Detector()
    ids = [detector.add_rule(str(number), "per user (once a == 1) and b == 1") for number in range(3)]
    other = detector.add_rule("other", "previous b == 2")
    submit(detector, ({"user": "ada", "a": 1}, 0), ({"user": "bob", "a": 1, "b": 2}, 0))
    first = ask(detector, about="nodes", limit=1)
    assert first == {
        "nodes": [
            {
                "text": "once a == 1",
                "per": ["user"],
                "since_event": 0,
                "entries": 2,
                "bytes": 2 * PLACE_BYTES,
                "uses": 3,
                "ruleIds": ids[:2],
            }
        ],
        "after": "1",
    }
    (second,) = ask(detector, about="nodes", limit=2, after=after_of("1"))["nodes"]
    assert (second["text"], second["per"], second["entries"]) == ("previous b == 2", [], 1)
    assert (second["ruleIds"], second["bytes"]) == ([other], PLACE_BYTES)
    assert ask(detector, about="nodes", after=(2, 0)) == {"nodes": []}


@pytest.mark.parametrize("at_once", [0, 1 << 12])
def test_rules_tell_how_often_they_were_true(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "_COUNTED_AT_ONCE", at_once)
    detector = Detector()
    ids = [detector.add_rule(f"rule {number}", f"a >= {number}") for number in range(3)]
    submit(detector, ({"a": 0}, 0), ({"a": 1}, 0), ({"a": 1}, 0), ({}, 0))
    detector.submit_clean_one({"a": 5}, 0, None)
    detector.forget_lookups()
    detector.change_rule(ids[2], enabled=False)
    page = ask(detector, about="rules", limit=2)
    assert page["after"] == "2"
    rules = page["rules"] + ask(detector, about="rules", limit=2, after=(2, 0))["rules"]
    assert [rule["ruleId"] for rule in rules] == ids
    assert [rule["times_true"] for rule in rules] == [4, 3, 1]
    assert [rule.get("evaluated_share") for rule in rules] == [1.0, 1.0, None]
    assert sum(rule.get("time_share", 0) for rule in rules) == pytest.approx(1)
    found = ask(detector, about="rules", prefix="rule 1")["rules"]
    assert [rule["ruleId"] for rule in found] == ids[1:2]
    detector.remove_rule(ids[0])
    assert detector.verdicts.times_fired(1) == 0


def test_rules_tell_what_they_cost_at_sampled_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_set, "INDEXED_FROM", 0)
    monkeypatch.setattr(indexed_stream, "SAMPLED_EVERY", 2)
    detector = Detector()
    for number in range(4):
        detector.add_rule(str(number), f"kind == {number} and per user count(kind == {number}) >= 2")
    detector.add_rule("always", "not kind == 7")
    assert "time_share" not in ask(detector, about="rules")["rules"][0]
    submit(detector, *[({"kind": number % 8 // 2, "user": "ada"}, number) for number in range(80)])
    rules = ask(detector, about="rules")["rules"]
    assert overview(detector)["samples"] == 40
    assert [rule["evaluated_share"] for rule in rules] == [0.25] * 4 + [1.0]
    assert sum(rule["time_share"] for rule in rules) == pytest.approx(1)
    assert all(rule["time_share"] > 0 for rule in rules)


def test_a_rule_tells_what_is_missing_to_look_inside() -> None:
    detector = Detector()
    rule = detector.add_rule("r", "per user once a == 1 or per $ip where b == 1 once a == 1")
    submit(detector, ({"user": "ada", "a": 1}, 1_000))
    one, other = standing(detector, rule, {"$ip": 7})["node"]["nodes"]
    assert one == {
        "text": "per user once a == 1",
        "verdict": False,
        "note": "`user` is missing, so the event belongs to no slice",
    }
    assert other["key"] == {"$ip": 7}
    assert other["verdict"] is False
    tree = standing(detector, rule, {"user": "ada"})
    assert tree["node"]["verdict"] is True
    assert tree["node"]["nodes"][0]["nodes"][0]["witness_ms"] == 1_000
    detector.change_rule(rule, enabled=False)
    off = standing(detector, rule, {})
    assert (off["enabled"], off["node"]["verdict"]) == (False, False)
    assert off["node"]["note"] == "the rule is disabled, so it observes no events"


@pytest.mark.parametrize("numbers", [(1e308, 1e308), (1e308, 1e308, -1e308, -1e308), (-1e308, -1e308)])
@pytest.mark.parametrize(
    "condition", ["sum(x) > 5", "avg(x) within 1m < 5", "per user (not sum(x) within 10s != y)"]
)
def test_a_sum_past_the_range_of_a_double_is_told_in_words(
    condition: str, numbers: tuple[float, ...]
) -> None:
    detector = Detector()
    rule = detector.add_rule("r", condition)
    detector.add_rule("draft", condition + " or x == 1", shadow=True, draft_of=rule)
    timeline(detector, msgspec.json.encode(TimelineAsked(rule, {}, 0)))
    events = [{"user": 1, "x": number, "y": 2} for number in numbers]
    # Those of a time before a pane's width are apart from those after it.
    submit(detector, *((fields, 40 * place) for place, fields in enumerate(events)))
    event = {"fields": {"user": 1, "x": 1, "y": 2}, "timestamp_ms": 100}
    body = msgspec.json.encode({"event": event})
    answers = [
        state_of(detector, msgspec.json.encode(StateAsked(about="rule", rule_id=rule, key={"user": 1}))),
        explain_body(detector, body),
        dry_run_body(detector, body, explained=True),
        evaluate_explained_body(detector, body),
        timeline(detector, msgspec.json.encode(TimelineAsked(rule, {}, 0))),
        comparison_of(detector, rule, 0),
        *(
            state_of(detector, msgspec.json.encode(StateAsked(about=about)))
            for about in ("all", "keys", "nodes", "rules", "costs")
        ),
    ]
    for answer in answers:
        assert isinstance(answer, Done)
        json.loads(answer.result, parse_constant=pytest.fail)
    for answer in answers[:2]:
        assert b'"found"' not in answer.result
        assert b'"note":"what it found is past the range of a double"' in answer.result


def test_rules_of_a_name_are_looked_for_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "RULES_AT_ONCE", 3)
    detector = Detector()
    ids = [detector.add_rule(name, "a == 1") for name in ("x", "y", "y", "y", "x", "x", "y")]
    found, after = [], "0"
    while after is not None:
        page = ask(detector, about="rules", prefix="x", limit=2, after=after_of(after))
        found += [rule["ruleId"] for rule in page["rules"]]
        after = page.get("after")
    assert found == [ids[0], ids[4], ids[5]]


def test_what_memories_and_keys_take_is_all_that_a_detector_holds(seed: int) -> None:
    drawn = random.Random(seed)
    detector = Detector()
    for number in range(3):
        detector.add_rule(str(number), f"per user (count(a == {number}) within 1s >= {4 + 10 * number})")
        detector.add_rule(str(number), f"per user (distinct(text) within 1s >= {4 + 10 * number})")
    rule = detector.add_rule("r", "per user (sum(a) within 1s > 3 or once a == 2) and distinct(text) >= 90")
    for at in range(3_000):
        fields = {
            "user": drawn.randrange(1 + at // 3),
            "a": drawn.randrange(4),
            "text": "x" * drawn.randrange(90),
        }
        submit(detector, (fields, at))
    for loaded in (detector, Detector.load(detector.dump(), Detector.STATE_VERSION)):
        told = [node["bytes"] for node in ask(loaded, about="nodes")["nodes"]]
        assert sum(told) + beside_entries(loaded) == loaded.histories.bytes
        assert min(told) > 0
    detector.remove_rule(rule)
    told = [node["bytes"] for node in ask(detector, about="nodes")["nodes"]]
    assert sum(told) + beside_entries(detector) == detector.histories.bytes


def beside_entries(detector: Detector) -> int:
    """Return the bytes of all slices, keys and places without state."""
    bytes_ = 0
    for slices in detector.histories.slices.values():
        keyed = [item for shard in slices.shards for item in shard.items()]
        for key, slice_ in keyed if slices.path else [((), slices.root)]:
            places = len(slice_) - FIRST_PLACE - sum(one.has_place for one, _ in slices.held_in(slice_))
            bytes_ += PLACE_BYTES * places + (SLICE_BYTES + key_bytes(key) if slices.path else 0)
    return bytes_


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_rules_come_in_order_of_what_they_cost(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "RULES_AT_ONCE", at_once)
    detector = Detector()
    conditions = ["a == 1", 'text matches "x+"', "a == 1", "a == 1 and b == 1", "per k once a == 1", "a == 2"]
    ids = [detector.add_rule(f"rule {number}", text) for number, text in enumerate(conditions)]
    detector.change_rule(ids[0], enabled=False)

    def page(before: tuple[int, int], limit: int, prefix: str = "") -> list[tuple[int, int, dict[str, Any]]]:
        found, place = [], 0
        while place is not None:
            entries, place = costliest(detector, prefix, before, limit, place)
            found += entries
        return sorted(found, key=lambda one: (-one[0], one[1]))[:limit]

    found, before = [], FIRST
    while entries := page(before, 2):
        found += entries
        before = entries[-1][:2]
    assert [told["ruleId"] for _, _, told in found] == [ids[number] for number in (1, 4, 3, 2, 5, 0)]
    assert found[-1][0] == 0
    assert "time_share" not in found[-1][2]
    assert [told["ruleId"] for _, _, told in page(FIRST, 3, "rule 2")] == [ids[2]]


def test_the_pages_of_keys_and_costs_go_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "RULES_AT_ONCE", 2)
    detector = Detector()
    ids = [detector.add_rule(f"rule {number}", f"per user once a == {number}") for number in range(3)]
    submit(detector, *(({"user": user, "a": 1}, at) for at, user in enumerate(("ada", "bob", "eve"))))
    first = ask(detector, about="seen", limit=2)["entries"]
    assert [entry["key"]["user"] for *_, entry in first] == ["eve", "bob"]
    rest = ask(detector, about="seen", limit=2, after=tuple(first[-1][:2]))["entries"]
    assert [entry["key"]["user"] for *_, entry in rest] == ["ada"]
    two = ask(detector, about="costs")
    assert [entry["ruleId"] for *_, entry in two["entries"]] == ids[:2]
    after_one = ask(detector, about="costs", after=tuple(two["entries"][0][:2]))["entries"]
    assert [entry["ruleId"] for *_, entry in after_one] == ids[1:2]
    last = ask(detector, about="costs", place=two["place"])
    assert ([entry["ruleId"] for *_, entry in last["entries"]], last["place"]) == (ids[2:], None)


def test_the_tree_of_a_rule_has_the_clock_once_there_is_one() -> None:
    detector = Detector()
    rule = detector.add_rule("rule", "once a == 1")
    assert "clock_ms" not in ask(detector, about="rule", rule_id=rule)
    submit(detector, ({"a": 1}, 1_500))
    assert ask(detector, about="rule", rule_id=rule)["clock_ms"] == 1_500


@pytest.mark.parametrize(("text", "after"), [("5", (5, 0)), ("5-3", (5, 3))])
def test_the_end_of_a_page_is_told_by_one_number_or_by_two(text: str, after: tuple[int, int]) -> None:
    assert after_of(text) == after
