"""An owner that is stopped, and continues when its successor is active, answers nothing wrong."""

import pytest

from tests.crash.actors.two_owners import ANSWERED, ANSWERED_WHILE, FENCED_HAD, FENCED_NOT, successions


@pytest.mark.storm
def test_what_an_old_owner_still_answers_is_in_its_successors_history(tmp_path, seed, record_property):
    came = successions(tmp_path / "data", seed, batches=5, snapshots=1, activations=2)
    record_property("examples", came.outcomes.total())
    for line in came.lines():
        print(line)
    # All three must happen, or the test missed what matters.
    assert came.outcomes[ANSWERED]
    assert came.outcomes[ANSWERED_WHILE]
    assert came.outcomes[FENCED_HAD]
    assert came.outcomes[FENCED_NOT]
    assert len(came.moments) >= 15
