"""`rule-detector explain`: what it asks of a service, and how it tells the answer."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from api.cli import main
from engine import Detector
from tests.unit.cli.fake_service import FakeService


@pytest.fixture
def detector(monkeypatch: pytest.MonkeyPatch) -> Detector:
    """A detector of the engine, which a service with this name answers for."""
    service = FakeService()
    service.put_in_place(monkeypatch)
    return service.detectors[service.create("shop")]


@pytest.fixture
def explained(tmp_path: Path) -> Callable[..., Result]:
    """Runs the command on some events."""

    def run(*events: dict[str, Any], options: Sequence[str] = ()) -> Result:
        file = tmp_path / "events.ndjson"
        file.write_text("".join(json.dumps(event) + "\n" for event in events), "utf-8")
        arguments = ["explain", str(file), "--detector", "shop", "--token", "t", "--old-times", *options]
        return CliRunner().invoke(main, arguments)

    return run


def test_the_tree_is_told_with_values_slices_and_times(
    detector: Detector, explained: Callable[..., Result]
) -> None:
    detector.add_rule("login after a failed one", "ok == true and per user once within 10m ok == false")
    detector.evaluate({"user": "ada", "ok": False}, 1_709_542_803_120)
    run = explained({"time": "2024-03-04T09:00:44.120Z", "user": "ada", "ok": "true"})
    assert run.stdout == (
        "login after a failed one: does not fire\n"
        "  false  ok == true and per user once within 10m ok == false\n"
        '    false  ok == true; ok: "true"; `ok` is the string "true", compared with the boolean true\n'
        '    true   per user once within 10m ok == false; slice user: "ada"; until 2024-03-04T09:10:03.120Z\n'
        "      true   once within 10m ok == false; settled at 2024-03-04T09:00:03.120Z, 41 s before; until "
        "2024-03-04T09:10:03.120Z\n"
        '        false  ok == false; ok: "true"; `ok` is the string "true", compared with the boolean false\n'
        "  it would fire if this turned: ok == true\n"
    )
    assert run.exit_code == 0


@pytest.mark.parametrize(
    ("condition", "event", "last"),
    [
        ("a == 1 and b == 1", {}, "  it would fire if these turned: a == 1; b == 1"),
        ("not a == 1", {}, "  it would not fire if this turned: a == 1"),
        ("not once c == 1", {}, "  no predicates at this event would turn that"),
    ],
)
def test_what_would_turn_the_verdict_is_told(
    detector: Detector, explained: Callable[..., Result], condition: str, event: dict[str, Any], last: str
) -> None:
    detector.add_rule("rule", condition)
    detector.evaluate({"c": 1}, 0)
    assert explained({"time": 0, **event}).stdout.splitlines()[-1] == last


@pytest.mark.parametrize(("elapsed_ms", "told"), [(500, "0.5 s"), (90_000, "1.5 min"), (9_000_000, "2.5 h")])
def test_it_is_told_how_long_ago_an_event_was(
    detector: Detector, explained: Callable[..., Result], elapsed_ms: int, told: str
) -> None:
    detector.add_rule("rule", "once c == 1")
    detector.evaluate({"c": 1}, 1_709_542_800_000)
    run = explained({"timestamp_ms": 1_709_542_800_000 + elapsed_ms})
    assert f"settled at 2024-03-04T09:00:00.000Z, {told} before" in run.stdout


def test_it_is_told_when_a_timed_rule_fires_if_nothing_else_comes(
    detector: Detector, explained: Callable[..., Result]
) -> None:
    detector.add_rule("silent", "per host (not once within 5m exists beat)", timed=True)
    run = explained({"time": 1_709_542_800, "host": "a", "beat": 1})
    told = (
        "it fires by time at 2024-03-04T09:05:00.000Z, after 5 min, if the event comes and then nothing else"
    )
    assert run.stdout.splitlines()[-1] == f"  {told}"
    run = explained({"time": 1, "host": "a", "beat": 1}, options=("-o", "json"))
    assert json.loads(run.stdout)["rules"][0]["fires_ms"] == 301_000.001


def test_one_rule_can_be_named_and_the_answer_given_as_it_came(
    detector: Detector, explained: Callable[..., Result]
) -> None:
    detector.add_rule("first", "a == 1")
    second = detector.add_rule("second", "a == 2")
    for name in ("second", second):
        run = explained({"time": 0, "a": 2}, options=("--rule", name, "-o", "json"))
        [rule] = json.loads(run.stdout)["rules"]
        assert (rule["ruleId"], rule["verdict"]) == (second, True)
    detector.add_rule("second", "a == 3")
    run = explained({"time": 0}, options=("--rule", "second"))
    assert (run.exit_code, "2 rules are named `second`" in run.stderr) == (1, True)
    run = explained({"time": 0}, options=("--rule", "third"))
    there = "there are `first`, `second`, `second`\n"
    assert (run.exit_code, run.stderr) == (1, "rule-detector: no rule has the id or name `third`: " + there)


def test_an_event_is_found_by_its_number(detector: Detector, explained: Callable[..., Result]) -> None:
    detector.add_rule("rule", "a == 2")
    events = ({"time": 0, "a": 1}, {"time": 1, "a": 2})
    assert explained(*events).stdout.startswith("rule: does not fire\n")
    assert explained(*events, options=("--number", "2")).stdout.startswith("rule: fires\n")
    run = explained(*events, options=("--number", "3"))
    assert run.exit_code == 1
    assert run.stderr.endswith("events.ndjson: there is no event 3\n")
