"""Actors killed hundreds of times lose nothing that they answered, and do nothing twice."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.actors import kill_moments
from tests.crash.actors.actor_kills import HAPPENED, NOT_HAPPENED, kill_actors

KILLS = 300


@pytest.mark.storm
def test_whatever_was_answered_is_there_after_every_kill(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    counts = kill_actors(tmp_path / "data", seed, kills=KILLS)
    record_property("examples", counts.kills.total())
    for line in counts.lines():
        print(line)
    assert counts.kills.total() >= KILLS
    assert counts.shown >= KILLS / 3
    for what in kill_moments.SHOWN_BY_FILES:
        assert counts.kills[what] >= 5, what
    # Otherwise the kills have not hit what matters.
    assert counts.outcomes[HAPPENED] >= 5
    assert counts.outcomes[NOT_HAPPENED] >= 5
    assert counts.firings >= 100
