"""What is shown is made anew each time, so that no test waits until it is old enough."""

import pytest

from api.observability import metrics_page
from engine.runtime.placement import census


@pytest.fixture(autouse=True)
def _nothing_is_shown_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_page, "KEPT_S", 0.0)
    monkeypatch.setattr(census, "_FRESH_S", 0.0)
