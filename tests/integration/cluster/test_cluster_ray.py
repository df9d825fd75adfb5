"""A cluster that cannot be joined: the messages, and interrupts."""

import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from engine.runtime.cluster.session import ray_session as cluster
from engine.runtime.cluster.session.joining import ClusterError
from tests.process_table import command, family
from tests.ray_cluster import ray_cluster
from tests.service_process import program, started, until


@pytest.mark.ray
def test_a_cluster_that_is_not_there_is_told_at_once():
    for address, reason in (("127.0.0.1:1", "nothing answers"), ("ray://127.0.0.1:10001", "HOST:PORT")):
        with pytest.raises(ClusterError, match=reason):
            cluster.start(address)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a listener that accepts connections and sends nothing, and a process like its raylet."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        line = ["raylet", "-c", "input()", f"--gcs-address={address}"]
        with subprocess.Popen(line, executable=sys.executable, stdin=subprocess.PIPE) as raylet:
            yield address
            raylet.communicate(b"\n")


@pytest.mark.ray
def test_a_cluster_that_lets_nobody_in_is_given_up_in_words(silent, tmp_path):
    run = program(
        "serve", "--port", "0", "--data", str(tmp_path), "--ray-address", silent, "--join-timeout-s", "3"
    )
    assert run.returncode == 1
    assert "RAY_AUTH_MODE" in run.stderr
    assert "ray cannot be joined" in run.stderr
    said = " ".join(run.stderr.split())
    assert "that takes longer than 3 s, where the raylets of this machine are of" in said
    assert silent in said.partition("are of")[2]
    assert len(run.stderr.splitlines()) <= 5, run.stderr


@pytest.mark.ray
@pytest.mark.long
def test_a_wrong_token_of_the_cluster_is_told_soon(tmp_path):
    theirs, ours = secrets.token_hex(32), secrets.token_hex(32)
    with ray_cluster(tmp_path, 1, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=theirs) as cluster:
        options = ("serve", "--port", "0", "--data", str(tmp_path), "--ray-address", cluster.address)
        began = time.monotonic()
        run = program(*options, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=ours)
        took_s = time.monotonic() - began
    assert run.returncode == 1
    assert "Authentication token is missing or incorrect" in " ".join(run.stderr.split())
    assert took_s < 18, "less than Ray's own twenty tries, one a second"


@pytest.mark.ray
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM])
def test_joining_can_be_interrupted(silent, tmp_path, number):
    options = ("serve", "--port", "0", "--data", str(tmp_path / "data"), "--ray-address", silent)
    with started(tmp_path / "log", *options) as service:

        def below() -> set[int]:
            return family(service.process.pid) - {service.process.pid}

        # The process that tries to join gets the address.
        until(lambda: any(silent in command(one) for one in below()))
        joining = below()
        time.sleep(0.5)
        assert service.end(number) == 0
        assert "Traceback" not in service.said()
        until(lambda: not any(map(command, joining)))
