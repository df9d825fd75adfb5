"""Lines that are events as the service takes them: alone, or in the body of an evaluation."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.cli.recordings.reading import ReadingOptions, RecordedEvent, Recording
from api.cli.recordings.skipping import RecordingError
from engine import Detector
from engine.evaluation.wire.events import evaluate_lines
from rule_detector_client.sending import Event

ALONE = b'{"fields": {"user": "ada", "n": 12345678901234567890123}, "timestamp_ms": 1700000000000.5}'
BODY = b'{"event": %b}' % ALONE
FLAT = b'{"user": "ada", "time": "2023-11-14T22:13:20Z"}'


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., list[RecordedEvent]]:
    def read(*lines: bytes, **options: Any) -> list[RecordedEvent]:
        file = tmp_path / "e.ndjson"
        file.write_bytes(b"\n".join(lines))
        with Recording(str(file), io.BytesIO(), ReadingOptions(**options)) as recording:
            return list(recording.events())

    return read


@pytest.mark.parametrize("line", [ALONE, BODY])
def test_both_forms_are_events_with_their_times(
    read: Callable[..., list[RecordedEvent]], line: bytes
) -> None:
    [event] = read(line)
    assert event.fields == {"user": "ada", "n": 12345678901234567890123}
    assert event.time_us == 1_700_000_000_000_500
    assert event.json == b'{"user": "ada", "n": 12345678901234567890123}'
    [untimed] = read(line, needs_time=False)
    assert (untimed.fields, untimed.time_us) == (event.fields, 0)


def test_the_forms_may_be_mixed(read: Callable[..., list[RecordedEvent]]) -> None:
    assert [one.fields["user"] for one in read(BODY, FLAT, ALONE, FLAT, BODY)] == ["ada"] * 5
    array = b"[" + b",".join([BODY, FLAT, ALONE]) + b"]"
    assert [one.line for one in read(array)] == [1, 2, 3]


@pytest.mark.parametrize(
    "line",
    [
        b'{"fields": {}, "timestamp_ms": 1700000000000, "more": 1}',
        b'{"fields": [], "timestamp_ms": 1700000000000}',
        b'{"event": {"fields": {}}, "timestamp_ms": 1700000000000}',
    ],
)
def test_any_other_object_is_the_fields_of_an_event(
    read: Callable[..., list[RecordedEvent]], line: bytes
) -> None:
    [event] = read(line)
    assert event.fields["timestamp_ms"] == 1_700_000_000_000
    assert event.text == line


def test_with_a_time_field_a_line_is_what_it_is(read: Callable[..., list[RecordedEvent]]) -> None:
    [event] = read(BODY, time_field="event.timestamp_ms")
    assert (event.fields.keys(), event.time_us) == ({"event"}, 1_700_000_000_000_500)


def test_a_context_is_not_passed_over_silently(read: Callable[..., list[RecordedEvent]]) -> None:
    told: list[str] = []
    assert len(read(BODY, b'{"event": %b, "context": {"vars": {}}}' % ALONE, tell=told.append)) == 1
    assert "give its vars with --vars" in told[0]
    with pytest.raises(RecordingError, match="give its vars with --vars"):
        read(b'{"event": %b, "context": {}}' % ALONE)


def test_what_the_client_sends_is_read_and_evaluated_in_both_forms() -> None:
    sent = Event({"a": 1}, 1_700_000_000_000).json()
    detector = Detector()
    detector.add_rule("r", "a == 1")
    done, refused = evaluate_lines(detector, sent + b"\n" + b'{"event": %b}' % sent)
    assert (done.result.count(b'"ruleId"'), refused) == (2, ())
