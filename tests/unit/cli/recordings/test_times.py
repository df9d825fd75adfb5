import time
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from api.cli.recordings.times import NotATimeError, TimeParser, iso

SECONDS = 1_588_205_198
LATEST_US = 1_704_164_645_500_000
"""2024-01-02T03:04:05.5Z"""
TIME_NS_MAX = 8_640_000_000_000_000_000_000


def read(
    value: object,
    field: str = "when",
    form: str | None = None,
    latest_us: int = LATEST_US,
    zone: tzinfo = UTC,
) -> int:
    return TimeParser(form, latest_us=lambda: latest_us, zone=zone).microseconds_of(value, field)


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
        ("20200430", 20_200_430_000_000),
        ("20200430.12", 20_200_430_120_000),
        (0, 0),
        (0.0000015, 2),  # a half, as it is written; in binary it is a little less
        (-1.5, -1_500_000),
        ("1969-12-31T23:59:59Z", -1_000_000),
        (99_999_999_999, 99_999_999_999_000_000),
        (100_000_000_000, 100_000_000_000_000),
        # Microseconds and nanoseconds
        (1_709_542_800_000_000, 1_709_542_800_000_000),
        (1_709_542_800_000_001_999, 1_709_542_800_000_001),
        ("1709542800000001999", 1_709_542_800_000_001),
        (1_709_542_800_123_456.0, 1_709_542_800_123_456),
        (99_999_999_999_999, 99_999_999_999_999_000),
        (100_000_000_000_000, 100_000_000_000_000),
        (99_999_999_999_999_999, 99_999_999_999_999_999),
        (100_000_000_000_000_000, 100_000_000_000_000),
        (-1_709_542_800_000_001_999, -1_709_542_800_000_002),
        # The first and the last time that the service takes
        *((each, int(each) // 1_000) for each in (TIME_NS_MAX, -TIME_NS_MAX, f"{TIME_NS_MAX}")),
    ],
)
def test_iso_and_numbers_of_all_units_are_told_apart(value: object, expected_us: int) -> None:
    assert read(value) == expected_us
    assert TimeParser().many([value, value], "when") == [expected_us] * 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36.000Z"),
        ("31/Dec/2023:23:00:00 -0200", "2024-01-01T01:00:00.000Z"),
        ("Dec 10 06:55:46", "2023-12-10T06:55:46.000Z"),
        ("Jan  2 03:04:05.5", "2024-01-02T03:04:05.500Z"),
        ("Jan  3 03:04:05.5", "2024-01-03T03:04:05.500Z"),
        ("Jan  3 03:04:06", "2023-01-03T03:04:06.000Z"),
        ("Sun Dec 04 04:47:44 2005", "2005-12-04T04:47:44.000Z"),
        ("Sun Dec  4 04:47:44.25 UTC 2005", "2005-12-04T04:47:44.250Z"),
        ("2005/12/04 04:47:44", "2005-12-04T04:47:44.000Z"),
        ("2005-12-04 04:47:44,250", "2005-12-04T04:47:44.250Z"),
        ("2005-12-04 04:47:44.250 UTC", "2005-12-04T04:47:44.250Z"),
        ("2005-12-04 04:47:44 +0100", "2005-12-04T03:47:44.000Z"),
        ("Feb 29 00:00:00", "2020-02-29T00:00:00.000Z"),
    ],
)
def test_logs_write_times_in_their_own_ways(value: str, expected: str) -> None:
    assert iso(read(value)) == expected


@pytest.mark.parametrize(
    ("form", "value", "expected"),
    [
        ("%d.%m.%Y %H:%M", "02.01.2024 03:04", "2024-01-02T03:04:00.000Z"),
        ("%d.%m.%y", "03.02.24", "2024-02-03T00:00:00.000Z"),
        ("%G week %V day %u", "2020 week 05 day 1", "2020-01-27T00:00:00.000Z"),
        ("%c", "Thu Jan  2 03:04:05 2020", "2020-01-02T03:04:05.000Z"),
        ("%x", "01/02/20", "2020-01-02T00:00:00.000Z"),
        ("%Y%z", "2024+0100", "2023-12-31T23:00:00.000Z"),
        ("%Y%m%d", 20240102, "2024-01-02T00:00:00.000Z"),
        ("%d.%m.", "02.01.", "2024-01-02T00:00:00.000Z"),
        ("%d.%m.", "03.01.", "2024-01-03T00:00:00.000Z"),
        ("%d.%m.", "04.01.", "2023-01-04T00:00:00.000Z"),
        ("%%Y %d.%m.", "%Y 04.01.", "2023-01-04T00:00:00.000Z"),
        ("%b %d", "Feb 29", "2020-02-29T00:00:00.000Z"),
    ],
)
def test_a_form_says_how_times_are_written(form: str, value: str, expected: str) -> None:
    assert iso(read(value, form=form)) == expected


def test_the_last_year_is_that_of_the_zone_in_which_the_time_is_written() -> None:
    form, new_years_eve_us = "%d.%m. %H:%M %z", read("2023-12-31T20:00:00Z")
    for value, expected in (
        ("02.01. 10:00 +1400", "2024-01-01T20:00:00.000Z"),
        ("02.01. 10:01 +1400", "2023-01-01T20:01:00.000Z"),
    ):
        assert iso(read(value, form=form, latest_us=new_years_eve_us)) == expected


@pytest.mark.parametrize(
    ("form", "value", "said"),
    [
        ("%Y", "soon", "`when`: expected a time like %Y, got `soon`"),
        ("%H:%M", True, "`when`: expected a time like %H:%M, got `True`"),
        (
            None,
            "x" * 41,
            (
                "`when`: expected a time (ISO 8601, a number since 1970, or as syslog and web servers "
                f"write it), got `{'x' * 40}`"
            ),
        ),
        (None, "1e999", "`when`: the time `1e999` is out of range"),
        (None, -(TIME_NS_MAX + 1), "`when`: the time `-8640000000000000000001` is out of range"),
    ],
)
def test_the_refusal_names_the_field_and_what_was_expected(
    form: str | None, value: object, said: str
) -> None:
    with pytest.raises(NotATimeError) as refusal:
        read(value, form=form)
    assert str(refusal.value) == said


def test_a_time_without_a_zone_is_universal_time_wherever_the_machine_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert read("2020-04-30T00:06:38") == SECONDS * 1_000_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_name_in_milliseconds_is_believed_whatever_the_size() -> None:
    assert read(1500, "timestamp_ms") == 1_500_000
    assert read(1500, "timestamp") == 1_500_000_000
    assert read(1500, "t_us") == 1_500
    assert read(1500, "t_ns") == 1
    assert read(1_709_542_800_000_000, "timestamp_ms") == 1_709_542_800_000_000


def test_a_time_without_a_zone_is_in_the_one_that_is_given() -> None:
    tokyo = ZoneInfo("Asia/Tokyo")
    for value in ("2024-01-02 12:04:05", "2024-01-02T03:04:05Z", "Jan  2 12:04:05"):
        assert iso(read(value, zone=tokyo)) == "2024-01-02T03:04:05.000Z"
    assert iso(read("02.01.2024 12:04", form="%d.%m.%Y %H:%M", zone=tokyo)) == "2024-01-02T03:04:00.000Z"
    assert iso(read("Jul  1 12:00:00", zone=ZoneInfo("Europe/Berlin"))) == "2023-07-01T10:00:00.000Z"
    hour_behind = timezone(timedelta(hours=-1))
    assert iso(read("Sun Dec 04 04:47:44 2005", zone=hour_behind)) == "2005-12-04T05:47:44.000Z"


@pytest.mark.parametrize("hours_ahead", range(15))
def test_no_zone_puts_the_last_hours_of_a_log_into_the_year_before(hours_ahead: int) -> None:
    written = datetime.fromtimestamp(LATEST_US / 1e6, UTC) + timedelta(hours=hours_ahead)
    assert iso(read(f"{written:%b %d %H:%M:%S}")).startswith(f"{written:%Y-%m-%dT%H:%M:%S}")


def test_the_year_goes_by_the_moment_at_which_a_time_is_read() -> None:
    now = iter([LATEST_US, LATEST_US + 40 * 86_400_000_000])
    times = TimeParser(latest_us=lambda: next(now))
    assert [iso(times.microseconds_of("Feb 10 00:00:00", "t")) for _ in range(2)] == [
        "2023-02-10T00:00:00.000Z",
        "2024-02-10T00:00:00.000Z",
    ]


@pytest.mark.parametrize(
    "value",
    [
        *(True, False, None, [], {}, "", "soon", "12:00"),
        *(float("nan"), float("inf"), "1e999", "NaN", 1e30, TIME_NS_MAX + 1, -TIME_NS_MAX - 1),
        "Foo 10 06:55:46",
        "10/Foo/2000:13:55:36 -0700",
        "10/Oct/2000:25:55:36 -0700",
        "Feb 30 06:55:46",
        "Dec 10 25:00:00",
        "2020-13-01",
        pytest.param(10**400, id="an integer of 401 digits"),
        pytest.param("9" * 400, id="400 digits"),
        pytest.param("9" * 5_000, id="5000 digits"),
    ],
)
def test_what_is_no_time_is_refused(value: object) -> None:
    with pytest.raises(NotATimeError):
        read(value)


@pytest.mark.parametrize("time_us", [0, 1_588_205_198_899_710, -1, -62_135_596_800_000_000])
def test_what_is_shown_is_the_same_moment_to_the_millisecond(time_us: int) -> None:
    shown = iso(time_us)
    assert shown.endswith("Z")
    assert 0 <= time_us - read(shown) < 1_000


def test_a_time_beyond_the_calendar_is_shown_in_milliseconds() -> None:
    assert iso(8_640_000_000_000_000_000) == "8.64e+15 ms"
