"""The folder in which processes keep their sockets."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.runtime.process import temporary


@pytest.fixture(autouse=True)
def within(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of all temporary ones; afterwards it is empty."""
    tmp_path_factory.getbasetemp()
    folder = Path(tempfile.mkdtemp(prefix="rd-test-", dir="/tmp"))
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(folder))
    yield folder
    # Only what is empty can be removed.
    folder.rmdir()
