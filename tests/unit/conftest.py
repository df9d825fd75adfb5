"""Unit tests run without Ray: whoever starts it here has put a test into the wrong folder."""

import asyncio
import sys
from collections.abc import Callable

import pytest

from tests.skipping_clock import SkippingLoop
from tests.waiting_clock import WaitingLoop


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    skips = item.get_closest_marker("skipping_clock") is not None
    return {"loop": SkippingLoop if skips else WaitingLoop}


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
