"""Data folders as `inspect` finds them: made by the real runtime, then left alone, damaged, or in use."""

import asyncio
import json
import os
import shutil
import struct
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from api.cli import main
from api.cli.inspection import data_folder
from api.cli.inspection.folder_files import Look
from api.cli.inspection.report import Defect, Storage
from engine.evaluation.detector import Detector
from engine.runtime.catalogue.catalogue_state import STATE_VERSION, CatalogueState, encode_state
from engine.runtime.contract.requests.operations import add_rule, change_rule, evaluate, rules
from engine.runtime.detector.persistence import detector_snapshot as kept
from snapshots.data_folder.identity import begin_folder
from snapshots.folders import create_folder
from snapshots.store import Store
from tests.local_runtime.service import LocalService, local_service

SECOND = "0" * 32


def inspect(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


def told(*arguments: object, code: int = 0) -> Any:
    run = inspect(*arguments, "--json")
    assert run.exit_code == code, run.output
    assert bool(run.stderr) is (code == 1)
    return json.loads(run.stdout)


def event(number: int) -> bytes:
    fields = {"user": f"u{number}", "ok": number % 2 == 0}
    return json.dumps({"event": {"fields": fields, "timestamp_ms": 1_700_000_000_000 + number}}).encode()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[LocalService]:
    async with local_service(tmp_path / "data") as service:
        yield service


async def filled(service: LocalService) -> str:
    """Give a detector with two rules and ten events, beside another one without."""
    fleet = service.fleet
    await fleet.mint_token()
    detector = await fleet.create_detector("shop")
    await fleet.create_detector("two\nlines")
    await fleet.call(detector, add_rule("forced", "per user once within 10m ok == false", notify=True))
    await fleet.call(detector, add_rule("off", "a==1", notify=False))
    [_, off] = json.loads((await fleet.call(detector, rules())).result)["rules"]
    await fleet.call(detector, change_rule(off["id"], enabled=False))
    for number in range(10):
        await fleet.call(detector, evaluate(event(number)))
    return detector


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder as a service left it when it was killed: nothing but the journal tells of the events."""

    async def make() -> None:
        async with local_service(tmp_path / "made") as service:
            await filled(service)
            shutil.copytree(tmp_path / "made", tmp_path / "data")

    asyncio.run(make())
    return tmp_path / "data"


def files_of(data: Path) -> list[Path]:
    return sorted(path for path in data.rglob("*") if path.is_file())


def journal_of(data: Path, detector: str) -> Path:
    """The segment that has the events."""
    [path] = [
        path for path in (data / "detectors" / detector).glob("journal-*") if b'"u3"' in path.read_bytes()
    ]
    return path


def shop(report: Any) -> Any:
    return next(detector for detector in report["detectors"] if detector["name"] == "shop")


def test_a_folder_is_told_to_its_last_record(data: Path) -> None:
    report = told(data, "--rules")
    assert report["whole"] is True
    assert report["damage"] == report["orphans"] == report["warnings"] == []
    catalogue = report["catalogue"]
    assert (len(catalogue["tokens"]), catalogue["detectors"], catalogue["storage"]["position"]) == (1, 2, 3)
    assert len(catalogue["tokens"][0]["hint"]) == 4
    assert [detector["name"] for detector in report["detectors"]] == ["shop", "two\nlines"]
    held = shop(report)["contents"]
    assert held["clock_us"] == 1_700_000_000_009_000
    assert held["events_seen"] == 10
    assert held["live_keys"] == 5
    assert held["temporal_nodes"] == 1
    assert (held["rule_count"], held["rules_enabled"]) == (2, 1)
    assert [(rule["name"], rule["enabled"], rule["notify"], rule["condition"]) for rule in held["rules"]] == [
        ("forced", True, True, "per user once within 10m ok == false"),
        ("off", False, False, "a == 1"),
    ]
    storage = shop(report)["storage"]
    [segment] = storage["segments"]
    assert segment["last"] == storage["position"]
    assert segment["records"] == segment["last"] - segment["first"] + 1
    assert segment["bytes"] == (Path(storage["folder"]) / segment["file"]).stat().st_size
    [snapshot] = storage["snapshots"]
    assert (snapshot["sequence"], snapshot["epoch"]) == (0, 0)


def test_people_are_told_the_same(data: Path) -> None:
    run = inspect(data, "--rules")
    assert run.exit_code == 0
    assert run.stdout.startswith(f"{data}: whole\n")
    assert "  events     10 seen, the clock at 2023-11-14T22:13:20.009Z\n" in run.stdout
    assert "    per user once within 10m ok == false\n" in run.stdout
    assert '"two\\nlines"' in run.stdout


def test_one_detector_can_be_asked_for(data: Path) -> None:
    wanted = told(data)["detectors"][1]
    report = told(data, "--detector", wanted["id"])
    assert report["detectors"] == [wanted]
    assert told(data, "--detector", wanted["name"]) == report
    run = inspect(data, "--detector", SECOND)
    assert run.exit_code == 1
    assert f"{data} holds no detector `{SECOND}`" in run.stderr


# What it leaves alone


def state_of(data: Path) -> dict[str, tuple[bytes, int, int]]:
    found = {}
    for path in [data, *sorted(data.rglob("*"))]:
        status = path.stat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (content, status.st_mtime_ns, status.st_ctime_ns)
    return found


_watched: list[tuple[str, tuple[object, ...]]] | None = None
_CHANGES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.utime",
    "os.chmod",
    "os.truncate",
    "os.link",
)
_LOCKS = ("fcntl.flock", "fcntl.lockf", "fcntl.fcntl")


def _watch(name: str, arguments: tuple[object, ...]) -> None:
    if _watched is None:
        return
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    opens = name == "open" and isinstance(arguments[2], int) and arguments[2] & writes
    if opens or name in _CHANGES or name in _LOCKS:
        _watched.append((name, arguments))


sys.addaudithook(_watch)


@contextmanager
def watched() -> Iterator[list[tuple[str, tuple[object, ...]]]]:
    """Every call to the system that would change or lock a file, while the context lasts."""
    global _watched  # noqa: PLW0603 -- an audit hook cannot be taken away again
    _watched = []
    try:
        yield _watched
    finally:
        _watched = None


def test_the_watch_sees_writes_and_locks(tmp_path: Path) -> None:
    with watched() as seen:
        (tmp_path / "x").write_text("")
        (tmp_path / "x").rename(tmp_path / "y")
        (tmp_path / "y").unlink()
        (tmp_path / "z").mkdir()
    assert [name for name, _ in seen] == ["open", "os.rename", "os.remove", "os.mkdir"]


@pytest.mark.parametrize("damaged", [False, True])
def test_nothing_is_written_and_nothing_locked(data: Path, damaged: bool) -> None:
    detector = shop(told(data))["id"]
    if damaged:
        for path in (journal_of(data, detector), data / "directory" / "snapshot-00000000000000000000.rds"):
            content = bytearray(path.read_bytes())
            content[60] ^= 1
            path.write_bytes(content)
    for folder in (data / "detectors" / detector, data / "detectors", data / "directory", data):
        folder.chmod(0o500)
    before = state_of(data)
    try:
        with watched() as seen:
            run = inspect(data, "--rules")
        assert run.exit_code == (1 if damaged else 0)
        assert [call for call in seen if str(data) in str(call)] == []
        assert [name for name, _ in seen if name in _LOCKS] == []
        assert state_of(data) == before
    finally:
        for folder in (data, data / "detectors", data / "directory", data / "detectors" / detector):
            folder.chmod(0o700)


async def test_a_folder_in_use_is_told_while_it_is_being_written(
    service: LocalService, tmp_path: Path
) -> None:
    detector = await filled(service)
    number = 10
    done = asyncio.Event()

    async def write() -> None:
        nonlocal number
        while not done.is_set():
            await service.fleet.call(detector, evaluate(event(number)))
            number += 1

    writing = asyncio.ensure_future(write())
    for _ in range(10):
        least = number - 1
        run = await asyncio.to_thread(inspect, tmp_path / "data", "--json")
        assert run.exit_code == 0, run.output
        assert least <= shop(json.loads(run.stdout))["contents"]["events_seen"] <= number + 1
    done.set()
    await writing
    assert number > 10


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


# Damage


def test_a_record_that_does_not_fit_is_told_with_file_and_offset(data: Path) -> None:
    detector = shop(told(data))["id"]
    path = journal_of(data, detector)
    content = bytearray(path.read_bytes())
    at = content.index(b'"u3"')
    content[at] ^= 1
    path.write_bytes(content)
    report = told(data, code=1)
    assert report["whole"] is False
    [defect] = report["damage"]
    assert defect["path"] == str(path)
    assert 0 < defect["offset"] < at
    assert shop(report)["contents"] is None
    assert shop(report)["storage"]["position"] is None
    run = inspect(data)
    assert (run.exit_code, run.stderr) == (1, f"rule-detector: {data}: damage in 1 place\n")
    assert f"{path}, offset {defect['offset']}: " in run.stdout
    # The other detector is as well as before.
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


def test_a_detector_whose_folder_is_gone_is_damage(data: Path) -> None:
    folder = data / "detectors" / shop(told(data))["id"]
    shutil.rmtree(folder)
    report = told(data, code=1)
    assert [defect["path"] for defect in report["damage"]] == [str(folder)]


def test_a_state_that_only_a_newer_program_can_read_is_told(data: Path) -> None:
    folder = data / "detectors" / shop(told(data))["id"]
    shutil.rmtree(folder)
    create_folder(folder, b"from tomorrow", version=1_000)
    report = told(data, code=1)
    assert "newer program" in report["damage"][0]["reason"]


def test_a_state_that_makes_no_sense_is_told_and_the_others_too(data: Path) -> None:
    folder = data / "detectors" / shop(told(data))["id"]
    shutil.rmtree(folder)
    create_folder(folder, b"\xc1", version=3)
    report = told(data, code=1)
    assert "cannot be read" in report["damage"][0]["reason"]
    assert report["detectors"][1]["contents"] is not None


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


def test_a_file_in_the_place_of_a_folder_is_told_and_the_others_too(data: Path) -> None:
    folder = data / "detectors" / shop(told(data))["id"]
    shutil.rmtree(folder)
    folder.write_text("x")
    report = told(data, code=1)
    assert str(folder) in str(report["damage"][0])
    assert report["detectors"][1]["contents"] is not None


# Folders that are out of the ordinary


def test_folders_without_a_detector_are_orphans(data: Path) -> None:
    create_folder(data / "detectors" / SECOND, b"", version=1)
    report = told(data)
    assert report["orphans"] == [str(data / "detectors" / SECOND)]
    assert len(report["detectors"]) == 2


def test_folders_of_deleted_detectors_are_no_orphans(tmp_path: Path) -> None:
    body = encode_state(CatalogueState(removed={SECOND}))
    create_folder(tmp_path / "directory", body, version=STATE_VERSION)
    create_folder(tmp_path / "detectors" / SECOND, b"", version=1)
    report = told(tmp_path)
    assert report["orphans"] == report["detectors"] == []
    assert "deleted" in report["warnings"][0]


def test_a_detector_of_old_times_that_was_never_active_has_no_folder(tmp_path: Path) -> None:
    body = encode_state(CatalogueState(detectors={SECOND: "never used"}))
    create_folder(tmp_path / "directory", body, version=1)
    report = told(tmp_path)
    assert report["whole"] is True
    assert report["detectors"][0]["contents"]["rule_count"] == 0


def test_a_folder_that_was_begun_and_never_used_is_whole(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    report = told(tmp_path)
    assert (report["catalogue"]["detectors"], report["detectors"]) == (0, [])
    assert "never used" in report["warnings"][1]


async def test_the_id_of_the_folder_is_told(service: LocalService, tmp_path: Path) -> None:
    report = told(tmp_path / "data")
    assert report["identity"] == begin_folder(tmp_path / "data")
    assert f"id {report['identity']}\n" in inspect(tmp_path / "data").stdout


def test_a_folder_without_an_id_is_whole_and_is_given_none(tmp_path: Path) -> None:
    create_folder(
        tmp_path / "directory",
        encode_state(CatalogueState()),
        version=STATE_VERSION,
    )
    report = told(tmp_path)
    assert (report["whole"], report["identity"]) == (True, None)
    assert "no id yet" in report["warnings"][0]
    assert "id none\n" in inspect(tmp_path).stdout
    assert [path.name for path in tmp_path.iterdir()] == ["directory"]


def test_an_id_that_cannot_be_read_is_damage(tmp_path: Path) -> None:
    create_folder(
        tmp_path / "directory",
        encode_state(CatalogueState()),
        version=STATE_VERSION,
    )
    (tmp_path / "identity").write_bytes(b"")
    [defect] = told(tmp_path, code=1)["damage"]
    assert defect["path"] == str(tmp_path / "identity")
    assert "remove the file" in defect["reason"]


def test_what_is_no_data_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file", tmp_path / "nowhere"):
        run = inspect(path)
        assert (run.exit_code, run.stdout) == (1, "")
        assert f"{path} is no data folder" in run.stderr


def test_a_rule_can_be_looked_into(data: Path) -> None:
    before = {path: path.read_bytes() for path in files_of(data)}
    run = inspect(data, "--detector", "shop", "--rule", "forced", "--key", "user=u3")
    assert run.stdout == (
        "forced\n"
        '  true   per user once within 10m ok == false; slice user: "u3"; until 2023-11-14T22:23:20.003Z\n'
        "    true   once within 10m ok == false; since 2023-11-14T22:13:20.003Z, 0.006 s before; "
        "until 2023-11-14T22:23:20.003Z\n"
        "      ?      ok == false\n"
    )
    tree = told(data, "--detector", "shop", "--rule", "forced", "--key", "user=nobody")
    assert tree["node"]["verdict"] is False
    assert tree["node"]["key"] == {"user": "nobody"}
    assert before == {path: path.read_bytes() for path in files_of(data)}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--rule", "forced"], 2, "`--rule` needs `--detector`"),
        (["--detector", "nowhere", "--rule", "forced"], 1, "no detector has the id or name `nowhere`"),
        (["--detector", "shop", "--rule", "nothing"], 1, "no rule has the id or name `nothing`"),
        (["--detector", "shop", "--rule", "forced", "--key", "ada"], 2, "expected NAME=VALUE, got `ada`"),
    ],
)
def test_what_cannot_be_looked_into(data: Path, arguments: list[str], status: int, said: str) -> None:
    run = inspect(data, *arguments)
    assert run.exit_code == status
    assert said in run.stderr


def test_an_event_is_explained_by_a_data_folder(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "event.ndjson"
    file.write_text('{"time": "2023-11-14T22:13:21Z", "user": "u3", "ok": true}\n', "utf-8")
    arguments = ["explain", str(file), "--data", str(data), "--detector", "shop", "--old-times"]
    run = CliRunner().invoke(main, [*arguments, "--rule", "forced", "-o", "json"])
    [explained] = json.loads(run.stdout)["rules"]
    assert explained["verdict"] is True
    assert "since 2023-11-14T22:13:20.003Z" in CliRunner().invoke(main, arguments).stdout
    refused = CliRunner().invoke(main, [*arguments, "--rule", "nothing"])
    assert (refused.exit_code, "no rule has" in refused.stderr) == (1, True)
