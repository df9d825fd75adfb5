"""`--vars`: every event comes with these values, whichever command sends it."""

import json
from pathlib import Path

import pytest

from engine import Detector
from tests.unit.cli.commands import run
from tests.unit.cli.fake_service import FakeService

CONDITION = "per $who (user == $who and owns(user, $limit.of))"
VARS = {"who": "ada", "limit": {"of": 12345678901234567890123}, "owns": [["ada", 12345678901234567890123]]}
EVENT = {"time": "2024-03-04T09:00:00Z", "user": "ada"}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shop: Detector) -> None:
    monkeypatch.chdir(tmp_path)
    shop.add_rule("r", CONDITION)
    Path("rules.yaml").write_text(f"r: {CONDITION}\n")
    Path("e.ndjson").write_text(json.dumps(EVENT) + "\n")
    Path("vars.json").write_text("\ufeff" + json.dumps(VARS), "utf-8")


@pytest.mark.parametrize(
    ("command", "fires", "silent"),
    [
        ("try rules.yaml e.ndjson", "$who=ada", "never fired"),
        ("try rules.yaml e.ndjson --explain r --line 1", "r: fires", "r: does not fire"),
        ("replay e.ndjson --detector shop", "r     1", "r     0"),
        ("explain e.ndjson --detector shop", "r: fires", "r: does not fire"),
    ],
)
def test_the_variables_come_with_every_event(command: str, fires: str, silent: str) -> None:
    with_vars = run(f"{command} --vars vars.json")
    assert (fires in with_vars.output, silent in with_vars.output) == (True, False)
    without = run(command)
    assert (fires in without.output, silent in without.output) == (False, True)


def test_try_says_which_names_have_no_value() -> None:
    said = run("try rules.yaml e.ndjson").stderr
    assert "r: no event has `$who`" in said
    assert "the relation `owns`, which is not known" in said
    assert "warning" not in run("try rules.yaml e.ndjson --vars vars.json").stderr.replace(
        "rule-detector: warning: r: it fired at every event", ""
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[1]", "expected an object, got an array"),
        (b'{"a":\n 1,}', "line 2, column 4: it is not JSON: "),
        (b"", "line 1, column 1: it is not JSON: "),
        (b'{"a": NaN}', "JSON has no NaN"),
        (b'{"a": [1e999]}', "vars.a[0]: expected a finite number"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b'{"a": "\xff"}', "byte 7 is not valid UTF-8"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", "nested too deeply"),
        (b'{"$who": 1}', "name `$who` without its `$`: `who`"),
        (b" " * (8 * 2**20 + 1), "it has more than 8 MiB"),
    ],
    ids=range(11),
)
def test_what_is_no_object_of_variables_is_refused_before_anything_is_sent(
    service: FakeService, text: bytes, said: str
) -> None:
    Path("wrong.json").write_bytes(text)
    for command in ("try rules.yaml", "replay --detector shop", "explain --detector shop"):
        refused = run(f"{command} e.ndjson --vars wrong.json", status=2)
        assert "'--vars': wrong.json" in refused.stderr
        assert said in refused.stderr
    assert service.requests == []
    assert "no such file" in run("explain --detector shop --vars none.json", status=2).stderr
