"""Small recordings at which people found that other tools could not say what they meant."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from api.cli import main

ITEMS = [
    {"items": [{"kind": "gift", "total": 150}, {"kind": "book", "total": 5}]},
    {"items": [{"kind": "gift", "total": 5}, {"kind": "book", "total": 150}]},
]
EXPIRING = [
    {"expires": "2024-01-15T00:00:00Z"},
    {"expires": "2024-02-01T01:00:00+02:00"},
    {"expires": 1705276800},
]
COUNTRIES = [{"user": "ada", "country": "DE", "amount": 5}, {"user": "ada", "country": "BR", "amount": 7}]
DEFECTS = [{"defects": 3, "stories": 5}, {"defects": 4, "stories": 5}, {"defects": 7, "stories": 5}]
CARDS = [{"card": 1, "amount": amount} for amount in (10, 25, 10, 40)]
ADDRESSES = [{"ip": "10.40.1.1"}, {"ip": "10.4.1.1"}, {"ip": "10.63.30.1"}]
LABELS = [{"kubernetes": {"labels": {"app.kubernetes.io/name": "web"}}}]
JANUARY = "time(expires) >= 1704067200 and time(expires) < 1706745600"


def written(folder: Path, events: list[dict[str, Any]], condition: str) -> list[str]:
    """Write a rule and its events, one a day, and return the paths of both files."""
    days = [{"time": f"2024-01-{day:02}T00:00:00Z"} | event for day, event in enumerate(events, 1)]
    (folder / "events.ndjson").write_text("".join(f"{json.dumps(event)}\n" for event in days))
    (folder / "rules.json").write_text(json.dumps({"rule": condition}))
    return [str(folder / "rules.json"), str(folder / "events.ndjson")]


@pytest.mark.parametrize(
    ("events", "condition", "lines"),
    [
        (ITEMS, 'some items (kind == "gift" and total > 100)', [1]),
        (EXPIRING, JANUARY, [1, 2]),
        (COUNTRIES, "per user (country != prev(country))", [2]),
        (COUNTRIES, "per user (amount == prev(amount))", []),
        (DEFECTS, "defects > stories", [3]),
        (CARDS, "per card (amount > 2 * earlier avg(amount) within 30d)", [2, 4]),
        (ADDRESSES, 'ip in network "10.32.0.0/11"', [1, 3]),
        (LABELS, '`kubernetes.labels.app.kubernetes.io/name` == "web"', [1]),
    ],
)
def test_a_rule_fires_where_people_expect_it_to(
    events: list[dict[str, Any]], condition: str, lines: list[int], tmp_path: Path
) -> None:
    found = CliRunner().invoke(main, ["try", *written(tmp_path, events, condition), "-o", "json"])
    assert found.exit_code == 0, found.output
    assert [json.loads(line)["line"] for line in found.stdout.splitlines()] == lines


def test_an_explanation_shows_what_the_terms_of_a_comparison_found(tmp_path: Path) -> None:
    files = written(tmp_path, CARDS, "per card (amount > 2 * earlier avg(amount) within 30d)")
    found = CliRunner().invoke(main, ["try", *files, "--explain", "rule", "--line", "2"])
    assert found.exit_code == 0, found.output
    assert (
        "found 2 * earlier avg(amount) within 30d: 20.0, earlier avg(amount) within 30d: 10.0" in found.stdout
    )
