"""The service, whose processes are killed under load, answers or says that it cannot; it loses nothing."""

import random
import statistics
from collections import Counter

import pytest

from tests.crash.running_service.service_kills import (
    ANSWER_WITHIN_S,
    DIRECTORY,
    SERVICE,
    WORKER,
    kill_service_processes,
    planned,
)

KILLS = 14


def test_every_plan_has_all_kinds_of_processes():
    for seed in range(500):
        targets = planned(random.Random(seed), KILLS, 1)
        assert Counter(targets) == {WORKER: 11, DIRECTORY: 2, SERVICE: 1}


@pytest.mark.ray
@pytest.mark.storm
@pytest.mark.parametrize(
    ("kills", "services"),
    [(KILLS, 1), pytest.param(220, 8, marks=[pytest.mark.long, pytest.mark.timeout(900)])],
)
def test_whatever_is_killed_nothing_that_was_answered_is_lost(
    tmp_path, seed, record_property, kills, services
):
    tally = kill_service_processes(tmp_path / "data", seed, kills=kills, services=services, detectors=3)
    record_property("examples", tally.kills.total())
    print(*tally.lines(), sep="\n")
    assert set(tally.kills) == {WORKER, DIRECTORY, SERVICE}
    assert tally.checked > 10 * kills
    assert tally.catalogue_checked > kills
    assert statistics.median(tally.away_s) < ANSWER_WITHIN_S
