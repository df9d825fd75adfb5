"""Programs that send logs, configured as the page says: all arrives, also if it was refused for now."""

import asyncio
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from api.http.app import Application
from api.settings import Settings
from engine.evaluation.wire.events import Answer
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests.operations import INGEST, Operation
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.senders.pages import block
from tests.api.wire import Wire, served
from tests.local_runtime.service import LocalService

ENVIRONMENT = {"RULE_DETECTOR_TOKEN": BOOTSTRAP, "PATH": os.environ["PATH"], "NO_PROXY": "*"}
WITHIN_S = 40.0


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data", bootstrap_token=BOOTSTRAP)


class Serving:
    """The service at a port, with a detector called `logins`, and how often it was called."""

    def __init__(self, wire: Wire, caller: Caller) -> None:
        self.port = wire.port
        self._caller = caller
        self.away = 0
        """How many bodies of records are still refused with 1501, as by a service that is starting."""

    async def state(self) -> dict[str, Any]:
        return (await self._caller("GET", "/api/detectors/name:logins/state")).result

    async def firings(self) -> list[dict[str, Any]]:
        return (await self._caller("GET", "/api/detectors/name:logins/firings?limit=1000")).result["firings"]

    async def has(self, count: int) -> int:
        """Wait until so many events were evaluated, and a moment longer; return how many there are."""
        async with asyncio.timeout(WITHIN_S):
            while (await self.state())["events"] < count:  # noqa: ASYNC110 -- there is no event for it
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        return (await self.state())["events"]


@pytest.fixture
async def serving(
    caller: Caller, settings: Settings, service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Serving]:
    detector = await caller.detector("logins")
    await caller.rule(detector, 'program == "sshd" and message like "*failed*"', notify=True)
    backend = service.backend
    async with served(Application(settings, backend), settings) as wire:
        serving = Serving(wire, caller)
        call = backend.call

        async def called(detector_id: str, operation: Operation) -> Answer:
            if operation.kind == INGEST and serving.away:
                serving.away -= 1
                raise DetectorUnavailable(1501, "it is starting", 1.0)
            return await call(detector_id, operation)

        monkeypatch.setattr(backend, "call", called)
        yield serving


async def run(*command: str, **options: Any) -> bytes:
    process = await asyncio.create_subprocess_exec(
        *command, env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE, **options
    )
    async with asyncio.timeout(WITHIN_S):
        said, _ = await process.communicate()
    assert process.returncode == 0, said
    return said


@asynccontextmanager
async def running(*command: str, **options: Any) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(*command, env=ENVIRONMENT, **options)
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(WITHIN_S):
            await process.wait()


@needs("curl")
async def test_curl_sends_files_as_they_are_and_packed(serving: Serving, tmp_path: Path) -> None:
    now = datetime.now(UTC).isoformat()
    record = {"time": now, "program": "sshd", "message": "a failed login"}
    for name in ("records.ndjson", "more.ndjson"):
        (tmp_path / name).write_text(f"{json.dumps(record)}\n" * 3)
    serving.away = 1
    script = block("curl", serving.port).replace("--retry 5", "--retry 5 --retry-delay 1")
    for _ in range(2):
        # The first command has a key, and is not evaluated again.
        await run("bash", "-euo", "pipefail", "-c", script, cwd=tmp_path)
    assert (await serving.state())["events"] == 3 + 3 + 3


@needs("node")
async def test_javascript_sends_with_fetch(serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "send.mjs").write_text(block("node", serving.port))
    assert await run("node", str(tmp_path / "send.mjs")) == b"1 accepted\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def log(port: int, count: int, first: int = 0) -> None:
    """Send messages of syslog (RFC 3164), some no UTF-8, to a port on which a daemon will soon listen."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.05)
    stamp = datetime.now().astimezone().strftime("%b %e %H:%M:%S")
    for number in range(first, first + count):
        odd = b" of Ren\xe9 \x01\x1b[1m\t\\" if number % 50 == 7 else b""
        writer.write(f'<38>{stamp} host sshd[7]: failed "login" {number}'.encode() + odd + b"\n")
    await writer.drain()
    writer.close()
    await writer.wait_closed()


@pytest.mark.slow
@needs("syslog-ng")
async def test_syslog_ng_delivers_all_also_what_was_refused_for_now(serving: Serving, tmp_path: Path) -> None:
    port = free_port()
    config = block("syslog-ng", serving.port)
    assert config.count("5514") == 1
    (tmp_path / "syslog-ng.conf").write_text(config.replace("5514", str(port)))
    files = [f"--{name}={tmp_path}/{name}" for name in ("persist-file", "pidfile", "control")]
    serving.away = 2
    command = ("syslog-ng", "--foreground", "--no-caps", f"--cfgfile={tmp_path}/syslog-ng.conf", *files)
    async with running(*command):
        await log(port, 200)
        assert await serving.has(200) == 200
        await log(port, 50, 200)
        assert await serving.has(250) == 250
    assert len(await serving.firings()) == 250


@pytest.mark.slow
@needs("rsyslogd")
async def test_rsyslog_delivers_all_also_what_was_refused_for_now(serving: Serving, tmp_path: Path) -> None:
    port = free_port()
    program = tmp_path / "rsyslog_detector.py"
    program.write_text(block("rsyslog_detector.py", serving.port))
    config = block("rsyslog", serving.port)
    for old, new in (
        ("5514", str(port)),
        ("/usr/bin/python3", sys.executable),
        ("/usr/local/lib/rsyslog_detector.py", str(program)),
    ):
        assert config.count(old) == 1, old
        config = config.replace(old, new)
    (tmp_path / "rsyslog.conf").write_text(f'global(workDirectory="{tmp_path}")\n{config}')
    serving.away = 2
    command = ("rsyslogd", "-n", "-f", f"{tmp_path}/rsyslog.conf", "-i", f"{tmp_path}/pid")
    async with running(*command):
        await log(port, 200)
        assert await serving.has(200) == 200
        await log(port, 50, 200)
        assert await serving.has(250) == 250
    assert len(await serving.firings()) == 250
