"""One Ray for all tests that need it: started in its own folder, ended with the session."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.front_end.backend import Backend
from tests import service_process
from tests.service_process import DEADLINE_S

RayBackend = Callable[..., AbstractAsyncContextManager[Backend]]


@pytest.fixture(scope="session", autouse=True)
def _one_spare() -> Iterator[None]:
    """Gives services one spare process: starting another one takes two processor seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(service_process.DEFAULTS, "RULE_DETECTOR_SPARES", "1")
        yield


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[str]:
    """The address of a Ray that this process is part of."""
    # Importing ray takes half a second, which tests without it do not need.
    from engine.runtime.cluster.session import ray_session as cluster  # noqa: PLC0415

    started = cluster.start()
    yield started.address
    cluster.stop(started)
    assert started.folder is not None
    assert not started.folder.path.exists()


@pytest.fixture(scope="session")
def ray_backend(ray_cluster: str) -> RayBackend:
    """A started Backend on Ray over a folder, as an async context; settings are RuntimeSettings' own."""
    from engine.runtime.cluster.ray_directory import backend_on_ray  # noqa: PLC0415
    from engine.runtime.contract.settings import RuntimeSettings  # noqa: PLC0415

    @asynccontextmanager
    async def ray_backend(folder: Path, **settings: Any) -> AsyncIterator[Backend]:
        backend = backend_on_ray(RuntimeSettings(data=folder, **{"deadline_s": DEADLINE_S, **settings}))
        await backend.start()
        try:
            yield backend
        finally:
            await backend.close()

    return ray_backend
