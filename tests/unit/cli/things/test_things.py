"""Commands for detectors, rules and tokens: what they ask of a service, and what they print."""

import gzip
import json
import re
import time
from pathlib import Path

import pytest

from engine import Detector
from rule_detector_client import calls
from tests.unit.cli.commands import run
from tests.unit.cli.fake_service import FakeService

AT = "2024-03-04T09:00:"
SHOP = "--detector shop"


def test_detectors_are_created_listed_and_deleted(service: FakeService) -> None:
    shop = run("detectors create shop").stdout.strip()
    assert service.names == {shop: "shop"}
    logins = json.loads(run("detectors create logins -o json").stdout)["id"]
    assert run("detectors list").stdout.splitlines() == [
        "id                                name",
        f"{shop}  shop",
        f"{logins}  logins",
    ]
    listed = json.loads(run("detectors list -o json").stdout)
    assert listed == [{"id": shop, "name": "shop"}, {"id": logins, "name": "logins"}]
    assert run("detectors delete shop --yes").stdout == "The detector `shop` is deleted.\n"
    assert service.names == {logins: "logins"}


def test_a_detector_is_copied_by_name_or_id(service: FakeService, shop: Detector) -> None:
    shop.add_rule("r", "a == 1")
    for wanted in ("shop", *service.names):
        fork = run("detectors fork", wanted, "--name", f"copy of {wanted}").stdout.strip()
        assert service.names[fork] == f"copy of {wanted}"
        assert len(service.detectors[fork].rules()) == 1
    assert json.loads(run("detectors fork shop --name c -o json").stdout)["id"] in service.names
    assert "Missing option '--name'" in run("detectors fork shop", status=2).stderr


def test_what_cannot_be_undone_is_asked_first(service: FakeService, shop: Detector) -> None:
    shop.add_rule("r", "a == 1")
    for command in ("detectors delete shop", f"rules remove r {SHOP}", "tokens revoke x"):
        # Neither a no nor the end of the input is a yes.
        for given in ("n\n", ""):
            assert "[y/N]" in run(command, status=1, input=given).stderr
    assert "DELETE" not in [method for method, _ in service.requests]
    run(f"rules remove r {SHOP}", input="y\n")
    assert shop.rules() == []


def test_rules_are_added_from_a_file_or_one_by_one(
    service: FakeService, shop: Detector, tmp_path: Path
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("one: a == 1\ntwo: b == 2\n")
    assert run(f"rules add {file} {SHOP}").stdout == "2 of 2 rules added.\n"
    assert run(f"rules add three 'not c  = 3' {SHOP}").stdout == "1 of 1 rules added.\n"
    assert run(f"rules add {file} {SHOP}").stdout == "0 of 2 rules added; 2 were there already.\n"
    assert [rule.name for rule in shop.rules()] == ["one", "two", "three"]
    assert "`four`: 1300 line 1, column 5:" in run(f"rules add four 'd ==' {SHOP}", status=1).stderr
    assert "give its NAME and its CONDITION" in run(f"rules add 'd == 4' {SHOP}", status=2).stderr
    assert "Expected a FILE" in run(f"rules add a b c {SHOP}", status=2).stderr
    assert run(f"rules show three {SHOP}").stdout == "not c  = 3\n"
    assert json.loads(run(f"rules show three {SHOP} -o json").stdout)["text"] == "not c == 3"
    header, *rows = run(f"rules list {SHOP}").stdout.splitlines()
    assert header.split() == ["id", "name", "enabled", "notify", "condition"]
    assert [row.split(maxsplit=1)[1] for row in rows] == [
        "one    yes      no      a == 1",
        "two    yes      no      b == 2",
        "three  yes      no      not c == 3",
    ]
    listed = json.loads(run(f"rules list {SHOP} -o json").stdout)["rules"]
    assert [rule["priority"] for rule in listed] == [1, 2, 3]
    assert listed[0]["detectorId"] == next(iter(service.names))


def test_a_rule_is_changed_switched_and_removed(shop: Detector, tmp_path: Path) -> None:
    rule_id = shop.add_rule("one", "once a == 1")
    assert "no      once a == 1" in run(f"rules disable one {SHOP}").stdout
    assert not shop.rule(rule_id).enabled
    enabled = run(f"rules enable {rule_id} {SHOP}")
    assert "2005 the rule was disabled" in enabled.stderr
    assert shop.rule(rule_id).enabled
    (tmp_path / "condition").write_text("a == 2")
    from_file = f"--condition-file {tmp_path}/condition"
    changed = run(f"rules change one --name two --notify {from_file} {SHOP} -o json").stdout
    assert json.loads(changed)["condition"] == {"leaf": {"fact": "a", "op": "eq", "value": 2}}
    assert (shop.rule(rule_id).name, shop.rule(rule_id).notify) == ("two", True)
    for options, status, said in (
        ("", 2, "Nothing to change"),
        (f"--condition 'a == 1' {from_file}", 2, "exclude each other"),
        ("--label a=1 --no-labels", 2, "exclude each other"),
        ("--condition 'a =='", 1, "1300"),
    ):
        assert said in run(f"rules change two {options} {SHOP}", status=status).stderr
    run(f"rules remove two {SHOP} --yes")
    assert shop.rules() == []


def test_a_rule_is_described_changed_and_reverted(shop: Detector) -> None:
    rule_id = shop.add_rule("r", "a==1  # one")
    run(f"rules change r --description 'why\nso' --label severity=high --label level=7 {SHOP}")
    shown = "# why\n# so\n# severity: high\n# level: 7\na==1  # one\n"
    assert run(f"rules show r {SHOP}").stdout == shown
    run(f"rules change r --condition 'a == 2' --no-labels --notify {SHOP}")
    lines = run(f"rules versions r {SHOP}").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["version", "3", "2", "1"]
    assert lines[1].endswith("a == 2")
    run(f"rules revert r {SHOP}")
    rule = shop.rule(rule_id)
    assert (rule.source, rule.notify, rule.labels) == ("a==1  # one", False, {"severity": "high", "level": 7})
    run(f"rules revert r --version 1 {SHOP}")
    rule = shop.rule(rule_id)
    assert (rule.description, rule.labels, rule.source) == ("", {}, "a==1  # one")
    listed = json.loads(run(f"rules versions r {SHOP} -o json").stdout)["versions"]
    assert [each["version"] for each in listed] == [5, 4, 3, 2, 1]
    refused = run(f"rules revert r --version 9 {SHOP}", status=1).stderr
    assert "there is no version 9 of the rule; there is 1 to 5" in refused
    shop.add_rule("s", "a == 1")
    assert "there is only 1" in run(f"rules revert s {SHOP}", status=1).stderr


def test_how_a_rule_acts_is_changed_shown_and_reverted(shop: Detector) -> None:
    rule_id = shop.add_rule("r", "per host a == 1", every_secs=60)
    assert run(f"rules show r {SHOP}").stdout == "# at most once in 60 s\nper host a == 1\n"
    run(f"rules change r --every-by host --every-by zone --timed {SHOP}")
    shown = run(f"rules show r {SHOP}").stdout
    assert shown == "# timed\n# at most once in 60 s for each host, zone\nper host a == 1\n"
    run(f"rules change r --every-secs 0.5 {SHOP}")
    assert shop.rule(rule_id).every_secs == 0.5
    _, *versions = run(f"rules versions r {SHOP}").stdout.splitlines()
    assert ["at most once in 0.5 s" in version for version in versions] == [True, False, False]
    assert ["timed" in version for version in versions] == [True, True, False]
    run(f"rules revert r {SHOP}")
    rule = shop.rule(rule_id)
    assert (rule.timed, rule.every_secs, rule.every_by) == (True, 60, ("host", "zone"))
    # What it had by default, it has by default again.
    run(f"rules revert r --version 1 {SHOP}")
    rule = shop.rule(rule_id)
    assert (rule.timed, rule.every_secs, rule.every_by) == (False, 60, None)
    run(f"rules change r --every-secs 0 {SHOP}")
    assert shop.rule(rule_id).every_secs is None


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("rules add new 'exists(x)'", [2003, 2006]),
        ("rules change r --condition 'previous x != x'", [2005, 2006]),
        ("rules change r --name other", []),
        ("rules disable r", []),
        ("shadow r --draft 'x != x'", [2006]),
        ("replay none.ndjson --rules rules.yaml", [2006]),
    ],
)
def test_messages_about_a_rule_are_printed_on_standard_error(
    shop: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, codes: list[int]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text("new: previous x != x")
    Path("none.ndjson").write_text("")
    shop.add_rule("r", "once a == 1")
    found = run(f"{command} {SHOP}")
    told = [line for line in found.stderr.splitlines() if "warning" in line]
    assert [int(re.findall(r"\b2\d{3}\b", line)[0]) for line in told] == codes
    if codes and "replay" not in command:
        assert "messages" not in run(f"{command.replace('add new', 'add newer')} {SHOP} -o json").stdout


def test_the_client_gives_the_messages(service: FakeService, shop: Detector) -> None:
    [detector_id] = service.names
    with service.client() as client:
        added = client.send(calls.add_rule(detector_id, "new", "exists(x)"))
        assert [entry.code for entry in added.messages] == [2003, 2006]
        change = calls.change_rule(detector_id, added.id, condition="once a == 2")
        assert [entry.code for entry in client.send(change).messages] == [2005]
    assert len(shop.rules()) == 1


def test_tokens_are_created_listed_and_revoked(service: FakeService) -> None:
    created = run("tokens create shop")
    assert (created.stdout, "Its id is 0000" in created.stderr) == ("rd_secret\n", True)
    assert list(json.loads(run("tokens create -o json").stdout)) == ["id", "token", "hint"]
    assert ("POST", "/api/token") in service.requests, "a token without a name needs no addition"
    service.tokens[0]["used_ms"] = 1_709_542_860_000
    assert run("tokens list").stdout.splitlines() == [
        f"{'id':32}  name  ends in  scopes  detectors  events/s  expires at  {'created at':24}  used at",
        f"{0:032x}  shop  cret     all     all{' ' * 30}{AT}00.000Z  {AT.replace(':00:', ':01:')}00.000Z",
        f"{1:032x}        cret     all     all{' ' * 30}{AT}00.000Z",
    ]
    assert json.loads(run("tokens list -o json").stdout) == {"tokens": service.tokens}
    run(f"tokens revoke {0:032x} --yes")
    assert [token["name"] for token in service.tokens] == [""]


def test_a_token_is_created_for_less_than_everything(service: FakeService) -> None:
    logins = service.create("logins")
    run("tokens create --scope evaluate --detector logins --expires 90d")
    run("tokens create both --scope read --scope write --events-per-s 2.5")
    run("tokens create --expires 12h --detector", logins)
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
    listed = run("tokens list").stdout
    assert "evaluate logins" in listed
    assert "read, write  all        2.5" in listed
    unknown = run("tokens create --detector nothing", status=1).stderr
    assert "no detector has the id or name `nothing`" in unknown
    rates = [f"--events-per-s {rate}" for rate in ("nan", "inf", "0", "-1")]
    for wrong in ("--scope owner", "--expires tomorrow", *rates):
        assert wrong.split()[0] in run(f"tokens create {wrong}", status=2).stderr


def test_an_error_of_the_service_is_told_and_the_status_is_one(service: FakeService) -> None:
    assert run(f"rules list {SHOP}", status=1).stderr == (
        "rule-detector: no detector has the id or name `shop`: there is none yet; "
        "`rule-detector detectors create` makes one\n"
    )
    assert service.requests


def test_changes_are_printed_with_who_made_them(service: FakeService) -> None:
    entry = {"seq": 1, "time_ms": 1_709_542_800_000, "request": "r", "kind": "rule", "action": "change"}
    service.changes = [
        {**entry, "token": {"id": "t", "name": "ada"}, "id": "one", "name": "forced", "detectorId": "d" * 32}
        | {"old": {"enabled": True}, "new": {"enabled": False}},
        {**entry, "seq": 2, "token": None, "kind": "token", "action": "create", "id": "two", "name": ""}
        | {"new": {"name": ""}},
    ]
    printed = run("changes").stdout
    assert "2024-03-04T09:00:00.000Z  ada          change rule   forced" in printed
    assert '{"enabled":true} -> {"enabled":false}' in printed
    assert "the service  create token  two" in printed
    assert "forced" not in run("changes --after 1").stdout
    of_detector = run(f"changes --detector {'d' * 32}").stdout
    assert ("forced" in of_detector, "two" in of_detector) == (True, False)
    assert "no detector has the id or name `shop`" in run("changes --detector shop", status=1).stderr
    assert json.loads(run("changes --limit 1 -o json").stdout)["changes"] == service.changes[:1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such file or directory"),
        (b"\xff", "byte 0 is not valid UTF-8"),
        (gzip.compress(b"a" * 99)[:-9], "compressed file ended before the end-of-stream marker was reached"),
        (gzip.compress(b"a" * 99)[:10] + b"\xff" * 20, "error -3 while decompressing data: "),
    ],
    ids=["missing", "not UTF-8", "cut gzip", "damaged gzip"],
)
@pytest.mark.usefixtures("shop")
def test_a_relation_that_cannot_be_read_is_told_in_words(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "x.txt"
    if content is not None:
        file.write_bytes(content)
    assert run(f"relations put x {SHOP}", file, status=1).stderr.startswith(f"rule-detector: {file}: {said}")


@pytest.mark.usefixtures("shop")
def test_a_file_without_an_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.cli.things.relations.FILE_BYTES_MAX", 1 << 20)
    file = tmp_path / "x.txt"
    file.write_bytes(gzip.compress(bytes(1 << 21)))
    for name in ("/dev/zero", str(file)):
        said = f"rule-detector: {name}: it has more than 1 MiB"
        assert run(f"relations put x {SHOP}", name, status=1).stderr.startswith(said)
