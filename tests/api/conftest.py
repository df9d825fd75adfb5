"""The application over a real backend without Ray, and a client that calls it."""

import copy
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from quart import Quart
from quart.routing import QuartMap
from werkzeug.routing import Rule

from api.http.app import Application
from api.observability import metrics_page
from api.schema.examples import CLUSTER
from api.settings import Settings
from engine.runtime.scheduler import census
from tests.api.caller import Caller
from tests.api.scripted import TOKEN, ScriptedBackend
from tests.api.wire import Wire, served
from tests.local_runtime.actors import LocalNodes
from tests.local_runtime.service import LocalService, front_end, local_service
from tests.thoroughness import WHOLE

BOOTSTRAP = "the-first-token-of-the-tests-1234"
NODE = CLUSTER["nodes"][0]["id"]
"""The node that runs it."""


@pytest.fixture(autouse=True, scope="session")
def _routes_are_compiled_once() -> Iterator[None]:
    """All applications have the same routes; to compile them is most of what an application costs."""
    routes, add = QuartMap(), QuartMap.add
    known = set[tuple[str, frozenset[str]]]()

    def add_new(urls: QuartMap, rule: Rule) -> None:
        route = (rule.rule, frozenset(rule.methods or ()))
        if route not in known:
            add(urls, rule)
            known.add(route)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Quart, "url_map_class", staticmethod(lambda **_: routes))
        patch.setattr(QuartMap, "add", add_new)
        yield


@pytest.fixture(autouse=True, scope="module")
def _on_any_disk(unsynced: None, any_mount: None) -> None:
    """No test here is about power loss or kinds of disks."""


@pytest.fixture(autouse=True)
def _pages_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits until what is shown is old enough to be made again."""
    monkeypatch.setattr(metrics_page, "KEPT_S", 0.0)
    monkeypatch.setattr(census, "_FRESH_S", 0.0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        data=tmp_path / "data",
        bootstrap_token=BOOTSTRAP,
        max_rules=3,
        max_batch_events=10,
        max_body_bytes=20_000,
        max_batch_body_bytes=40_000,
    )


@pytest.fixture(params=["here", "apart"] if WHOLE else ["apart"])
async def service(settings: Settings, request: pytest.FixtureRequest) -> AsyncIterator[LocalService]:
    """The service; `apart`, as a front end has it that is a process of its own."""
    chosen = settings.runtime_settings()
    rest = {name: value for name, value in vars(chosen).items() if name != "data"}
    # The directory is asked at once about unknown tokens and detectors, and no test waits at its end for what
    # hangs.
    rest |= {"ask_s": 0.0, "shutdown_s": 0.1}
    async with local_service(settings.data, nodes=LocalNodes(**{NODE: 8}), **rest) as service:
        if request.param == "here":
            yield service
            return
        async with front_end(service) as apart:
            service_apart = copy.copy(service)
            service_apart.backend = apart.backend
            yield service_apart


@pytest.fixture
async def caller(settings: Settings, service: LocalService) -> Caller:
    return Caller(Application(settings, service.backend), BOOTSTRAP)


@pytest.fixture
def scripted() -> ScriptedBackend:
    return ScriptedBackend()


@pytest.fixture
async def wire(scripted: ScriptedBackend) -> AsyncIterator[Wire]:
    """Real sockets to an application over the scripted backend."""
    settings = Settings(max_body_bytes=100_000, max_batch_body_bytes=200_000, max_discard_bytes=400_000)
    async with served(Application(settings, scripted), settings) as wire:
        yield wire


@pytest.fixture
def scripted_caller(scripted: ScriptedBackend) -> Caller:
    return Caller(Application(Settings(deadline_s=0.2), scripted), TOKEN)
