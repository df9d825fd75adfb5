"""A service that all commands call."""

import pytest

from engine import Detector
from tests.unit.cli.fake_service import FakeService


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    service = FakeService()
    service.put_in_place(monkeypatch)
    return service


@pytest.fixture
def shop(service: FakeService) -> Detector:
    """Its first detector, which is named so."""
    return service.detectors[service.create("shop")]
