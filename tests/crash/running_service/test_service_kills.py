"""The service, whose processes are killed under caller, answers or says that it cannot, and loses nothing."""

import random
import statistics
from collections import Counter

import pytest

from tests.crash.running_service.service import ANSWER_WITHIN_S, DIRECTORY, SERVICE, WORKER
from tests.crash.running_service.service_kills import kill_service_processes, planned

KILLS = 14


@pytest.mark.ray
@pytest.mark.storm
def test_every_plan_has_all_kinds_of_processes():
    for seed in range(500):
        targets = planned(random.Random(seed), KILLS, 1)
        assert Counter(targets) == {WORKER: 11, DIRECTORY: 2, SERVICE: 1}


def check(tally, kills, record_property):
    record_property("examples", tally.kills.total())
    for line in tally.lines():
        print(line)
    assert tally.kills.total() >= kills
    assert tally.kills[WORKER] > 0
    assert tally.kills[DIRECTORY] > 0
    assert tally.kills[SERVICE] > 0
    assert tally.slowest_s <= ANSWER_WITHIN_S
    assert len(tally.away_s) > tally.kills[WORKER] / 3
    assert statistics.median(tally.away_s) < ANSWER_WITHIN_S


@pytest.mark.ray
@pytest.mark.storm
def test_whatever_is_killed_nothing_that_was_answered_is_lost(tmp_path, seed, record_property):
    check(
        kill_service_processes(tmp_path / "data", seed, kills=KILLS, services=1, detectors=3),
        KILLS,
        record_property,
    )


@pytest.mark.ray
@pytest.mark.storm
@pytest.mark.long
@pytest.mark.timeout(900)
def test_whatever_is_killed_two_hundred_times_nothing_is_lost(tmp_path, seed, record_property):
    check(kill_service_processes(tmp_path / "data", seed, kills=220, services=8), 200, record_property)
