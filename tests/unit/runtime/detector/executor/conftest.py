"""An actor with a detector, and files that can fail."""

from typing import Any

import pytest

from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from tests.faulty_files import FaultyFiles
from tests.local_runtime.catalogues import newborn
from tests.local_runtime.owners import ONE, TWO


@pytest.fixture
def files():
    return FaultyFiles()


@pytest.fixture
def make(tmp_path, files):
    for detector_id in (ONE, TWO):
        newborn(tmp_path, detector_id)

    def make(**settings: Any) -> OperationExecutor:
        return OperationExecutor(
            RuntimeSettings(data=tmp_path, **settings), files=files, now_us=lambda: 10_000_000_000
        )

    return make


@pytest.fixture
def actor(make):
    actor = make()
    actor.activate(ONE, 1)
    return actor
