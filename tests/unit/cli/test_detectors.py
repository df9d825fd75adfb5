import json
from typing import Any

import pytest

from api.cli.client.detectors import add_rules
from api.cli.client.rule_files import conditions_of
from api.cli.client.service import Service, ServiceError
from engine import parse
from engine.language.json.writer import condition_to_document


class FakeService(Service):
    """Keeps rules."""

    def __init__(self, **rules: str) -> None:
        self.rules = dict(rules)

    def call(self, method: str, path: str, body: bytes | None = None, *, key: str = "") -> Any:
        match method:
            case "GET":
                documents = {name: condition_to_document(parse(text)) for name, text in self.rules.items()}
                found = [{"id": name, "name": name, "condition": one} for name, one in documents.items()]
                return {"rules": found}
            case "POST":
                rule = json.loads(body or b"")
                self.rules[rule["name"]] = rule["condition"]
                return {"id": rule["name"]}
        raise AssertionError(method)


def add(service: Service, text: str) -> None:
    add_rules(service, "d", conditions_of(text, "r.yaml"))


def test_rules_that_are_there_are_not_made_again() -> None:
    service = FakeService()
    for _ in range(2):
        add(service, "one: a == 1\ntwo: b  ==  2\n")
        assert service.rules.keys() == {"one", "two"}


def test_a_rule_of_the_same_name_and_another_condition_is_a_conflict_and_adds_nothing() -> None:
    service = FakeService(one="a == 1")
    with pytest.raises(ServiceError, match="two rules `one` with different conditions"):
        add(service, "new: c == 3\none: a == 2\n")
    assert service.rules == {"one": "a == 1"}
