from pathlib import Path

from engine.runtime.catalogue.offline import opened_offline
from engine.runtime.contract.tokens import digest_of
from snapshots.data_folder.lock import FolderLock
from tests.unit.cli.commands import run


def test_minted_tokens_are_alone_on_standard_output_and_known_afterwards(tmp_path: Path) -> None:
    data = tmp_path / "data"
    minted = [run("token new --data", data) for _ in range(3)]
    with opened_offline(data) as directory:
        known = directory.changes(0, 0).tokens.whole
    assert known is not None
    assert set(known) == {digest_of(one.stdout.removesuffix("\n")) for one in minted}
    assert all(known[digest_of(one.stdout.strip())].id in one.stderr for one in minted)


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    with FolderLock(tmp_path):
        refused = run("token new --data", tmp_path, status=1)
    assert refused.stdout == ""
    assert "in use" in refused.stderr
    assert "tokens create" in refused.stderr


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = run("token new --data", tmp_path / "file" / "data", status=1)
    assert refused.stdout == ""
    assert refused.stderr == (
        f"rule-detector: the data folder {tmp_path / 'file' / 'data'} cannot be used: {tmp_path / 'file'} "
        "is a file; name a folder that this user can create and write to\n"
    )


def test_a_folder_that_others_can_write_to_is_refused_with_the_mend(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    refused = run("token new --data", tmp_path, status=1)
    assert refused.stdout == ""
    assert f"chmod go-w {tmp_path}" in refused.stderr
    assert list(tmp_path.iterdir()) == []
