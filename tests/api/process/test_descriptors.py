"""The limit on open files: raised where it may be, and respected where it may not."""

import resource

import pytest

from api.process import listening
from api.settings import Settings


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The limits in force, which are not those of the process."""
    found = [(1_024, 4_096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: found.append(pair))
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1_024, 4_096), (4_096, 4_096)),
        ((1_024, 1_000_000), (65_536, 1_000_000)),
        ((1_024, resource.RLIM_INFINITY), (65_536, resource.RLIM_INFINITY)),
        ((100_000, 1_000_000), (100_000, 1_000_000)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)),
        ((4_096, 4_096), (4_096, 4_096)),
    ],
)
def test_the_limit_is_raised_as_far_as_it_helps_and_never_lowered(
    limits: list[tuple[int, int]], before: tuple[int, int], after: tuple[int, int]
) -> None:
    limits[:] = [before]
    listening.raise_limit()
    assert limits[-1] == after


@pytest.mark.parametrize(
    ("limit", "wanted", "given"),
    [(65_536, 16_384, 16_384), (1_024, 16_384, 1_024 - 360), (100, 16_384, 50), (1_024, 10, 10), (-1, 7, 7)],
)
def test_connections_leave_descriptors_for_the_service_itself(
    limits: list[tuple[int, int]],
    caplog: pytest.LogCaptureFixture,
    limit: int,
    wanted: int,
    given: int,
) -> None:
    limits[:] = [(limit, limit)]
    assert listening.connections_max(Settings(max_connections=wanted)) == given
    assert [record.levelname for record in caplog.records] == ([] if given == wanted else ["WARNING"])


def test_detectors_that_share_a_worker_share_its_connections(limits: list[tuple[int, int]]) -> None:
    limits[:] = [(10_000, 10_000)]
    shared = Settings(max_connections=65_536, max_resident=2_000, detectors_per_worker=200)
    assert listening.connections_max(shared) == 10_000 - 200
