"""The messages about a new or changed rule."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import Done
from engine.language.json.writer import condition_to_document
from engine.language.text.parser import parse
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import PutRule
from engine.runtime.detector.apply import apply
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from tests.local_runtime.owners import ONE, Owners

TEMPORAL = "once within 5m a == 1"


class Asked:
    """A detector that is asked for changes of its rules."""

    def __init__(self) -> None:
        self.detector = Detector()

    def __call__(self, operation: ops.Operation) -> tuple[dict[str, Any], list[int]]:
        answer = apply(self.detector, ONE, IdempotencyCache(1, 1), operation, 0).answer
        assert isinstance(answer, Done)
        return json.loads(answer.result), [entry["code"] for entry in json.loads(answer.messages)]

    def add(self, condition: str) -> str:
        result, codes = self(ops.add_rule("r", condition))
        assert codes == []
        return str(result["id"])


@pytest.mark.parametrize(
    ("condition", "codes"),
    [
        (TEMPORAL, []),
        ("owns(user)", [2003]),
        ("exists(user)", [2003, 2006]),
        ("per user (previous country != country)", [2006]),
    ],
)
def test_a_new_rule_and_a_changed_one_are_answered_with_what_is_doubtful(
    condition: str, codes: list[int]
) -> None:
    asked = Asked()
    added, told = asked(ops.add_rule("r", condition))
    assert told == codes
    asked(ops.remove_rule(added["id"]))
    rule = asked.add("a == 1")
    told = asked(ops.change_rule(rule, condition=condition))[1]
    assert [code for code in told if code != 2005] == codes


def test_a_change_that_begins_the_history_anew_says_so() -> None:
    asked = Asked()
    rule = asked.add(TEMPORAL)
    assert asked(ops.change_rule(rule, condition=TEMPORAL))[1] == []
    assert asked(ops.change_rule(rule, condition="once within 6m a == 1"))[1] == [2005]
    assert asked(ops.change_rule(rule, name="other", notify=True))[1] == []
    assert asked(ops.change_rule(rule, enabled=False))[1] == []
    # A disabled rule has no history.
    assert asked(ops.change_rule(rule, condition=TEMPORAL))[1] == []
    assert asked(ops.change_rule(rule, enabled=True))[1] == [2005]
    assert asked(ops.change_rule(rule, enabled=True))[1] == []


def test_a_condition_that_does_not_look_back_has_no_history_to_lose() -> None:
    asked = Asked()
    rule = asked.add(TEMPORAL)
    assert asked(ops.change_rule(rule, condition="a == 1"))[1] == []
    assert asked(ops.change_rule(rule, condition="a == 2"))[1] == []
    assert asked(ops.change_rule(rule, condition=TEMPORAL))[1] == [2005]


@pytest.mark.parametrize(
    ("condition", "other"),
    [
        ("a == 1 and b == 2", "b == 2 and a == 1 and b == 2.0"),
        ("a == 1 or (b == 2 or c == 3)", "(c == 3 or a == 1) or b == 2"),
        ("per k (count(a == 1 and x > 5) within 1m >= 3)", "per k (count(x > 5 and a == 1) within 60s >= 3)"),
        ("historically for 5m a in [1, 2]", "historically for 5m weak a in [2, 1]"),
        ("not not a == 1", "a == 1 and a == 1"),
        ('ip in network ["10.0.0.0/8", "::1"]', 'ip in network ["::1", "10.0.0.0/8"]'),
        ("sum(n where a == 1 and b == 2) > 2 * y", "sum(n where b == 2 and a == 1) > 2 * y"),
        ("count(a == 1 or b == 1) > 2 * count(c == 1)", "count(b == 1 or a == 1) > 2 * count(c == 1)"),
    ],
)
def test_a_rule_that_is_equal_to_another_is_told_its_name(condition: str, other: str) -> None:
    asked = Asked()
    asked.add("z == 1")
    asked(ops.add_rule("first", condition))
    for operation in (
        ops.add_rule("second", other),
        ops.add_rule("third", json.dumps(condition_to_document(parse(other)))),
    ):
        answer = apply(asked.detector, ONE, IdempotencyCache(1, 1), operation, 0).answer
        assert isinstance(answer, Done)
        [entry] = json.loads(answer.messages)
        assert entry["code"] == 2006
        assert "equal to that of the rule `first`" in entry["message"]


@pytest.mark.parametrize(
    ("condition", "other"),
    [
        *(("a == 1 and b == 2", other) for other in ("a == 1 or b == 2", "a == true and b == 2")),
        ("a == 1 and b == 2", "a == 1 and b == 2 and c == 3"),
        ("a in [1, 2]", "a in [1, 3]"),
        ('ip in network ["10.0.0.0/8"]', 'ip in network ["10.0.0.0/9"]'),
        ("sum(n) > 2 * y", "sum(n) > 3 * y"),
    ],
)
def test_a_rule_that_means_something_else_is_not_called_equal(condition: str, other: str) -> None:
    asked = Asked()
    asked.add(condition)
    asked.add(other)


def test_rules_are_equal_as_they_are_now() -> None:
    asked = Asked()
    first, second = asked.add("a == 1"), asked.add("a == 2")
    assert asked(ops.change_rule(second, condition="a == 1"))[1] == [2006]
    # What is not given is not questioned again, and shadow rules are trials of others.
    assert asked(ops.change_rule(second, name="other"))[1] == []
    assert asked(ops.add_rule("trial", "a == 1", shadow=True))[1] == []
    assert asked(ops.remove_rule(first))[1] == []
    assert asked(ops.change_rule(second, condition="a == 1"))[1] == []
    # It is told that an equal rule is disabled.
    assert asked(ops.change_rule(second, enabled=False))[1] == []
    assert asked(ops.add_rule("again", "a == 1"))[1] == [2006]
    assert asked(ops.change_rule(second, condition="a == 2"))[1] == []
    asked.add("a == 3")


def test_a_promoted_draft_takes_its_meaning_along() -> None:
    asked = Asked()
    rule = asked.add("a == 1")
    assert asked(ops.add_rule("draft", "a == 2", shadow=True, draft_of=rule))[1] == []
    asked(ops.promote(rule))
    assert asked(ops.add_rule("second", "a == 2"))[1] == [2006]
    asked.add("a == 1")


def test_rules_that_are_put_at_once_are_compared_with_each_other_and_with_those_that_stay() -> None:
    asked = Asked()
    asked(ops.add_rule("stays", "a == 1"))
    asked(ops.add_rule("changes", "a == 2"))
    rules = [
        ops.PutRule("changes", "a == 3"),
        ops.PutRule("one", "a == 1"),
        ops.PutRule("two", "a == 2"),
        ops.PutRule("three", "a == 3"),
        ops.PutRule("trial", "a == 1", shadow=True),
    ]
    for dry_run in (True, False):
        operation = ops.put_rules(rules, dry_run=dry_run)
        answer = apply(asked.detector, ONE, IdempotencyCache(1, 1), operation, 0).answer
        assert isinstance(answer, Done)
        told = [entry["message"].split(": ")[:2] for entry in json.loads(answer.messages)]
        same = "the condition is equal to that of the rule `{}`, up to the order of its parts"
        assert told == [["`one`", same.format("stays")], ["`three`", same.format("changes")]]


ADA = f"{'a' * 32} ada"


def put(detector: Owners, *rules: PutRule, **how: bool) -> Any:
    return detector(ops.put_rules(list(rules), **how)._replace(by=ADA))


def listed(detector: Owners) -> Any:
    rules = detector(ops.rules())["rules"]
    return rules, [detector(ops.versions(rule["id"])) for rule in rules]


def test_a_change_of_many_is_one_record_and_survives_a_crash_and_a_snapshot(tmp_path: Path) -> None:
    detector = Owners(tmp_path)
    detector.event(1, a=1)
    records = len(detector.entries())
    rules = [PutRule(f"r{number}", f"once a == {number}", labels='{"level": 1}') for number in range(20)]
    assert len(put(detector, *rules, PutRule("d", "a == 9", shadow=True, draft_of="r0"))["created"]) == 21
    assert len(detector.entries()) == records + 1
    detector.event(2, a=1)
    rules[1] = PutRule("r1", "once a == 1", notify=True)
    result = put(detector, *rules[1:], prune=True)
    assert (result["changed"], result["removed"], len(result["unchanged"])) == (["r1"], ["r0", "d"], 18)
    before = listed(detector)
    for keep in (detector.crash, detector.save, detector.crash):
        keep()
        assert listed(detector) == before
        assert [action["name"] for action in detector.event(3)] == ["r1"]
    [[second, first]] = [found["versions"] for found in before[1] if len(found["versions"]) > 1]
    assert (second["token"], first["token"]) == ({"id": "a" * 32, "name": "ada"},) * 2
    assert second["time_ms"] == first["time_ms"] == 10**9


def test_a_change_may_only_remove(tmp_path: Path) -> None:
    detector = Owners(tmp_path)
    rules = [PutRule("r", "a == 1"), PutRule("s", "a == 2")]
    put(detector, *rules)
    assert put(detector, rules[0], prune=True)["removed"] == ["s"]
    detector.crash()
    assert [rule["name"] for rule in detector(ops.rules())["rules"]] == ["r"]


def test_a_dry_run_and_a_change_of_nothing_write_nothing(tmp_path: Path) -> None:
    detector = Owners(tmp_path)
    rule = PutRule("r", "a == 1")
    put(detector, rule)
    before, records = listed(detector), detector.entries()
    other = PutRule("s", "a == 2")
    assert put(detector, other, prune=True, dry_run=True) == {
        "created": ["s"],
        "changed": [],
        "removed": ["r"],
        "unchanged": [],
    }
    assert put(detector, rule)["unchanged"] == ["r"]
    assert (listed(detector), detector.entries()) == (before, records)


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    detector = Owners(tmp_path)
    put(detector, PutRule("r", "a == 1"))
    before = listed(detector)
    (answer,) = detector.actor.handle([ops.put_rules([PutRule("r", "a == 2"), PutRule("s", "a ==")])]).answers
    assert [entry.code for entry in answer.entries] == [1300]
    assert listed(detector) == before


def test_messages_name_their_rules(tmp_path: Path) -> None:
    detector = Owners(tmp_path)
    put(detector, PutRule("r", "once a == 1"))
    rules = [PutRule("r", "once a == 2"), PutRule("s", "exist(a)")]
    (answer,) = detector.actor.handle([ops.put_rules(rules)]).answers
    said = [(each["code"], each["message"][:3]) for each in json.loads(answer.messages)]
    assert said[0] == (2005, "`r`")
    assert {name for _, name in said[1:]} == {"`s`"}


def test_a_fork_has_the_versions(tmp_path: Path) -> None:
    detector = Owners(tmp_path)
    put(detector, PutRule("r", "a == 1"))
    put(detector, PutRule("r", "a == 2"))
    [[before]] = [found["versions"][1:] for found in listed(detector)[1]]
    detector.actor.begin_fork("2" * 32)()
    detector.actor.discard()
    detector.actor.activate("2" * 32, 1)
    [rule], [found] = listed(detector)
    [_, earlier] = found["versions"]
    own = {"id": rule["id"], "detectorId": "2" * 32}
    assert earlier == before | {"rule": before["rule"] | own}


LABELS: dict[str, Any] = {"severity": "high", "level": 10**30, "urgent": True, "share": 0.25}


def test_they_survive_in_the_journal_and_in_snapshots(tmp_path: Path) -> None:
    detector = Owners(tmp_path)
    rule_id = detector(ops.add_rule("r", "a == 1", description="why\n", labels=LABELS))["id"]
    plain_id = detector(ops.add_rule("plain", "a == 1"))["id"]
    for keep in (detector.crash, detector.save, detector.crash):
        keep()
        rule = detector(ops.rule(rule_id))
        assert (rule["description"], rule["labels"]) == ("why\n", LABELS)
        assert not {"description", "labels"} & detector(ops.rule(plain_id)).keys()
        assert [action.get("labels") for action in detector.event(10**9, a=1)] == [LABELS, None]
    detector(ops.change_rule(rule_id, labels={}, description=""))
    detector.crash()
    assert not {"description", "labels"} & detector(ops.rule(rule_id)).keys()
