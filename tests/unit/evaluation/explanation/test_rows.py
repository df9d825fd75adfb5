"""A row of a frame is explained as it was evaluated, and never counts twice."""

from typing import Any

import pandas as pd
import polars as pl
import pytest

from engine import Detector, explain_row

DATA = {"ts": [0, 1_000, 2_000, 3_000], "user": ["ada", "ada", "bob", "ada"], "a": [1, 1, 1, None]}


@pytest.mark.parametrize("library", [pd, pl])
def test_a_row_is_explained_with_the_rows_before_it(library: Any) -> None:
    frame, detector = library.DataFrame(DATA), Detector()
    rules = ("per user count(a == 1) within 1m >= 2", "per user (sum(a) > 1)", "per user previous a == 1")
    for text in rules:
        detector.add_rule(text, text)
    before = [explain_row(detector, frame, "ts", row) for row in range(4)]
    verdicts = detector.evaluate_frame(frame, "ts")
    state = detector.dump()
    for row in range(4):
        explanation = explain_row(detector, frame, "ts", row)
        assert explanation == before[row], "it does not matter whether the frame was evaluated already"
        told = [explained.verdict for explained in explanation.rules]
        assert told == [bool(verdicts[name][row]) for name in rules]
    assert [explanation.rules[0].node.nodes[0].found for explanation in before] == [1, 2, 1, 2]
    assert detector.dump() == state


@pytest.mark.parametrize("library", [pd, pl])
def test_a_row_is_explained_with_the_stored_relations(library: Any) -> None:
    frame, detector = library.DataFrame(DATA), Detector()
    detector.put_relation("staff", ["ada"], time_ms=0)
    detector.add_rule("staff again", "count(staff(user)) >= 2")
    verdicts = detector.evaluate_frame(frame, "ts")["staff again"]
    told = [explain_row(detector, frame, "ts", row).rules[0].verdict for row in range(4)]
    assert told == list(verdicts) == [False, True, True, True]


def test_a_row_that_is_not_there_is_said_to_be_none() -> None:
    frame, detector = pd.DataFrame(DATA), Detector()
    for row in (-1, 4):
        with pytest.raises(IndexError, match="the frame has 4 rows"):
            explain_row(detector, frame, "ts", row)
