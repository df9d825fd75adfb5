"""Ray as this process starts and ends it: what signals do to its processes, and what stays behind."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.runtime.cluster.session import ray_session as cluster
from engine.runtime.cluster.session.joining import ClusterError
from tests.process_table import command, family
from tests.service_process import program, started

SERVICE = """
import asyncio, signal, sys
from pathlib import Path
from engine.runtime.cluster.session import ray_session as cluster
from engine.runtime.cluster.ray_directory import backend_on_ray
from engine.runtime.contract.requests import operations
from engine.runtime.contract.settings import RuntimeSettings

async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    backend = backend_on_ray(RuntimeSettings(data=Path(sys.argv[1])))
    await backend.start()
    detector_id = await backend.create_detector("one")
    event = operations.evaluate(b'{"event": {"fields": {}, "timestamp_ms": 1000}}')
    await backend.call(detector_id, event)
    print("up", flush=True)
    await stop.wait()
    # Time for whatever the signal does to others.
    await asyncio.sleep(0.5)
    print(await backend.call(detector_id, event), await backend.close(), flush=True)

started = cluster.start()
try:
    asyncio.run(main())
finally:
    cluster.stop(started)
"""


def descendants(pid: int) -> set[int]:
    return family(pid) - {pid}


def running(pid: int) -> bool:
    """Whether a process is there, and not only waiting for its parent to take note of its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.ray
def test_a_signal_to_all_processes_lets_every_detector_be_saved_and_leaves_no_process_behind(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as service:
        assert service.stdout is not None
        try:
            assert service.stdout.readline() == "up\n"
            below = descendants(service.pid)
            assert len(below) >= 5, "the processes of Ray, the directory, actors"
            # As a service manager does.
            for pid in {service.pid, *below}:
                os.kill(pid, signal.SIGTERM)
            output, _ = service.communicate(timeout=100)
        finally:
            service.kill()
    assert re.fullmatch(r"Done\(.*\) \[\]\n", output), output
    assert service.returncode == 0
    assert [path.name for path in tmp_path.glob("detectors/*/*.rds")]
    give_up_s = time.monotonic() + 60
    while any(map(running, below)):
        assert time.monotonic() < give_up_s, {pid for pid in below if running(pid)}
        time.sleep(0.05)


@pytest.mark.ray
def test_a_cluster_that_is_not_there_is_told_at_once():
    for address, reason in (("127.0.0.1:1", "nothing answers"), ("ray://127.0.0.1:10001", "HOST:PORT")):
        with pytest.raises(ClusterError, match=reason):
            cluster.start(address)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of something that takes connections and says nothing, and a process like its raylet."""
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
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_joining_can_be_interrupted(silent, tmp_path, number):
    options = ("serve", "--port", "0", "--data", str(tmp_path / "data"), "--ray-address", silent)
    with started(tmp_path / "log", *options) as service:
        give_up_s = time.monotonic() + 60
        # The process that tries to join is told the address.
        while not any(silent in command(one) for one in descendants(service.process.pid)):
            assert time.monotonic() < give_up_s
            time.sleep(0.05)
        below = descendants(service.process.pid)
        time.sleep(0.5)
        assert service.end(number) == 0
        assert "Traceback" not in service.said()
        while any(map(running, below)):
            assert time.monotonic() < give_up_s
            time.sleep(0.05)
