"""A caller over TLS that has no more to send ends its connection, and nothing of it is logged."""

import asyncio
import logging
import socket
import ssl
from pathlib import Path

import pytest

from api.http.app import Application
from api.server.hypercorn_config import request_bounds, serve, server_config
from api.settings import Settings
from tests.certificates import certificates
from tests.local_runtime.service import LocalService

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_the_end_of_a_caller_over_tls_is_not_logged(
    settings: Settings, service: LocalService, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    certificates(tmp_path / "signed")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "signed/node.crt", tmp_path / "signed/node.key")
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = server_config(settings, context)
    config.bind = [f"fd://{listener.detach()}"]
    stop, app = asyncio.Event(), Application(settings, service.backend)
    serving = asyncio.ensure_future(serve(app, config, stop.wait, bounds=request_bounds(settings)))
    caller = ssl.create_default_context(cafile=str(tmp_path / "signed/ca.crt"))
    reader, writer = await asyncio.open_connection("localhost", port, ssl=caller)
    writer.write(HEALTH)
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    while await reader.read(1_000):
        pass
    stop.set()
    await serving
    assert [one.getMessage() for one in caplog.records if one.name == "asyncio"] == []
