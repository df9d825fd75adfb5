"""Actors that are killed hundreds of times lose nothing that they answered, and do nothing twice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash import evidence
from tests.crash.storm import HAPPENED, NOT_HAPPENED, storm

pytestmark = pytest.mark.storm

KILLS = 300


def test_whatever_was_answered_is_there_after_every_kill(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    counts = storm(tmp_path / "data", seed, kills=KILLS)
    record_property("examples", counts.kills.total())
    for line in counts.lines():
        print(line)
    assert counts.kills.total() >= KILLS
    assert counts.shown >= KILLS / 3
    for what in (evidence.SNAPSHOT, evidence.ROTATION, evidence.WAKE):
        assert counts.kills[what] >= 5, what
    # Else the storm would not have looked where it matters.
    assert counts.outcomes[HAPPENED] >= 5
    assert counts.outcomes[NOT_HAPPENED] >= 5
