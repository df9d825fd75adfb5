"""Descriptions and labels survive a crash, in the journal and in snapshots, and are copied to a fork."""

from pathlib import Path
from typing import Any

from engine.runtime.contract.requests import operations as ops
from tests.unit.runtime.detector.test_shadows import Activations

LABELS: dict[str, Any] = {"severity": "high", "level": 10**30, "urgent": True, "share": 0.25}


def test_they_survive_in_the_journal_and_in_snapshots(tmp_path: Path) -> None:
    detector = Activations(tmp_path)
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


def test_a_fork_has_them(tmp_path: Path) -> None:
    detector = Activations(tmp_path)
    detector(ops.add_rule("r", "a == 1", description="why", labels=LABELS))
    detector.actor.begin_fork("2" * 32)()
    detector.actor.discard()
    detector.actor.activate("2" * 32, 1)
    [rule] = detector(ops.rules())["rules"]
    assert (rule["description"], rule["labels"]) == ("why", LABELS)
