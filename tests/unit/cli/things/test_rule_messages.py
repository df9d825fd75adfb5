"""Every command that creates or changes rules prints the service's messages about them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from api.cli import main
from rule_detector_client import calls
from tests.unit.cli.fake_service import FakeService


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    service = FakeService()
    service.put_in_place(monkeypatch)
    service.detectors[service.create("shop")].add_rule("r", "once a == 1")
    return service


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        (["rules", "add", "new", "exists(x)"], [2003, 2006]),
        (["rules", "change", "r", "--condition", "previous x != x"], [2005, 2006]),
        (["rules", "change", "r", "--name", "other"], []),
        (["rules", "disable", "r"], []),
        (["shadow", "r", "--draft", "x != x"], [2006]),
    ],
)
def test_messages_about_a_rule_are_printed_on_standard_error(
    service: FakeService, arguments: list[str], codes: list[int]
) -> None:
    for output in ("table", "json"):
        options = ["--detector", "shop", "-o", output]
        found = CliRunner().invoke(main, [*arguments, *options], env={"RULE_DETECTOR_TOKEN": "t"})
        assert found.exit_code == 0, found.output
        told = [line for line in found.stderr.splitlines() if "warning" in line]
        if output == "table":
            assert [int(line.split("`: ")[1][:4]) for line in told] == codes
        assert "messages" not in found.stdout
        if arguments[1] == "change" and "--name" in arguments:
            return


def test_enabling_a_rule_says_that_its_history_begins_anew(service: FakeService) -> None:
    for switch, told in (("disable", False), ("enable", True)):
        found = CliRunner().invoke(
            main, ["rules", switch, "r", "--detector", "shop"], env={"RULE_DETECTOR_TOKEN": "t"}
        )
        assert ("2005 the rule was disabled" in found.stderr) == told


def test_replay_prints_the_messages_about_the_rules_of_its_files(
    service: FakeService, tmp_path: Path
) -> None:
    (tmp_path / "rules.yaml").write_text("new: previous x != x")
    (tmp_path / "none.ndjson").write_text("")
    arguments = ["--detector", "shop", "--rules", str(tmp_path / "rules.yaml")]
    found = CliRunner().invoke(
        main, ["replay", str(tmp_path / "none.ndjson"), *arguments], env={"RULE_DETECTOR_TOKEN": "t"}
    )
    assert "`new`: 2006 `previous x != x`" in found.stderr


def test_check_warns_of_what_is_probably_not_meant() -> None:
    found = CliRunner().invoke(main, ["check", "-"], input="previous x != x\n")
    assert "line 1: warning: `previous x != x` is never true" in found.stderr


def test_the_client_gives_the_messages(service: FakeService) -> None:
    with service.client() as client:
        added = client.send(calls.add_rule(next(iter(service.names)), "new", "exists(x)"))
        assert [entry.code for entry in added.messages] == [2003, 2006]
        change = calls.change_rule(next(iter(service.names)), added.id, condition="once a == 2")
        assert [entry.code for entry in client.send(change).messages] == [2005]
