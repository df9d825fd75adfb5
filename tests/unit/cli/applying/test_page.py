"""The page about rules files is true: its files are read, and its commands print what it says."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import api
from api.cli import main
from api.cli.rule_files.reading import rules_file_of
from tests.unit.cli.fake_service import FakeService

PAGE = (Path(api.__file__).parent / "RULES_FILES.md").read_text("utf-8")


def block(title: str) -> str:
    found = re.search(rf"<!-- {title} -->\n```\w*\n(.*?)```", PAGE, re.DOTALL)
    assert found, title
    return found[1]


def test_the_commands_print_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = FakeService()
    service.put_in_place(monkeypatch)
    monkeypatch.setenv("RULE_DETECTOR_TOKEN", "t")
    monkeypatch.chdir(tmp_path)
    files = {"logins.yaml": "a rules file", "wrong.yaml": "an error in a definition"}
    files |= {name: name for name in ("offices.txt", "logins.ndjson", "silent.yaml")}
    for name, title in files.items():
        (tmp_path / name).write_text(block(title), "utf-8")
    commands = 0
    for console in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for line, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE):
            if line.startswith("sed "):
                subprocess.run(line, shell=True, check=True)
                continue
            program, *arguments = shlex.split(line)
            assert program == "rule-detector"
            ran = CliRunner().invoke(main, arguments)
            assert ran.stdout + ran.stderr == expected, line
            commands += 1
    assert commands > 5


def test_the_first_page_has_a_rules_file_and_a_command_that_are_read() -> None:
    page = (Path(api.__file__).parents[1] / "README.md").read_text("utf-8")
    [shown] = re.findall(r"<!-- a rules file -->\n```yaml\n(.*?)```", page, re.DOTALL)
    found = {name: rule.condition for name, rule in rules_file_of(shown, "hosts.yaml").rules.items()}
    assert found == {
        "a host is silent": "per host (not once within 5m exists beat)",
        "a host is down": "per host down == true",
    }
    [command] = re.findall(r"<!-- deliver -->\n```sh\n(.*)\n```", page)
    program, *arguments = shlex.split(command)
    assert program == ".venv/bin/rule-detector"
    ran = CliRunner().invoke(main, arguments, env={"RULE_DETECTOR_TOKEN": ""})
    # All else that the command asks for is there.
    assert "Error: A token is needed" in ran.stderr
