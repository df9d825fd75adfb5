"""Shadow rules in a worker: what is kept of them, and what an older program does with that."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.contract.requests import operations as ops
from tests.local_runtime.owners import Owners

CONDITIONS = ("once within 3s a == 1", "per k once within 5s a == 1", "a == 1", "a in [1, 2]")


def compared(activations: Owners) -> list[Any]:
    return [one.dump() for one in activations.detector.shadows.comparisons.values()]


@pytest.fixture
def activations(tmp_path: Path) -> Owners:
    return Owners(tmp_path)


def with_draft(activations: Owners) -> tuple[str, str]:
    rule = activations(ops.add_rule("rule", "a == 1"))["id"]
    draft = activations(ops.add_rule("draft", "a in [1, 2]", shadow=True, draft_of=rule))["id"]
    return rule, draft


@pytest.mark.parametrize("seed", range(8))
def test_comparisons_survive_crashes_snapshots_and_promotions(activations: Owners, seed: int) -> None:
    drawn = random.Random(seed)
    rule, draft = with_draft(activations)
    for number in range(60):
        match drawn.randrange(20):
            case 0:
                activations.save()
            case 1:
                activations.rest()
            case 2 if compared(activations):
                activations(ops.promote(rule))
            case 3:
                activations(ops.change_rule(draft, condition=drawn.choice(CONDITIONS)))
            case 4:
                activations(ops.change_rule(drawn.choice((rule, draft)), enabled=drawn.random() < 0.8))
                activations(ops.change_rule(drawn.choice((rule, draft)), enabled=True))
            case _:
                activations.event(number * 700, a=drawn.randrange(4), k=drawn.randrange(2))
        before = compared(activations), activations(ops.rules())
        if drawn.random() < 0.3:
            activations.crash()
        assert (compared(activations), activations(ops.rules())) == before


def test_a_worker_explains_examples_while_nobody_looks(activations: Owners) -> None:
    rule, _ = with_draft(activations)
    activations.event(1, a=2)
    (example,) = activations(ops.comparison(rule))["examples"]["only_draft"]
    assert (example["rule"]["verdict"], example["draft"]["verdict"]) == (False, True)


def test_its_answers_leave_out_what_a_shadow_rule_does_until_it_acts(activations: Owners) -> None:
    rule = activations(ops.add_rule("r", "once a == 1", shadow=True))["id"]
    assert activations(ops.rules())["rules"][0]["shadow"] is True
    assert activations.event(1, a=1) == []
    body = json.dumps({"event": {"fields": {}, "timestamp_ms": 2}}).encode()
    for operation in (ops.evaluate(body, explained=True), ops.dry_run(body), ops.evaluate(body, "key")):
        assert activations(operation) == {"actions": []}
    changed = activations(ops.change_rule(rule, shadow=False))
    assert "shadow" not in changed
    activations.crash()
    assert [action["ruleId"] for action in activations.event(3)] == [rule], "its history went on"
    assert activations(ops.evaluate(body, "key")) == {"actions": []}, "as it was answered the first time"


def test_examples_are_those_of_the_journal(activations: Owners) -> None:
    rule, _ = with_draft(activations)
    activations.event(1, a=1)
    activations.save()
    activations.event(2, a=2, text="x" * 2_000)
    assert [len(kept) for kept in activations(ops.comparison(rule))["examples"].values()] == [1, 0, 1]
    activations.crash()
    told = activations(ops.comparison(rule))
    assert [told[kind] for kind in ("both", "only_rule", "only_draft")] == [1, 0, 1]
    [example] = told["examples"]["only_draft"]
    assert (example["number"], example["cut"], len(example["fields"]["text"])) == (2, True, 992)
    assert told["examples"]["both"] == []
