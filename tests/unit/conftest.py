"""Unit tests run without Ray: whoever starts it here has put a test into the wrong folder."""

import sys

import pytest


@pytest.fixture(autouse=True, scope="module")
def _unsynced(unsynced: None) -> None:
    """Nothing here survives a loss of power."""


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a unit test starts no Ray")

    # Where ray is not even imported it need not be.
    if "ray" in sys.modules:
        monkeypatch.setattr(sys.modules["ray"], "init", refuse)
