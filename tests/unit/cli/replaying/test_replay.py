import io
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from rich.console import Console

from api.cli.printing.output import print_table
from api.cli.replaying.replay import HEADER, Replay
from engine import Detector
from tests.unit.cli.commands import run
from tests.unit.cli.fake_service import FakeService

ROWS = [
    (
        "a [bold] rule with a name that is far too long for a line of eighty",
        "12",
        "2024-03-04T09:20:00.213Z",
        "e, line 7",
    ),
    ("silent", "0", "", ""),
]


def printed(rows: Sequence[Sequence[str]]) -> str:
    file = io.StringIO()
    print_table(HEADER, rows, Console(file=file))
    return file.getvalue()


def test_plain_lines_are_aligned_and_whole() -> None:
    header, fired, silent = printed(ROWS).splitlines()
    assert header.index("fired") == fired.index("12") == silent.index("0")
    assert fired.split("  ")[0] == ROWS[0][0]
    assert fired.endswith("2024-03-04T09:20:00.213Z  e, line 7")


def test_on_a_narrow_terminal_nothing_is_cut_off() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    print_table(HEADER, ROWS, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2024-03-04T09:20:00.213Z" in shown
    assert "…" not in shown
    words = [cell.strip() for line in shown.splitlines() for cell in line.split("│")[1:2]]
    assert " ".join(words).strip() == f"{ROWS[0][0]} silent"


def test_on_a_terminal_too_narrow_for_folded_names_the_table_has_no_lines() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system=None)
    print_table(HEADER, ROWS, console)
    assert console.file.getvalue() == printed(ROWS)  # type: ignore[attr-defined]


def test_a_recording_without_rules_prints_the_header_alone() -> None:
    assert printed([]) == "rule  fired  first at  first event\n"


def test_a_missing_file_is_reported_before_the_service_is_called() -> None:
    told = run("replay nowhere.csv --detector d --create --url http://[::1]:9", status=1)
    assert told.stderr == "rule-detector: nowhere.csv: no such file\n"


def test_no_detector_is_created_that_would_have_no_rules(service: FakeService) -> None:
    told = run("replay - --detector new --create", status=1)
    assert told.stderr.startswith("rule-detector: a new detector `new` has no rules")
    assert service.names == {}


def test_ctrl_c_ends_it_with_the_table(shop: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.add_rule("logins", "a == 1")

    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(Replay, "run", interrupted)
    ended = run("replay - --detector shop", status=130)
    assert ended.stderr == ""
    assert ended.stdout.splitlines()[1].split() == ["logins", "0"]


def test_keys_are_asked_for_where_they_are_counted(shop: Detector, tmp_path: Path) -> None:
    shop.add_rule("failed", "per user once ok == false")
    (tmp_path / "e.ndjson").write_text(
        "".join(f'{{"time": {1_700_000_000 + n}, "user": "u{n // 2}", "ok": false}}\n' for n in range(3))
    )
    for option, expected in (
        ("--keys", [["failed", "user=u0", "2"], ["failed", "user=u1", "1"]]),
        ("", [["failed", "3", "2023-11-14T22:13:20.000Z"]]),
    ):
        shown = run(f"replay {tmp_path}/e.ndjson --detector shop {option}").stdout.splitlines()
        assert [line.split()[:3] for line in shown if line.startswith("failed")] == expected
