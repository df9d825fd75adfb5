import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from api.cli.recordings import documents, rows
from api.cli.recordings.reading import RecordedEvent
from api.cli.recordings.rows import ColumnType
from api.cli.recordings.skipping import RecordingError
from engine.patterns.named_groups import NamedGroups
from tests.unit.cli.recorded import read, written
from tests.work_growth import grows_linearly


def test_a_csv_row_has_the_types_that_its_cells_can_be(tmp_path: Path) -> None:
    content = (
        "when,n,f,e,zip,yes,no,none,text,big\r\n"
        '5,17,-1.5,2e3,00123,true,false,,"a, ""b""\nc",123456789012345678901234567890\r\n'
    )
    [event] = read(written(tmp_path, "e.csv", content.encode()), "when")
    assert event.fields == {
        "when": 5,
        "n": 17,
        "f": -1.5,
        "e": 2000.0,
        "zip": "00123",
        "yes": True,
        "no": False,
        "text": 'a, "b"\nc',
        "big": 123456789012345678901234567890,
    }


def test_the_cells_of_data_frames_are_booleans_and_missing(tmp_path: Path) -> None:
    content = "time,ok,n,code\n1,True,5,1e5\n2,False,NaN,2e3\n3,TRUE,,77\n"
    events = read(written(tmp_path, "e.csv", content.encode()))
    assert [event.fields for event in events] == [
        {"time": 1, "ok": True, "n": 5, "code": 1e5},
        {"time": 2, "ok": False, "code": 2e3},
        {"time": 3, "ok": True, "code": 77},
    ]


def test_a_csv_column_has_one_type_which_is_told(tmp_path: Path) -> None:
    content = "ts,user,n,ok,mixed,none\n1,1234,1,true,true,\n2,ada,2.5,,7,\n"
    told: list[str] = []
    path = written(tmp_path, "e.csv", content.encode())
    first, second = (event.fields for event in read(path, tell=told.append))
    assert first == {"ts": 1, "user": "1234", "n": 1, "ok": True, "mixed": "true"}
    assert second == {"ts": 2, "user": "ada", "n": 2.5, "mixed": "7"}
    types = "ts number, user text, n number, ok boolean, mixed text, none text"
    assert told == [f"{path}: column types from the first 2 rows: {types}"]


@pytest.mark.parametrize(
    ("type_", "cell", "value"),
    [("text", "1234", "1234"), ("number", "1234", 1234), ("boolean", "true", True)],
)
def test_a_column_has_the_type_that_is_given(
    tmp_path: Path, type_: ColumnType, cell: str, value: object
) -> None:
    path = written(tmp_path, "e.csv", f"ts,user\n1,{cell}\n".encode())
    assert read(path, types={"user": type_})[0].fields["user"] == value


@pytest.mark.storm
def test_a_cell_of_another_type_than_its_column_is_named_with_the_way_out(tmp_path: Path) -> None:
    rows = "".join(f"{n},{n}\n" for n in range(1, 400_000))
    path = written(tmp_path, "e.csv", f"ts,n\n{rows}400000,x\n".encode())
    with pytest.raises(RecordingError, match=r"line 400001: `n`: `x` is not a number.* `--types n=text`"):
        read(path, strict=True)


def test_a_type_is_given_to_a_column_that_is_there(tmp_path: Path) -> None:
    path = written(tmp_path, "e.csv", b"ts,n\n1,2\n")
    with pytest.raises(RecordingError) as refusal:
        read(path, types={"n": "text", "m": "text"})
    assert str(refusal.value) == f"{path}: --types names the column `m`; there are ts, n"


def test_the_types_of_a_live_pipe_are_decided_by_what_has_come() -> None:
    with pytest.raises(RecordingError, match="line 3: `user`: `ada` is not a number"):
        read("-", pieces=[b"ts,user\n1,1234\n", b"2,ada\n"], strict=True)


@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_are_numbers_up_to_the_digits_that_the_service_takes(tmp_path: Path, sign: str) -> None:
    longest, longer = sign + "9" * 4_000, sign + "9" * 4_001
    [event] = read(written(tmp_path, "e.csv", f"ts,a,b,c\n1,{longest},{longer},{sign}1e999\n".encode()))
    assert event.fields == {"ts": 1, "a": int(longest), "b": longer, "c": f"{sign}1e999"}


@pytest.mark.parametrize(("last_begins_at", "value"), [(2**20 - 1, 5), (2**20, "5")])
def test_the_lines_that_begin_in_the_first_megabyte_decide_the_types(
    tmp_path: Path, last_begins_at: int, value: object
) -> None:
    header, line = b"ts,n,text\n", b"1,,".ljust(2**16 - 1, b"a") + b"\n"
    content = (header + 16 * line)[: last_begins_at - 1] + b"\n9,5,\n"
    assert read(written(tmp_path, "e.csv", content))[-1].fields == {"ts": 9, "n": value}


def test_a_header_without_rows_is_told_since_it_may_be_a_line_of_text(tmp_path: Path) -> None:
    told: list[str] = []
    path = written(tmp_path, "e.csv", b"ts,a\n")
    assert read(path, tell=told.append) == []
    only = "it has only the line that names the columns: ts, a"
    assert told == [f"{path}: {only}; lines of text need --pattern"]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"ts,n\n", b"1,5\n"], [{"ts": 1, "n": 5}]),
        ([b"ts,n\n1,5"], [{"ts": 1, "n": 5}]),
        ([b"ts,n\n1,5\n2,x"], [{"ts": 1, "n": "5"}, {"ts": 2, "n": "x"}]),
        ([b"ts,n\n1,5\n2,", b"x\n"], [{"ts": 1, "n": "5"}, {"ts": 2, "n": "x"}]),
        ([b"ts,n\n1,\n", b"2,x\n"], [{"ts": 1}, {"ts": 2, "n": "x"}]),
    ],
)
def test_the_types_are_decided_by_the_lines_that_have_begun(
    pieces: list[bytes], expected: list[dict[str, object]]
) -> None:
    assert [event.fields for event in read("-", pieces=pieces)] == expected


LOGINS = NamedGroups(r"^(?P<ts>\d+) (?P<user>\S+)(?: tries=(?P<n>\S+))?$")


def test_the_named_groups_of_a_pattern_are_the_fields_of_a_line(tmp_path: Path) -> None:
    path = written(tmp_path, "e.log", b"1 \xffda tries=7\r\nnoise\n3 eve\n\n5 ada tries=8")
    told: list[str] = []
    assert read(path, pattern=LOGINS, tell=told.append) == [
        RecordedEvent(str(path), 1, {"ts": 1, "user": "\ufffdda", "n": 7}, 1_000_000),
        RecordedEvent(str(path), 3, {"ts": 3, "user": "eve"}, 3_000_000),
        RecordedEvent(str(path), 5, {"ts": 5, "user": "ada", "n": 8}, 5_000_000),
    ]
    assert told == [
        f"{path}, line 2: no match of the pattern; skipped: `noise`",
        f"{path}: column types from the first 3 rows: ts number, user text, n number",
        f"{path}: skipped 1 line without a match of the pattern",
    ]


def test_lines_that_all_match_are_not_counted(tmp_path: Path) -> None:
    path = written(tmp_path, "e.log", b"1 ada\n")
    told: list[str] = []
    assert len(read(path, pattern=LOGINS, tell=told.append)) == 1
    assert told == [f"{path}: column types from the first 1 row: ts number, user text, n text"]


def test_the_types_of_groups_are_decided_by_the_lines_that_have_come() -> None:
    [first, second] = read("-", pattern=LOGINS, pieces=[b"1 a tries=7\n2 b tries=", b"x\n"])
    assert (first.fields["n"], second.fields["n"]) == ("7", "x")
    with pytest.raises(RecordingError) as refusal:
        read("-", pattern=LOGINS, pieces=[b"1 a tries=7\n", b"2 b tries=x\n"], strict=True)
    assert str(refusal.value) == (
        "standard input, line 2: `n`: `x` is not a number, unlike the cells before it; "
        "`--types n=text` reads the whole column as text"
    )


@pytest.mark.parametrize(
    ("content", "cells"),
    [
        (b'\r\nts,who,b\r\n1,"a;d;a;;",x\r\n', [1, "a;d;a;;", "x"]),
        (b"\r\nts;who;a, b\r\n1;a,d,a,,;x\r\n", [1, "a,d,a,,", "x"]),
        (b"ts\twho\ta, b\n1\ta,d,a,,\tx\n", [1, "a,d,a,,", "x"]),
    ],
)
def test_cells_are_separated_by_what_the_header_has_most_of(
    tmp_path: Path, content: bytes, cells: list[object]
) -> None:
    [event] = read(written(tmp_path, "e.csv", content))
    assert list(event.fields.values()) == cells


class Endless(gzip.GzipFile):
    """Counts what is decompressed."""

    unpacked_bytes = 0

    def readinto(self, buffer: Any) -> int:
        taken = super().readinto(buffer)
        Endless.unpacked_bytes += taken
        return taken


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("e.ndjson.gz", b'{"a": "%s"}', "line 2: it is longer than 1 MiB"),
        ("e.csv.gz", b"1,%s", "line 2: a row is longer than 1 MiB"),
        ("e.log.gz", b"1 %s", "line 2: it is longer than 1 MiB"),
    ],
)
def test_a_line_without_an_end_is_refused_before_it_is_unpacked(
    tmp_path: Path, name: str, line: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "LINE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(documents, "LINE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(gzip, "GzipFile", Endless)
    monkeypatch.setattr(Endless, "unpacked_bytes", 0)
    first = {"e.ndjson.gz": b'{"ts": 1}', "e.csv.gz": b"ts,a", "e.log.gz": b"1 ada"}[name]
    path = written(tmp_path, name, gzip.compress(first + b"\n" + line % (b"x" * (64 << 20)) + b"\n", 1))
    with pytest.raises(RecordingError) as refusal:
        read(path, pattern=LOGINS if "log" in name else None)
    assert str(refusal.value) == f"{path}, {said}"
    assert 0 < Endless.unpacked_bytes < 8 << 20


def test_a_row_of_many_lines_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "LINE_BYTES_MAX", 1000)
    path = written(tmp_path, "e.csv", b"ts,a\n" + b'1,"b"\n' * 500 + b'1,"' + b"b\n" * 1000)
    with pytest.raises(RecordingError, match=r"line 1000: a row is longer than 0 MiB"):
        read(path)


def test_the_longest_line_is_read(tmp_path: Path) -> None:
    line = json.dumps({"ts": 1, "a": "x" * (documents.LINE_BYTES_MAX - 19)}).encode()
    assert len(line) == documents.LINE_BYTES_MAX - 1
    assert len(read(written(tmp_path, "e.ndjson", line + b"\n"))) == 1
    with pytest.raises(RecordingError, match=r"e\.ndjson, line 1: it is longer than 16 MiB"):
        read(written(tmp_path, "e.ndjson", line + b"  \n"))


def test_the_first_rows_are_bounded_in_size_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "READ_BYTES", 1 << 17)
    # So many lines begin in what is read first, that their number would be no bound.
    told: list[str] = []
    content = b"ts\n" + b"\n" * rows.READ_BYTES + b"1\n" * 10 + b"7,%s\n" % (b"x" * 60_000) * 10
    with pytest.raises(RecordingError, match="expected 1 cells, got 2"):
        read(written(tmp_path, "e.csv", content), tell=told.append, strict=True)
    assert told[0].endswith("from the first 10 rows: ts number")
    many = b"1 ada\n" + b"1 " + b"x" * 25_000 + b"\n"
    read(written(tmp_path, "e.log", b"\n" * rows.READ_BYTES + many * 20), pattern=LOGINS, tell=told.append)
    assert told[1].endswith("from the first 12 rows: ts number, user text, n text")


def test_a_corrupted_gzip_is_told(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b'{"ts": 1}\n' * 100_000 + bytes(range(256)) * 100))
    packed[200:220] = b"\xff" * 20
    with pytest.raises(RecordingError, match=r"e\.ndjson\.gz: "):
        read(written(tmp_path, "e.ndjson.gz", bytes(packed)))


@pytest.mark.parametrize("deep", ['{"a":', "["])
def test_a_line_is_nested_as_deep_as_an_event(tmp_path: Path, deep: str) -> None:
    def line(depth: int) -> bytes:
        closed = "}" if deep[0] == "{" else "]"
        return f'{{"ts": 1, "b": {deep * (depth - 1)}0{closed * (depth - 1)}}}\n'.encode()

    flat = b'{"ts": 1, "a": [' + b"[]," * 100 + b"0]}\n"
    assert len(read(written(tmp_path, "e.ndjson", flat + line(64)))) == 2
    for depth in (65, 900):
        with pytest.raises(RecordingError, match=r"line 2: it is nested more than 64 deep"):
            read(written(tmp_path, "e.ndjson", flat + line(depth)), strict=True)
    with pytest.raises(RecordingError, match=r"line 2: not JSON: it is nested too deeply"):
        read(written(tmp_path, "e.ndjson", flat + line(100_000)), strict=True)


def head_of(columns: int) -> list[str]:
    return ["ts", *(f"c{number}" for number in range(columns - 1))]


def test_a_head_has_at_most_so_many_columns(tmp_path: Path) -> None:
    told: list[str] = []
    cells = ",".join(["1"] * rows.COLUMNS_MAX)
    content = f"{','.join(head_of(rows.COLUMNS_MAX))}\n{cells}\n".encode()
    [event] = read(written(tmp_path, "e.csv", content), tell=told.append)
    assert len(event.fields) == rows.COLUMNS_MAX
    assert told[0].endswith("c97 number, c98 number, …")
    with pytest.raises(RecordingError, match="line 1: it has 60000 columns; at most 4096 are read"):
        read(written(tmp_path, "e.csv", ",".join(head_of(60_000)).encode()))


def test_a_head_is_read_in_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "COLUMNS_MAX", 10**6)
    heads = {columns: head_of(columns) for columns in (2_000, 8_000)}
    assert grows_linearly(lambda columns: rows._header(heads[columns], "e"), 2_000)


def test_a_pattern_takes_no_longer_for_a_hostile_line(tmp_path: Path) -> None:
    path = written(tmp_path, "e.log", b"1 " + b"a" * 100_000 + b"!\n")
    told: list[str] = []
    assert read(path, pattern=NamedGroups(r"^(?P<ts>\d) (?P<a>(a+)+)$"), tell=told.append) == []
    assert told[1:] == [f"{path}: skipped 1 line without a match of the pattern"]
