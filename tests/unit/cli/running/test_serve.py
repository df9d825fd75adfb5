import asyncio
import os
from pathlib import Path

import click
import pytest
from click.testing import Result

from api.cli import COMMANDS
from api.cli.running.serve import serve
from api.settings import Settings, settings
from tests.unit.cli.commands import run


def served(words: str = "", status: int = 0, **variables: str) -> Result:
    return run(f"serve {words}", status=status, env=variables)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that the service was started with, without starting it."""
    import api.process.supervisor  # noqa: PLC0415 -- takes a second, which other tests of this file need not

    seen: list[Settings] = []
    monkeypatch.setattr(api.process.supervisor, "run", lambda settings, _work: seen.append(settings))
    return seen


def test_help_shows_every_setting_with_its_variable_and_default() -> None:
    # Lines break at blanks and hyphens, wherever they are full.
    shown = "".join(served("--help").output.split())
    for setting in settings():
        assert setting.option in shown
        assert f"[env{setting.variable}" in shown
        if setting.shown_default:
            assert f"default{setting.shown_default}]" in shown


def test_every_setting_is_an_option_and_every_option_a_setting() -> None:
    options = {option.name: option for option in serve.params if isinstance(option, click.Option)}
    assert list(options) == [one.name for one in settings()]


def test_an_option_wins_over_its_variable_and_that_over_the_default(chosen: list[Settings]) -> None:
    served("--port 1", RULE_DETECTOR_PORT="2", RULE_DETECTOR_HOST="::1")
    assert (chosen[0].port, chosen[0].host, chosen[0].max_resident) == (1, "::1", Settings().max_resident)


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ("--access-log", {}, True),
        ("--no-access-log", {"RULE_DETECTOR_ACCESS_LOG": "1"}, False),
        ("", {"RULE_DETECTOR_ACCESS_LOG": "yes"}, True),
        ("", {}, False),
    ],
)
def test_a_switch_can_be_set_both_ways(
    chosen: list[Settings], arguments: str, variables: dict[str, str], expected: bool
) -> None:
    served(arguments, **variables)
    assert chosen[0].access_log is expected


def test_wrong_settings_are_wrong_usage_and_all_told() -> None:
    ran = served("--port x --max-ahead-ms 400000", status=2, RULE_DETECTOR_MAX_RESIDENT="0")
    assert "port: expected a whole number from 0 to 65535, got `x`" in ran.stderr
    assert "max_resident" in ran.stderr
    assert "max_ahead_ms" in ran.stderr


def test_a_variable_that_is_no_setting_is_warned_of(chosen: list[Settings]) -> None:
    ran = served(RULE_DETECTOR_PROT="1")
    assert "RULE_DETECTOR_PROT is set, but there is no such setting" in ran.stderr
    assert len(chosen) == 1


@pytest.fixture
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has no settings in the environment, because a service takes them out of it."""
    for name in [name for name in os.environ if name.startswith("RULE_DETECTOR_")]:
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_variables")
def test_a_folder_that_cannot_be_made_is_refused_with_the_mend() -> None:
    assert served("--port 0 --data /proc/data", status=1).stderr.endswith(
        "rule-detector: the data folder /proc/data cannot be used: No such file or directory; "
        "name a folder that this user can create and write to\n"
    )


@pytest.mark.usefixtures("_no_variables")
def test_a_folder_that_others_can_write_to_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    tmp_path.chmod(0o720)
    assert f"chmod go-w {tmp_path}" in served(f"--port 0 --data {tmp_path}", status=1).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [name for names in COMMANDS.values() for name in names])
def test_every_command_explains_itself(command: str) -> None:
    usage, *lines = run(f"{command} --help").output.splitlines()
    assert "Usage: " in usage
    assert len(lines) > 4
    # Click shortens what does not fit.
    assert not [line for line in lines if line.endswith("...")]


@pytest.mark.parametrize(
    "words",
    [
        *("serve --nonsense", "nonsense", "replay", "replay f", "token new", "demo extra"),
        *("inspect", "inspect x y", "inspect x --nonsense"),
    ],
)
def test_wrong_usage_ends_with_status_2(words: str) -> None:
    run(words, status=2)


def test_it_says_where_it_is_described_and_last_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    # They are of the tests, and would be warned of.
    monkeypatch.delenv("RULE_DETECTOR_SEED", raising=False)
    monkeypatch.delenv("RULE_DETECTOR_PROFILE", raising=False)
    import api.process.supervisor  # noqa: PLC0415 -- as above

    def started(_: Settings, work: api.process.supervisor.Work) -> None:
        assert asyncio.run(work(api.process.supervisor.Running("http://here:1", "rd_x", minted=True)))

    monkeypatch.setattr(api.process.supervisor, "run", started)
    assert served().output.splitlines() == [
        "The first token, shown only now: rd_x",
        "Console at http://here:1/console, API documentation at http://here:1/docs",
        "Listening on http://here:1; Ctrl-C or SIGTERM ends it.",
        "Stopped.",
    ]
