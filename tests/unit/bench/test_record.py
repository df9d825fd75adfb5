"""`--check` finds what has become worse, and nothing else."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import tests.bench.__main__ as program
from tests.bench.measuring.effort import QUICK
from tests.bench.measuring.rows import Part, Row, Target
from tests.bench.recording import pages
from tests.bench.recording.pages import (
    CURVE_COUNTS,
    CURVE_HEADINGS,
    FOLDER,
    HEADLINE_HEADINGS,
    HEADLINES,
    PLACES,
)
from tests.bench.recording.record import (
    MEASURED_AGAIN_MAX,
    ratios_recorded,
    record,
    recorded_rows,
    settled,
    worse_than_recorded,
)
from tests.bench.recording.sizing_page import BATCHED, PAGE, SINGLE, write_sizing
from tests.bench.recording.table import HEADINGS

QUICKLY = ["--quick"]


def row(name: str, ratio: float, case: str = "scripted", tolerance: float = 0.25) -> Row:
    return Row(case=case, name=name, unit="µs", ours=ratio, floor=1.0, ratio=ratio, tolerance=tolerance)


class Scripted:
    """A part that gives the ratios of its script, one measurement after another; the last one stays."""

    def __init__(self, **ratios: list[float]) -> None:
        self.ratios = ratios
        self.measured = 0

    def __call__(self) -> list[Row]:
        place = self.measured
        self.measured += 1
        return [row(name, script[min(place, len(script) - 1)]) for name, script in self.ratios.items()]


def worse(script: Scripted, recorded: Mapping[str, float]) -> list[str]:
    part = Part("scripted", script)
    return [each.key for each in worse_than_recorded([(part, part.measure())], recorded)]


def test_a_ratio_that_stays_worse_is_called_worse_after_it_was_measured_again() -> None:
    script = Scripted(slow=[2.6, 2.7, 2.6], fine=[1.0])
    assert worse(script, {"scripted: slow": 2.0, "scripted: fine": 1.0}) == ["scripted: slow"]
    assert script.measured == 1 + MEASURED_AGAIN_MAX


def test_noise_within_the_tolerance_is_not_measured_again() -> None:
    script = Scripted(noisy=[2.49])
    assert worse(script, {"scripted: noisy": 2.0}) == []
    assert script.measured == 1


@pytest.mark.parametrize("calm_at", range(1, 1 + MEASURED_AGAIN_MAX))
def test_one_calm_measurement_is_enough(calm_at: int) -> None:
    script = Scripted(noisy=[9.0] * calm_at + [2.0] + [9.0] * 5)
    assert worse(script, {"scripted: noisy": 2.0}) == []
    assert script.measured == 1 + calm_at


def test_each_row_may_be_calm_at_another_time() -> None:
    script = Scripted(one=[2.0, 9.0, 9.0], other=[9.0, 9.0, 2.0])
    assert worse(script, {"scripted: one": 2.0, "scripted: other": 2.0}) == []


def test_a_better_ratio_and_one_that_was_never_recorded_are_not_worse() -> None:
    assert worse(Scripted(better=[0.1], fresh=[1e6]), {"scripted: better": 2.0}) == []


def test_a_row_tolerates_what_it_says() -> None:
    results = [
        (Part("scripted", lambda: [row("wide", 5.9, tolerance=2.0)]), [row("wide", 5.9, tolerance=2.0)])
    ]
    assert worse_than_recorded(results, {"scripted: wide": 2.0}) == []
    assert len(worse_than_recorded(results, {"scripted: wide": 1.9})) == 1


def test_what_is_recorded_is_read_again_and_other_cases_and_efforts_stay(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    record([row("a", 1.25), row("b", 3.0, case="other")], "quick", path)
    record([row("a", 7.0)], "full", path)
    record([row("renamed", 2.0)], "quick", path)
    assert ratios_recorded("quick", path) == {"other: b": 3.0, "scripted: renamed": 2.0}
    assert ratios_recorded("full", path) == {"scripted: a": 7.0}
    for entry in json.loads(path.read_text("utf-8"))["quick"].values():
        assert {"ratio", "date", "machine", "python"} <= set(entry)


def test_a_lucky_measurement_is_not_what_is_recorded() -> None:
    script = Scripted(noisy=[1.0, 2.2, 2.0], steady=[3.0])
    part = Part("scripted", script)
    assert [row.ratio for row in settled([(part, part.measure())])] == [2.0, 3.0]
    assert script.measured == 3


def test_a_part_whose_measurement_has_many_passes_is_recorded_as_it_was_measured_once() -> None:
    script = Scripted(steady=[3.0, 4.0])
    part = Part("scripted", script, settles=False)
    assert [row.ratio for row in settled([(part, part.measure())])] == [3.0]
    assert script.measured == 1


def test_the_worst_of_all_measurements_is_recorded_beside_a_typical_one() -> None:
    def measured(ratio: float, ours: float, worst: float) -> list[Row]:
        return [replace(row("noisy", ratio), ours=ours, worst=worst)]

    for times, expected in (
        ([(1.0, 10.0, 19.0), (3.0, 30.0, 31.0), (2.0, 20.0, 50.0)], (2.0, 20.0, 50.0)),
        # Of a rate the lowest is the worst.
        ([(1.0, 30.0, 28.0), (3.0, 10.0, 9.0), (2.0, 20.0, 15.0)], (2.0, 20.0, 9.0)),
    ):
        script = iter([measured(*one) for one in times])
        part = Part("scripted", lambda script=script: next(script))
        (settled_row,) = settled([(part, part.measure())])
        assert (settled_row.ratio, settled_row.ours, settled_row.worst) == expected


def test_the_rows_of_a_part_are_of_one_measurement() -> None:
    script = Scripted(one=[1.0, 2.0, 3.0], other=[5.0, 7.5, 7.0], third=[1.0, 1.4, 1.2])
    part = Part("scripted", script)
    # The medians row by row are 2, 7 and 1.2, which nobody measured together.
    assert [row.ratio for row in settled([(part, part.measure())])] == [2.0, 7.5, 1.4]


def test_a_growth_recorded_without_its_yardstick_is_shown_as_times_fewer_rules(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    names = ("20000 over 1000", "100000 rules over 300", "1000 rules")
    path.write_text(json.dumps({"full": {f"shared: {name}": {"ratio": 1.5} for name in names}}), "utf-8")
    assert [row.over for row, _ in recorded_rows("full", path)] == ["1000 rules", "300 rules", "floor"]


def aimed(name: str, ratio: float, *, met: bool) -> Row:
    return replace(row(name, ratio), target=Target(text="at most 2x", met=met))


def test_a_target_that_was_met_is_to_be_met_again(scripts, recorded, capsys) -> None:
    record([aimed("steady", 1.9, met=True), aimed("far", 3.0, met=False)], QUICK.name, recorded)
    scripts["scripted"] = [aimed("steady", 2.1, met=False), aimed("far", 3.0, met=False)]
    assert program.main([*QUICKLY, "--check"], recorded) == 1
    said = capsys.readouterr().out
    assert "scripted: steady: misses its target (at most 2x), which was met when recorded" in said
    assert "far: misses" not in said
    scripts["scripted"] = [aimed("steady", 1.9, met=True), aimed("far", 3.1, met=False)]
    assert program.main([*QUICKLY, "--check"], recorded) == 0


def test_a_target_that_is_met_once_is_not_missed() -> None:
    rows = iter([[aimed("noisy", 2.1, met=False)], [aimed("noisy", 2.0, met=True)]])
    part = Part("scripted", lambda: next(rows))
    key = "scripted: noisy"
    assert worse_than_recorded([(part, part.measure())], {key: 1.9}, met={key}) == []


def test_the_pages_show_what_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "CASES", {"first": None, "curve": None, "second": None})
    monkeypatch.setattr(pages, "HEADLINES", {"second: all": "All of it", "second: gone": "None of it"})
    path = tmp_path / "recorded.json"
    full = Row(
        case="second",
        name="all",
        unit="ms",
        ours=1.25,
        worst=3.5,
        floor=1.0,
        peers={"p": 2.0, "q": "not installed"},
        ratio=1.2,
        target=Target(text="at most 2x", met=True),
        remark="7 calls",
    )
    steps = [row(f"keyed, {count} rules", 0.5 + count, case="curve") for count in CURVE_COUNTS]
    largest = replace(row("keyed, the largest step", 1.5, case="curve"), remark="from 2 to 3 rules")
    record([full], "full", path)
    record([row("early", 2.0, case="first")], "full", path)
    record([*steps, largest], "full", path)
    document = json.loads(path.read_text("utf-8"))
    earlier = document["full"]["first: early"]
    document["full"]["first: early"] = {
        name: earlier[name] for name in ("ratio", "date", "machine", "python")
    }
    path.write_text(json.dumps(document), "utf-8")
    few, every = tmp_path / "README.md", tmp_path / "TABLE.md"
    for page, headings in (few, (HEADLINE_HEADINGS, CURVE_HEADINGS)), (every, (HEADINGS, PLACES)):
        page.write_text("before\n\n" + "".join(map(_table, headings)) + "after\n", "utf-8")
    assert program.main(["--table"], path, tmp_path) == 0
    assert few.read_text("utf-8") == (
        "before\n\n"
        f"{_header(HEADLINE_HEADINGS)}"
        "| All of it | 1.25 ms, worst 3.50 | floor 1.00, p 2.00, q not installed | 1.20x floor "
        "| `python -m tests.bench second` |\n\n"
        f"{_header(CURVE_HEADINGS)}"
        "| keyed | 1.50 | 8.50 | 33.5 | 81.5 | 200 | 1.50x, from 2 to 3 rules |\n\nafter\n"
    )
    measured_on = " | ".join(earlier[name] for name in ("date", "machine", "python"))
    assert every.read_text("utf-8") == (
        "before\n\n"
        f"{_header(HEADINGS)}"
        "| first | early |  |  |  |  |  | 2.00x floor |  |\n"
        "| second | all | ms (7 calls) | 1.25 | 3.50 | 1.00 | p 2.00, q not installed | 1.20x floor "
        "| at most 2x: met |\n\n"
        f"{_header(PLACES)}"
        f"| `first`, `curve`, `second` | {measured_on} |\n\nafter\n"
    )
    again = [page.read_text("utf-8") for page in (few, every)]
    program.main(["--table"], path, tmp_path)
    assert [page.read_text("utf-8") for page in (few, every)] == again


def test_the_pages_are_those_of_what_is_recorded(tmp_path: Path) -> None:
    written = [*FOLDER.glob("*.md"), PAGE]
    for page in written:
        shutil.copy(page, tmp_path)
    assert program.main(["--table"], pages=tmp_path, sizing=tmp_path / PAGE.name) == 0
    for page in written:
        assert (tmp_path / page.name).read_text("utf-8") == page.read_text("utf-8"), "run --table"


def test_the_model_of_a_cluster_is_computed_from_what_is_recorded(tmp_path: Path) -> None:
    page = tmp_path / PAGE.name
    shutil.copy(PAGE, page)
    cpu = {SINGLE: "CPU a request: front end 50 µs, actor 20, bare 27", BATCHED: "front end 0.5 µs, actor 4"}
    write_sizing({key: replace(row(key, 1.0), remark=remark) for key, remark in cpu.items()}, page)
    lines = page.read_text("utf-8").splitlines()
    for line in (
        "| one evaluation | 50 µs | 20 µs | 1 µs |",
        "| one event of a batch of 1 000 | 0.5 µs | 4 µs |  |",
        "| front ends | 1 s / 50 µs: 20 000 a second and core | 5.0 cores busy: 8 front ends at 70 % |",
        "one detector has one thread | 2.0 cores busy, over at least 2 detectors |",
        "250 000 and *detector* | 0.1 cores busy in front ends, 0.4 in workers |",
    ):
        assert any(each.endswith(line) for each in lines)


def test_every_headline_is_of_a_row_that_is_recorded() -> None:
    assert HEADLINES.keys() <= ratios_recorded("full").keys()


def _table(headings: Sequence[str]) -> str:
    return f"{_header(headings)}| old |\n\n"


def _header(headings: Sequence[str]) -> str:
    return f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}\n"


def test_nothing_is_recorded_where_nothing_was(tmp_path: Path) -> None:
    assert ratios_recorded("quick", tmp_path / "absent.json") == {}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "recorded.json"
    record([row("steady", 2.0), row("other's", 5.0, case="elsewhere")], QUICK.name, path)
    return path


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[Row]]]:
    """The rows of the only case there is, to be set by the test."""
    rows: dict[str, list[Row]] = {"scripted": [row("steady", 2.0)]}

    def parts(_: object) -> list[Part]:
        return [Part("scripted", lambda: rows["scripted"])]

    monkeypatch.setattr(program, "CASES", {"scripted": parts})
    return rows


def test_the_command_succeeds_where_all_is_as_recorded(scripts, recorded, capsys) -> None:
    assert program.main([*QUICKLY, "--check"], recorded) == 0
    assert "1 ratios compared, 0 worse" in capsys.readouterr().out


def test_the_command_fails_and_says_which_ratio_is_worse(scripts, recorded, capsys) -> None:
    scripts["scripted"] = [row("steady", 2.6)]
    assert program.main([*QUICKLY, "--check"], recorded) == 1
    assert "worse: scripted: steady: 2.6x, recorded 2x" in capsys.readouterr().out


def test_the_command_fails_where_a_recorded_row_is_gone(scripts, recorded, capsys) -> None:
    scripts["scripted"] = [row("renamed", 2.0), row("steady", 2.0)]
    assert program.main([*QUICKLY, "--check"], recorded) == 0
    assert "not recorded yet: scripted: renamed" in capsys.readouterr().out
    record([row("steady", 2.0), row("lost", 2.0)], QUICK.name, recorded)
    assert program.main([*QUICKLY, "--check"], recorded) == 1
    assert "not measured any more: scripted: lost" in capsys.readouterr().out


def test_the_command_fails_where_there_is_nothing_to_compare_with(scripts, tmp_path) -> None:
    assert program.main([*QUICKLY, "--check"], tmp_path / "absent.json") == 1


def test_without_check_a_worse_ratio_is_no_failure(scripts, recorded) -> None:
    scripts["scripted"] = [row("steady", 99.0)]
    assert program.main(QUICKLY, recorded) == 0
    assert ratios_recorded(QUICK.name, recorded)["scripted: steady"] == 2.0


def test_a_row_that_is_recorded_though_it_is_worse_is_named(scripts, recorded, capsys) -> None:
    scripts["scripted"] = [row("steady", 2.4)]
    assert program.main([*QUICKLY, "--record"], recorded) == 0
    assert "though worse" not in capsys.readouterr().out
    scripts["scripted"] = [row("steady", 3.1)]
    assert program.main([*QUICKLY, "--record"], recorded) == 0
    assert "recorded, though worse: scripted: steady: 3.1x, recorded 2.4x" in capsys.readouterr().out


def test_recording_comes_after_checking(scripts, recorded) -> None:
    scripts["scripted"] = [row("steady", 99.0)]
    assert program.main([*QUICKLY, "--check", "--record"], recorded) == 1
    assert program.main([*QUICKLY, "--check"], recorded) == 0


def test_some_parts_are_measured_checked_and_recorded_alone(scripts, recorded, monkeypatch) -> None:
    def parts(_: object) -> list[Part]:
        return [
            Part("scripted", lambda: [row("steady", 99.0)], "one"),
            Part("scripted", lambda: [row("fresh", 3.0)], "another"),
        ]

    monkeypatch.setattr(program, "CASES", {"scripted": parts})
    assert program.main([*QUICKLY, "--only", "anoth", "--record"], recorded) == 0
    assert ratios_recorded(QUICK.name, recorded) == {
        "scripted: steady": 2.0,
        "elsewhere: other's": 5.0,
        "scripted: fresh": 3.0,
    }
    assert program.main([*QUICKLY, "--only", "anoth", "--check"], recorded) == 0
    assert program.main([*QUICKLY, "--only", "one", "--check"], recorded) == 1


def test_a_case_that_is_not_there_is_wrong_usage(capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        program.main(["statless"])
    assert caught.value.code == 2
    assert "no such case: statless" in capsys.readouterr().err


def test_the_kept_record_speaks_of_the_cases_that_there_are() -> None:
    for effort in ("full", "quick"):
        ratios = ratios_recorded(effort)
        assert {key.partition(": ")[0] for key in ratios} == set(program.CASES), effort
