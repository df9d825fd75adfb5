import itertools
from collections.abc import Iterable, Iterator

import pytest

from api.cli.recordings import sorting
from api.cli.recordings.reading import RecordedEvent
from api.cli.recordings.skipping import RecordingError
from api.cli.recordings.sorting import Sorter, merged


def events(*times_us: int) -> Iterator[RecordedEvent]:
    return (RecordedEvent("e", line, {}, time_us) for line, time_us in enumerate(times_us))


def in_order(sorter: Sorter, arriving: Iterable[RecordedEvent], size: int = 1) -> Iterator[RecordedEvent]:
    """Yield what a sorter makes of events that come in portions of some size."""
    arriving = iter(arriving)
    portions = iter(lambda: list(itertools.islice(arriving, size)), [])
    return itertools.chain.from_iterable(sorter.in_order(portions))


@pytest.mark.parametrize(
    ("late_us_max", "expected"),
    [
        (2, [(3, 1), (5, 0), (5, 2), (1, 4), (0, 5), (8, 6), (9, 3)]),
        (100, [(0, 5), (1, 4), (3, 1), (5, 0), (5, 2), (8, 6), (9, 3)]),
    ],
)
def test_events_of_one_time_keep_their_order_and_what_is_too_late_is_given_up(
    late_us_max: int, expected: list[tuple[int, int]]
) -> None:
    assert [
        (one.time_us, one.line) for one in in_order(Sorter(late_us_max), events(5, 3, 5, 9, 1, 0, 8))
    ] == expected


def test_an_event_is_passed_on_as_soon_as_none_may_come_before_it() -> None:
    read = list[int]()

    def arriving() -> Iterator[RecordedEvent]:
        for event in events(-20, -12, -10, 0):
            read.append(event.time_us)
            yield event

    assert [one.time_us for one in itertools.islice(in_order(Sorter(10), arriving()), 1)] == [-20]
    assert read == [-20, -12, -10]


def test_without_a_lateness_so_many_events_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.time_us for one in in_order(Sorter(None), events(5, 3, 9, 1))] == [1, 3, 5, 9]
    monkeypatch.setattr(sorting, "WAITING_EVENTS_MAX", 2)
    sorter = Sorter(None)
    assert [one.time_us for one in in_order(sorter, events(5, 3, 9, 1))] == [3, 5, 1, 9]
    assert sorter.late_us_most == 8
    assert [one.time_us for one in in_order(sorter, events(10, 9))] == [9, 10]
    assert sorter.late_us_most == 8
    monkeypatch.setattr(sorting, "WAITING_BYTES_MAX", 3)
    for bytes_max, size in [(3, 1), (5, 2)]:
        monkeypatch.setattr(sorting, "WAITING_EVENTS_MAX", 2 * size)
        monkeypatch.setattr(sorting, "WAITING_BYTES_MAX", bytes_max)
        long = (RecordedEvent("e", 1, {}, time_us, b"{}") for time_us in (5, 3, 9, 1))
        assert [one.time_us for one in in_order(Sorter(None), long, size)] == [3, 5, 1, 9]


def test_what_was_read_before_a_failure_comes_before_it() -> None:
    def failing() -> Iterator[RecordedEvent]:
        yield from events(5, 3)
        raise RecordingError("no")

    found = in_order(Sorter(None), merged([failing(), events(4, 6, 7)]))
    assert [next(found).time_us for _ in range(4)] == [3, 4, 5, 6]
    with pytest.raises(RecordingError):
        next(found)

    def no_recording() -> Iterator[RecordedEvent]:
        raise RecordingError("no")
        yield

    with pytest.raises(RecordingError):
        next(merged([events(1), no_recording()]))


def test_more_recordings_than_are_read_at_once_are_merged_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sorting, "OPEN_MAX", 2)
    read = list[int]()

    def recording(number: int) -> Iterator[RecordedEvent]:
        read.append(number)
        yield from events(number, number + 10)

    found = merged(recording(number) for number in range(3))
    assert next(found).time_us == 0
    assert read == [0, 1]
    assert [one.time_us for one in found] == [1, 10, 2, 11, 12]
