"""The runtime is tested on whatever mount its files are on."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _any_mount(any_mount: None) -> None:
    """No mount is refused here."""
