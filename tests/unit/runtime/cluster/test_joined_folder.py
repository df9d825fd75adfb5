"""A service that joins a cluster has the folder that the cluster serves at its path, or none begins."""

from pathlib import Path

import pytest

from engine.runtime.cluster.node_checks import refuse_unless_served
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import WrongFolder
from snapshots.files import RealFiles

OTHER = "0b" * 16


@pytest.mark.parametrize(
    ("begun", "served"),
    [
        (True, {}),
        (False, {}),
        (True, {OTHER: "/elsewhere"}),
        (False, {OTHER: "/elsewhere"}),
        # It has ended, or does not tell.
        (False, {OTHER: ""}),
        # Whoever has an id begins no other folder.
        (True, {OTHER: None}),
    ],
)
def test_a_folder_that_nobody_serves_is_nobodys_wrong_one(
    tmp_path: Path, served: dict[str, str | None], *, begun: bool
) -> None:
    data = tmp_path / "data"
    if begun:
        begin_folder(data)
    refuse_unless_served(data, served, RealFiles())
    assert data.exists() == begun


def test_the_folder_that_is_served_is_the_right_one(tmp_path: Path) -> None:
    refuse_unless_served(tmp_path, {begin_folder(tmp_path): str(tmp_path)}, RealFiles())


@pytest.mark.parametrize("has", ["nothing", "no id", "another id"])
def test_another_folder_at_the_path_of_one_that_is_served_is_refused_and_not_changed(
    tmp_path: Path, has: str
) -> None:
    data = tmp_path / "data"
    if has == "no id":
        data.mkdir()
    found = f"the id {begin_folder(data)}" if has == "another id" else "no id"
    before = sorted(tmp_path.rglob("*"))
    # The path is that of the folder itself, whatever leads to it.
    (tmp_path / "link").symlink_to(data)
    said = f"it has {found}, and the service's has the id {OTHER}; is the right file system mounted there"
    with pytest.raises(WrongFolder, match=said):
        refuse_unless_served(tmp_path / "link", {"1" * 32: "/x", OTHER: str(data)}, RealFiles())
    (tmp_path / "link").unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_begins_where_a_directory_does_not_answer_what_it_serves(tmp_path: Path) -> None:
    with pytest.raises(WrongFolder, match="has no id, and a directory of the cluster does not answer"):
        refuse_unless_served(tmp_path / "data", {OTHER: None}, RealFiles())
    assert not (tmp_path / "data").exists()
