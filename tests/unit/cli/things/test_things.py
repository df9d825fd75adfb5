"""Commands for detectors, rules and tokens: what they ask of a service, and what they print."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from api.cli import main
from tests.unit.cli.fake_service import FakeService

Run = Callable[..., Result]
AT = "2024-03-04T09:00:"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    service = FakeService()
    service.put_in_place(monkeypatch)
    return service


@pytest.fixture
def run(service: FakeService) -> Run:
    def run(*arguments: str, status: int = 0, **options: Any) -> Result:
        found = CliRunner().invoke(main, [*arguments], env={"RULE_DETECTOR_TOKEN": "t"}, **options)
        assert found.exit_code == status, found.output
        return found

    return run


def test_detectors_are_created_listed_and_deleted(service: FakeService, run: Run) -> None:
    shop = run("detectors", "create", "shop").stdout.strip()
    assert service.names == {shop: "shop"}
    logins = json.loads(run("detectors", "create", "logins", "-o", "json").stdout)["id"]
    assert run("detectors", "list").stdout.splitlines() == [
        "id                                name",
        f"{shop}  shop",
        f"{logins}  logins",
    ]
    listed = json.loads(run("detectors", "list", "-o", "json").stdout)
    assert listed == [{"id": shop, "name": "shop"}, {"id": logins, "name": "logins"}]
    assert run("detectors", "delete", "shop", "--yes").stdout == "The detector `shop` is deleted.\n"
    assert service.names == {logins: "logins"}


def test_a_detector_is_copied_by_name_or_id(service: FakeService, run: Run) -> None:
    shop = service.create("shop")
    service.detectors[shop].add_rule("r", "a == 1")
    for wanted in ("shop", shop):
        fork = run("detectors", "fork", wanted, "--name", f"copy of {wanted}").stdout.strip()
        assert service.names[fork] == f"copy of {wanted}"
        assert len(service.detectors[fork].rules()) == 1
    assert (
        json.loads(run("detectors", "fork", shop, "--name", "c", "-o", "json").stdout)["id"] in service.names
    )
    assert "Missing option '--name'" in run("detectors", "fork", "shop", status=2).stderr


def test_what_cannot_be_undone_is_asked_first(service: FakeService, run: Run) -> None:
    shop = service.create("shop")
    service.detectors[shop].add_rule("r", "a == 1")
    for command in (
        ("detectors", "delete", "shop"),
        ("rules", "remove", "r", "--detector", "shop"),
        ("tokens", "revoke", "x"),
    ):
        # Neither a no nor the end of the input is a yes.
        for given in ("n\n", ""):
            assert "[y/N]" in run(*command, status=1, input=given).stderr
    assert "DELETE" not in [method for method, _ in service.requests]
    run("rules", "remove", "r", "--detector", "shop", input="y\n")
    assert service.detectors[shop].rules() == []


def test_rules_are_added_from_a_file_or_one_by_one(service: FakeService, run: Run, tmp_path: Path) -> None:
    detector = service.detectors[service.create("shop")]
    file = tmp_path / "rules.yaml"
    file.write_text("one: a == 1\ntwo: b == 2\n")
    shop = ("--detector", "shop")
    assert run("rules", "add", str(file), *shop).stdout == "2 of 2 rules added.\n"
    assert run("rules", "add", "three", "not c  = 3", *shop).stdout == "1 of 1 rules added.\n"
    assert run("rules", "add", str(file), *shop).stdout == "0 of 2 rules added; 2 were there already.\n"
    assert [rule.name for rule in detector.rules()] == ["one", "two", "three"]
    refused = run("rules", "add", "four", "d ==", *shop, status=1)
    assert "`four`: 1300 line 1" in refused.stderr
    assert "Expected a FILE" in run("rules", "add", "a", "b", "c", *shop, status=2).stderr
    assert run("rules", "show", "three", *shop).stdout == "not c  = 3\n"
    assert json.loads(run("rules", "show", "three", *shop, "-o", "json").stdout)["text"] == "not c == 3"
    header, *rows = run("rules", "list", *shop).stdout.splitlines()
    assert header.split() == ["id", "name", "enabled", "notify", "condition"]
    assert [row.split(maxsplit=1)[1] for row in rows] == [
        "one    yes      no      a == 1",
        "two    yes      no      b == 2",
        "three  yes      no      not c == 3",
    ]
    listed = json.loads(run("rules", "list", *shop, "-o", "json").stdout)["rules"]
    assert [rule["priority"] for rule in listed] == [1, 2, 3]
    assert listed[0]["detectorId"] == next(iter(service.names))


def test_a_rule_is_changed_switched_and_removed(service: FakeService, run: Run, tmp_path: Path) -> None:
    detector = service.detectors[service.create("shop")]
    rule_id = detector.add_rule("one", "a == 1")
    shop = ("--detector", "shop")
    assert "no      a == 1" in run("rules", "disable", "one", *shop).stdout
    assert not detector.rule(rule_id).enabled
    run("rules", "enable", rule_id, *shop)
    assert detector.rule(rule_id).enabled
    file = tmp_path / "condition"
    file.write_text("a == 2")
    changed = run(
        "rules",
        "change",
        "one",
        "--name",
        "two",
        "--notify",
        "--condition-file",
        str(file),
        *shop,
        "-o",
        "json",
    )
    assert json.loads(changed.stdout)["condition"] == {"leaf": {"fact": "a", "op": "eq", "value": 2}}
    assert (detector.rule(rule_id).name, detector.rule(rule_id).notify) == ("two", True)
    assert "Nothing to change" in run("rules", "change", "two", *shop, status=2).stderr
    both = ("--condition", "a == 1", "--condition-file", str(file))
    assert "exclude each other" in run("rules", "change", "two", *both, *shop, status=2).stderr
    assert "1300" in run("rules", "change", "two", "--condition", "a ==", *shop, status=1).stderr
    run("rules", "remove", "two", *shop, "--yes")
    assert detector.rules() == []


def test_tokens_are_created_listed_and_revoked(service: FakeService, run: Run) -> None:
    created = run("tokens", "create", "shop")
    assert (created.stdout, "Its id is 0000" in created.stderr) == ("rd_secret\n", True)
    assert list(json.loads(run("tokens", "create", "-o", "json").stdout)) == ["id", "token", "hint"]
    assert ("POST", "/api/token") in service.requests, "a token without a name needs no addition"
    service.tokens[0]["used_ms"] = 1_709_542_860_000
    assert run("tokens", "list").stdout.splitlines() == [
        f"{'id':32}  name  ends in  scopes  detectors  events/s  expires at  {'created at':24}  used at",
        f"{0:032x}  shop  cret     all     all{' ' * 30}{AT}00.000Z  {AT.replace(':00:', ':01:')}00.000Z",
        f"{1:032x}        cret     all     all{' ' * 30}{AT}00.000Z",
    ]
    assert json.loads(run("tokens", "list", "-o", "json").stdout) == {"tokens": service.tokens}
    run("tokens", "revoke", f"{0:032x}", "--yes")
    assert [token["name"] for token in service.tokens] == [""]


@pytest.mark.parametrize("rate", ["nan", "inf", "0", "-1"])
def test_a_rate_of_a_token_is_a_number_above_0(run: Run, rate: str) -> None:
    assert "--events-per-s" in run("tokens", "create", "shop", "--events-per-s", rate, status=2).stderr


def test_a_token_is_created_for_less_than_everything(service: FakeService, run: Run) -> None:
    logins = service.create("logins")
    run("tokens", "create", "--scope", "evaluate", "--detector", "logins", "--expires", "90d")
    run("tokens", "create", "both", "--scope", "read", "--scope", "write", "--events-per-s", "2.5")
    run("tokens", "create", "--expires", "12h", "--detector", logins)
    first, both, last = service.tokens
    ninety_days_ms = 90 * 24 * 3600 * 1000
    assert abs(first["expires_ms"] - time.time() * 1000 - ninety_days_ms) < 3_600_000
    assert {name: first[name] for name in ("name", "scopes", "detectors", "events_per_s")} == {
        "name": "evaluate logins",
        "scopes": ["evaluate"],
        "detectors": [logins],
        "events_per_s": None,
    }
    assert (both["name"], both["scopes"], both["events_per_s"]) == ("both", ["read", "write"], 2.5)
    assert (both["detectors"], both["expires_ms"]) == (None, None)
    assert (last["name"], last["scopes"]) == ("logins", None)
    listed = run("tokens", "list").stdout
    assert "evaluate logins" in listed
    assert "read, write  all        2.5" in listed
    assert (
        "no detector has the id or name `nothing`"
        in run("tokens", "create", "--detector", "nothing", status=1).stderr
    )
    for wrong in (("--scope", "owner"), ("--expires", "tomorrow"), ("--events-per-s", "0")):
        assert wrong[0] in run("tokens", "create", *wrong, status=2).stderr


def test_an_error_of_the_service_is_told_and_the_status_is_one(run: Run) -> None:
    found = run("rules", "list", "--detector", "shop", status=1)
    assert found.stderr == (
        "rule-detector: no detector has the id or name `shop`: there is none yet; "
        "`rule-detector detectors create` makes one\n"
    )


def test_changes_are_printed_with_who_made_them(service: FakeService, run: Run) -> None:
    entry = {"seq": 1, "time_ms": 1_709_542_800_000, "request": "r", "kind": "rule", "action": "change"}
    service.changes = [
        {**entry, "token": {"id": "t", "name": "ada"}, "id": "one", "name": "forced", "detectorId": "d"}
        | {"old": {"enabled": True}, "new": {"enabled": False}},
        {**entry, "seq": 2, "token": None, "kind": "token", "action": "create", "id": "two", "name": ""}
        | {"new": {"name": ""}},
    ]
    printed = run("changes").stdout
    assert "2024-03-04T09:00:00.000Z  ada          change rule   forced" in printed
    assert '{"enabled":true} -> {"enabled":false}' in printed
    assert "the service  create token  two" in printed
    assert "forced" not in run("changes", "--after", "1").stdout
    assert "forced" in run("changes", "--detector", "d").stdout
    assert "two" not in run("changes", "--detector", "d").stdout
    listed = json.loads(run("changes", "--limit", "1", "-o", "json").stdout)["changes"]
    assert listed == service.changes[:1]
