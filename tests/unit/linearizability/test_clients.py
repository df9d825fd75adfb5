"""How long a detector was away, as its clients saw it."""

import random

import pytest

from tests.linearizability.clients import Subject
from tests.linearizability.workload import Workload


def test_what_a_node_answers_that_is_cut_off_is_no_answer_elsewhere() -> None:
    subject = Subject("d", Workload(random.Random(1)))
    # Front end 1 is cut off with the detector at 11 and answers a little longer, and again after 40.
    subject.answered = [(10.0, "0"), (11.0, "0"), (11.5, "1"), (12.5, "1"), (15.0, "0"), (40.0, "1")]
    assert subject.away_s(11.2) == 25.0
    assert subject.away_s(11.2, beside="1") == pytest.approx(3.8)
    assert subject.answered_since(16.0)
    assert not subject.answered_since(16.0, beside="1")
