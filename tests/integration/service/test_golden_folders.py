"""Data folders of earlier versions that were killed under load: nothing is lost, and verdicts continue.

The states in them, and others, are tested by tests/unit/evaluation/persistence/test_golden_states.py.
"""

import json
import random
import tarfile
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from engine.language.text.parser import parse
from engine.runtime.contract.requests import operations as ops
from engine.runtime.front_end.backend import Backend
from tests.data.golden.make import fields
from tests.local_runtime.service import local_service
from tests.reference import ReferenceDetector

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
COMMITS = sorted(path.name.partition(".")[0] for path in GOLDEN.glob("*.tar.xz"))
REQUESTS_MIN = 60
MORE_EVENTS = 20


class History:
    """What a detector has done, by the reference, if the first requests happened."""

    def __init__(self, asked: list[dict[str, Any]]) -> None:
        self.reference = ReferenceDetector()
        self.at_ms = 0
        self.shadows: set[str] = set()
        """The names of the rules that never act."""
        self.drafted: tuple[str, str] | None = None
        """The names of a rule and its draft."""
        self.compared: Counter[tuple[bool, bool]] = Counter()
        """At how many events both fired, or one of them."""
        for one in asked:
            self.take(one)

    def take(self, asked: dict[str, Any]) -> None:
        """Execute the request; if it was answered, the answer must be the same."""
        reference, document, answer = self.reference, asked["document"], asked["answer"]
        match asked["method"], asked["path"].rpartition("/")[2]:
            case "POST", "evaluate":
                fired = self.evaluate(document["event"])
                if answer is not None:
                    assert fired == [action["ruleId"] for action in answer["actions"]]
            case "POST", _:
                # The id of a rule whose creation had no answer is not known.
                rule_id = answer["id"] if answer else "?"
                condition, notify = parse(document["condition"]), document["notify"]
                if "draftOf" in document:
                    self.drafted = reference.rules[document["draftOf"]].name, document["name"]
                if document.get("shadow"):
                    self.shadows.add(document["name"])
                reference.add_rule(rule_id, document["name"], condition, notify=notify)
            case "PATCH", rule_id:
                reference.change_rule(rule_id, **document)
            case _, rule_id:
                del reference.rules[rule_id]

    def evaluate(self, event: dict[str, Any]) -> list[str]:
        """Return the ids of the rules that fire and act."""
        self.at_ms = event["timestamp_ms"]
        actions = self.reference.evaluate(event["fields"], event["timestamp_ms"])
        assert actions is not None
        if self.drafted:
            names = {action[2] for action in actions}
            self.compared[self.drafted[0] in names, self.drafted[1] in names] += 1
        return [action[1] for action in actions if action[2] not in self.shadows]

    def counts(self) -> list[int]:
        """Return at how many events a rule and its draft fired together, and each of them alone."""
        kinds = ((True, True), (True, False), (False, True))
        return [self.compared[kind] for kind in kinds] if self.drafted else []

    def rules(self) -> list[tuple[str, bool]]:
        return [(rule.name, rule.enabled) for rule in self.reference.rules.values()]


def unpacked(commit: str, folder: Path) -> Path:
    with tarfile.open(GOLDEN / f"{commit}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "data"


async def result(backend: Backend, detector_id: str, operation: ops.Operation) -> Any:
    return json.loads((await backend.call(detector_id, operation)).result)


def histories(asked: list[dict[str, Any]], rules: list[dict[str, Any]]) -> list[History]:
    """Return the possible histories of a detector with these rules: the last request may be lost."""
    assert all(one["answer"] is not None for one in asked[:-1])
    without = History(asked[:-1])
    possible = [deepcopy(without), without]
    possible[0].take(asked[-1])
    if asked[-1]["answer"] is not None:
        possible.pop()
    found = [(rule["name"], rule["enabled"]) for rule in rules]
    possible = [one for one in possible if one.rules() == found]
    for one in possible:
        one.reference.rules = dict(
            zip([rule["id"] for rule in rules], one.reference.rules.values(), strict=True)
        )
    return possible


async def go_on(backend: Backend, detector_id: str, possible: list[History]) -> list[History]:
    """Send events; return the histories by which the answers are right."""
    chance = random.Random(detector_id)
    at_ms = max(one.at_ms for one in possible)
    for _ in range(MORE_EVENTS):
        at_ms += chance.choice((0, 1, 700, 2500))
        event = {"fields": fields(chance), "timestamp_ms": at_ms}
        answer = await result(backend, detector_id, ops.evaluate(json.dumps({"event": event}).encode()))
        fired = [action["ruleId"] for action in answer["actions"]]
        possible = [one for one in possible if one.evaluate(event) == fired]
        assert possible, f"{fired} fired at {event}, as in no possible history"
    return possible


async def compared(backend: Backend, detector_id: str, rules: list[dict[str, Any]]) -> list[int]:
    """Return at how many events a rule and its draft fired together, and each of them alone."""
    drafted = next((rule["draftOf"] for rule in rules if "draftOf" in rule), None)
    if drafted is None:
        return []
    found = await result(backend, detector_id, ops.comparison(drafted))
    return [found[kind] for kind in ("both", "only_rule", "only_draft")]


# The reference takes seconds for it.
@pytest.mark.storm
@pytest.mark.parametrize("commit", COMMITS)
async def test_nothing_that_was_answered_is_lost_and_verdicts_go_on(tmp_path: Path, commit: str) -> None:
    data = unpacked(commit, tmp_path)
    sent = json.loads((tmp_path / "sent.json").read_text())
    assert min(map(len, sent.values())) >= REQUESTS_MIN
    possible: dict[str, list[History]] = {}
    for _ in range(2):
        # The second time, the folder is as this version saved it.
        async with local_service(data) as service:
            backend = service.backend
            assert dict(await backend.detectors()).keys() == sent.keys()
            for detector_id, asked in sent.items():
                rules = (await result(backend, detector_id, ops.rules()))["rules"]
                if detector_id not in possible:
                    possible[detector_id] = histories(asked, rules)
                possible[detector_id] = await go_on(backend, detector_id, possible[detector_id])
                found = await compared(backend, detector_id, rules)
                assert found in [one.counts() for one in possible[detector_id]]
            assert not (await backend.status()).problems
