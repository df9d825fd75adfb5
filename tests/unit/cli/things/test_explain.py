"""`rule-detector explain`: what it asks of a service, and how it tells the answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from engine import Detector
from tests.unit.cli.commands import run


@pytest.fixture
def explained(tmp_path: Path) -> Callable[..., Result]:
    """Runs the command on some events."""

    def explain(*events: dict[str, Any], options: str = "", status: int = 0) -> Result:
        file = tmp_path / "events.ndjson"
        file.write_text("".join(json.dumps(event) + "\n" for event in events), "utf-8")
        return run(f"explain {file} --detector shop --old-times {options}", status=status)

    return explain


def test_the_tree_is_told_with_values_slices_and_times(
    shop: Detector, explained: Callable[..., Result]
) -> None:
    shop.add_rule("login after a failed one", "ok == true and per user once within 10m ok == false")
    shop.evaluate({"user": "ada", "ok": False}, 1_709_542_803_120)
    told = explained({"time": "2024-03-04T09:00:44.120Z", "user": "ada", "ok": "true"})
    assert told.stdout == (
        "login after a failed one: does not fire\n"
        "  false  ok == true and per user once within 10m ok == false\n"
        '    false  ok == true; ok: "true"; `ok` is the string "true", compared with the boolean true\n'
        '    true   per user once within 10m ok == false; slice user: "ada"; until 2024-03-04T09:10:03.120Z\n'
        "      true   once within 10m ok == false; settled at 2024-03-04T09:00:03.120Z, 41 s before; until "
        "2024-03-04T09:10:03.120Z\n"
        '        false  ok == false; ok: "true"; `ok` is the string "true", compared with the boolean false\n'
        "  it would fire if this turned: ok == true\n"
    )


@pytest.mark.parametrize(
    ("condition", "event", "last"),
    [
        ("a == 1 and b == 1", {}, "  it would fire if these turned: a == 1; b == 1"),
        ("not a == 1", {}, "  it would not fire if this turned: a == 1"),
        ("not once c == 1", {}, "  no predicates at this event would turn that"),
    ],
)
def test_what_would_turn_the_verdict_is_told(
    shop: Detector, explained: Callable[..., Result], condition: str, event: dict[str, Any], last: str
) -> None:
    shop.add_rule("rule", condition)
    shop.evaluate({"c": 1}, 0)
    assert explained({"time": 0, **event}).stdout.splitlines()[-1] == last


@pytest.mark.parametrize(("elapsed_ms", "ago"), [(500, "0.5 s"), (90_000, "1.5 min"), (9_000_000, "2.5 h")])
def test_it_is_told_how_long_ago_an_event_was(
    shop: Detector, explained: Callable[..., Result], elapsed_ms: int, ago: str
) -> None:
    shop.add_rule("rule", "once c == 1")
    shop.evaluate({"c": 1}, 1_709_542_800_000)
    told = explained({"timestamp_ms": 1_709_542_800_000 + elapsed_ms})
    assert f"settled at 2024-03-04T09:00:00.000Z, {ago} before" in told.stdout


def test_it_is_told_when_a_timed_rule_fires_if_nothing_else_comes(
    shop: Detector, explained: Callable[..., Result]
) -> None:
    shop.add_rule("silent", "per host (not once within 5m exists beat)", timed=True)
    told = explained({"time": 1_709_542_800, "host": "a", "beat": 1})
    said = (
        "it fires by time at 2024-03-04T09:05:00.000Z, after 5 min, if the event comes and then nothing else"
    )
    assert told.stdout.splitlines()[-1] == f"  {said}"
    told = explained({"time": 1, "host": "a", "beat": 1}, options="-o json")
    assert json.loads(told.stdout)["rules"][0]["fires_ms"] == 301_000.001


def test_one_rule_can_be_named_and_the_answer_given_as_it_came(
    shop: Detector, explained: Callable[..., Result]
) -> None:
    shop.add_rule("first", "a == 1")
    second = shop.add_rule("second", "a == 2")
    for name in ("second", second):
        told = explained({"time": 0, "a": 2}, options=f"--rule {name} -o json")
        [rule] = json.loads(told.stdout)["rules"]
        assert (rule["ruleId"], rule["verdict"]) == (second, True)
    shop.add_rule("second", "a == 3")
    twice = explained({"time": 0}, options="--rule second", status=1)
    assert "2 rules are named `second`" in twice.stderr
    unknown = explained({"time": 0}, options="--rule third", status=1).stderr
    there = "there are `first`, `second`, `second`\n"
    assert unknown == "rule-detector: no rule has the id or name `third`: " + there


def test_an_event_is_found_by_its_number(shop: Detector, explained: Callable[..., Result]) -> None:
    shop.add_rule("rule", "a == 2")
    events = ({"time": 0, "a": 1}, {"time": 1, "a": 2})
    assert explained(*events).stdout.startswith("rule: does not fire\n")
    assert explained(*events, options="--number 2").stdout.startswith("rule: fires\n")
    none = explained(*events, options="--number 3", status=1)
    assert none.stderr.endswith("events.ndjson: there is no event 3\n")
