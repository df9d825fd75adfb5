"""Dry runs in a worker: the journal, the state and the snapshot are those of a twin that never saw one."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.explanation import explaining, firings
from engine.evaluation.inspecting import explanations as wire
from engine.evaluation.wire.events import Done, Refused
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.detector.executor import OperationExecutor
from tests.local_runtime.owners import Owners

IDS = ("1" * 32, "2" * 32)
RULES = ("per user (count(a == 1) within 1m >= 2)", "per user (previous a == 1) and not a == 2", "b > 1")


def body(*events: dict[str, Any]) -> bytes:
    told = [{"fields": fields, "timestamp_ms": 1_000 * place} for place, fields in enumerate(events)]
    return json.dumps({"event": told[0]} if len(told) == 1 else {"events": told}).encode()


def tried(operation: Operation) -> Operation:
    dry = {ops.EVALUATE: ops.dry_run, ops.EVALUATE_BATCH: ops.dry_run_batch}
    return dry[operation.kind](operation.payload)


@pytest.fixture
def actors(tmp_path: Path) -> list[OperationExecutor]:
    """Return two workers with equal detectors."""
    made = [Owners(tmp_path, detector_id) for detector_id in IDS]
    for owners in made:
        for number, rule in enumerate(RULES):
            owners.detector.add_rule(rule, rule, rule_id=str(number) * 32)
    return [owners.actor for owners in made]


def test_a_twin_that_never_saw_a_dry_run_is_equal(actors: list[OperationExecutor], tmp_path: Path) -> None:
    one, two = actors
    batches = [
        [ops.evaluate(body({"user": "ada", "a": 1})), ops.evaluate(body({"user": "bob", "a": 1, "b": 2}))],
        [
            ops.evaluate_batch(
                body({"user": "ada", "a": 1}, {"user": "ada", "a": 0}, {"user": "cleo", "a": 1})
            )
        ],
        [ops.evaluate(body({"user": "ada", "a": 1, "b": 3}))],
    ]
    fired = 0
    for batch in batches:
        for operation in batch:
            (foretold,) = one.handle([tried(operation)]).answers
            (answer,) = one.handle([operation]).answers
            assert foretold == answer
            assert two.handle([operation]).answers == [answer]
            assert isinstance(answer, Done)
            fired += answer.result.count(b"ruleId")
    assert fired >= 5
    detectors = [actor._the_active().detector for actor in actors]
    assert detectors[0].dump() == detectors[1].dump()
    folders = [tmp_path / "detectors" / each for each in IDS]
    lengths = [sum(path.stat().st_size for path in folder.glob("*.rdj")) for folder in folders]
    assert lengths[0] == lengths[1] > 0


def test_rules_beyond_the_bounds_have_no_node_or_are_no_longer_tried(
    actors: list[OperationExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = actors
    monkeypatch.setattr(firings, "NODES_MAX", 1)
    one.handle([ops.evaluate(body({"user": "ada", "a": 1}))])
    (answer,) = one.handle([ops.dry_run(body({"user": "ada", "a": 1, "b": 2}), explained=True)]).answers
    assert isinstance(answer, Done)
    assert ["node" in action for action in json.loads(answer.result)["actions"]] == [True, False, False]
    monkeypatch.setattr(firings, "NODES_MAX", explaining.NODES_MAX)
    explained = ops.dry_run(body({"user": "ada", "a": 1, "b": 2}), explained=True)
    (answer,) = one.handle([explained]).answers
    assert isinstance(answer, Done)
    first, *_ = json.loads(answer.result)["actions"]
    size = len(json.dumps(first, separators=(",", ":")))
    for bytes_max, have_nodes in ((size - 1, [True, False, False]), (size, [True, True, False])):
        monkeypatch.setattr(wire, "BYTES_MAX", bytes_max)
        (answer,) = one.handle([explained]).answers
        assert isinstance(answer, Done)
        assert ["node" in action for action in json.loads(answer.result)["actions"]] == have_nodes
    monkeypatch.setattr(wire, "DRY_BATCH_NODES_MAX", 3)
    (refused,) = one.handle([ops.dry_run_batch(body({}, {}))]).answers
    assert isinstance(refused, Refused)
    assert refused.entries[0].code == 1400
