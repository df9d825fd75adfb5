"""When a front end counts as lost: as soon as a worker does."""

from api.process.front_ends import Signs
from engine.runtime.contract.settings import RuntimeSettings

SETTINGS = RuntimeSettings(data=None)  # type: ignore[arg-type]


def signs() -> Signs:
    return Signs(SETTINGS.node_timeout_s, SETTINGS.hung_s)


def test_one_that_is_stopped_counts_as_lost_as_soon_as_a_worker() -> None:
    found = signs()
    looks = 0
    while found.look(7, stopped=True) is None:
        looks += 1
    assert (looks + 1) * found.look_s == SETTINGS.node_timeout_s


def test_one_that_goes_on_in_time_is_kept() -> None:
    found = signs()
    for _ in range(100):
        for stopped in (True, True, True, False):
            # It catches up once it goes on.
            assert found.look(int(not stopped), stopped=stopped) is None


def test_one_that_is_heard_now_and_then_is_not_silent() -> None:
    found = signs()
    assert all(found.look(look // 2, stopped=False) is None for look in range(1_000))


def test_one_whose_loop_hangs_has_the_time_of_a_worker_that_hangs() -> None:
    found = signs()
    looks = 0
    while (lost := found.look(7, stopped=False)) is None:
        looks += 1
    assert looks * found.look_s == SETTINGS.hung_s
    assert "silent for 60 s" in lost
