import time

import pytest

from api.cli.recordings.times import NotATimeError, TimeParser, iso

SECONDS = 1_588_205_198


@pytest.mark.parametrize(
    ("value", "expected_us"),
    [
        ("2020-04-30T00:06:38Z", SECONDS * 1_000_000),
        ("2020-04-30T02:06:38+02:00", SECONDS * 1_000_000),
        ("2020-04-30T00:06:38", SECONDS * 1_000_000),
        ("2020-04-30 00:06:38.25", SECONDS * 1_000_000 + 250_000),
        ("20200430T000638Z", SECONDS * 1_000_000),
        (SECONDS, SECONDS * 1_000_000),
        (1588205198.89971, 1_588_205_198_899_710),
        ("1588205198.89971", 1_588_205_198_899_710),
        (SECONDS * 1000, SECONDS * 1_000_000),
        (SECONDS * 1000 + 0.5, SECONDS * 1_000_000 + 500),
        (str(SECONDS * 1000), SECONDS * 1_000_000),
        (0, 0),
        (0.0000015, 2),  # a half, as it is written; in binary it is a little less
        (-1.5, -1_500_000),
        ("1969-12-31T23:59:59Z", -1_000_000),
        (99_999_999_999, 99_999_999_999_000_000),
        (100_000_000_000, 100_000_000_000_000),
    ],
)
def test_iso_seconds_and_milliseconds_are_told_apart(value: object, expected_us: int) -> None:
    assert TimeParser().microseconds_of(value, "when") == expected_us


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36.000Z"),
        ("Dec 10 06:55:46", "2023-12-10T06:55:46.000Z"),
        ("Jan  2 03:04:05.5", "2024-01-02T03:04:05.500Z"),
        ("Jan  2 03:04:06", "2023-01-02T03:04:06.000Z"),
        ("Feb 29 00:00:00", "2020-02-29T00:00:00.000Z"),
    ],
)
def test_logs_write_times_in_their_own_ways(value: str, expected: str) -> None:
    latest_us = TimeParser().microseconds_of("2024-01-02T03:04:05.5", "now")
    assert iso(TimeParser(latest_us=latest_us).microseconds_of(value, "when")) == expected


@pytest.mark.parametrize(
    ("form", "value", "expected"),
    [
        ("%d.%m.%Y %H:%M", "02.01.2024 03:04", "2024-01-02T03:04:00.000Z"),
        ("%d.%m.", "03.01.", "2023-01-03T00:00:00.000Z"),
        ("%Y%z", "2024+0100", "2023-12-31T23:00:00.000Z"),
    ],
)
def test_a_form_says_how_times_are_written(form: str, value: str, expected: str) -> None:
    latest_us = TimeParser().microseconds_of("2024-01-02", "now")
    assert iso(TimeParser(form, latest_us=latest_us).microseconds_of(value, "when")) == expected


def test_a_time_of_another_form_is_refused() -> None:
    with pytest.raises(NotATimeError, match="`when`: expected a time like %Y, got `soon`"):
        TimeParser("%Y").microseconds_of("soon", "when")


def test_a_time_without_a_zone_is_universal_time_wherever_the_machine_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert TimeParser().microseconds_of("2020-04-30T00:06:38", "when") == SECONDS * 1_000_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_name_in_milliseconds_is_believed_whatever_the_size() -> None:
    assert TimeParser().microseconds_of(1500, "timestamp_ms") == 1_500_000
    assert TimeParser().microseconds_of(1500, "timestamp") == 1_500_000_000


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        None,
        [],
        {},
        "",
        "soon",
        "12:00",
        "Foo 10 06:55:46",
        "10/Foo/2000:13:55:36 -0700",
        "2020-13-01",
        8_640_000_000_000_001,
        float("nan"),
        float("inf"),
        "1e999",
        "NaN",
        1e30,
    ],
)
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(NotATimeError):
        TimeParser().microseconds_of(value, "when")


@pytest.mark.parametrize("time_us", [0, 1_588_205_198_899_710, -1, -62_135_596_800_000_000])
def test_what_is_shown_is_the_same_moment_to_the_millisecond(time_us: int) -> None:
    shown = iso(time_us)
    assert shown.endswith("Z")
    assert 0 <= time_us - TimeParser().microseconds_of(shown, "when") < 1_000


def test_a_time_beyond_the_calendar_is_shown_in_milliseconds() -> None:
    assert iso(8_640_000_000_000_000_000) == "8.64e+15 ms"
