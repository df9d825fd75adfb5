"""Who can reach a running service and the Ray inside it: what listens where, and what strangers learn."""

import ipaddress
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.settings_sources import can_trace
from tests import process_table
from tests.service_process import Served, environment, served

BOOTSTRAP = "rd_" + secrets.token_urlsafe(32)
KNOWN = secrets.token_hex(32)
"""A token of Ray's that others know, since it is in the environment of the user who starts the service."""
PLANTED = {
    name: secrets.token_hex(16)
    for name in ("AWS_SECRET_ACCESS_KEY", "https_proxy", "PGPASSWORD", "RAY_REDIS_PASSWORD", "PYTHON_SECRET")
}
"""Secrets in the shell of the user who starts the service."""
FOR_THE_COLLECTOR = secrets.token_hex(16)
"""A secret that front ends need, to send spans."""
IMPORTED = "imported"
NOBODY = 65534
UNAUTHENTICATED = "status 16"
NO_SUCH_METHOD = "status 12"

RUNS_CODE = """
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False)
    print("ran", ray.get(ray.remote(num_cpus=0)(lambda: 1).remote()))
except (ConnectionError, RuntimeError) as error:
    print("refused", type(error).__name__)
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Served]:
    """A service that was started in an environment that opens Ray's doors, where that is heeded.

    The folder where it was started has packages named like ours, which leave a file if they are imported.
    Others may look into the folder that its data folder is in, and into that of its temporary files.
    """
    within = Path(tempfile.mkdtemp(prefix="rd-test-"))
    within.chmod(0o755)
    folder = within / "data"
    # Its own folder: the usual one has the sockets of other tests' actors, which come and go.
    temporary = within / "t"
    temporary.mkdir()
    temporary.chmod(0o1777)
    for package in ("engine", "api", "snapshots", "ray"):
        (within / package).mkdir()
        imported = f"open({str(within / IMPORTED)!r}, 'a').write({package!r})\nraise ImportError\n"
        (within / package / "__init__.py").write_text(imported)
    try:
        opened = {
            "RAY_AUTH_MODE": "disabled",
            "RAY_AUTH_TOKEN": KNOWN,
            "RULE_DETECTOR_BOOTSTRAP_TOKEN": BOOTSTRAP,
            "TMPDIR": str(temporary),
            # Nothing listens there.
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
            "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={FOR_THE_COLLECTOR}",
            **PLANTED,
        }
        with served(folder, "--front-ends", "2", started_in=within, **opened) as running:
            running.token = BOOTSTRAP
            detector = running.call("POST", "/api/detectors", {"name": "one"})["id"]
            event = {"event": {"fields": {}, "timestamp_ms": 1}}
            running.call("POST", f"/api/detectors/{detector}/evaluate", event)
            yield running
    finally:
        shutil.rmtree(within)


def program_of(pid: int) -> str:
    words = process_table.command(pid).split()
    return Path(words[0]).name if words else ""


def gcs_port(service: Served) -> int:
    (found,) = [
        listener.port
        for listener in process_table.listeners(process_table.family(service.process.pid))
        if program_of(listener.pid) == "gcs_server"
    ]
    return found


def token_file(service: Served) -> Path:
    """The file of the Ray token of the service."""
    paths = {
        word.partition("=")[2]
        for pid in process_table.family(service.process.pid)
        for word in process_table.environment(pid).split("\0")
        if word.startswith("RAY_AUTH_TOKEN_PATH=")
    }
    (path,) = paths
    return Path(path)


def another_user(*tries: list[Any], **who: int) -> list[str]:
    run = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("another_user.py")),
            json.dumps({"tries": tries, **who}),
        ],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    results: list[str] = json.loads(run.stdout)
    return results


@pytest.mark.ray
def test_every_socket_is_on_the_loopback_interface(service):
    found = process_table.listeners(process_table.family(service.process.pid))
    programs = {program_of(listener.pid) for listener in found}
    assert {"gcs_server", "raylet", "ray::DirectoryActor"} <= programs, "or this looks at the wrong processes"
    assert str(service.process.pid) in {str(listener.pid) for listener in found}
    elsewhere = [one for one in found if not ipaddress.ip_address(one.address).is_loopback]
    assert not elsewhere


@pytest.mark.ray
def test_no_code_comes_from_the_folder_where_the_service_was_started(service):
    assert service.call("GET", "/api/cluster")["workers"], "or nothing could have imported it"
    imported = service.output.parent / IMPORTED
    assert not imported.exists(), imported.read_text()


@pytest.mark.ray
def test_no_port_of_ray_does_anything_without_the_token(service):
    """Each answers at most whether it is healthy, which Ray tells everybody."""
    port = int(service.url.rpartition(":")[2])
    found = process_table.listeners(process_table.family(service.process.pid))
    ports = sorted({one.port for one in found} - {port})
    token = token_file(service).read_text("ascii")
    # They create an actor, lease a worker, run a task in one, and read objects.
    methods = [
        "/ray.rpc.ActorInfoGcsService/CreateActor",
        "/ray.rpc.InternalKVGcsService/InternalKVKeys",
        "/ray.rpc.NodeManagerService/RequestWorkerLease",
        "/ray.rpc.NodeManagerService/GetSystemConfig",
        "/ray.rpc.CoreWorkerService/PushTask",
        "/ray.rpc.ObjectManagerService/Pull",
    ]
    tries = [["call", port, method, wrong] for port in ports for method in methods for wrong in ("", KNOWN)]
    answers = another_user(*tries)
    refusing = {
        tuple(tried[1:3]) for tried, answer in zip(tries, answers, strict=True) if answer == UNAUTHENTICATED
    }
    for tried, answer in zip(tries, answers, strict=True):
        assert answer in (UNAUTHENTICATED, NO_SUCH_METHOD, "closed", "ConnectionResetError"), tried
    # Each method exists somewhere, and the harmless ones are answered if the token is right.
    assert {method for _, method in refusing} == set(methods)
    harmless = [["call", *one, token] for one in refusing if one[1] in (methods[1], methods[3])]
    assert another_user(*harmless) == ["status 0"] * len(harmless)
    assert len(harmless) == 2
    pages = [["get", port, path] for port in ports for path in ("/", "/metrics", "/api/version")]
    assert set(another_user(*pages)) <= {"no HTTP/1", "HTTP/1.1 401 Unauthorized", "ConnectionResetError"}


@pytest.mark.ray
@pytest.mark.parametrize(
    ("given", "runs"),
    [
        pytest.param({"RAY_AUTH_MODE": "disabled"}, False, marks=pytest.mark.long),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": KNOWN}, False),
        ({"RAY_AUTH_MODE": "token"}, True),
    ],
    ids=["without a token", "with another token", "with the token"],
)
def test_code_runs_in_the_ray_inside_only_with_its_token(service, given, runs):
    if runs:
        given = {**given, "RAY_AUTH_TOKEN_PATH": str(token_file(service))}
    # Ray would try twenty times, once a second.
    few = {"RAY_NUM_REDIS_GET_RETRIES": "1", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    run = subprocess.run(
        [sys.executable, "-c", RUNS_CODE, f"127.0.0.1:{gcs_port(service)}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=170,
        env=environment(**given, **few),
    )
    assert run.stdout.split()[:1] == (["ran"] if runs else ["refused"]), run.stdout + run.stderr


@pytest.mark.ray
def test_the_processes_of_the_service_inherit_no_secret(service):
    token = token_file(service).read_text("ascii")
    below = process_table.family(service.process.pid) - {service.process.pid}
    seen = {program_of(pid) for pid in below}
    assert {"ray::DirectoryActor", "raylet"} <= seen
    assert any("api.process.front_end" in process_table.command(pid) for pid in below), (
        "front ends are among them"
    )
    hidden = {BOOTSTRAP, KNOWN, *PLANTED.values()}
    for pid in below:
        command = process_table.command(pid)
        inherited = process_table.environment(pid) + command
        for secret in (*hidden, token):
            assert secret not in inherited, command
        is_front_end = "api.process.front_end" in command
        assert (FOR_THE_COLLECTOR in inherited) == (is_front_end and can_trace()), command
    hidden.add(FOR_THE_COLLECTOR)
    # Ray writes no token down, either.
    written = [path for path in token_file(service).parent.rglob("*") if path.is_file()]
    assert len(written) > 10
    for path in written:
        text = path.read_text("utf-8", "replace")
        assert not [secret for secret in hidden if secret in text], path


@pytest.mark.ray
@pytest.mark.skipif(os.getuid() != 0, reason="only root can try things as another user")
def test_another_user_reaches_neither_ray_nor_actors_nor_the_data(service):
    token = token_file(service)
    data = next(
        Path(word) for word in process_table.command(service.process.pid).split() if word.endswith("/data")
    )
    sockets = [path for path in token.parent.rglob("*") if path.is_socket()]
    actors = list(service.output.parent.glob("t/rd-actor-*/batches"))
    assert actors, "the workers listen"
    files = [
        data,
        data / "lock",
        token,
        token.parent,
        *(Path(f"/proc/{pid}/environ") for pid in rays(service)),
    ]
    tries = [
        *(["read", str(path)] for path in files),
        *(["connect", str(path)] for path in (*sockets, *actors)),
    ]
    assert len(sockets) >= 2, "the raylet's and the object store's"
    allowed = another_user(*tries)
    assert "PermissionError" not in allowed, "or it is not known what keeps others out"
    assert set(another_user(*tries, uid=NOBODY)) == {"PermissionError"}


def rays(service: Served) -> set[int]:
    below = process_table.family(service.process.pid) - {service.process.pid}
    return {pid for pid in below if program_of(pid) in ("gcs_server", "raylet", "ray::DirectoryActor")}
