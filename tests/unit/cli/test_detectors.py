import json
from typing import Any

import pytest

from api.cli.client.detectors import Named, add_rules, find_detector
from api.cli.client.service import Service, ServiceError
from api.cli.rule_files import conditions_of
from engine import parse
from engine.language.json.writer import condition_to_document


class FakeService(Service):
    """Keeps detectors by name and the rules of one."""

    def __init__(self, **rules: str) -> None:
        self.rules = dict(rules)
        self.detectors: list[dict[str, str]] = []

    def call(self, method: str, path: str, body: bytes | None = None, *, key: str = "") -> Any:
        match method, path:
            case "GET", "/api/detectors":
                return self.detectors
            case "POST", "/api/detectors":
                self.detectors.append({"id": f"id {len(self.detectors)}", **json.loads(body or b"")})
                return {"id": self.detectors[-1]["id"]}
            case "GET", _:
                documents = {name: condition_to_document(parse(text)) for name, text in self.rules.items()}
                found = [{"id": name, "name": name, "condition": one} for name, one in documents.items()]
                return {"rules": found}
            case "POST", _:
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


def test_a_detector_is_created_only_if_asked_and_only_once() -> None:
    service = FakeService()
    with pytest.raises(ServiceError, match="`shop`: there is none yet; --create makes one"):
        find_detector(service, "shop")
    for _ in range(2):
        assert find_detector(service, "shop", create=True) == Named("id 0", "shop")
    assert find_detector(service, "id 0", create=True).name == "shop"
    with pytest.raises(ServiceError, match="`other`: there are `shop`; --create makes one"):
        find_detector(service, "other")
