"""A data folder as a service leaves it."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.local_runtime.service import LocalService, local_service
from tests.unit.cli.inspection.inspecting import filled


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[LocalService]:
    async with local_service(tmp_path / "data") as service:
        yield service


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder as a service left it when it was killed: nothing but the journal tells of the events."""

    async def make() -> None:
        async with local_service(tmp_path / "made") as service:
            await filled(service)
            shutil.copytree(tmp_path / "made", tmp_path / "data")

    asyncio.run(make())
    return tmp_path / "data"
