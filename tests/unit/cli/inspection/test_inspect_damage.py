"""Data folders that are damaged, half made or none: what `inspect` says of them."""

import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from api.cli.inspection import data_folder
from api.cli.inspection.data_folder import Look
from api.cli.inspection.report import Defect, Storage
from engine.evaluation.detector import Detector
from engine.runtime.catalogue.catalogue_state import STATE_VERSION, CatalogueState, encode_state
from engine.runtime.detector.persistence import detector_snapshot as kept
from engine.runtime.detector.persistence.detector_snapshot import SNAPSHOT_VERSION
from snapshots.data_folder.identity import begin_folder
from snapshots.folders import create_folder
from snapshots.store import Store
from tests.unit.cli.inspection.inspecting import SECOND, inspect, journal_of, shop, told


def test_what_looks_damaged_is_looked_at_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    whole = data_folder.look_at

    def hasty(folder: Path) -> Look:
        looks.append(folder)
        if len(looks) == 1:
            raise FileNotFoundError(2, "it was trimmed meanwhile", "x")
        if len(looks) == 2:
            damage = (Defect(path="x", reason="half of it was read"),)
            return Look(storage=Storage(folder=str(folder), position=None), damage=damage)
        return whole(folder)

    monkeypatch.setattr(data_folder, "look_at", hasty)
    monkeypatch.setattr(data_folder, "_PAUSE_S", 0)
    assert told(data)["whole"] is True
    assert len(looks) == 2 + 3


def test_a_record_that_does_not_fit_is_told_with_file_and_offset(data: Path) -> None:
    path = journal_of(data, shop(told(data))["id"])
    content = bytearray(path.read_bytes())
    at = content.index(b'"u3"')
    content[at] ^= 1
    path.write_bytes(content)
    report = told(data, code=1)
    assert report["whole"] is False
    [defect] = report["damage"]
    assert defect["path"] == str(path)
    assert 0 < defect["offset"] < at
    assert (shop(report)["contents"], shop(report)["storage"]["position"]) == (None, None)
    found = inspect(data, code=1)
    assert found.stderr == (
        f"rule-detector: {data}: damage in 1 place; `rule-detector repair` shows what can be kept\n"
    )
    assert f"{path}, offset {defect['offset']}: " in found.stdout


def nothing(_: Path) -> None:
    """Leave no folder."""


def from_tomorrow(folder: Path) -> None:
    create_folder(folder, b"from tomorrow", version=1_000)


def senseless(folder: Path) -> None:
    create_folder(folder, b"\xc1", version=SNAPSHOT_VERSION)


def a_file(folder: Path) -> None:
    folder.write_text("x")


@pytest.mark.parametrize(
    ("instead", "said"),
    [(nothing, ""), (from_tomorrow, "newer program"), (senseless, "cannot be read"), (a_file, "")],
)
def test_what_stands_in_the_place_of_a_detector_is_told_and_the_others_are_as_before(
    data: Path, instead: Callable[[Path], None], said: str
) -> None:
    folder = data / "detectors" / shop(told(data))["id"]
    shutil.rmtree(folder)
    instead(folder)
    report = told(data, code=1)
    [defect] = report["damage"]
    assert (defect["path"], said in defect["reason"]) == (str(folder), True)
    assert report["detectors"][1]["contents"] is not None


def test_a_write_that_was_never_finished_is_no_damage(data: Path) -> None:
    detector = shop(told(data))["id"]
    path = journal_of(data, detector)
    path.write_bytes(path.read_bytes()[:-3])
    report = told(data)
    assert shop(report)["contents"]["events_seen"] == 9
    [warning] = report["warnings"]
    assert warning.startswith(f"{path}, offset ")
    assert warning.endswith("a write that was never finished, or is under way")


def test_damage_that_no_recovery_meets_is_a_warning(data: Path) -> None:
    detector = shop(told(data))["id"]
    folder, old = data / "detectors" / detector, journal_of(data, detector)
    store = Store(folder)
    store.recover()
    body = b"".join(kept.pieces(kept.take_snapshot(Detector())))
    store.save([body], version=kept.SNAPSHOT_VERSION, sequence=store.begin_snapshot())
    store.close()
    content = bytearray(old.read_bytes())
    content[content.index(b'"u3"')] ^= 1
    old.write_bytes(content)
    report = told(data)
    [warning] = report["warnings"]
    assert warning.startswith(f"{old}, offset ")
    assert warning.endswith("no recovery needs that")
    # But where the newest snapshot is damaged too, nothing can be recovered.
    newest = max(folder.glob("snapshot-*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    report = told(data, code=1)
    assert {defect["path"] for defect in report["damage"]} == {str(old), str(newest)}
    assert shop(report)["storage"]["position"] is None
    assert shop(report)["contents"] is None


def test_a_newest_snapshot_that_is_damaged_is_told_though_an_older_one_does(data: Path) -> None:
    detector = shop(told(data))["id"]
    folder = data / "detectors" / detector
    store = Store(folder)
    store.recover()
    sequence = store.begin_snapshot()
    store.close()
    assert sequence > 0
    newest = folder / f"snapshot-{sequence:020d}.rds"
    newest.write_bytes((folder / "snapshot-00000000000000000000.rds").read_bytes())
    report = told(data, code=1)
    assert [defect["path"] for defect in report["damage"]] == [str(newest)]
    assert shop(report)["contents"]["events_seen"] == 10


def test_a_catalogue_that_is_lost_does_not_hide_the_detectors(data: Path) -> None:
    path = data / "directory" / "snapshot-00000000000000000000.rds"
    path.write_bytes(path.read_bytes()[:-1])
    report = told(data, code=1)
    assert report["catalogue"]["tokens"] is None
    assert report["catalogue"]["detectors"] is None
    assert report["orphans"] == []
    assert [detector["name"] for detector in report["detectors"]] == [None, None]
    assert sorted(detector["contents"]["events_seen"] for detector in report["detectors"]) == [0, 10]
    assert any(defect["path"] == str(path) for defect in report["damage"])


@pytest.mark.parametrize(
    ("kills", "ago_s", "said"),
    [
        (0, 0, "record 7 of the journal or a later one is being replayed"),
        (4, 0, "5 processes were killed at record 7, which is left alone for 600 s"),
        (4, 601, "record 7 of the journal or a later one is being replayed"),
    ],
)
def test_a_mark_that_recovery_left_is_told(data: Path, kills: int, ago_s: int, said: str) -> None:
    mark = data / "detectors" / shop(told(data))["id"] / "replaying"
    at_us = time.time_ns() // 1_000 - ago_s * 1_000_000
    mark.write_bytes(b"RDMARK2\n" + struct.pack("<QIIq", 7, kills, 0, at_us))
    assert told(data)["warnings"][0].startswith(f"{mark}: {said}")


def test_a_mark_that_cannot_be_read_does_not_hide_the_rest(data: Path) -> None:
    mark = data / "detectors" / shop(told(data))["id"] / "replaying"
    mark.mkdir()
    report = told(data, code=1)
    [defect] = report["damage"]
    assert (defect["path"], defect["reason"]) == (str(mark), "it cannot be read: it is no regular file")
    assert len(report["detectors"]) == 2


def test_folders_without_a_detector_are_orphans(data: Path) -> None:
    create_folder(data / "detectors" / SECOND, b"", version=1)
    report = told(data)
    assert (report["orphans"], report["warnings"]) == ([str(data / "detectors" / SECOND)], [])
    assert len(report["detectors"]) == 2


def test_folders_of_deleted_detectors_are_no_orphans(tmp_path: Path) -> None:
    body = encode_state(CatalogueState(removed={SECOND}))
    create_folder(tmp_path / "directory", body, version=STATE_VERSION)
    create_folder(tmp_path / "detectors" / SECOND, b"", version=1)
    report = told(tmp_path)
    assert report["orphans"] == report["detectors"] == []
    assert "deleted" in report["warnings"][0]


def test_a_folder_that_was_begun_and_never_used_is_whole(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    report = told(tmp_path)
    assert (report["catalogue"]["detectors"], report["detectors"]) == (0, [])
    assert "never used" in report["warnings"][1]


def test_the_id_of_a_folder_is_told_and_one_without_is_given_none(tmp_path: Path) -> None:
    create_folder(tmp_path / "directory", encode_state(CatalogueState()), version=STATE_VERSION)
    report = told(tmp_path)
    assert (report["whole"], report["identity"]) == (True, None)
    assert "no id yet" in report["warnings"][0]
    assert "id none\n" in inspect(tmp_path).stdout
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]
    given = begin_folder(tmp_path)
    assert told(tmp_path)["identity"] == given
    assert f"id {given}\n" in inspect(tmp_path).stdout
    (tmp_path / "identity").write_bytes(b"")
    [defect] = told(tmp_path, code=1)["damage"]
    assert defect["path"] == str(tmp_path / "identity")
    assert "remove the file" in defect["reason"]
    (tmp_path / "identity").unlink()
    (tmp_path / "identity").mkdir()
    [defect] = told(tmp_path, code=1)["damage"]
    assert "it is no regular file" in defect["reason"]


def test_what_is_no_data_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file", tmp_path / "nowhere"):
        refused = inspect(path, code=1)
        assert refused.stdout == ""
        assert f"{path} is no data folder" in refused.stderr
