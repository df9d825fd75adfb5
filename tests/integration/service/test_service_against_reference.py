"""The running service, over HTTP, answers random scripts as the executable specification does."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.language.json.writer import condition_to_document
from engine.language.text.printer import format  # noqa: A004 -- the inverse of parse is called format
from tests.reference import ReferenceDetector
from tests.service_process import Served, served
from tests.worlds.scripts import Add, Change, Remove, Step, Submit, World

SCRIPTS = 20
RESTARTED = 8
"""This many of them are half done when the service is restarted."""


class Remote:
    """A detector of the service and one of the reference, which get the same requests."""

    def __init__(self, service: Served, title: str) -> None:
        self.service = service
        self.path = f"/api/detectors/{service.call('POST', '/api/detectors', {'name': title})['id']}"
        self.reference = ReferenceDetector()

    def apply(self, step: Step) -> None:
        ids = list(self.reference.rules)
        match step:
            case Add(name, condition, notify):
                sent = {"condition": format(condition), "name": name, "notify": notify}
                rule_id = self.service.call("POST", f"{self.path}/rules", sent)["id"]
                self.reference.add_rule(rule_id, name, condition, notify=notify)
            case Change(place, changes):
                sent = dict(changes)
                if "condition" in sent:
                    sent["condition"] = format(changes["condition"])
                self.service.call("PATCH", f"{self.path}/rules/{ids[place]}", sent)
                self.reference.change_rule(ids[place], **changes)
            case Remove(place):
                self.service.call("DELETE", f"{self.path}/rules/{ids[place]}")
                del self.reference.rules[ids[place]]
            case Submit(fields, timestamp_ms, sent_vars):
                body: dict[str, Any] = {"event": {"fields": fields, "timestamp_ms": timestamp_ms}}
                if sent_vars is not None:
                    body["context"] = {"vars": sent_vars}
                reply = self.service.request("POST", f"{self.path}/evaluate", body)
                expected = self.reference.evaluate(fields, timestamp_ms, sent_vars)
                assert answered(reply.status_code, reply.json()) == expected, step

    def compare_rules(self) -> None:
        listed = self.service.call("GET", f"{self.path}/rules")["rules"]
        rules = self.reference.rules.items()
        assert [(rule["id"], rule["name"], rule["notify"], rule["enabled"]) for rule in listed] == [
            (rule_id, rule.name, rule.notify, rule.enabled) for rule_id, rule in rules
        ]
        for given, (_, rule) in zip(listed, rules, strict=True):
            assert given["condition"] == condition_to_document(rule.condition)


def answered(status: int, envelope: dict[str, Any]) -> list[tuple[Any, ...]] | None:
    """Return a reply in the form of the reference: None if the event was refused for its time."""
    if status == 422:
        assert [entry["code"] for entry in envelope["errors"]] == [1402]
        return None
    assert status == 200, envelope
    return [
        (action["type"], action["ruleId"], action["name"], action["priority"], action["notify"])
        for action in envelope["result"]["actions"]
    ]


@pytest.mark.ray
def test_the_service_answers_random_scripts_as_specified_and_a_restart_changes_no_answer(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    record_property("examples", SCRIPTS)
    folder = tmp_path / "data"
    scripts = [
        World(random.Random(f"{seed} {n}").choice).script(depth=3, steps_max=14) for n in range(SCRIPTS)
    ]
    remotes: list[Remote] = []
    # Each script has a detector, which would get its own process.
    shared = ("--detectors-per-worker", str(RESTARTED))
    with served(folder, *shared) as running:
        token = running.token
        for number, script in enumerate(scripts[RESTARTED:]):
            remote = Remote(running, f"whole {number}")
            for step in script:
                remote.apply(step)
            remote.compare_rules()
            running.call("DELETE", remote.path)
        for number, script in enumerate(scripts[:RESTARTED]):
            remotes.append(Remote(running, f"script {number}"))
            for step in script[: len(script) // 2]:
                remotes[-1].apply(step)
        assert running.end() == 0
    with served(folder, *shared) as running:
        running.token = token
        for remote, script in zip(remotes, scripts[:RESTARTED], strict=True):
            remote.service = running
            for step in script[len(script) // 2 :]:
                remote.apply(step)
            remote.compare_rules()
