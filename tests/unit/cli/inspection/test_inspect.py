"""Data folders as `inspect` finds them: made by the real runtime, then left alone, or in use."""

import asyncio
import json
from pathlib import Path

import pytest

from engine.runtime.contract.requests.operations import add_rule, evaluate
from tests.local_runtime.service import LocalService
from tests.unit.cli.commands import run
from tests.unit.cli.inspection.inspecting import SECOND, event, filled, inspect, journal_of, shop, told
from tests.unit.cli.inspection.watching import state_of, watched


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


def test_one_detector_can_be_asked_for(data: Path) -> None:
    wanted = told(data)["detectors"][1]
    report = told(data, "--detector", wanted["id"])
    assert report["detectors"] == [wanted]
    assert told(data, "--detector", wanted["name"]) == report
    assert f"{data} holds no detector `{SECOND}`" in inspect(data, "--detector", SECOND, code=1).stderr


@pytest.mark.slow
@pytest.mark.run_last
@pytest.mark.parametrize("damaged", [False, True])
def test_nothing_is_written_and_nothing_locked(data: Path, tmp_path: Path, damaged: bool) -> None:
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
            (tmp_path / "seen").write_text("")
            inspect(data, "--rules", code=1 if damaged else 0)
        # Nothing but the file that shows that this would be seen.
        assert [name for name, _ in seen] == ["open"]
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
            await service.backend.call(detector, evaluate(event(number)))
            number += 1

    writing = asyncio.ensure_future(write())
    for _ in range(10):
        least = number - 1
        report = await asyncio.to_thread(told, tmp_path / "data")
        assert least <= shop(report)["contents"]["events_seen"] <= number + 1
    done.set()
    await writing
    assert number > 10


def test_a_rule_can_be_looked_into(data: Path) -> None:
    before = state_of(data)
    assert inspect(data, "--detector", "shop", "--rule", "forced", "--key", "user=u3").stdout == (
        "forced\n"
        '  true   per user once within 10m ok == false; slice user: "u3"; until 2023-11-14T22:23:20.003Z\n'
        "    true   once within 10m ok == false; settled at 2023-11-14T22:13:20.003Z, 0.006 s before; "
        "until 2023-11-14T22:23:20.003Z\n"
        "      false  ok == false; missing\n"
    )
    tree = told(data, "--detector", "shop", "--rule", "forced", "--key", "user=nobody")
    assert tree["node"]["verdict"] is False
    assert tree["node"]["key"] == {"user": "nobody"}
    assert state_of(data) == before


async def test_a_sum_past_the_range_of_a_double_is_valid_json(service: LocalService, tmp_path: Path) -> None:
    detector = await service.backend.create_detector("shop")
    await service.backend.call(detector, add_rule("large", "sum(x) > 5"))
    large = b'{"event": {"fields": {"x": 1e308}, "timestamp_ms": 0}}'
    for _ in range(2):
        await service.backend.call(detector, evaluate(large))
    found = inspect(tmp_path / "data", "--detector", "shop", "--rule", "large", "--json")
    node = json.loads(found.stdout, parse_constant=pytest.fail)["node"]
    assert "found" not in node
    assert node["note"] == "what it found is past the range of a double"


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ("--rule forced", 2, "`--rule` needs `--detector`"),
        ("--detector nowhere --rule forced", 1, "no detector has the id or name `nowhere`"),
        ("--detector shop --rule nothing", 1, "no rule has the id or name `nothing`"),
        ("--detector shop --rule forced --key ada", 2, "expected NAME=VALUE, got `ada`"),
    ],
)
def test_what_cannot_be_looked_into(data: Path, arguments: str, status: int, said: str) -> None:
    assert said in inspect(data, *arguments.split(), code=status).stderr


def test_an_event_is_explained_by_a_data_folder(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "event.ndjson"
    file.write_text('{"time": "2023-11-14T22:13:21Z", "user": "u3", "ok": true}\n', "utf-8")
    explain = ("explain --detector shop --old-times", file, "--data", data)
    [explained] = json.loads(run(*explain, "--rule", "forced", "-o", "json").stdout)["rules"]
    assert explained["verdict"] is True
    assert "settled at 2023-11-14T22:13:20.003Z" in run(*explain).stdout
    assert "no rule has" in run(*explain, "--rule", "nothing", status=1).stderr
