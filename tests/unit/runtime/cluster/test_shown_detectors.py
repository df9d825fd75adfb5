"""The task that is named after a worker's detectors, for Ray's own tools."""

import asyncio
import contextlib
import threading

import pytest

from engine.runtime.cluster.actors.shown_detectors import ShownDetectors, task_name
from tests.skipping_clock import SkippingLoop


@pytest.mark.parametrize(
    ("detectors", "name"),
    [
        ({}, ""),
        ({"1": "b"}, "b (1)"),
        ({"1": "c", "3": "a", "2": "a"}, "a (2), a (3), c (1)"),
        ({"1": "d", "2": "c", "3": "a", "4": "b", "5": "e"}, "a (3), b (4), c (2) and 2 more"),
        ({"1": "two\n\tlines"}, "two lines (1)"),
    ],
)
def test_the_name_tells_some_detectors_and_how_many_more_there_are(detectors, name):
    assert task_name(detectors) == name


def test_a_task_is_begun_for_detectors_that_stay_and_ends_when_they_change():
    held: dict[str, str] = {}
    begun: list[str] = []
    running: list[threading.Thread] = []

    def begin(name: str, number: int) -> None:
        begun.append(name)
        running.append(threading.Thread(target=shown.run, args=(number,), daemon=True))
        running[-1].start()

    shown = ShownDetectors(begin, lambda: held)

    async def scene() -> None:
        keeping = asyncio.create_task(shown.keep(look_s=2.0))
        for present in [set(), {"a"}, {"a"}, {"b"}, {"a", "b"}, {"a", "b"}, set(), set()]:
            held.clear()
            held.update(dict.fromkeys(present, "same"))
            await asyncio.sleep(2.0)
            if present == {"a"}:
                assert all(task.is_alive() for task in running)
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(scene())
    assert begun == ["same (a)", "same (a), same (b)"], "what had changed again by the next look is not shown"
    for task in running:
        task.join(60)
        assert not task.is_alive()
