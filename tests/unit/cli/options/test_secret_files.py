"""Secrets from files: what is taken for one, who may read it, and that it is not repeated."""

import os
from pathlib import Path

import pytest
from click.testing import Result

from api.cli.options import service_options
from api.secret_files import SECRET_BYTES_MAX, SecretFileError, read_secret, readable_by_others
from rule_detector_client import ServiceError
from tests.unit.cli.commands import run

TOKEN = "rd_" + "a" * 43


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("text", [TOKEN, TOKEN + "\n", f"  {TOKEN}\r\n\n"])
def test_a_secret_is_what_the_file_holds_without_the_blanks_around_it(file: Path, text: str) -> None:
    file.write_text(text)
    assert read_secret(file) == TOKEN


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"one two", "expected one secret"),
        (b"one\ntwo\n", "expected one secret"),
        ("gehe\u0131m".encode(), "expected visible ASCII"),
        (b"x" * (SECRET_BYTES_MAX + 1), "it is larger than 4096 bytes"),
        (b"a\x1b[31m", "expected visible ASCII"),
    ],
)
def test_what_is_no_secret_is_refused_and_not_repeated(file: Path, data: bytes, said: str) -> None:
    file.write_bytes(data)
    with pytest.raises(SecretFileError) as caught:
        read_secret(file)
    assert str(caught.value).startswith(f"{file}: {said}")
    assert "two" not in str(caught.value).replace(str(file), "")


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(SecretFileError, match="no such file"):
        read_secret(tmp_path / "none")
    with pytest.raises(SecretFileError, match="is a directory"):
        read_secret(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SecretFileError, match="empty"):
        read_secret(tmp_path / "pipe")


@pytest.mark.parametrize(("mode", "told"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_a_file_that_others_may_read_is_warned_of(file: Path, mode: int, *, told: bool) -> None:
    file.chmod(mode)
    assert bool(readable_by_others(file)) is told


# In commands


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens with which a service was called."""
    seen: list[str] = []

    def client(_url: str, token: str, **_: object) -> None:
        seen.append(token)
        raise ServiceError("it is not there")

    monkeypatch.setattr(service_options, "Client", client)
    return seen


def replayed(*arguments: object, status: int = 1, **variables: object) -> Result:
    env = {"RULE_DETECTOR_TOKEN": None, **{name: str(value) for name, value in variables.items()}}
    return run("replay - --detector d", *arguments, status=status, env=env)


def test_replay_takes_its_token_from_a_file(file: Path, used: list[str]) -> None:
    assert "is open to other users" not in replayed("--token-file", file).stderr
    replayed(RULE_DETECTOR_TOKEN_FILE=file)
    assert used == [TOKEN, TOKEN]
    file.chmod(0o644)
    assert "is open to other users (its mode is 0644)" in replayed("--token-file", file).stderr


def test_what_is_typed_wins_over_a_variable(file: Path, used: list[str]) -> None:
    replayed("--token-file", file, RULE_DETECTOR_TOKEN="other")
    replayed("--token", "other", RULE_DETECTOR_TOKEN_FILE=file)
    replayed(RULE_DETECTOR_TOKEN="other")
    assert used == [TOKEN, "other", "other"]


def test_no_token_two_of_them_and_a_bad_file_are_wrong_usage(file: Path, used: list[str]) -> None:
    assert "A token is needed" in replayed(status=2).stderr
    assert "exclude each other" in replayed("--token", "x", "--token-file", file, status=2).stderr
    two = replayed(RULE_DETECTOR_TOKEN="x", RULE_DETECTOR_TOKEN_FILE=file, status=2)
    assert "exclude each other" in two.stderr
    assert "no such file" in replayed("--token-file", f"{file}.none", status=2).stderr
    assert used == []


def test_serve_refuses_a_weak_token_and_warns_of_an_open_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import api.process.supervisor  # noqa: PLC0415 -- takes a second, which the other tests need not wait for

    started: list[str | None] = []
    monkeypatch.setattr(
        api.process.supervisor, "run", lambda chosen, _: started.append(chosen.bootstrap_token)
    )
    weak = run("serve", env={"RULE_DETECTOR_BOOTSTRAP_TOKEN": "hunter2"}, status=2)
    assert "expected at least 32" in " ".join(weak.stderr.split())
    assert "hunter2" not in weak.output
    assert started == []
    file.chmod(0o644)
    said = run("serve --bootstrap-token-file", file).stderr
    assert "is open to other users" in said
    assert "can read --bootstrap-token;" not in said
    assert "can read --bootstrap-token;" in run("serve --bootstrap-token", TOKEN).stderr
    assert started == [TOKEN, TOKEN]
