"""`try`: rules over recordings, without a service."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from api.cli.recordings.reading import RecordedEvent
from api.cli.rule_files.reading import conditions_of
from api.cli.trying.mismatches import Mismatches
from api.cli.trying.trial import Firing, Trial
from tests.unit.cli.commands import run as command


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, *lines: str) -> str:
    Path(name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return name


def tried(*arguments: object, code: int = 0) -> Result:
    return command("try", *arguments, status=code)


def login(second: float, ip: str, ok: bool = False, **fields: object) -> str:
    return json.dumps({"ts": 1_700_000_000 + second, "ip": ip, "ok": ok, **fields})


def lines_of(run: Result) -> list[str]:
    """The lines but for the one with the time that it took."""
    return [line for line in run.stdout.splitlines() if not re.fullmatch(r"\d+ events in .*", line)]


@pytest.fixture
def rules() -> str:
    return write("rules.yaml", "again: ok == false and per ip once within 10s n == 1", "never: n == 99")


@pytest.fixture
def events() -> str:
    return write("e.ndjson", login(0, "a", n=1), login(1, "b"), login(5, "a"), login(11, "a"))


def test_each_firing_has_its_time_key_and_line(rules: str, events: str) -> None:
    run = tried(rules, events)
    assert lines_of(run) == [
        "2023-11-14T22:13:20.000Z  again  ip=a  e.ndjson, line 1",
        "2023-11-14T22:13:25.000Z  again  ip=a  e.ndjson, line 3",
        "rule   key   fired  first at                  last at",
        "again  ip=a  2      2023-11-14T22:13:20.000Z  2023-11-14T22:13:25.000Z",
        "never        0",
    ]
    assert "never: it never fired" in run.stderr


def test_more_firings_than_wanted_are_only_counted(rules: str, events: str) -> None:
    lines = lines_of(tried(rules, events, "--show", "1"))
    assert lines[1] == "  `again`: further firings are only counted (--show)"
    assert lines[3].split()[:3] == ["again", "ip=a", "2"]


def test_programs_get_every_firing(rules: str, events: str) -> None:
    expected = [("2023-11-14T22:13:20.000Z", 1), ("2023-11-14T22:13:25.000Z", 3)]
    run = tried(rules, events, "-o", "json", "--show", "1")
    found = [json.loads(line) for line in lines_of(run)]
    assert [(one["time"], one["line"]) for one in found] == expected
    assert found[0]["event"] == {"ts": 1_700_000_000, "ip": "a", "ok": False, "n": 1}
    assert [found[0]["keys"], found[0]["time_ms"]] == [{"ip": "a"}, 1_700_000_000_000]
    assert "again  ip=a  2" in run.stderr
    assert found[0]["found"] == {}
    rows = list(csv.DictReader(io.StringIO(tried(rules, events, "-o", "csv").stdout)))
    assert [(row["time"], int(row["line"])) for row in rows] == expected
    assert json.loads(rows[0]["keys"]) == {"ip": "a"}


def test_the_table_counts_the_firings_of_each_key_and_shows_those_that_fired_most() -> None:
    rules = write("rules.yaml", "often: per ip (count(ok == false) within 1h >= 2)")
    lines = [login(place, f"a{place % 30}") for place in range(90)] + [login(100, "a7")]
    run = tried(rules, write("e.ndjson", *lines), "--show", "0")
    rows = [line.split() for line in lines_of(run)[1:]]
    assert rows[0][:3] == ["often", "ip=a7", "3"]
    assert len(rows) == 21
    assert rows[20] == ["often", "10", "more", "keys", "20"]
    [first, *_] = map(json.loads, tried(rules, "e.ndjson", "-o", "json").stdout.splitlines())
    assert (first["keys"], first["found"]) == ({"ip": "a0"}, {"count(ok == false) within 1h": 2})


def test_firings_can_go_to_a_file_with_the_table_on_standard_output(rules: str, events: str) -> None:
    run = tried(rules, events, "-o", "json", "--to", "out.ndjson")
    assert lines_of(run)[0].startswith("rule ")
    assert len(Path("out.ndjson").read_text("utf-8").splitlines()) == 2


def test_parquet_is_a_table_of_typed_columns(rules: str, events: str) -> None:
    tried(rules, events, "-o", "parquet", code=2)
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    tried(rules, events, "-o", "parquet", "--to", "out.parquet")
    table = parquet.read_table("out.parquet")
    assert table.column("line").to_pylist() == [1, 3]
    assert table.column("time").to_pylist()[0].isoformat() == "2023-11-14T22:13:20+00:00"


def test_without_pyarrow_parquet_says_what_is_missing(
    rules: str, events: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    out = Path(write("out", "what was there"))
    run = tried(rules, events, "-o", "parquet", "--to", "out", code=1)
    assert "pip install pyarrow" in run.stderr
    assert out.read_text() == "what was there\n"


@pytest.mark.parametrize("form", ["table", "json", "csv", "parquet"])
def test_a_trial_that_fails_leaves_its_file_as_it_was(
    rules: str, events: str, here: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    out = Path(write("out", "what was there"))
    there = sorted(here.iterdir())
    tried(rules, "nowhere", "-o", form, "--to", "out", code=1)
    tried("nowhere.yaml", events, "-o", form, "--to", "out", code=1)

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(Trial, "evaluate", broken)
        with pytest.raises(RuntimeError):
            tried(rules, events, "-o", form, "--to", "out")
    assert out.read_text() == "what was there\n"
    assert sorted(here.iterdir()) == there
    tried(rules, events, "-o", form, "--to", "out")
    assert out.read_bytes() != b"what was there\n"
    assert sorted(here.iterdir()) == there


def test_a_file_for_the_firings_keeps_its_permissions_and_links(rules: str, events: str, here: Path) -> None:
    out = Path(write("out", "old"))
    out.chmod(0o640)
    Path("link").symlink_to("out")
    tried(rules, events, "-o", "json", "--to", "link")
    assert Path("link").is_symlink()
    assert len(out.read_text().splitlines()) == 2
    assert out.stat().st_mode & 0o777 == 0o640
    tried(rules, events, "-o", "json", "--to", "/dev/null")
    assert Path("/dev/null").is_char_device()
    assert "no such file or directory" in tried(rules, events, "--to", "no/where", code=1).stderr
    assert "is a directory" in tried(rules, events, "--to", ".", code=1).stderr


def test_a_file_of_firings_has_no_control_character(here: Path) -> None:
    rules = write("r.yaml", '"\\u202er": per ip n == 1')
    events = write("e\n.ndjson", login(0, "a\x1b\x9b", n=1))
    for form, rows in (("table", 1), ("csv", 2), ("json", 1)):
        tried(rules, events, "-o", form, "--to", "out")
        text = Path("out").read_text("utf-8")
        assert len(list(csv.reader(io.StringIO(text))) if form == "csv" else text.splitlines()) == rows
        assert "\\u202er" in text
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)


def test_one_event_of_one_rule_is_explained(rules: str, events: str) -> None:
    run = tried(rules, events, "--explain", "again", "--line", "3")
    assert run.stdout.splitlines() == [
        "2023-11-14T22:13:25.000Z  e.ndjson, line 3",
        "again: fires",
        "  true   ok == false and per ip once within 10s n == 1; until 2023-11-14T22:13:30.000Z",
        "    true   ok == false; ok: false",
        '    true   per ip once within 10s n == 1; slice ip: "a"; until 2023-11-14T22:13:30.000Z',
        (
            "      true   once within 10s n == 1; settled at 2023-11-14T22:13:20.000Z, 5 s before; "
            "until 2023-11-14T22:13:30.000Z"
        ),
        "        false  n == 1; missing",
        "  it would not fire if this turned: ok == false",
    ]
    assert "does not fire" in tried(rules, events, "--explain", "again", "--line", "4").stdout


def test_with_two_versions_both_are_explained(rules: str, events: str) -> None:
    write("old.yaml", "again: ok == false and per ip once within 4s n == 1")
    lines = lines_of(tried(rules, events, "--against", "old.yaml", "--explain", "again", "--line", "3"))
    assert lines[1] == "again: fires"
    old = lines.index("In the older version:")
    assert lines[old + 1] == "again: does not fire"
    assert "within 4s" in lines[old + 2]
    none = tried(rules, events, "--against", "old.yaml", "--explain", "never", "--line", "3")
    assert "In the older version:" not in none.stdout


def test_what_cannot_be_explained_is_told(rules: str, events: str) -> None:
    assert "did you mean `again`" in tried(rules, events, "--explain", "agian", "--line", "3", code=1).stderr
    unknown = tried(rules, events, "--explain", "something else", "--line", "3", code=1).stderr
    assert "`something else`: there are `again`, `never`" in unknown
    assert "no event is at line 9" in tried(rules, events, "--explain", "again", "--line", "9", code=1).stderr
    assert "go together" in tried(rules, events, "--explain", "again", code=2).stderr


def test_two_versions_of_the_rules_are_compared_event_by_event(rules: str, events: str) -> None:
    write(
        "old.yaml", "again: ok == false and per ip once within 4s n == 1", "gone: ip == 'b'".replace("'", '"')
    )
    run = tried(rules, events, "--against", "old.yaml")
    assert lines_of(run) == [
        "- 2023-11-14T22:13:21.000Z  gone  e.ndjson, line 2",
        "+ 2023-11-14T22:13:25.000Z  again  ip=a  e.ndjson, line 3",
        "rule   only new  only old  both  first at                  last at",
        "again  1         0         1     2023-11-14T22:13:20.000Z  2023-11-14T22:13:25.000Z",
        "never  0         0         0",
        "gone   0         1         0     2023-11-14T22:13:21.000Z  2023-11-14T22:13:21.000Z",
    ]


def test_events_out_of_order_are_told_and_can_be_sorted(rules: str) -> None:
    late = write("late.ndjson", login(0, "a", n=1), login(12, "a"), login(9, "a"))
    run = tried(rules, late, "--max-late", "0s")
    assert [line.rsplit(" ", 1)[1] for line in lines_of(run)[:1]] == ["1"]
    assert "1 event came late, by up to 3s: 1 evaluated at the time of the latest one before" in run.stderr
    assert "`--max-late 3s` sorts them" in run.stderr
    for options in (["--max-late", "3s"], []):
        run = tried(rules, late, *options)
        assert [line.rsplit(" ", 1)[1] for line in lines_of(run)[:2]] == ["1", "3"]
        assert "late" not in run.stderr
    assert "expected a duration" in tried(rules, late, "--max-late", "3", code=2).stderr


def test_very_late_events_are_told_in_one_line_with_the_option_that_sorts_them(rules: str) -> None:
    late = write("late.ndjson", *[login(n % 2 * 3_000 - n, "a") for n in range(200)])
    run = tried(rules, late, "--max-late", "0s", code=1)
    said = [line for line in run.stderr.splitlines() if "late" in line]
    assert said == [
        (
            "rule-detector: 198 events came late, by up to 54m: 99 evaluated at the time of the latest one "
            "before, 99 refused; `--max-late 54m` sorts them"
        )
    ]
    for options in (["--max-late", "54m"], []):
        assert "late" not in tried(rules, late, *options).stderr


HOSTS = (
    [(60 * n, "a", "fail" if n == 3 else "view") for n in range(12)],
    [(60 * n + 30, "b", "login" if n == 3 else "view") for n in range(12)],
)


@pytest.mark.parametrize("options", [["--max-late", "30m"], []])
def test_the_events_of_several_files_are_merged_by_time(options: list[str]) -> None:
    rules = write("r.yaml", 'r: kind == "login" and per user (earlier within 60s kind == "fail")')
    files = [
        write(
            f"{lines[0][1]}.ndjson",
            *(json.dumps({"ts": 1_704_067_200 + s, "user": "ada", "kind": kind}) for s, _, kind in lines),
        )
        for lines in HOSTS
    ]
    for order in (files, files[::-1]):
        run = tried(rules, *order, *options)
        assert lines_of(run)[0].endswith("user=ada  b.ndjson, line 4")
        assert "fired" in run.stdout
        assert "late" not in run.stderr


SSH = (
    "Nov 14 22:13:20 host sshd[1]: Failed password for root from 192.0.2.1 port 22 ssh2",
    "Nov 14 22:13:21 host sshd[1]: Failed password for invalid user eve from 192.0.2.1 port 23 ssh2",
    "Nov 14 22:13:22 host sshd[1]: Failed password for invalid user  from 192.0.2.1 port 24 ssh2",
    "Nov 14 22:13:23 host sshd[1]: Accepted publickey for root",
)


@pytest.mark.parametrize("name", ["try", "replay"])
def test_the_patterns_of_the_help_take_users_that_do_not_exist(name: str) -> None:
    shown = command(f"{name} --help", terminal_width=10_000).output
    patterns = re.findall(r"(?:`|')(\^\(\?P<time>.*? port)", shown.replace("\n", " "))
    assert patterns
    log = write("auth.log", *SSH)
    os.utime(log, (1_700_100_000, 1_700_100_000))
    rules = write("r.yaml", 'r: ip == "192.0.2.1"')
    for wrong, said in (("a", "named groups"), ("(", "--pattern")):
        assert said in tried(rules, log, "--pattern", wrong, code=2).stderr
    for pattern in patterns:
        run = tried(rules, log, "--pattern", pattern, "-o", "json")
        assert [json.loads(line)["event"].get("user") for line in lines_of(run)] == ["root", "eve", None]
        assert "line 4: no match of the pattern; skipped: `Nov 14 22:13:23 host" in run.stderr


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        ('kynd == "x"', "no event has `kynd`; did you mean `kind`?"),
        ("kind > 5", "`kind` is a string in every event that has it, never a number"),
        ('kind == "Failed"', "`kind` is never `Failed`; the recording has `failed`"),
        ('kind in ["failed", "nothing like it"]', "`kind` is never `nothing like it`"),
    ],
)
def test_what_does_not_fit_together_is_told(condition: str, hint: str) -> None:
    mismatches = Mismatches(conditions_of(f"rule: {condition}", "r"))
    assert list(mismatches.lines()) == []
    mismatches.add_all([{"kind": "failed"}])
    assert [line for line in mismatches.lines() if hint in line]


def test_a_fact_with_very_many_values_is_no_enumeration() -> None:
    mismatches = Mismatches(conditions_of('rule: kind == "x"', "r"))
    for number in range(1_100):
        mismatches.add_all([{"kind": str(number)}])
    assert list(mismatches.lines()) == []


def test_a_rule_that_fires_at_every_event_is_told(events: str) -> None:
    always = write("always.yaml", "always: once ok == false")
    assert "always: it fired at every event" in tried(always, events).stderr


def test_a_bad_line_ends_the_trial_after_the_events_before_it(rules: str) -> None:
    bad = write("bad.ndjson", login(0, "a", n=1), "{")
    run = tried(rules, bad, "--strict", code=1)
    assert "again  ip=a  1" in run.stdout
    assert "bad.ndjson, line 2: not JSON" in run.stderr
    assert tried("none.yaml", bad, code=1).stdout == ""


def test_what_cannot_be_read_at_all_has_no_table(rules: str) -> None:
    Path("binary.log").write_bytes(bytes(range(128, 256)))
    for name, said in (
        ("nowhere", "no such file"),
        ("binary.log", "neither NDJSON nor CSV: it is not valid"),
    ):
        run = tried(rules, name, code=1)
        assert f"rule-detector: {name}: {said}" in run.stderr
        assert "fired" not in run.stdout


@pytest.mark.parametrize("options", [[], ["--pattern", "^nothing (?P<time>.*)"]])
def test_where_there_are_no_events_this_is_told(rules: str, options: list[str]) -> None:
    empty = write("some.log", *(["Dec 10 06:55:46 sshd"] if options else []))
    run = tried(rules, empty, *options)
    assert "warning: there are no events" in run.stderr
    assert "column types" not in run.output


def test_an_event_that_the_engine_refuses_is_counted_and_changes_nothing() -> None:
    said: list[Firing] = []
    trial = Trial(conditions_of("late: once n == 1", "r"), said.append)
    first = 1_700_000_000_000_000
    times = [first, first - 10**15, first + 1]
    trial.evaluate([RecordedEvent("e", line, {"n": line}, time) for line, time in enumerate(times)])
    assert sum(trial.refused.values()) == 1
    assert said == []


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [False, True], ids=["to its end", "until Ctrl-C"])
def test_a_live_pipe_is_shown_as_it_flows(rules: str, interrupted: bool) -> None:
    # A background job ignores SIGINT, and so do the processes that it starts.
    listens = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{listens}; from api.cli import main; main()", "try", rules, "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(login(0, "a", n=1) + "\n")
        process.stdin.flush()
        assert "again  ip=a  standard input, line 1" in process.stdout.readline()
        if interrupted:
            process.send_signal(signal.SIGINT)
        else:
            process.stdin.close()
        assert "again  ip=a  1" in process.stdout.read()
        assert process.wait(30) == (130 if interrupted else 0)


def test_relations_of_the_file_are_stored_and_what_is_sent_comes_first(events: str) -> None:
    rules = write(
        "r.yaml",
        "relations: {known: [a], nets: [10.0.0.0/8]}",
        "rules:",
        "  r: known(ip)",
        "  s: ip == $known",
    )
    run = tried(rules, events)
    assert [line.split()[-1] for line in lines_of(run) if "  r  " in line] == ["1", "3", "4"]
    # A stored relation is no variable.
    assert "no event has `$known`" in run.stderr
    assert "`known`, which" not in run.stderr
    sent = tried(rules, events, "--vars", write("v.json", '{"known": ["b"]}'))
    assert [line.split()[-1] for line in lines_of(sent) if "  r  " in line] == ["2"]
    explained = tried(rules, events, "--explain", "r", "--line", "3").stdout
    assert "r: fires" in explained
    old = tried(rules, events, "--against", write("old.yaml", "r: known(ip) and ip == 1"))
    assert [line.split()[-1] for line in lines_of(old) if "+ " in line] == ["1", "3", "4"]


def test_a_relation_that_no_detector_stores_is_named(events: str) -> None:
    rules = write("r.yaml", r'relations: {"a\u0001": [a]}', "rules:", "  r: a == 1")
    assert "name: expected 1 to 255 characters" in tried(rules, events, code=1).stderr


def test_what_fires_by_time_stands_between_the_lines() -> None:
    rules = write(
        "timed.yaml",
        "silent: {condition: per ip (not once within 5s exists n), timed: true}",
        "plain: n == 2",
    )
    events = write("e.ndjson", login(0, "a", n=1), login(1, "b", n=1), login(5.5, "b", n=2), login(9, "b"))
    shown = lines_of(tried(rules, events))
    assert shown[:2] == [
        "2023-11-14T22:13:25.000Z  silent  ip=a  by time",
        "2023-11-14T22:13:25.500Z  plain  e.ndjson, line 3",
    ]
    first, second = map(json.loads, lines_of(tried(rules, events, "-o", "json")))
    assert (first["timed"], first["line"], first["keys"], first["time_ms"]) == (
        True,
        None,
        {"ip": "a"},
        1_700_000_005_000.001,
    )
    assert "event" not in first
    assert (second["rule"], second["line"], "timed" in second) == ("plain", 3, False)


HOST_DOWN = Path(__file__).parents[3] / "data" / "host_down.ndjson"
"""A host is down for half an hour, and says so every minute."""


def test_a_rule_acts_at_most_once_in_the_time_that_its_file_says() -> None:
    write("r.yaml", "down: {condition: down == true, every_secs: 600, every_by: [host]}")
    lines = lines_of(tried("r.yaml", HOST_DOWN))
    assert [(line.split()[0][11:19], *line.partition("(")[1:]) for line in lines[:4]] == [
        ("00:00:00", "", ""),
        *((f"00:{minute}:00", "(", "9 held back)") for minute in (10, 20, 30)),
    ]
    run = tried("r.yaml", HOST_DOWN, "-o", "json")
    assert [json.loads(line).get("suppressed", 0) for line in lines_of(run)] == [0, 9, 9, 9]
