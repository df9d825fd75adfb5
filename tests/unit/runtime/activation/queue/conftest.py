"""A detector queue over a worker that can be held up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.local_runtime.service import local_service
from tests.unit.runtime.activation.queue.scene import Gate, Scene


@pytest.fixture
def scene(tmp_path):
    @asynccontextmanager
    async def scene(**settings: Any) -> AsyncIterator[Scene]:
        gate = Gate()
        async with local_service(tmp_path, **{"retry_s": 0.01, **settings}) as service:
            service.actors.before = gate.before
            for actor in service.actors.started:
                actor.before = gate.before
            # Not through the backend, whose deadline may be shorter than a disk is slow.
            detector_id = "1" * 32
            service.directories.started[-1].create_detectors({detector_id: "one"})
            yield Scene(service, gate, detector_id)
            gate.open()

    return scene
