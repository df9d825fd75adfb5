"""Recordings of real attacks through the running service, against a plain search."""

import gzip
import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from api.cli.recordings.reading import ReadingOptions, Recording
from api.cli.rule_files.reading import conditions_of
from tests.data import find_expected
from tests.service_process import Served, program, served

DATA = Path(__file__).parents[2] / "data"
FILES = {"dcsync": "windows-dcsync.ndjson.gz", "apt29": "apt29-zeek.ndjson.gz"}
TIME_FIELDS = {"dcsync": "@timestamp", "apt29": "ts"}


def recording(name: str) -> Path:
    folder = Path(os.environ.get("RULE_DETECTOR_TEST_DATA", "/nonexistent"))
    if not (folder / FILES[name]).is_file():
        pytest.skip("RULE_DETECTOR_TEST_DATA names no folder with the recordings")
    return folder / FILES[name]


@pytest.fixture(scope="module")
def expected() -> Callable[[str], dict[str, list[int]]]:
    """Returns the events at which each rule must fire. Each recording is searched once."""
    return cache(lambda name: find_expected.expected(name, recording(name)))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("recordings") / "data") as running:
        yield running


@pytest.mark.ray
@pytest.mark.parametrize("name", FILES)
def test_replay_prints_which_rules_fire_how_often_and_at_which_event_first(
    name: str, service: Served, expected: Callable[[str], dict[str, list[int]]]
) -> None:
    path, rules = recording(name), DATA / f"{name}.rules.yaml"
    service.call("POST", "/api/detectors", {"name": f"replayed {name}"})
    arguments = ["--url", service.url, "--token", service.token, "--detector", f"replayed {name}"]
    run = program("replay", str(path), *arguments, "--time-field", TIME_FIELDS[name], "--rules", str(rules))
    assert (run.returncode, run.stderr) == (0, "")
    found = {}
    for line in run.stdout.splitlines():
        if row := re.fullmatch(r"(.+?)  +(\d+)(?:  +\S+Z  +.*, line (\d+))?", line):
            found[row[1]] = (int(row[2]), int(row[3]) - 1 if row[3] else None)
    assert found == {rule: (len(at), at[0] if at else None) for rule, at in expected(name).items()}
    with gzip.open(path) as lines:
        assert f"{sum(1 for _ in lines)} events in " in run.stdout


@pytest.mark.ray
@pytest.mark.parametrize("name", FILES)
def test_each_rule_fires_at_exactly_the_events_that_a_plain_search_finds(
    name: str, service: Served, expected: Callable[[str], dict[str, list[int]]]
) -> None:
    path, searched = recording(name), expected(name)
    # If every rule fired, or none, agreement would mean little.
    assert sum(map(bool, searched.values())) >= 3
    assert not all(searched.values())
    detector = service.call("POST", "/api/detectors", {"name": name})["id"]
    rules = conditions_of((DATA / f"{name}.rules.yaml").read_text("utf-8"), name)
    for rule in rules:
        service.call("POST", f"/api/detectors/{detector}/rules", {"name": rule.name, "condition": rule.text})
    found: dict[str, list[int]] = {rule.name: [] for rule in rules}
    for at, result in enumerate(evaluated(service, detector, path, TIME_FIELDS[name])):
        assert "errors" not in result
        for action in result["actions"]:
            found[action["name"]].append(at)
    assert found == searched
    assert [*found] == [*searched]


def evaluated(service: Served, detector: str, path: Path, time_field: str) -> Iterator[Any]:
    with Recording(str(path), None, ReadingOptions(time_field)) as opened:  # type: ignore[arg-type]
        events = [{"fields": event.fields, "timestamp_ms": event.time_us / 1000} for event in opened.events()]
    for start in range(0, len(events), 500):
        body = {"events": events[start : start + 500]}
        yield from service.call("POST", f"/api/detectors/{detector}/evaluate/batch", body)["results"]
