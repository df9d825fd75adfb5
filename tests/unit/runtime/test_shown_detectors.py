"""The task that is named after a worker's detectors, for Ray's own tools."""

import asyncio
import contextlib
import threading

import pytest

from engine.runtime.cluster.actors.shown_detectors import ShownDetectors, task_name
from tests.skipping_clock import SkippingLoop


@pytest.mark.parametrize(
    ("detector_ids", "name"),
    [
        ([], ""),
        (["b"], "b"),
        (["c", "a", "b"], "a, b, c"),
        (["d", "c", "a", "b", "e"], "a, b, c and 2 more"),
    ],
)
def test_the_name_tells_some_detectors_and_how_many_more_there_are(detector_ids, name):
    assert task_name(detector_ids) == name


def test_a_task_is_begun_for_detectors_that_stay_and_ends_when_they_change():
    held: set[str] = set()
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
            held.update(present)
            await asyncio.sleep(2.0)
            if present == {"a"}:
                assert all(task.is_alive() for task in running)
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(scene())
    assert begun == ["a", "a, b"], "what had changed again by the next look is not shown"
    for task in running:
        task.join(60)
        assert not task.is_alive()
