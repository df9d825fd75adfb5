"""Changes of many rules and the versions of rules in a worker: durable, one record each, forked."""

import json
from pathlib import Path
from typing import Any

from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import PutRule
from tests.unit.runtime.detector.test_shadows import Activations

ADA = f"{'a' * 32} ada"


def put(detector: Activations, *rules: PutRule, **how: bool) -> Any:
    return detector(ops.put_rules(list(rules), **how)._replace(by=ADA))


def listed(detector: Activations) -> Any:
    rules = detector(ops.rules())["rules"]
    return rules, [detector(ops.versions(rule["id"])) for rule in rules]


def test_a_change_of_many_is_one_record_and_survives_a_crash_and_a_snapshot(tmp_path: Path) -> None:
    detector = Activations(tmp_path)
    detector.event(1, a=1)
    records = len([*detector.versions()])
    rules = [PutRule(f"r{number}", f"once a == {number}", labels='{"level": 1}') for number in range(20)]
    assert len(put(detector, *rules, PutRule("d", "a == 9", shadow=True, draft_of="r0"))["created"]) == 21
    assert len([*detector.versions()]) == records + 1
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


def test_a_dry_run_and_a_change_of_nothing_write_nothing(tmp_path: Path) -> None:
    detector = Activations(tmp_path)
    rule = PutRule("r", "a == 1")
    put(detector, rule)
    before, records = listed(detector), [*detector.versions()]
    other = PutRule("s", "a == 2")
    assert put(detector, other, prune=True, dry_run=True) == {
        "created": ["s"],
        "changed": [],
        "removed": ["r"],
        "unchanged": [],
    }
    assert put(detector, rule)["unchanged"] == ["r"]
    assert (listed(detector), [*detector.versions()]) == (before, records)


def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    detector = Activations(tmp_path)
    put(detector, PutRule("r", "a == 1"))
    before = listed(detector)
    (answer,) = detector.actor.handle([ops.put_rules([PutRule("r", "a == 2"), PutRule("s", "a ==")])]).answers
    assert [entry.code for entry in answer.entries] == [1300]
    assert listed(detector) == before


def test_messages_name_their_rules(tmp_path: Path) -> None:
    detector = Activations(tmp_path)
    put(detector, PutRule("r", "once a == 1"))
    rules = [PutRule("r", "once a == 2"), PutRule("s", "exist(a)")]
    (answer,) = detector.actor.handle([ops.put_rules(rules)]).answers
    said = [(each["code"], each["message"][:3]) for each in json.loads(answer.messages)]
    assert said[0] == (2005, "`r`")
    assert {name for _, name in said[1:]} == {"`s`"}


def test_a_fork_has_the_versions(tmp_path: Path) -> None:
    detector = Activations(tmp_path)
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
