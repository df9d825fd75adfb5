"""`--check` finds what has become worse, `--record` keeps no loss unasked, pages show what is recorded."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import tests.bench.__main__ as program
from tests.bench.measuring.rows import Part, Row, Target
from tests.bench.recording import pages
from tests.bench.recording.checking import settled, worse_than_recorded
from tests.bench.recording.pages import HEADLINES, PAGES, ROOT
from tests.bench.recording.record import read, record
from tests.bench.rules.peers import NOT_INSTALLED


def row(name: str, ratio: float, case: str = "scripted", tolerance: float = 0.25) -> Row:
    return Row(case=case, name=name, unit="µs", ours=ratio, floor=1.0, ratio=ratio, tolerance=tolerance)


def aimed(name: str, ratio: float, *, met: bool) -> Row:
    return replace(row(name, ratio), target=Target(text="at most 2x", met=met))


class Scripted:
    """A part that gives the ratios of its script, one measurement after another; the last one stays."""

    def __init__(self, **ratios: list[float]) -> None:
        self.ratios = ratios
        self.measured = 0

    def __call__(self) -> list[Row]:
        place = self.measured
        self.measured += 1
        return [row(name, script[min(place, len(script) - 1)]) for name, script in self.ratios.items()]


RECORDED = {"one": 2.0, "other": 2.0}


@pytest.mark.parametrize(
    ("ratios", "worse", "measured"),
    [
        # Tolerated is a quarter here. Past it, all is measured again, at most twice.
        ({"one": [2.6, 2.7, 2.6], "other": [1.0]}, ["one"], 3),
        ({"one": [2.49], "other": [0.1], "new": [1e6]}, [], 1),
        ({"one": [9.0, 2.0, 9.0]}, [], 2),
        ({"one": [9.0, 9.0, 2.0, 9.0]}, [], 3),
        ({"one": [2.0, 9.0, 9.0], "other": [9.0, 9.0, 2.0]}, [], 3),
    ],
)
def test_a_ratio_that_stays_worse_is_called_worse(
    ratios: dict[str, list[float]], worse: list[str], measured: int
) -> None:
    script = Scripted(**ratios)
    part = Part("scripted", script)
    entries = {f"scripted: {name}": {"ratio": ratio} for name, ratio in RECORDED.items()}
    found = worse_than_recorded([(part, part.measure())], entries)
    assert [each.key for each in found] == [f"scripted: {name}" for name in worse]
    assert script.measured == measured


def test_a_row_tolerates_a_third_unless_it_says_otherwise() -> None:
    plain = Row(case="c", name="plain", unit="", ours=1.0, ratio=1.34)
    for measured, found in ((plain, 1), (replace(plain, tolerance=0.35), 0), (replace(plain, ratio=1.33), 0)):
        part = Part("c", lambda measured=measured: [measured])
        assert len(worse_than_recorded([(part, [measured])], {"c: plain": {"ratio": 1.0}})) == found


def test_a_target_that_is_met_once_is_not_missed() -> None:
    rows = iter([[aimed("noisy", 2.1, met=False)], [aimed("noisy", 2.0, met=True)]])
    part = Part("scripted", lambda: next(rows))
    entry = {"ratio": 1.9, "target": {"text": "at most 2x", "met": True}}
    assert worse_than_recorded([(part, part.measure())], {"scripted: noisy": entry}) == []


def test_a_lucky_measurement_is_not_what_is_recorded() -> None:
    script = Scripted(noisy=[1.0, 2.2, 2.0], steady=[3.0])
    part = Part("scripted", script)
    assert [row.ratio for row in settled([(part, part.measure())])] == [2.0, 3.0]
    assert script.measured == 3


def test_each_row_is_recorded_with_the_commit_the_machine_and_its_peers_and_other_cases_stay(
    tmp_path: Path,
) -> None:
    path = tmp_path / "recorded.json"
    peers = {"pytest": 2.0, "pytest, joined": 1.0, "no-such-package": NOT_INSTALLED}
    record([row("a", 1.25), row("b", 3.0, case="other")], path)
    record([replace(row("renamed", 2.0), peers=peers)], path)
    entries = read(path)
    assert {key: entry["ratio"] for key, entry in entries.items()} == {
        "other: b": 3.0,
        "scripted: renamed": 2.0,
    }
    for entry in entries.values():
        assert {"date", "machine", "python", "commit"} <= entry.keys()
    assert entries["scripted: renamed"]["peer versions"] == {"pytest": pytest.__version__}
    assert len(path.read_text("utf-8").splitlines()) == 2 + len(entries)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "recorded.json"
    record([row("steady", 2.0), row("other's", 5.0, case="elsewhere")], path)
    return path


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Row]]]:
    """The rows of the only case there is, to be set by the test."""
    rows: dict[str, list[Row]] = {"scripted": [row("steady", 2.0)]}
    parts = [Part("scripted", lambda: rows["scripted"], "one"), Part("scripted", list, "another")]
    monkeypatch.setattr(program, "CASES", {"scripted": lambda _: parts})
    return rows


def test_the_command_says_which_ratio_is_worse_and_which_row_is_new_or_gone(
    scripts, recorded, capsys
) -> None:
    assert program.main(["--check"], recorded) == 0
    assert "1 ratios compared, 0 worse" in capsys.readouterr().out
    scripts["scripted"] = [row("steady", 2.6), row("new", 1.0)]
    assert program.main(["--check"], recorded) == 1
    said = capsys.readouterr().out
    assert "worse: scripted: steady: 2.6x, recorded 2x" in said
    assert "not recorded yet: scripted: new" in said
    scripts["scripted"] = [row("new", 1.0)]
    assert program.main(["--check"], recorded) == 1
    assert "not measured any more: scripted: steady" in capsys.readouterr().out


def test_the_command_fails_where_there_is_nothing_to_compare_with(scripts, tmp_path) -> None:
    assert program.main(["--check"], tmp_path / "absent.json") == 1


def test_a_target_that_was_met_is_to_be_met_again(scripts, recorded, capsys) -> None:
    record([aimed("steady", 1.9, met=True), aimed("far", 3.0, met=False)], recorded)
    scripts["scripted"] = [aimed("steady", 2.1, met=False), aimed("far", 3.0, met=False)]
    assert program.main(["--check"], recorded) == 1
    said = capsys.readouterr().out
    assert "scripted: steady: misses its target (at most 2x), which was met when recorded" in said
    assert "far: misses" not in said


def test_nothing_is_recorded_without_being_asked(scripts, recorded) -> None:
    scripts["scripted"] = [row("steady", 99.0)]
    assert program.main([], recorded) == 0
    assert read(recorded)["scripted: steady"]["ratio"] == 2.0


def test_a_worse_ratio_is_recorded_only_with_a_reason_which_is_kept(scripts, recorded, capsys) -> None:
    scripts["scripted"] = [row("steady", 2.4)]
    assert program.main(["--record"], recorded) == 0
    # Small losses add up: the best ratio counts.
    scripts["scripted"] = [row("steady", 2.8), row("fine", 1.0)]
    assert program.main(["--record"], recorded) == 1
    assert "worse: scripted: steady: 2.8x, recorded 2x" in capsys.readouterr().out
    scripts["scripted"] = [row("steady", 3.1), row("fine", 1.0)]
    assert read(recorded)["scripted: steady"]["ratio"] == 2.4
    assert program.main(["--record", "--because", "events are checked"], recorded) == 0
    entries = read(recorded)
    assert entries["scripted: steady"]["ratio"] == 3.1
    assert entries["scripted: steady"]["because"] == "events are checked"
    assert "because" not in entries["scripted: fine"]


def test_some_parts_are_measured_checked_and_recorded_alone(scripts, recorded) -> None:
    assert program.main(["--only", "anoth", "--record"], recorded) == 0
    assert read(recorded).keys() == {"scripted: steady", "elsewhere: other's"}
    scripts["scripted"] = [row("steady", 99.0)]
    assert program.main(["--only", "one", "--check"], recorded) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["statless"], "no such case: statless"),
        (["--because", "it is late"], "goes with --record"),
    ],
)
def test_wrong_usage_is_refused(given: list[str], said: str, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        program.main(given)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


# -- the pages -----------------------------------------------------------------------------------------------


def test_the_pages_are_those_of_what_is_recorded(tmp_path: Path) -> None:
    copied(tmp_path)
    assert program.main(["--table"], root=tmp_path) == 0
    for page in PAGES:
        assert (tmp_path / page).read_text("utf-8") == (ROOT / page).read_text("utf-8"), "run --table"


def test_a_ratio_in_a_text_is_that_of_a_recorded_row(tmp_path: Path) -> None:
    times = copied(tmp_path) / pages.TIMES
    named = re.findall(r"<!-- (\w+: [^>]+) -->", times.read_text("utf-8"))
    assert len(named) > 3
    assert set(named) <= read().keys()
    times.write_text("takes <!-- scripted: a -->1.25 times, <!-- other: b -->3.0", "utf-8")
    pages.write_pages([(row("a", 2.0), dict.fromkeys(("date", "machine", "python", "commit"), ""))], tmp_path)
    assert times.read_text("utf-8") == "takes <!-- scripted: a -->2.00 times, <!-- other: b -->3.0"


def copied(folder: Path) -> Path:
    for page in PAGES:
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, folder / page)
    return folder


def test_the_record_has_every_headline_and_speaks_of_the_cases_that_there_are() -> None:
    entries = read()
    assert HEADLINES.keys() <= entries.keys()
    # None compares the product with itself.
    assert {entries[key].get("over", "floor") for key in HEADLINES} <= {
        "floor",
        "by hand",
        "plain dicts",
        "decoding alone",
        "decoding alone, in one process",
        "a bare call of Ray",
        "a bare application in the same fast way",
    }
    assert {key.partition(": ")[0] for key in entries} == set(program.CASES)
    assert all({"ratio", "date", "machine", "commit"} <= entry.keys() for entry in entries.values())
