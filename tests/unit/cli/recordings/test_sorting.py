import itertools
from collections.abc import Iterator

import pytest

from api.cli.recordings.reading import RecordedEvent
from api.cli.recordings.sorting import in_order


def events(*times_us: int) -> Iterator[RecordedEvent]:
    return (RecordedEvent("e", line, {}, time_us) for line, time_us in enumerate(times_us))


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
    assert [(one.time_us, one.line) for one in in_order(events(5, 3, 5, 9, 1, 0, 8), late_us_max)] == expected


def test_an_event_is_passed_on_as_soon_as_none_may_come_before_it() -> None:
    read = list[int]()

    def arriving() -> Iterator[RecordedEvent]:
        for event in events(-20, -12, -10, 0):
            read.append(event.time_us)
            yield event

    assert [one.time_us for one in itertools.islice(in_order(arriving(), 10), 1)] == [-20]
    assert read == [-20, -12, -10]
