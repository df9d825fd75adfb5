import csv
import gzip
import io
import os
from pathlib import Path
from typing import Any

import pytest

from api.cli.recordings.columns import ColumnType
from api.cli.recordings.reading import ReadingOptions, RecordedEvent, Recording
from api.cli.recordings.rows import RecordingError

TWO = b'{"time": 1, "a": "x"}\n\n  {"time": 2.5, "a": {"b": 1e2}}  \n'


def read(
    path: Path | str, time_field: str | None = None, piped: bytes = b"", **options: Any
) -> list[RecordedEvent]:
    reading = ReadingOptions(time_field, **options)
    with Recording(str(path), io.BufferedReader(io.BytesIO(piped)), reading) as recording:  # type: ignore[arg-type]
        return list(recording.events())


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["e.ndjson", "e.jsonl", "e.json", "e.log", "e.ndjson.gz", "e"])
@pytest.mark.parametrize("squeeze", [bytes, gzip.compress])
def test_ndjson_is_read_plain_or_gzipped_whatever_its_name(
    tmp_path: Path, name: str, squeeze: type[bytes]
) -> None:
    events = read(written(tmp_path, name, squeeze(TWO)))
    assert [(event.time_us, event.fields) for event in events] == [
        (1_000_000, {"time": 1, "a": "x"}),
        (2_500_000, {"time": 2.5, "a": {"b": 100.0}}),
    ]
    assert [event.place for event in events] == [f"{tmp_path / name}, line 1", f"{tmp_path / name}, line 3"]


@pytest.mark.parametrize("squeeze", [bytes, gzip.compress])
def test_standard_input_is_read_like_a_file(squeeze: type[bytes]) -> None:
    assert [event.place for event in read("-", piped=squeeze(TWO))] == [
        "standard input, line 1",
        "standard input, line 3",
    ]


def test_the_fields_of_a_line_are_passed_on_untouched(tmp_path: Path) -> None:
    line = b'{"ts":1, "big":123456789012345678901234567890, "f":1.10, "t":"\\u00e9"}'
    assert read(written(tmp_path, "e", line))[0].json == line


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


def test_a_csv_column_has_one_type_which_is_told(tmp_path: Path) -> None:
    content = "ts,user,n,ok,mixed\n1,1234,1,true,true\n2,ada,2.5,,7\n"
    told: list[str] = []
    path = written(tmp_path, "e.csv", content.encode())
    first, second = (event.fields for event in read(path, tell=told.append))
    assert first == {"ts": 1, "user": "1234", "n": 1, "ok": True, "mixed": "true"}
    assert second == {"ts": 2, "user": "ada", "n": 2.5, "mixed": "7"}
    types = "ts number, user text, n number, ok boolean, mixed text"
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
        read(path)
    with pytest.raises(RecordingError, match=r"--types names the column `m`; there are ts, n"):
        read(path, types={"m": "text"})


def test_the_types_of_a_live_pipe_are_decided_by_what_has_come() -> None:
    end, begin = os.pipe()
    os.write(begin, b"ts,user\n1,1234\n")
    with os.fdopen(end, "rb") as piped, Recording("-", piped) as recording:
        events = recording.events()
        assert next(events).fields == {"ts": 1, "user": 1234}
        os.write(begin, b"2,ada\n")
        os.close(begin)
        with pytest.raises(RecordingError, match="line 3: `user`: `ada` is not a number"):
            next(events)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"row,x\n1,a\n2,b\n", "e.csv, line 2: `row` is 1, which as a time is 1970-01-01T00:00:01.000Z"),
        (b'row,x\n"17",a\n', "`row` is 17, which as a time is 1970-01-01T00:00:17.000Z"),
    ],
)
def test_a_time_that_is_rather_a_row_number_is_asked_about(tmp_path: Path, content: bytes, said: str) -> None:
    path = written(tmp_path, "e.csv", content)
    asked: list[str] = []
    for answer in (True, False):

        def answered(question: str, answer: bool = answer) -> bool:
            asked.append(question)
            return answer

        if answer:
            assert len(read(path, "row", accept_old=answered)) == content.count(b"\n") - 1
        else:
            with pytest.raises(RecordingError, match="is it a row number"):
                read(path, "row", accept_old=answered)
    assert len(asked) == 2
    assert said in asked[0]


def test_dates_of_long_ago_and_numbers_of_today_are_believed(tmp_path: Path) -> None:
    for line in (b'{"ts": "1970-01-02"}', b'{"ts": 1700000000}', b'{"ts": 1700000000000}', b'{"ts": -5}'):
        assert len(read(written(tmp_path, "e", line), accept_old=lambda _: False)) == 1


def test_csv_without_a_name_is_told_by_its_first_character() -> None:
    [event] = read("-", piped=gzip.compress(b"ts,a\n7,x\n", mtime=0))
    assert event.fields == {"ts": 7, "a": "x"}


def test_a_byte_order_mark_is_no_part_of_the_first_event(tmp_path: Path) -> None:
    assert len(read(written(tmp_path, "e.ndjson", b"\xef\xbb\xbf" + TWO))) == 2
    [event] = read(written(tmp_path, "e.csv", b"\xef\xbb\xbfts,a\n7,x\n"))
    assert event.fields == {"ts": 7, "a": "x"}


def test_numbers_that_no_number_can_hold_stay_text(tmp_path: Path) -> None:
    content = f"ts,a,b\n1,1e999,{'9' * 5000}\n"
    csv.field_size_limit(131072)
    [event] = read(written(tmp_path, "e.csv", content.encode()))
    assert event.fields == {"ts": 1, "a": "1e999", "b": "9" * 5000}


def test_the_time_stands_under_the_whole_name_or_along_its_dots(tmp_path: Path) -> None:
    content = b'{"a.b": 1, "a": {"b": 9}}\n{"a": {"b": 2}}\n'
    assert [event.time_us for event in read(written(tmp_path, "e", content), "a.b")] == [1_000_000, 2_000_000]


def test_the_usual_time_fields_are_found_in_their_order(tmp_path: Path) -> None:
    content = b'{"ts": 5, "timestamp_ms": 1500, "@timestamp": null, "x": "2020-01-01"}'
    with pytest.raises(RecordingError, match="no field `@timestamp`"):
        read(written(tmp_path, "e", content))
    assert read(written(tmp_path, "e", content.replace(b'"@timestamp": null, ', b"")))[0].time_us == 1_500_000


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("e", b'{"ts": 1}\n{"ts": 2\n', "line 2: not JSON: .* truncated; each line .* `jq -c .`"),
        ("e", b'{"ts": 1}\n[1]\n', "line 2: expected one JSON object a line, got an array; `jq -c '.\\[]'`"),
        ("e", b'{"ts": 1}\n1\n', "line 2: expected one JSON object a line$"),
        ("e", b'{"ts": 1}\n{"ts": NaN}\n', "line 2: not JSON"),
        ("e", b'{"ts": 1}\n{"ts": 2, "a": 1e999}\n', "line 2: not JSON"),
        ("e", b'{"ts": 1}\n{"ts": 2, "a": "\xff"}\n', "line 2: not JSON: it is not valid UTF-8"),
        ("e", b'{"ts": 1}\n{"a":' + b"[" * 200_000 + b"\n", "line 2: not JSON: it is nested too deeply"),
        ("e", b'{"ts": 1}\n\n{"other": 2}\n', "line 3: the event has no field `ts`"),
        ("e", b'{"ts": 1}\n{"ts": "noon"}\n', "line 2: `ts`: expected a time .* got `noon`"),
        (
            "e",
            b'{"when": 1}\n',
            "line 1: the event has none of .* \\(it has when\\); .* --time-field$",
        ),
        ("e.log", b"Dec 10 root: no\nDec 11 root: yes\n", "line 2: the event has none of .* need --pattern"),
        ("e.log", b"Dec 10, root: no\nDec 11, 12, root: yes\n", "expected 2 cells, got 3.* need --pattern"),
        ("e.log", b"a;a;b\n1;2;3\n", "line 1: two columns are named `a`.* need --pattern"),
        ("e.log", b"ts;a\n1;2\n2\n", "line 3: expected 2 cells, got 1$"),
        ("e.csv", b"ts,a\n1,2\n3\n", "line 3: expected 2 cells, got 1"),
        ("e.csv", b"ts,a,a\n1,2,3\n", "line 1: two columns are named `a`"),
        ("e.csv", b"ts,,a\n1,2,3\n", "line 1: column 2 has no name"),
        ("e.csv", b'ts,a\n1,"x\n', "line 2: not CSV"),
        ("e.csv", b"ts,a\n1,\xff\n", "not valid UTF-8"),
        ("e.csv", b"ts,a\nnoon,2\n", "line 2: `ts`: expected a time"),
        ("e.csv", b"ts,a\n1,2\n,3\n", "line 3: the event has no field `ts`"),
        ("e.csv", b"when,a\n1,2\n", "line 2: the event has none of @timestamp.* --time-field$"),
        ("e.gz", gzip.compress(TWO, mtime=0)[:-12], "e.gz"),
        ("e.gz", gzip.compress(TWO * 9, mtime=0)[:30] + b"\x00" * 40, "e.gz"),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    with pytest.raises(RecordingError, match=said) as refusal:
        read(written(tmp_path, name, content))
    assert str(tmp_path / name) in str(refusal.value)


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="nowhere: no such file or directory"):
        read(tmp_path / "nowhere")
    with pytest.raises(RecordingError, match="is a directory"):
        read(tmp_path)


def test_an_empty_recording_has_no_events(tmp_path: Path) -> None:
    assert read(written(tmp_path, "e.csv", b"")) == []
    assert read(written(tmp_path, "e.ndjson", b"\n\n")) == []


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_cells_are_separated_by_what_the_header_has_most_of(tmp_path: Path, separator: str) -> None:
    content = f"\r\nts{separator}who{separator}a, b\r\n1{separator}ada{separator}x\r\n"
    if separator == ",":
        content = content.replace("a, b", "b").replace("ada", '"ada; eve"')
    [event] = read(written(tmp_path, "e.csv", content.encode()))
    assert list(event.fields.values()) == [1, "ada; eve" if separator == "," else "ada", "x"]


def test_the_position_moves_over_the_file_as_it_lies(tmp_path: Path) -> None:
    path = written(tmp_path, "e.gz", gzip.compress(TWO, mtime=0))
    with Recording(str(path), io.BufferedReader(io.BytesIO())) as recording:  # type: ignore[arg-type]
        assert len(list(recording.events())) == 2
        assert recording.position() == recording.size == path.stat().st_size
