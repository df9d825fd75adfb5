"""Pages of other origins: none may read anything unless its origin is listed. Heads of probes."""

from pathlib import Path

import httpx
import pytest

from api.http.app import Application
from api.settings import Settings, SettingsError
from tests.api.conftest import BOOTSTRAP
from tests.api.scripted import TOKEN, ScriptedBackend
from tests.api.wire import request, served
from tests.local_runtime.service import local_service

LISTED = "https://console.example"
OTHERS = (
    "https://evil.example",
    "https://console.example.evil.example",
    "null",
    "http://console.example",
    "",
)
ASKING = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


def client_of(backend: object, **settings: object) -> httpx.AsyncClient:
    app = Application(Settings(bootstrap_token=BOOTSTRAP, **settings), backend)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")


def cors_of(reply: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if name.startswith("access-control-")}


async def test_a_listed_origin_may_read_every_response_and_others_none(tmp_path: Path) -> None:
    async with local_service(tmp_path) as service:
        client = client_of(service.backend, cors_origin=f"http://localhost:3000, {LISTED}")
        sent = {"Authorization": f"Bearer {BOOTSTRAP}", "Content-Type": "application/json"}
        created = await client.post("/api/detectors", json={"name": "d"}, headers={**sent, "Origin": LISTED})
        path = f"/api/detectors/{created.json()['result']['id']}/evaluate"
        event = {"event": {"fields": {}, "timestamp_ms": 0}}
        replies = [
            ("GET", "/api/detectors", sent, None, 200),
            ("POST", path, sent, event, 200),
            ("POST", path, sent, {}, 400),
            ("POST", path, {}, event, 401),
            ("GET", "/nowhere", {}, None, 404),
            ("OPTIONS", "/api/detectors", sent, None, 405),
            ("GET", "/healthz", {}, None, 200),
        ]
        for method, where, headers, document, status in replies:
            for origin in (LISTED, "http://localhost:3000"):
                sending = {"json": document, "headers": {**headers, "Origin": origin}}
                reply = await client.request(method, where, **sending)
                assert reply.status_code == status
                assert cors_of(reply) == {
                    "access-control-allow-origin": origin,
                    "access-control-expose-headers": "Allow, Retry-After, X-Request-ID",
                }
                assert reply.headers["vary"] == "Origin"
            for origin in OTHERS:
                sending = {"json": document, "headers": {**headers, "Origin": origin}}
                reply = await client.request(method, where, **sending)
                assert (reply.status_code, cors_of(reply), reply.headers["vary"]) == (status, {}, "Origin")


async def test_a_listed_origin_is_told_what_it_may_send_and_others_are_answered_as_ever() -> None:
    client = client_of(ScriptedBackend(), cors_origin=LISTED)
    for path in ("/api/detectors", "/api/token", "/healthz"):
        reply = await client.options(path, headers={"Origin": LISTED, **ASKING})
        assert (reply.status_code, reply.content) == (200, b"")
        said = cors_of(reply)
        assert "access-control-allow-credentials" not in said
        assert said["access-control-allow-origin"] == LISTED
        assert {"PUT", "PATCH", "DELETE"} <= set(said["access-control-allow-methods"].split(", "))
        assert {"Authorization", "Content-Type"} <= set(said["access-control-allow-headers"].split(", "))
        assert int(said["access-control-max-age"]) <= 3_600
    for headers in ({"Origin": OTHERS[0], **ASKING}, {"Origin": LISTED}, ASKING):
        reply = await client.options("/api/detectors", headers=headers)
        assert reply.status_code == 401
        assert "access-control-allow-methods" not in cors_of(reply)


async def test_without_the_setting_nothing_is_added() -> None:
    client = client_of(ScriptedBackend())
    for method in ("GET", "OPTIONS"):
        reply = await client.request(method, "/healthz", headers={"Origin": LISTED, **ASKING})
        assert cors_of(reply) == {}
        assert "vary" not in reply.headers


async def test_over_a_socket_the_fast_path_says_so_too() -> None:
    settings = Settings(cors_origin=LISTED)
    async with served(Application(settings, ScriptedBackend()), settings) as wire:
        path = f"/api/detectors/{'0' * 32}/evaluate"
        asked = request("POST", path, b"{}", token=TOKEN, headers=(f"Origin: {LISTED}",))
        reply = await wire.once(asked, "POST")
        assert reply.headers["access-control-allow-origin"] == LISTED


@pytest.mark.parametrize(
    "origins", ["*", "", "console.example", "https://a.example/", "https://A.example", "null", f"{LISTED},"]
)
def test_what_is_no_origin_is_refused(origins: str) -> None:
    with pytest.raises(SettingsError, match="cors_origin: expected http://HOST"):
        Settings(cors_origin=origins)


async def test_probes_answer_for_their_heads(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    backend = local_service(tmp_path)
    async with backend as service, served(Application(settings, service.backend), settings) as wire:
        for path in ("/healthz", "/readyz"):
            whole = await wire.once(request("GET", path), "GET")
            head = await wire.once(request("HEAD", path), "HEAD")
            assert (head.status, head.body, whole.status) == (200, b"", 200)
            assert head.headers["content-length"] == whole.headers["content-length"] != "0"
        for path in ("/metrics", "/docs", "/openapi.json"):
            assert (await wire.once(request("HEAD", path), "HEAD")).status == 405
