"""Lines that cannot be read: skipped with a word, or the end with a hint."""

from pathlib import Path
from typing import Any

import pytest

from api.cli.recordings import rows
from api.cli.recordings.skipping import HOPELESS, RecordingError
from tests.unit.cli.recorded import read, written


def lines_read(path: Path | str, told: list[str], **options: Any) -> list[int]:
    return [event.line for event in read(path, tell=told.append, **options)]


@pytest.mark.parametrize(
    ("name", "content", "lines", "said"),
    [
        (
            "e",
            b'{"ts": 1}\n{"ts": \n[1]\n{"ts": "soon"}\n{"ts": 2}\n',
            [1, 5],
            "line 4: `ts`: expected a time",
        ),
        ("e", b'{"ts": 1}\n{"ts": 2, "a": "\xff"}\n{"ts": 2}\n', [1, 3], "line 2: not JSON: it is not valid"),
        ("e", b'{"meta": 1}\n{"ts": 2}\n', [2], "line 1: the event has none of"),
        ("e.csv", b"ts,a\n1,2\n2\n3,4,5\n4,5\n", [2, 5], "line 3: expected 2 cells, got 1; skipped: `2`"),
        ("e.csv", b"ts,a\n1,2\n2,\xff\n4,5\n", [2, 4], "line 3: not CSV: it is not valid UTF-8; skipped"),
        ("e.csv", b'ts,a\n1,2\n2,"x\n4,5\n5,6\n', [2, 4, 5], "line 3: not CSV: unexpected end of data"),
        ("e.csv", b'ts,a\n1,2\n2,"x\n4,5\n5,"6"\n', [2, 4, 5], "line 3: not CSV: "),
        ("e.csv", b'ts,a\n1,"b\nc"\n2,"x"y\n4,5\n', [3, 5], "line 4: not CSV: "),
        ("e.csv", b"ts,a\n1,2\nnoon,2\n,1\n3,3\n", [2, 5], "line 4: the event has no field `ts`"),
    ],
)
def test_what_follows_a_bad_line_is_read(
    tmp_path: Path, name: str, content: bytes, lines: list[int], said: str
) -> None:
    path, told = written(tmp_path, name, content), list[str]()
    if name == "e.csv" and b"noon" in content:
        assert lines_read(path, told, types={"ts": "text"}) == lines
    else:
        assert lines_read(path, told) == lines
    assert any(said in line for line in told), told
    assert "skipped" in told[-1]
    with pytest.raises(RecordingError):
        read(path, strict=True)


def test_a_live_pipe_tells_of_a_bad_line_when_it_comes() -> None:
    told = list[str]()
    pieces = [b'{"ts": 1}\n', b"{\n", b'{"ts": 2}\n']
    seen = [(event.line, len(told)) for event in read("-", pieces=pieces, tell=told.append)]
    assert [line for line, _ in seen] == [1, 3]
    assert len(told) == 2


def test_three_lines_of_each_kind_are_shown_and_all_counted(tmp_path: Path) -> None:
    told = list[str]()
    content = b'{"ts": 1}\n' + b"no\n" * 5 + b"{}\n" * 4
    assert lines_read(written(tmp_path, "e.ndjson", content), told) == [1]
    assert len(told) == 7
    assert told[-1].endswith("e.ndjson: skipped 9 lines: 5 without a JSON object, 4 without a time")


def test_a_recording_without_any_event_is_refused_with_its_first_reason(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="line 1: not JSON"):
        read(written(tmp_path, "e.ndjson", b"no\nnever\n"))
    told = list[str]()
    hopeless = written(tmp_path, "f.ndjson", b"no\n" * HOPELESS + b'{"ts": 1}\n')
    with pytest.raises(RecordingError, match="line 1: not JSON"):
        read(hopeless, tell=told.append)
    assert len(told) == 3
    assert lines_read(written(tmp_path, "g.ndjson", b"no\n" * (HOPELESS - 1) + b'{"ts": 1}\n'), told) == [
        HOPELESS
    ]


def test_rows_without_an_end_are_read_again_within_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "LINE_BYTES_MAX", 3_000)
    told = list[str]()
    content = b"ts,a\n1,2\n" + b"".join(b'%d,"x\n' % n + b"5,6\n" * 400 for n in range(3))
    found = lines_read(written(tmp_path, "e.csv", content + b'9,"9"\n'), told)
    assert 400 < len(found) < 1_000


@pytest.mark.parametrize("records", ["Records", "a.Records"])
@pytest.mark.parametrize("indent", ["", "\n  "])
def test_the_array_of_a_document_holds_the_events(tmp_path: Path, records: str, indent: str) -> None:
    document = f'{{{indent}"Records": [{indent}{{"ts": 1, "a":1.10}},{indent}{{"ts": 2}}]}}'
    if records != "Records":
        document = f'{{"a": {document}}}'
    events = read(written(tmp_path, "e.json", document.encode()), records=records)
    assert [(event.line, event.fields) for event in events] == [(1, {"ts": 1, "a": 1.1}), (2, {"ts": 2})]
    assert events[0].json == b'{"ts": 1, "a":1.10}'


def test_a_document_on_each_line_is_read_as_it_comes(tmp_path: Path) -> None:
    told = list[str]()
    content = b'{"Records": [{"ts": 1}]}\n{"Records": \n{"Records": [{"ts": 2}, 7]}\n{"other": 1}\n'
    path = written(tmp_path, "e.json", content)
    assert lines_read(path, told, records="Records") == [1, 2]
    assert told[-1].endswith("skipped 3 lines: 2 without such an array, 1 without a JSON object")


@pytest.mark.parametrize(
    ("content", "records", "said"),
    [
        (
            b'{"Records": [{"ts": 1}]}',
            None,
            "`Records` is an array of 1 object: if they .* `--records Records`",
        ),
        (b'{\n"Records": [{"ts": 1}]\n}', None, "line 1: not JSON: .* `--records PATH` names the array"),
        (
            b'{"Records": [{"ts": 1}]}',
            "records",
            "no array of events at `records`: it has no member `records`",
        ),
        (b'{"Records": {"ts": 1}}', "Records", "no array of events at `Records`: Expected `array`"),
        (b'[\n{"ts": 1}', None, "not JSON: input data was truncated"),
        (
            b"[Sun Dec 04 04:47:44 2005] [error] no\n",
            None,
            "no JSON array of events; lines of text need --pattern",
        ),
    ],
)
def test_other_forms_are_refused_with_the_right_hint(
    tmp_path: Path, content: bytes, records: str | None, said: str
) -> None:
    with pytest.raises(RecordingError, match=said):
        read(written(tmp_path, "e", content), records=records)


@pytest.mark.parametrize("content", [b'[{"ts": 1}, {"ts": 2}]', b'[\n {"ts": 1},\n {"ts": 2}\n]\n'])
def test_the_elements_of_an_array_are_events(tmp_path: Path, content: bytes) -> None:
    for name in ("e", "e.json"):
        assert [event.fields for event in read(written(tmp_path, name, content))] == [{"ts": 1}, {"ts": 2}]


@pytest.mark.parametrize("form", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read(tmp_path: Path, form: str) -> None:
    lines = "".join(f'{{"ts": {n}, "who": "Zo\u00eb \U0001f600"}}\n' for n in range(1, 3_000))
    for content in (lines, "\ufeff" + lines if form != "utf-16" else lines):
        events = read(written(tmp_path, "e", content.encode(form)))
        assert [event.fields["ts"] for event in events] == list(range(1, 3_000))
        assert events[-1].fields["who"] == "Zo\u00eb \U0001f600"
    [event] = read(written(tmp_path, "e.csv", "ts,a\n1,2\n".encode(form)))
    assert event.fields == {"ts": 1, "a": 2}
