"""Lines that are read many at once give what they give one by one."""

import io
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from api.cli.recordings.reading import ReadingOptions, Recording
from api.cli.recordings.skipping import RecordingError
from tests.unit.cli.recorded import piped, read, written

START: Final = datetime(2026, 1, 1, tzinfo=UTC)

TIMES: Final[list[Callable[[datetime], object]]] = [
    lambda time: time.isoformat(),
    lambda time: time.isoformat().replace("+00:00", "Z"),
    lambda time: time.strftime("%Y-%m-%dT%H:%M:%S"),
    lambda time: time.strftime("%Y%m%dT%H%M%SZ"),
    lambda time: time.strftime("%Y-%m-%d %H:%M:%S"),
    lambda time: time.strftime("%d/%b/%Y:%H:%M:%S +0100"),
    lambda time: time.strftime("%b %d %H:%M:%S"),
    lambda time: time.strftime("%Y%m%d"),
    lambda time: f" {time.isoformat()} ",
    lambda time: int(time.timestamp() * 1_000),
    lambda time: f"{time.timestamp()}",
    lambda _: None,
    lambda _: "expected a T",
    lambda _: [*"2026-01-01", "T"],
    lambda _: {"10": "T"},
    lambda _: "0001-01-01T00:00:00",
    lambda _: "9999-12-31T23:59:59-23:00",
]

UNUSUAL: Final[list[Callable[[bytes], bytes]]] = [
    lambda _: b"",
    lambda _: b" \r",
    lambda _: b"no",
    lambda _: b"{}",
    lambda _: b"[1]",
    lambda line: line[:-3],
    lambda line: line + b" " + line,
    lambda line: b"\t" + line + b"  \r",
    lambda _: b'{"ts": "2026-01-01T00:00:00Z", "a": "\xff"}',
    lambda _: b'{"ts": "2026-01-01T00:00:00Z", "ts": "2026-01-02T00:00:00Z"}',
    lambda _: b'{"ts": "2026-01-01T00:00:00Z", "event": 1}',
    lambda _: b'{"ts": "2026-01-01T00:00:00Z", "fields": 1}',
    lambda line: b'{"fields": %b, "timestamp_ms": 1767225600000}' % line,
    lambda line: b'{"event": {"fields": %b, "timestamp_ms": 1767225600000}}' % line,
    lambda line: line[:-1] + b', "deep": %b1%b}' % (b"[" * 63, b"]" * 63),
    lambda line: line[:-1] + b', "deep": %b1%b}' % (b'{"a": ' * 64, b"}" * 64),
    lambda line: line[:-1] + b', "wide": [%b1]}' % (b"[]," * 100),
    lambda line: line[:-1] + b', "long": "%b"}' % (b"x" * 100_000),
]


def lines(seed: int, count: int, unusual: float) -> list[bytes]:
    """Return lines of events, of which a share is unusual, and as many have another form of time.

    The first is usual, since it decides how a pipe is read.
    """
    chance = random.Random(seed)
    field = ("ts", "timestamp_ms")[seed // 2 % 2]
    made = []
    for number in range(count):
        form = chance.choice(TIMES) if number and chance.random() < unusual else TIMES[seed % 3]
        time = START + timedelta(milliseconds=number * 1_234)
        line = json.dumps({field: form(time), "n": number, "text": "x" * chance.randrange(60)}).encode()
        made.append(chance.choice(UNUSUAL)(line) if number and chance.random() < unusual else line)
    return made


@pytest.mark.parametrize(("count", "unusual"), [(3_000, 0.0), (3_000, 0.001), (2_000, 0.05), (60, 0.5)])
@pytest.mark.parametrize("seed", range(4))
def test_many_lines_at_once_give_what_they_give_alone(
    tmp_path: Path, seed: int, count: int, unusual: float
) -> None:
    content = [line + b"\n" for line in lines(seed, count, unusual)]
    path = written(tmp_path, "e.ndjson", b"".join(content))
    said: list[str] = []
    together = read(path, tell=said.append)
    said_alone: list[str] = []
    pieces = [line[start : start + 8_000] for line in content for start in range(0, len(line), 8_000)]
    alone = read("-", pieces=pieces, tell=said_alone.append)
    assert [one[1:] for one in together] == [one[1:] for one in alone]
    assert [line.replace(str(path), "standard input") for line in said] == said_alone
    assert len(together) > count * (1 - 2 * unusual) - 20


def test_events_before_a_line_that_ends_the_reading_are_given(tmp_path: Path) -> None:
    content = lines(1, 2_000, 0)
    for place, bad in [(700, b"no"), (1_500, b'{"n": 1}')]:
        path = written(tmp_path, "e.ndjson", b"\n".join([*content[:place], bad, *content[place:]]))
        given: list[int] = []
        with (
            Recording(str(path), io.BytesIO(), ReadingOptions(strict=True)) as recording,
            pytest.raises(RecordingError, match=f"line {place + 1}: "),
        ):
            given.extend(event.line for event in recording.events())
        assert given == [*range(1, place + 1)]
        assert len(read(path)) == len(content)


def test_an_unfinished_line_of_a_pipe_holds_back_none_before_it() -> None:
    first, second = lines(1, 2, 0)
    arrived: list[bytes] = []

    def pieces() -> Iterator[bytes]:
        for piece in (first + b"\n" + second[:20], second[20:] + b"\n"):
            arrived.append(piece)
            yield piece

    with Recording("-", piped(pieces())) as recording:
        events = recording.events()
        assert (next(events).line, len(arrived)) == (1, 1)
        assert (next(events).line, len(arrived)) == (2, 2)
