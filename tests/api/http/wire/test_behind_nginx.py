"""The file for nginx, in front of the application: streams both ways, large batches, kept connections."""

import asyncio
import gzip
import json
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from api.http.app import Application
from api.settings import Settings
from engine.evaluation.wire.events import Answer
from engine.evaluation.wire.records import Ingest
from engine.runtime.contract.requests.operations import Operation
from tests.api.http.ndjson.streams import PATH, echoes
from tests.api.scripted import TOKEN, ScriptedBackend
from tests.api.streaming import NDJSON, Streaming, line
from tests.api.wire import Connection, Wire, request, served
from tests.certificates import certificates
from tests.unit.deploy.monitoring import DEPLOY

NGINX = shutil.which("nginx")
FILE = DEPLOY / "nginx" / "rule-detector.conf"

EMPTY = b'{"events": []}'

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def adapted(folder: Path, port: int, *service_ports: int) -> str:
    """The file, with the addresses and the certificate of a test, inside what nginx needs around it."""
    given = certificates(folder / "certificates")
    text = FILE.read_text("utf-8")
    for old, new in [
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("server 127.0.0.1:8080;", " ".join(f"server 127.0.0.1:{one};" for one in service_ports)),
        ("/etc/nginx/detector.example.pem", given["RAY_TLS_SERVER_CERT"]),
        ("/etc/nginx/detector.example.key", given["RAY_TLS_SERVER_KEY"]),
    ]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    paths = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1; events {{}}\n"
        f"http {{ access_log off; {paths}\n{text}\n}}"
    )


@asynccontextmanager
async def nginx(folder: Path, *service_ports: int) -> AsyncIterator[int]:
    """Run nginx in front of services; give its port."""
    assert NGINX is not None
    port = free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(adapted(folder, port, *service_ports))
    options = ("-p", folder, "-c", configuration, "-e", folder / "error.log", "-g", "daemon off;")
    process = await asyncio.create_subprocess_exec(NGINX, *options)
    try:
        async with asyncio.timeout(30):
            while True:
                assert process.returncode is None, (folder / "error.log").read_text()
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    break
        yield port
    finally:
        process.terminate()
        await process.wait()


@pytest.fixture
async def behind(scripted: ScriptedBackend, tmp_path: Path) -> AsyncIterator[tuple[Wire, int]]:
    """A service, and the port of nginx in front of it."""
    settings = Settings()
    async with served(Application(settings, scripted), settings) as wire, nginx(tmp_path, wire.port) as port:
        yield wire, port


async def connected(port: int) -> Connection:
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    return Connection(*await asyncio.open_connection("127.0.0.1", port, ssl=trusting))


async def test_a_line_is_answered_while_others_are_still_to_come(
    behind: tuple[Wire, int], scripted: ScriptedBackend
) -> None:
    async def answers(detector: str, operation: Operation) -> Answer:
        return echoes(detector, operation)

    scripted.answers = answers
    connection = await connected(behind[1])
    await connection.send(request(path=PATH, token=TOKEN, headers=("Transfer-Encoding: chunked", NDJSON)))
    stream = Streaming(connection)
    for time_ms in range(3):
        await stream.send(line(time_ms, a=1))
        if time_ms == 0:
            assert (await stream.begun()).status == 200
        assert (await stream.next())["actions"] == []
    await stream.end()
    assert await stream.rest() == [{"done": 3}]
    await connection.close()


async def test_a_batch_of_many_megabytes_arrives_whole(
    behind: tuple[Wire, int], scripted: ScriptedBackend
) -> None:
    body = json.dumps({"events": [{"fields": {"text": "x" * 10_000}, "timestamp_ms": 0}] * 800}).encode()
    assert len(body) > 8_000_000
    connection = await connected(behind[1])
    reply = await (await connection.send(request(path=PATH, body=body, token=TOKEN))).receive()
    assert reply.status == 200
    assert scripted.operations[-1].payload == body
    await connection.close()


async def test_packed_records_arrive_as_they_were_sent(
    behind: tuple[Wire, int], scripted: ScriptedBackend
) -> None:
    records = b'{"t":1,"text":"%b"}\n' % (b"x" * 100_000) * 100
    connection = await connected(behind[1])
    path = PATH.replace("/evaluate/batch", "/ingest") + "?time=t"
    packed = request(path=path, body=gzip.compress(records), token=TOKEN, headers=("Content-Encoding: gzip",))
    assert (await (await connection.send(packed)).receive()).status == 200
    given = msgspec.msgpack.decode(scripted.operations[-1].payload, type=Ingest)
    assert given == Ingest(records, "t")
    await connection.close()


def connections_to(port: int) -> int:
    """The connections to a port, those included that were closed a moment ago."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") for row in rows)


async def test_connections_to_the_service_are_kept(behind: tuple[Wire, int]) -> None:
    wire, port = behind
    before = connections_to(wire.port)
    connection = await connected(port)
    for _ in range(20):
        reply = await (await connection.send(request("GET", "/healthz"))).receive()
        assert reply.status == 200
    assert connections_to(wire.port) <= before + 1
    await connection.close()


async def test_a_service_that_is_away_is_passed_over(scripted: ScriptedBackend, tmp_path: Path) -> None:
    settings = Settings()
    app = served(Application(settings, scripted), settings)
    async with app as wire, nginx(tmp_path, free_port(), wire.port) as port:
        connection = await connected(port)
        for _ in range(4):
            reply = await (await connection.send(request(path=PATH, body=EMPTY, token=TOKEN))).receive()
            assert reply.status == 200
        await connection.close()


async def test_no_events_are_sent_twice_if_a_service_ends_meanwhile(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with (
        await asyncio.start_server(end, "127.0.0.1", 0) as one,
        await asyncio.start_server(end, "127.0.0.1", 0) as other,
        nginx(tmp_path, *(server.sockets[0].getsockname()[1] for server in (one, other))) as port,
    ):
        connection = await connected(port)
        reply = await (await connection.send(request(path=PATH, body=EMPTY, token=TOKEN))).receive()
        assert reply.status == 502
        assert len(heads) == 1
        await connection.close()
