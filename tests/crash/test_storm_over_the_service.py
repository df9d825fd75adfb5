"""The service, whose processes are killed under load, answers or says that it cannot, and loses nothing."""

import random
import statistics
from collections import Counter

import pytest

from tests.crash.service_storm import ANSWER_WITHIN_S, DIRECTORY, HOST, SERVICE, planned, service_storm

pytestmark = [pytest.mark.ray, pytest.mark.storm, pytest.mark.timeout(170)]


def test_every_storm_meets_all_kinds_of_processes():
    for seed in range(500):
        victims = planned(random.Random(seed), 21, 1)
        assert Counter(victims) == {HOST: 17, DIRECTORY: 3, SERVICE: 1}


def check(toll, kills, record_property):
    record_property("examples", toll.kills.total())
    for line in toll.lines():
        print(line)
    assert toll.kills.total() >= kills
    assert toll.kills[HOST] > 0
    assert toll.kills[DIRECTORY] > 0
    assert toll.kills[SERVICE] > 0
    assert toll.slowest_s <= ANSWER_WITHIN_S
    assert len(toll.away_s) > toll.kills[HOST] / 3
    assert statistics.median(toll.away_s) < ANSWER_WITHIN_S


def test_whatever_is_killed_nothing_that_was_answered_is_lost(tmp_path, seed, record_property):
    check(service_storm(tmp_path / "data", seed, kills=21, services=1, detectors=3), 21, record_property)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_whatever_is_killed_two_hundred_times_nothing_is_lost(tmp_path, seed, record_property):
    check(service_storm(tmp_path / "data", seed, kills=220, services=8), 200, record_property)
