"""What callers are told when the world breaks; the backend is real, its actors are made to fail."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.http.app import Application
from api.settings import Settings
from engine.runtime.contract.errors import STARTING, DetectorUnavailable
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.scripted import DETECTOR, TOKEN, ScriptedBackend
from tests.local_runtime.service import LocalService, local_service, until

EVENT = {"event": {"fields": {}, "timestamp_ms": 0}}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        data=tmp_path / "data", bootstrap_token=BOOTSTRAP, deadline_s=0.3, max_waiting=2, spares=1
    )


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[LocalService]:
    chosen = settings.runtime_settings()
    rest = {name: value for name, value in vars(chosen).items() if name not in {"data", "hung_s"}}
    async with local_service(settings.data, **rest, hung_s=1.0) as service:
        yield service


@pytest.fixture
def app(settings: Settings, service: LocalService) -> Application:
    return Application(settings, service.backend)


@pytest.fixture
def caller(app: Application) -> Caller:
    return Caller(app, BOOTSTRAP)


async def test_requests_past_the_bound_are_turned_away_and_the_others_are_served(
    caller: Caller, service: LocalService
) -> None:
    detector = await caller.detector()
    await caller.evaluate(detector, {})
    go_on = asyncio.Event()

    async def held(what: str) -> None:
        if what == "handle":
            await go_on.wait()

    actor = service.actors.with_detector(detector)
    assert actor is not None
    actor.before = held
    # One is in flight, two wait, and two are too many.
    first = asyncio.ensure_future(caller.evaluate(detector, {}))
    await until(lambda: actor.in_flight)
    waiting = [asyncio.ensure_future(caller.evaluate(detector, {})) for _ in range(4)]
    await until(lambda: any(one.done() for one in waiting))
    go_on.set()
    replies = await asyncio.gather(first, *waiting)
    refused = [reply for reply in replies if reply.status != 200]
    assert 0 < len(refused) < 4
    for reply in refused:
        assert (reply.status, reply.codes) == (429, [1401])
        assert int(reply.headers["retry-after"]) >= 1


async def test_a_detector_that_cannot_be_activated_within_the_deadline_is_1501(
    caller: Caller, service: LocalService
) -> None:
    detector = await caller.detector()
    go_on = asyncio.Event()

    async def stuck(what: str) -> None:
        if what == "activate":
            await go_on.wait()

    service.actors.before = stuck
    for actor in service.actors.started:
        actor.before = stuck
    for reply in (
        await caller.evaluate(detector, {}),
        await caller("GET", f"/api/detectors/{detector}/rules"),
    ):
        assert (reply.status, reply.codes) == (503, [1501])
        assert int(reply.headers["retry-after"]) >= 1
    go_on.set()


async def test_an_evaluation_that_does_not_come_back_is_1502(caller: Caller, service: LocalService) -> None:
    detector = await caller.detector()
    await caller.evaluate(detector, {})
    actor = service.actors.with_detector(detector)
    assert actor is not None

    async def stuck(what: str) -> None:
        if what == "handle":
            await asyncio.sleep(10)

    actor.before = stuck
    reply = await caller.evaluate(detector, {})
    assert (reply.status, reply.codes) == (504, [1502])


async def test_a_service_that_closes_says_so(caller: Caller, app: Application, service: LocalService) -> None:
    detector = await caller.detector()
    app.announce_shutdown()
    # It says so first, and goes on serving until it really ends.
    reply = await caller("GET", "/readyz")
    assert (reply.status, reply.codes) == (503, [1503])
    assert (await caller("GET", "/healthz")).status == 200
    assert (await caller.evaluate(detector, {})).status == 200
    await service.backend.close()
    for reply in (
        await caller.evaluate(detector, {}),
        await caller("GET", f"/api/detectors/{detector}/rules"),
    ):
        assert (reply.status, reply.codes) == (503, [1503])


async def test_a_service_that_is_not_ready_says_why(
    scripted: ScriptedBackend, scripted_caller: Caller
) -> None:
    scripted.reasons = ["no process has started yet", "there is no recent word"]
    reply = await scripted_caller("GET", "/readyz")
    assert (reply.status, reply.codes) == (503, [1501, 1501])
    assert reply.texts == scripted.reasons
    scripted_caller.token = None
    reply = await scripted_caller("GET", "/readyz")
    assert (reply.status, reply.codes) == (503, [1501])
    assert reply.texts == ["the service is starting, or cannot serve now; with a token, /readyz says why"]
    assert (await scripted_caller("GET", "/healthz")).status == 200


@pytest.mark.parametrize(
    "authorization", [None, "Bearer unknown", f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x"]
)
@pytest.mark.parametrize("ready", [True, False])
async def test_what_is_wrong_is_for_those_who_have_a_token(
    scripted: ScriptedBackend, scripted_caller: Caller, authorization: str | None, *, ready: bool
) -> None:
    problem = f"detector {DETECTOR}: set aside: /data/detectors/7.snapshot"
    scripted.problems = [problem]
    scripted.reasons = [] if ready else ["no process on node-7"]
    told = (await scripted_caller.plain("GET", "/readyz", headers={"Authorization": f"Bearer {TOKEN}"})).text
    assert problem in told
    assert ready or "node-7" in told
    headers = {"X-Token-Known": "yes", **({"Authorization": authorization} if authorization else {})}
    reply = await scripted_caller.plain("GET", "/readyz", headers=headers)
    assert reply.status_code == (200 if ready else 503)
    assert "problems" not in reply.text
    assert DETECTOR not in reply.text
    assert "node-7" not in reply.text
    metrics = (await scripted_caller.plain("GET", "/metrics")).text
    assert DETECTOR not in metrics
    assert "/data" not in metrics


async def test_a_probe_is_answered_though_nobody_knows_who_has_a_token(
    scripted: ScriptedBackend, scripted_caller: Caller
) -> None:
    scripted.stale = DetectorUnavailable(STARTING, "there is no recent word")
    reply = await scripted_caller("GET", "/readyz")
    assert reply.result == {"ready": True}
    assert scripted.lookups == 0


@pytest.mark.parametrize("path", [f"/api/detectors/{DETECTOR}/evaluate", f"/api/detectors/{DETECTOR}/rules"])
async def test_what_nobody_foresaw_is_1500_with_a_reference_that_the_log_repeats(
    scripted: ScriptedBackend, scripted_caller: Caller, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("a secret detail")

    scripted.answers = broken  # type: ignore[assignment]
    document = {"name": "n", "condition": "a == 1"} if path.endswith("rules") else EVENT
    with caplog.at_level(logging.ERROR):
        reply = await scripted_caller("POST", path, document)
    assert (reply.status, reply.codes) == (500, [1500])
    reference = reply.texts[0].rsplit(maxsplit=1)[-1]
    assert "secret" not in reply.texts[0]
    assert reference in caplog.text
    assert "a secret detail" in caplog.text


async def test_a_detector_that_is_deleted_while_requests_wait_is_1200_for_them(
    caller: Caller, service: LocalService
) -> None:
    detector = await caller.detector()
    await caller.evaluate(detector, {})
    actor = service.actors.with_detector(detector)
    assert actor is not None

    async def slow(what: str) -> None:
        if what == "handle":
            await asyncio.sleep(0.05)

    actor.before = slow
    first = asyncio.ensure_future(caller.evaluate(detector, {}))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(caller.evaluate(detector, {}))
    await asyncio.sleep(0.01)
    assert (await caller("DELETE", f"/api/detectors/{detector}")).status == 200
    assert (await second).codes == [1200]
    assert (await first).status in {200, 404}
    assert (await caller.evaluate(detector, {})).codes == [1200]
