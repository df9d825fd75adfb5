from pathlib import Path

from click.testing import CliRunner

from api.cli import main
from engine.runtime.catalogue.offline import opened_offline
from engine.runtime.contract.tokens import digest_of
from snapshots.data_folder.lock import FolderLock


def test_a_minted_token_is_alone_on_standard_output_and_known_afterwards(tmp_path: Path) -> None:
    run = CliRunner().invoke(main, ["token", "new", "--data", str(tmp_path / "data")])
    assert run.exit_code == 0, run.output
    [token] = run.stdout.splitlines()
    with opened_offline(tmp_path / "data") as directory:
        known = directory.changes(0, 0).tokens.whole
    assert known is not None
    assert list(known) == [digest_of(token)]
    assert known[digest_of(token)].id in run.stderr


def test_tokens_add_up(tmp_path: Path) -> None:
    tokens = {CliRunner().invoke(main, ["token", "new", "--data", str(tmp_path)]).stdout for _ in range(3)}
    with opened_offline(tmp_path) as directory:
        known = directory.changes(0, 0).tokens.whole
    assert known is not None
    assert set(known) == {digest_of(token.strip()) for token in tokens}


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        run = CliRunner().invoke(main, ["token", "new", "--data", str(tmp_path)])
    assert run.exit_code == 1
    assert run.stdout == ""
    assert "in use" in run.stderr
    assert "POST /api/token" in run.stderr


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = CliRunner().invoke(main, ["token", "new", "--data", str(tmp_path / "file" / "data")])
    assert (run.exit_code, run.stdout) == (1, "")
    assert run.stderr == (
        f"rule-detector: the data folder {tmp_path / 'file' / 'data'} cannot be used: {tmp_path / 'file'} "
        "is a file; name a folder that this user can create and write to\n"
    )


def test_a_folder_that_others_can_write_to_is_refused_with_the_mend(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    run = CliRunner().invoke(main, ["token", "new", "--data", str(tmp_path)])
    assert (run.exit_code, run.stdout) == (1, "")
    assert f"chmod go-w {tmp_path}" in run.stderr
    assert list(tmp_path.iterdir()) == []
