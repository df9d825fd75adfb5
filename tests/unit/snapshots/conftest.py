"""A new folder with a snapshot, on the real disk and in memory."""

from pathlib import Path

import pytest

from snapshots.folders import create_folder
from tests.crash.model.history import FOLDER
from tests.crash.model.memory_disk import MemoryDisk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "one"
    create_folder(made, b"born", version=7)
    return made


@pytest.fixture
def disk() -> MemoryDisk:
    """A disk in memory whose only folder is FOLDER."""
    made = MemoryDisk()
    create_folder(FOLDER, b"born", version=7, files=made)
    return made
