import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import Result

from tests.unit.cli import commands

FILE = """
relations: {vip: [ada]}
define:
  failed: action == "login" and ok == false
rules:
  many failures:
    condition: per ip (count(use "failed") within 5m >= 2) and vip(user)
    labels: {severity: high}
    tests:
      - name: two in a row
        events:
          - {time: 2024-03-04T09:00:00Z, user: ada, ip: 10.0.0.1, action: login, ok: false}
          - {time: 2024-03-04T09:00:10Z, user: ada, ip: 10.0.0.1, action: login, ok: false}
          - {time: 2024-03-04T09:00:20Z, user: bob, ip: 10.0.0.1, action: login, ok: false}
        fires: [FIRES]
"""


def run(folder: Path, *arguments: object, fires: str = "2", text: str = FILE, status: int = 0) -> Result:
    (folder / "r.yaml").write_text(text.replace("FIRES", fires), "utf-8")
    return commands.run("test", folder / "r.yaml", *arguments, status=status)


@pytest.mark.parametrize(
    "fires",
    ["2", "{line: 2}", "{line: 2, keys: {ip: 10.0.0.1}, labels: {severity: high}}", "{line: 2, keys: {}}"],
)
def test_a_rule_fires_where_its_test_says(tmp_path: Path, fires: str) -> None:
    assert run(tmp_path, fires=fires).output == "1 test passed\n"


@pytest.mark.parametrize(
    ("fires", "said"),
    [
        ("", ["fired at event 2 with ip=10.0.0.1, which is not expected"]),
        ("1, 2", ["expected to fire at event 1, and did not"]),
        (
            "3",
            [
                "fired at event 2 with ip=10.0.0.1, which is not expected",
                "expected to fire at event 3, and did not",
            ],
        ),
        ("2, 4", ["expected to fire at event 4, but there are 3 events"]),
        ("{line: 2, keys: {ip: 10.0.0.2}}", ["fired at event 2 with ip=10.0.0.1, expected ip=10.0.0.2"]),
        ("{line: 2, keys: {user: ada}}", ["fired at event 2 with ip=10.0.0.1, expected user=ada"]),
        (
            "{line: 2, labels: {severity: low}}",
            ["fired at event 2 with labels severity=high, expected severity=low"],
        ),
        ("{line: 2, labels: {team: a}}", ["fired at event 2 with labels none, expected team=a"]),
    ],
)
def test_a_failure_says_what_was_expected_and_what_came(tmp_path: Path, fires: str, said: list[str]) -> None:
    ran = run(tmp_path, fires=fires, status=1)
    head, *lines = ran.stdout.splitlines()
    assert head == f"{tmp_path}/r.yaml, line 10: `many failures`, test 1 (two in a row)"
    assert [line.strip() for line in lines if not line.startswith("    ")] == said
    assert ran.stderr == "rule-detector: 1 of 1 test failed\n"


def test_a_failure_says_why(tmp_path: Path) -> None:
    said = run(tmp_path, fires="1, 2", status=1).stdout
    assert "    many failures: does not fire\n" in said
    assert 'false  count(action == "login" and ok == false) within 5m >= 2; found 1\n' in said
    assert "many failures: fires" in run(tmp_path, fires="", status=1).stdout


def test_events_may_be_a_recording_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("time,x\n2024-01-01T00:00:00Z,1\n2024-01-01T00:00:01Z,2\n")
    text = "rules: {r: {condition: x == 2, tests: [{events: events.csv, fires: [2]}]}}"
    assert run(tmp_path, text=text).output == "1 test passed\n"
    ran = run(tmp_path, text=text.replace("events.csv", "no.csv"), status=1)
    assert f"  {tmp_path}/no.csv: no such file or directory\n" in ran.stdout


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ("[{x: 1}]", "events, line 1: the event has none of @timestamp, timestamp,"),
        (
            "[{time: 2024-01-01, x: 1}, {time: 2023-01-01, x: 1}]",
            "1 event refused, more than five minutes late",
        ),
    ],
)
def test_an_event_that_is_not_evaluated_is_a_failure(tmp_path: Path, events: str, said: str) -> None:
    text = f"rules: {{r: {{condition: x == 1, tests: [{{events: {events}, fires: [1]}}]}}}}"
    assert said in run(tmp_path, text=text, status=1).stdout


TIMED = """
rules:
  silent:
    condition: per host (not once within 5m exists beat)
    timed: true
    every_secs: 600
    tests:
      - events:
          - {time: 2024-03-04T09:00:00Z, host: a, beat: 1}
          - {time: 2024-03-04T09:00:10Z, host: b, beat: 1}
          - {time: 2024-03-04T09:06:00Z, host: a}
          - {time: 2024-03-04T09:06:30Z, host: b, beat: 1}
          - {time: 2024-03-04T09:18:00Z, host: a}
        until: UNTIL
        fires: [FIRES]
"""
BY_TIME = (
    "{time: 2024-03-04T09:05:00Z, keys: {host: a}}, {time: 2024-03-04T09:05:10Z, keys: {host: b}}, "
    "{line: 5, keys: {host: a}, suppressed: 1}"
)


def timed(folder: Path, fires: str, status: int = 0) -> Result:
    return run(folder, text=TIMED.replace("UNTIL", "2024-03-04T09:18:00Z"), fires=fires, status=status)


def test_a_rule_fires_by_time_where_its_test_says(tmp_path: Path) -> None:
    held_back = "2024-03-04T09:11:30Z"
    assert timed(tmp_path, BY_TIME).output == "1 test passed\n"
    timed(tmp_path, BY_TIME.replace("2024-03-04T09:05:00Z", "1709543100"))
    text = TIMED.replace("    every_secs: 600\n", "").replace("UNTIL", "2024-03-04T09:11:30.001Z")
    text = text.replace("          - {time: 2024-03-04T09:18:00Z, host: a}\n", "")
    early = "{time: 2024-03-04T09:05:00Z}, {time: 2024-03-04T09:05:10Z}, 3"
    run(tmp_path, text=text, fires=f"{early}, {{time: {held_back}}}")
    run(tmp_path, text=text.replace("11:30.001", "11:30"), fires=early)


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "keys: {host: b}",
            "keys: {host: c}",
            ["fired by time at 2024-03-04T09:05:10.000Z with host=b, expected host=c"],
        ),
        (
            "09:05:10Z",
            "09:05:20Z",
            [
                "expected to fire by time at 2024-03-04T09:05:20.000Z with host=b, and did not",
                "fired by time at 2024-03-04T09:05:10.000Z with host=b, which is not expected",
            ],
        ),
        ("suppressed: 1", "suppressed: 2", ["fired at event 5 with 1 held back, expected 2"]),
        (
            "2024-03-04T09:05:10Z",
            "soon",
            ["`time`: expected a time (ISO 8601, a number since 1970, or as syslog"],
        ),
    ],
)
def test_a_firing_by_time_that_differs(tmp_path: Path, before: str, after: str, said: list[str]) -> None:
    ran = timed(tmp_path, BY_TIME.replace(before, after), status=1)
    lines = [line.strip() for line in ran.stdout.splitlines()[1:]]
    assert len(lines) == len(said)
    assert all(line.startswith(each) for line, each in zip(lines, said, strict=True))


@pytest.mark.parametrize("firing", ["{}", "{line: 1, time: 2024-03-04T09:00:00Z}"])
def test_a_firing_has_a_line_or_a_time(tmp_path: Path, firing: str) -> None:
    assert "expected `line` or `time`" in timed(tmp_path, firing, status=1).stderr


def test_true_is_not_1(tmp_path: Path) -> None:
    event = "{time: 2024-01-01, x: 1, k: true}"
    test = f"{{events: [{event}], fires: [{{line: 1, keys: {{k: 1}}}}]}}"
    ran = run(tmp_path, text=f"rules: {{r: {{condition: per k x == 1, tests: [{test}]}}}}", status=1)
    assert "fired at event 1 with k=true, expected k=1" in ran.stdout


def test_files_and_rules_without_tests_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: x == 1\n")
    (tmp_path / "b.yml").write_text(
        "rules: {b: {condition: x == 1, tests: [{events: [], fires: []}]}, c: y == 1}\n"
    )
    assert commands.run("test", tmp_path).stderr.splitlines() == [
        f"{tmp_path}/a.yaml: no tests",
        f"{tmp_path}/b.yml: 1 rule without a test",
    ]
    alone = commands.run("test", tmp_path / "a.yaml", status=1)
    assert alone.stderr.splitlines()[1] == "rule-detector: there are no tests"


def test_outcomes_are_written_as_json_and_as_junit(tmp_path: Path) -> None:
    text = FILE.replace("many failures", '"a\\u200b & <b>"')
    ran = run(tmp_path, "-o", "json", "--junit", tmp_path / "j.xml", fires="1", text=text, status=1)
    shown = json.loads(ran.stdout)
    assert shown["failed"] == 1
    [test] = shown["tests"]
    assert (test["rule"], test["test"], test["passed"]) == ("a\u200b & <b>", "1 (two in a row)", False)
    [suite] = ET.parse(tmp_path / "j.xml").getroot()
    assert suite.attrib["tests"] == suite.attrib["failures"] == "1"
    [case] = suite
    assert case.attrib["name"] == "a\ufffd & <b>, test 1 (two in a row)"
    assert case[0].attrib["message"] == "expected to fire at event 1, and did not"
    refused = run(tmp_path, "--junit", tmp_path / "nowhere" / "j.xml", status=1)
    assert "nowhere/j.xml: no such file" in refused.stderr


@pytest.mark.slow
def test_processes_run_the_same_tests(tmp_path: Path) -> None:
    rules = "".join(
        f"  r{n}: {{condition: per k count(x == {n}) >= 1, "
        f"tests: [{{events: [{{time: 2024-01-01, k: a, x: {n}}}], fires: [{1 if n % 10 else 2}]}}]}}\n"
        for n in range(120)
    )
    outputs = {run(tmp_path, "-j", jobs, text=f"rules:\n{rules}", status=1).stdout for jobs in ("1", "2")}
    [output] = outputs
    assert output.count("test 1\n") == 12
