import gzip
import io
import json
import os
import time
from pathlib import Path

import pytest

from api.cli.recordings.reading import RecordedEvent, Recording
from api.cli.recordings.skipping import RecordingError
from api.cli.recordings.times import iso
from tests.unit.cli.recorded import read, written

TWO = b'{"time": 1, "a": "x"}\n\n  {"time": 2.5, "a": {"b": 1e2}}  \n'


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
    assert [event.place for event in read("-", pieces=[squeeze(TWO)])] == [
        "standard input, line 1",
        "standard input, line 3",
    ]


def test_the_fields_of_a_line_are_passed_on_untouched(tmp_path: Path) -> None:
    line = b'{"ts":1, "big":123456789012345678901234567890, "f":1.10, "t":"\\u00e9"}'
    assert read(written(tmp_path, "e", line))[0].json == line


def test_a_row_is_passed_on_as_json_in_utf_8(tmp_path: Path) -> None:
    [event] = read(written(tmp_path, "e.csv", "ts,who,n\n1,Zoë,123456789012345678901\n".encode()))
    assert event.json == '{"ts": 1, "who": "Zoë", "n": 123456789012345678901}'.encode()


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


@pytest.mark.parametrize(
    ("time", "believed"),
    [
        ('"1970-01-02"', True),
        ("1700000000", True),
        ("1700000000000", True),
        ("-5", True),
        ("-0.000001", True),
        ("0", False),
        ("315532799.999999", False),
        ("315532800", True),
    ],
)
def test_dates_and_numbers_before_1970_or_from_1980_on_are_believed(
    tmp_path: Path, time: str, believed: bool
) -> None:
    asked: list[str] = []
    read(written(tmp_path, "e", f'{{"ts": {time}}}'.encode()), accept_old=lambda said: not asked.append(said))
    assert (asked == []) is believed


def test_events_that_need_no_time_are_given_without_one(tmp_path: Path) -> None:
    path = written(tmp_path, "e", b'{"a": 1}\n{"ts": "soon"}\n')
    assert read(path, needs_time=False) == [
        RecordedEvent(str(path), 1, {"a": 1}, 0, b'{"a": 1}'),
        RecordedEvent(str(path), 2, {"ts": "soon"}, 0, b'{"ts": "soon"}'),
    ]


def test_a_time_without_a_year_is_at_most_a_day_later_than_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "e", b'{"ts": "Nov 15 22:13:20"}\n{"ts": "Nov 15 22:13:20.000001"}\n')
    os.utime(path, (0, 1_700_000_000))
    assert [iso(event.time_us) for event in read(path)] == [
        "2023-11-15T22:13:20.000Z",
        "2022-11-15T22:13:20.000Z",
    ]


def test_a_time_without_a_year_is_at_most_a_day_later_than_now_on_standard_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The second line is written an hour after the first.
    now_ns = iter([1_700_000_000_500_000_000, 1_700_003_600_500_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(now_ns))
    lines = [b'{"ts": "Nov 15 22:13:20.6"}\n', b'{"ts": "Nov 15 22:13:20.6"}\n']
    assert [iso(event.time_us) for event in read("-", pieces=lines)] == [
        "2022-11-15T22:13:20.600Z",
        "2023-11-15T22:13:20.600Z",
    ]


def test_csv_without_a_name_is_told_by_its_first_character() -> None:
    [event] = read("-", pieces=[gzip.compress(b"ts,a\n7,x\n", mtime=0)])
    assert event.fields == {"ts": 7, "a": "x"}


def test_a_byte_order_mark_is_no_part_of_the_first_event(tmp_path: Path) -> None:
    assert len(read(written(tmp_path, "e.ndjson", b"\xef\xbb\xbf" + TWO))) == 2
    [event] = read(written(tmp_path, "e.csv", b"\xef\xbb\xbfts,a\n7,x\n"))
    assert event.fields == {"ts": 7, "a": "x"}


def test_the_time_stands_under_the_whole_name_or_along_its_dots(tmp_path: Path) -> None:
    content = b'{"a.b": 1, "a": {"b": 9}}\n{"a": {"b": 2}}\n'
    assert [event.time_us for event in read(written(tmp_path, "e", content), "a.b")] == [1_000_000, 2_000_000]


@pytest.mark.parametrize(
    "fields", ['{"a": 5}', '{"a": {}}', '{"a": [{"b": 5}]}', '{"b": 5}', '{"a.b": null}']
)
def test_a_time_that_stands_nowhere_along_the_dots_is_missed(tmp_path: Path, fields: str) -> None:
    path = written(tmp_path, "e", fields.encode())
    with pytest.raises(RecordingError) as refusal:
        read(path, "a.b")
    assert str(refusal.value).startswith(f"{path}, line 1: the event has no field `a.b` for its time")


@pytest.mark.parametrize(
    ("names", "there"),
    [
        ([], ""),
        (["a", "b"], " (it has a, b)"),
        (list("abcdefgh"), " (it has a, b, c, d, e, f, g, h)"),
        (list("abcdefghi"), " (it has a, b, c, d, e, f, g, h, …)"),
        (["x" * 61, "y"], f" (it has {'x' * 60}, y)"),
    ],
)
def test_the_first_fields_are_told_where_none_of_the_usual_ones_is_there(
    tmp_path: Path, names: list[str], there: str
) -> None:
    path = written(tmp_path, "e", json.dumps(dict.fromkeys(names, 1)).encode())
    with pytest.raises(RecordingError) as refusal:
        read(path)
    assert str(refusal.value) == (
        f"{path}, line 1: the event has none of @timestamp, timestamp, timestamp_ms, time, ts{there}; "
        "name the time field with --time-field"
    )


def test_the_usual_time_fields_are_found_in_their_order(tmp_path: Path) -> None:
    content = b'{"ts": 5, "timestamp_ms": 1500, "@timestamp": null, "x": "2020-01-01"}'
    with pytest.raises(RecordingError, match="no field `@timestamp`"):
        read(written(tmp_path, "e", content))
    assert read(written(tmp_path, "e", content.replace(b'"@timestamp": null, ', b"")))[0].time_us == 1_500_000


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("e", b'{"ts": 1}\n{"ts": 2\n', "line 2: not JSON: .* truncated$"),
        (
            "e",
            b'{"ts": 1}\n[1]\n',
            "line 2: expected one JSON object a line; `jq -c '.\\[]'` writes the elem",
        ),
        ("e", b'{"ts": 1}\n1\n', "line 2: expected one JSON object a line$"),
        ("e", b'{"ts": 1}\n{"ts": NaN}\n', "line 2: not JSON: invalid character .byte 7.$"),
        ("e", b'{"ts": 1}\n{"ts": 2, "a": 1e999}\n', "line 2: not JSON"),
        ("e", b'{"ts": 1}\n{"ts": 2, "a": "\xff"}\n', "line 2: not JSON: it is not valid UTF-8"),
        ("e", b'{"ts": 1}\n{"a":' + b"[" * 200_000 + b"\n", "line 2: not JSON: it is nested too deeply"),
        ("e", b'{"ts": 1}\n\n{"other": 2}\n', "line 3: the event has no field `ts`"),
        ("e", b'{"ts": 1}\n{"ts": "noon"}\n', "line 2: `ts`: expected a time .* got `noon`"),
        ("e", b'{"when": 1}\n', "line 1: the event has none of .* \\(it has when\\); .* --time-field$"),
        ("e.log", b"Dec 10 root: no\nDec 11 root: yes\n", "line 2: the event has none of .* need --pattern"),
        ("e.log", b"Dec 10, root: no\nDec 11, 12, root: yes\n", "expected 2 cells, got 3.* need --pattern"),
        ("e.log", b"a;a;b\n1;2;3\n", "line 1: two columns are named `a`.* need --pattern"),
        ("e.log", b"ts;a\n1;2\n2\n", "line 3: expected 2 cells, got 1$"),
        ("e.log", b"\xff\xfd", "e.log: neither NDJSON nor CSV: it is not valid UTF-8.* need --pattern"),
        ("e.csv", b"ts,a\n1,2\n3\n", "line 3: expected 2 cells, got 1"),
        ("e.csv", b"ts,a,a\n1,2,3\n", "line 1: two columns are named `a`"),
        ("e.csv", b"ts,,a\n1,2,3\n", "line 1: column 2 has no name"),
        ("e.csv", b'ts,a\n1,"x\n', "line 2: not CSV"),
        ("e.csv", b"ts,a\n1,\xff\n", "not valid UTF-8"),
        ("e.csv", b"ts,a\nnoon,2\n", "line 2: `ts`: expected a time"),
        ("e.csv", b"ts,a\n1,2\n,3\n", "line 3: the event has no field `ts`"),
        ("e.csv", b"when,a\n1,2\n", "line 2: the event has none of @timestamp.* --time-field$"),
        ("e.gz", gzip.compress(TWO, mtime=0)[:-12], "e.gz"),
        ("e.gz", gzip.compress(TWO, mtime=0) + b"more", "e.gz: what follows its gzipped data is not gzipped"),
        ("e.gz", gzip.compress(TWO * 9, mtime=0)[:30] + b"\x00" * 40, "e.gz"),
    ],
)
def test_a_bad_line_is_named_with_its_file_and_number(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    with pytest.raises(RecordingError, match=said) as refusal:
        read(written(tmp_path, name, content), strict=True)
    assert str(tmp_path / name) in str(refusal.value)


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="nowhere: no such file or directory"):
        read(tmp_path / "nowhere")
    with pytest.raises(RecordingError, match="is a directory"):
        read(tmp_path)


def test_an_empty_recording_has_no_events(tmp_path: Path) -> None:
    assert read(written(tmp_path, "e.csv", b"")) == []
    assert read(written(tmp_path, "e.ndjson", b"\n\n")) == []


def test_the_position_moves_over_the_file_as_it_lies(tmp_path: Path) -> None:
    path = written(tmp_path, "e.gz", gzip.compress(TWO, mtime=0))
    with Recording(str(path), io.BufferedReader(io.BytesIO())) as recording:  # type: ignore[arg-type]
        assert len(list(recording.events())) == 2
        assert recording.position() == recording.size == path.stat().st_size


def test_a_pipe_with_a_name_has_neither_size_nor_position() -> None:
    end, begin = os.pipe()
    os.write(begin, b'{"ts": 1}\n')
    with Recording(f"/dev/fd/{end}", io.BytesIO()) as recording:
        os.close(begin)
        assert [event.time_us for event in recording.events()] == [1_000_000]
        assert (recording.size, recording.position()) == (None, 0)
    os.close(end)


@pytest.mark.parametrize("content", [b'{"ts": 1}\n', b"ts,a\n1,2\n"])
def test_standard_input_stays_open_for_its_next_reader(content: bytes) -> None:
    standard_input = io.BufferedReader(io.BytesIO(content))  # type: ignore[arg-type]
    for expected in (1, 0):
        with Recording("-", standard_input) as recording:
            assert len(list(recording.events())) == expected


def test_a_file_is_closed_by_who_has_opened_it(tmp_path: Path) -> None:
    with Recording(str(written(tmp_path, "e", TWO)), io.BytesIO()) as recording:
        pass
    with pytest.raises(ValueError, match="closed"):
        recording.position()


def test_standard_input_is_no_file_that_is_named_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "-", TWO)
    monkeypatch.chdir(tmp_path)
    with Recording("-", io.BufferedReader(io.BytesIO(TWO))) as recording:  # type: ignore[arg-type]
        assert recording.size is None
