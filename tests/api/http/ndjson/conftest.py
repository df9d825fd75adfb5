"""Streams to detectors that are real, and to ones that are scripted."""

from collections.abc import AsyncIterator

import pytest

from api.http.app import Application
from api.server import connection, sender
from api.settings import Settings
from engine.evaluation.wire.events import Answer
from engine.runtime.contract.requests.operations import Operation
from tests.api.http.ndjson.streams import echoes
from tests.api.scripted import ScriptedBackend
from tests.api.wire import Wire, served
from tests.local_runtime.service import LocalService


@pytest.fixture(autouse=True)
def _linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have callers who stay not wait for long until they are left."""
    monkeypatch.setattr(sender, "LINGER_S", 0.1)
    monkeypatch.setattr(connection, "DISCARD_S_MIN", 0.1)


@pytest.fixture
def echo(scripted: ScriptedBackend) -> ScriptedBackend:
    async def answers(detector_id: str, operation: Operation) -> Answer:
        return echoes(detector_id, operation)

    scripted.answers = answers
    return scripted


@pytest.fixture
async def real(settings: Settings, service: LocalService) -> AsyncIterator[Wire]:
    """Real sockets to an application over a real backend."""
    async with served(Application(settings, service.backend), settings) as wire:
        yield wire


@pytest.fixture
async def hasty(scripted: ScriptedBackend) -> AsyncIterator[Wire]:
    """Real sockets to an application of little patience."""
    settings = Settings(deadline_s=0.5)
    async with served(Application(settings, scripted), settings) as wire:
        yield wire
