"""`rule-detector state`: what it asks of a service, and how it shows the answer."""

import json
import re

import msgspec
import pytest
from click.testing import Result

from api.cli.printing.explained_rules import node_lines
from engine import Detector
from rule_detector_client import ExplainedNode
from tests.unit.cli.commands import run


@pytest.fixture
def detector(shop: Detector) -> Detector:
    """A detector with three users and two rules, which a service answers for."""
    shop.add_rule("login", "ok == true and per user once within 10m ok == false")
    shop.add_rule("failed", "ok == false")
    for number, user in enumerate(["ada", "bob", "anna"]):
        shop.submit_clean_one({"user": user, "ok": False}, 1_000 * number, None)
        shop.forget_lookups()
    return shop


def state(*arguments: str) -> Result:
    return run("state --detector shop", *arguments)


def test_the_whole_in_numbers(detector: Detector) -> None:
    lines = state().stdout.splitlines()
    assert any("1970-01-01T00:00:02" in line for line in lines)
    assert ["indexed", "no"] in [line.split() for line in lines]
    assert any("live 3" in line and "user: 3" in line for line in lines)
    assert json.loads(state("-o", "json").stdout)["events"] == detector.events_seen == 3


@pytest.mark.usefixtures("detector")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--key", "user=ada"), "`--key` needs `--rule`"),
        (("--prefix", "a"), "`--prefix` and `--after` need `--list`"),
        (("--rule", "login", "--list", "keys"), "`--rule` and `--list` exclude each other"),
        (("--list", "keys", "--true"), "`--true` needs `--rule` and `--list keys`"),
    ],
)
def test_options_that_would_be_ignored_are_refused(arguments: tuple[str, ...], said: str) -> None:
    assert said in run("state --detector shop", *arguments, status=2).output


def test_lists_come_as_tables_page_by_page(detector: Detector) -> None:
    page = state("--list", "keys", "--sort", "seen", "--limit", "2").stdout
    assert "user=anna" in page
    assert "user=ada" not in page
    assert page.endswith("more: --after 2-0\n")
    rest = state("--list", "keys", "--sort", "seen", "--limit", "2", "--after", "2-0").stdout
    assert "user=ada" in rest
    assert "more" not in rest
    in_their_order = state("--list", "keys", "--limit", "2").stdout
    [after] = in_their_order.partition("more: --after ")[2].split()
    rest = state("--list", "keys", "--limit", "2", "--after", after).stdout
    assert sum(f"user={name} " in in_their_order + rest for name in ("ada", "bob", "anna")) == 3
    [*_, last] = state("--list", "rules", "--prefix", "f").stdout.splitlines()
    assert last.split()[:3] == ["2", "failed", "3"]
    assert "once within 10m ok == false" in state("--list", "nodes").stdout
    assert len(json.loads(state("--list", "rules", "-o", "json").stdout)["rules"]) == len(detector.rules())


@pytest.mark.usefixtures("detector")
def test_a_rule_is_shown_for_a_key() -> None:
    told = state("--rule", "login", "--key", "user=bob").stdout
    assert told == (
        "login\n"
        "  false  ok == true and per user once within 10m ok == false\n"
        "    false  ok == true; missing\n"
        '    true   per user once within 10m ok == false; slice user: "bob"; until 1970-01-01T00:10:01.000Z\n'
        "      true   once within 10m ok == false; settled at 1970-01-01T00:00:01.000Z, 1 s before; "
        "until 1970-01-01T00:10:01.000Z\n"
        "        false  ok == false; missing\n"
    )
    assert json.loads(state("--rule", "login", "-o", "json").stdout)["name"] == "login"


def test_it_is_told_when_a_timed_rule_fires_if_no_event_comes(detector: Detector) -> None:
    detector.add_rule("silent", "per user (not once within 5m exists ok)", timed=True)
    detector.submit_clean_one({"user": "ada", "ok": True}, 4_000, None)
    told = state("--rule", "silent", "--key", "user=ada").stdout
    assert told.endswith("\n  it fires by time at 1970-01-01T00:05:04.000Z, after 5 min, if no event comes\n")


def test_the_keys_for_which_a_rule_is_true_are_listed(detector: Detector) -> None:
    detector.add_rule("again", "per user once within 10m ok == false")
    detector.submit_clean_one({"user": "ada", "ok": False}, 4_000, None)
    detector.submit_clean_one({"user": "bob", "ok": True}, 4_000, None)
    arguments = "--rule", "again", "--list", "keys", "--true"
    assert "user=ada" in state(*arguments).stdout
    assert "user=bob" not in state(*arguments).stdout
    [more] = re.findall(r"\nmore: --after (\d+-0)\n$", state(*arguments, "--limit", "1").stdout)
    assert "user=" not in state(*arguments, "--after", more).stdout


def test_since_when_a_verdict_stands_is_told_apart_from_what_settles_it() -> None:
    node = ExplainedNode(text="a == 1", verdict=True, witness_ms=1_000, since_ms=6_000)
    [line] = node_lines(node, 8_000_000, "")
    assert line == (
        "true   a == 1; settled at 1970-01-01T00:00:01.000Z, 7 s before; "
        "at least since 1970-01-01T00:00:06.000Z"
    )
    for since_ms in (1_000, 8_000):
        [line] = node_lines(msgspec.structs.replace(node, since_ms=since_ms), 8_000_000, "")
        assert "since" not in line
