"""`rules list -o json` is a file of rules: `check` and `rules add` read it back."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cli.rule_files.reading import RuleFileError, conditions_of
from engine.evaluation.rules import Rule
from tests.unit.cli.commands import run
from tests.unit.cli.fake_service import FakeService
from tests.unit.cli.rule_files.drawn import add_rules


def members(rule: Rule) -> tuple[Any, ...]:
    how = (rule.notify, rule.enabled, rule.shadow)
    every = (rule.every_secs, rule.every_by)
    return rule.name, rule.condition, *how, rule.description, rule.labels, rule.timed, every


def seen(service: FakeService, detector_id: str) -> list[Any]:
    """The rules without what the service gives them."""
    found = service.detectors[detector_id].rules()
    named = {rule.id: rule.name for rule in found}
    return [(*members(one), named.get(one.draft_of or "")) for one in found]


@given(st.data())
def test_what_is_listed_is_checked_and_added_again(data: st.DataObject) -> None:
    service = FakeService()
    first = service.create("first")
    add_rules(data, service.detectors[first])
    listed = run(f"rules list --detector {first} -o json", service=service).stdout
    found = seen(service, first)
    checked = run("check", input=listed, status=0 if found else 1)
    assert checked.stdout.count("\n  json  ") == len(found)
    second = service.create("second")
    for _ in range(2):
        run(f"rules add - --detector {second}", service=service, input=listed)
        assert seen(service, second) == found


def test_files_of_any_name_are_read_so(tmp_path: Path) -> None:
    service = FakeService()
    first, second = service.create("first"), service.create("second")
    service.detectors[first].add_rule("one", "a == 1", notify=True)
    listed = run(f"rules list --detector {first} -o json", service=service).stdout
    for name in ("rules.json", "rules.yaml", "rules"):
        path = tmp_path / name
        path.write_text(listed, "utf-8")
        assert run(f"check {path}").stdout.startswith("one:\n  text  a == 1\n")
        run(f"rules add {path} --detector {second}", service=service)
    assert seen(service, second) == seen(service, first)


def test_an_enabled_rule_is_not_one_that_is_there_disabled() -> None:
    service = FakeService()
    detector = service.create("d")
    rule_id = service.detectors[detector].add_rule("r", "a == 1")
    file = json.dumps({"r": {"condition": "a == 1", "enabled": False}})
    refused = run(f"rules add - --detector {detector}", service=service, input=file, status=1)
    assert "has a rule `r` with another `enabled`" in refused.stderr
    service.detectors[detector].change_rule(rule_id, enabled=False)
    run(f"rules add - --detector {detector}", service=service, input=file)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (
            [
                {"name": "r", "condition": "a"},
                {"name": "s", "condition": "a"},
                {"name": "r", "condition": "b"},
            ],
            "rules: number 1 and number 3 are both named `r`",
        ),
        ([{"condition": "a == 1"}], "rules: number 1 has no `name`"),
        (["a == 1"], "rules: number 1 has no `name`"),
        (
            [{"name": "r", "condition": "a == 1", "notfy": True}],
            "line 1, column 49: `r`: notfy: unknown member; did you mean `notify`?",
        ),
        (
            [{"name": "r", "condition": "a == 1", "enabled": 1}],
            "`r`: enabled: expected a boolean, got a number",
        ),
    ],
)
def test_a_list_that_is_none_of_a_service_is_refused(listed: list[Any], said: str) -> None:
    with pytest.raises(RuleFileError) as refusal:
        conditions_of(json.dumps({"rules": listed}), "r.json")
    assert said in str(refusal.value)


def test_a_file_beside_a_condition_is_wrong_usage(tmp_path: Path) -> None:
    service = FakeService()
    detector = service.create("d")
    there = tmp_path / "rules"
    there.write_text("r: a == 1\n")
    for file in ("rules.yaml", "Rules.YML", "nowhere.json", str(there)):
        refused = run("rules add", file, "x == 1", "--detector", detector, service=service, status=2)
        assert f"`{file}` is a file of rules: give it alone" in refused.stderr.replace("\n", "")
    assert seen(service, detector) == []
