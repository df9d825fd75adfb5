"""Data frames: every kind of column comes in as the values that it shows, and verdicts come back."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from engine import BatchRefused, Detector
from engine.evaluation.events.frames import events_of

START = datetime(2024, 3, 4, 9, tzinfo=UTC)
TIMES = [START + timedelta(seconds=number) for number in range(3)]
MS = [int(at.timestamp() * 1_000) for at in TIMES]


def fields(frame: Any) -> list[dict[str, Any]]:
    """The fields of each row; a missing one is None, as in JSON."""
    return [fields for fields, _, _ in events_of(frame, "ts")]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([1, 2, 3]), [1, 2, 3]),
        (pd.Series([1, None, 2**53 + 1], dtype="Int64"), [1, None, 2**53 + 1]),
        (pd.Series([1.5, float("nan"), 2.0]), [1.5, None, 2.0]),
        (pd.Series([1.5, None, 2.0], dtype="Float64"), [1.5, None, 2.0]),
        (pd.Series([True, False, True]), [True, False, True]),
        (pd.Series([True, None, False], dtype="boolean"), [True, None, False]),
        (pd.Series(["a", None, "b"]), ["a", None, "b"]),
        (pd.Series(["a", None, "b"], dtype="string"), ["a", None, "b"]),
        (pd.Series(["a", None, "b"], dtype="category"), ["a", None, "b"]),
        (pd.Series([1, 2, 1], dtype="category"), [1, 2, 1]),
        (pd.Series([10**30, "x", None], dtype=object), [10**30, "x", None]),
        (pd.Series([[1, 2], None, {"a": 1}], dtype=object), [[1, 2], None, {"a": 1}]),
        (pd.Series([np.array([1, 2]), None, np.array([1.5, np.nan])]), [[1, 2], None, [1.5, None]]),
        (pd.Series([np.array(["2024-03-04"], "M8[ns]"), None, None]), [["2024-03-04T00:00:00"], None, None]),
        (pd.Series([np.array([[1, 2], [3, 4]]), None, None]), [[[1, 2], [3, 4]], None, None]),
        (
            pd.Series([{"a": [START, pd.NaT, np.nan]}, None, {"a": pd.NA}]),
            [{"a": ["2024-03-04T09:00:00+00:00", None, None]}, None, {"a": None}],
        ),
        (
            pd.Series([[1, 2], None, [3]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
            [[1, 2], None, [3]],
        ),
        (
            pd.Series([START, None, START]).dt.tz_convert("Europe/Berlin"),
            ["2024-03-04T10:00:00+01:00", None, "2024-03-04T10:00:00+01:00"],
        ),
        (pd.Series([timedelta(seconds=90), None, timedelta(0)]), [90.0, None, 0.0]),
    ],
    ids=lambda given: str(getattr(given, "dtype", "")),
)
def test_columns_of_pandas_have_the_values_that_they_show(column: pd.Series, expected: list[Any]) -> None:
    found = [row["x"] for row in fields(pd.DataFrame({"ts": TIMES, "x": column}))]
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pl.Series([1, None, 2**53 + 1]), [1, None, 2**53 + 1]),
        (pl.Series([1.5, float("nan"), None]), [1.5, None, None]),
        (pl.Series([True, None, False]), [True, None, False]),
        (pl.Series(["a", None, "b"]), ["a", None, "b"]),
        (pl.Series(["a", None, "b"], dtype=pl.Categorical), ["a", None, "b"]),
        (pl.Series([Decimal("1.5"), None, Decimal(2)]), [Decimal("1.5"), None, Decimal(2)]),
        (pl.Series([[1, 2], None, [3]]), [[1, 2], None, [3]]),
        (pl.Series([{"a": 1}, None, {"a": 2}]), [{"a": 1}, None, {"a": 2}]),
        (
            pl.Series([{"a": [timedelta(seconds=1)], "b": float("nan")}, None, {"a": None, "b": 1.5}]),
            [{"a": [1.0], "b": None}, None, {"a": None, "b": 1.5}],
        ),
        (pl.Series([date(2024, 3, 4), None, None]), ["2024-03-04", None, None]),
        (
            pl.Series([START, None, None], dtype=pl.Datetime("us", "UTC")),
            ["2024-03-04T09:00:00+00:00", None, None],
        ),
    ],
    ids=lambda given: str(getattr(given, "dtype", "")),
)
def test_columns_of_polars_have_the_values_that_they_show(column: pl.Series, expected: list[Any]) -> None:
    found = [row["x"] for row in fields(pl.DataFrame({"ts": TIMES, "x": column}))]
    assert found == [expected[0], *expected[1:]]
    assert [type(value) for value in found] == [type(value) for value in expected]


@pytest.mark.parametrize(
    "times",
    [
        pd.Series(MS),
        pd.Series([float(at) for at in MS]),
        pd.Series(TIMES),
        pd.Series(TIMES).dt.tz_convert("Asia/Tokyo"),
        pd.Series(TIMES).dt.tz_localize(None),
        pd.Series(TIMES).astype("datetime64[ns, UTC]"),
    ],
    ids=lambda times: str(times.dtype),
)
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_the_time_may_be_a_datetime_or_milliseconds(times: pd.Series, kind: str) -> None:
    frame: Any = pd.DataFrame({"ts": times})
    if kind == "polars":
        frame = pl.DataFrame({"ts": times.tolist()})
    detector = Detector()
    detector.evaluate_frame(frame, time="ts")
    assert (detector.events_seen, detector.clock_us) == (3, MS[-1] * 1_000)


def detector() -> Detector:
    made = Detector()
    made.add_rule("bad", "ok == false")
    made.add_rule("after a bad one", "ok == true and per user once within 10s ok == false")
    made.add_rule("unknown user", "not user matches '.'")
    return made


ROWS = {"ts": TIMES, "user": ["ada", "ada", None], "ok": [False, True, True]}
EXPECTED = {
    "bad": [True, False, False],
    "after a bad one": [False, True, False],
    "unknown user": [False, False, True],
}


def test_verdicts_of_pandas_come_back_with_the_index() -> None:
    frame = pd.DataFrame(ROWS, index=["x", "y", "z"])
    before = frame.copy()
    found = detector().evaluate_frame(frame, time="ts")
    pd.testing.assert_frame_equal(found, pd.DataFrame(EXPECTED, index=["x", "y", "z"]))
    pd.testing.assert_frame_equal(frame, before)


def test_verdicts_of_polars_come_back_as_polars() -> None:
    found = detector().evaluate_frame(pl.DataFrame(ROWS), time="ts")
    assert found.equals(pl.DataFrame(EXPECTED))


def test_history_goes_on_from_one_frame_to_the_next() -> None:
    made, apart = detector(), detector()
    frame = pd.DataFrame(ROWS)
    whole = made.evaluate_frame(frame, time="ts")
    parts = [apart.evaluate_frame(frame[row : row + 1], time="ts") for row in range(3)]
    pd.testing.assert_frame_equal(pd.concat(parts), whole)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_frame_without_rows_and_a_detector_without_rules_have_verdicts_too(kind: Any) -> None:
    empty = kind({"ts": [], "ok": []})
    assert list(detector().evaluate_frame(empty, time="ts").columns) == list(EXPECTED)
    assert detector().evaluate_frame(empty, time="ts").shape == (0, 3)
    assert Detector().evaluate_frame(kind(ROWS), time="ts").shape[1] == 0


def test_rules_of_one_name_are_told_apart_by_their_ids() -> None:
    made = Detector()
    ids = [made.add_rule("same", condition) for condition in ("ok == true", "ok == false")]
    made.add_rule("other", "ok == 1")
    assert list(made.evaluate_frame(pl.DataFrame(ROWS), time="ts").columns) == [*ids, "other"]


def test_what_is_no_frame_or_has_no_times_is_refused_and_nothing_is_evaluated() -> None:
    made = detector()
    with pytest.raises(TypeError, match="expected a DataFrame of pandas or polars, got list"):
        made.evaluate_frame([{"ts": 0}], time="ts")
    with pytest.raises(TypeError, match="got Series"):
        made.evaluate_frame(pd.Series(TIMES), time="ts")
    with pytest.raises(KeyError, match="when"):
        made.evaluate_frame(pd.DataFrame(ROWS), time="when")
    with pytest.raises(ValueError, match="row 1 has no time"):
        made.evaluate_frame(pd.DataFrame({"ts": [START, None]}), time="ts")
    with pytest.raises(ValueError, match="same name"):
        made.evaluate_frame(pd.DataFrame([[START, 1, 2]], columns=["ts", "a", "a"]), time="ts")
    assert made.events_seen == 0


def test_the_first_refused_row_is_told() -> None:
    late = [START + timedelta(days=1), START]
    with pytest.raises(BatchRefused, match=r"^at index 1: the event is 86400000 ms late") as refused:
        detector().evaluate_frame(pd.DataFrame({"ts": late}), time="ts")
    assert refused.value.index == 1


def test_a_cell_that_is_nested_too_deeply_is_refused_with_its_place() -> None:
    cell: list[Any] = []
    cell.append(cell)
    made = Detector()
    made.add_rule("read", "exists a")
    with pytest.raises(BatchRefused, match=r"^at index 0: fields\.a"):
        made.evaluate_frame(
            pl.DataFrame({"ts": TIMES, "a": pl.Series([cell] * 3, dtype=pl.Object)}), time="ts"
        )
