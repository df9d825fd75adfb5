"""Ray's process on this machine: whether it has ended, and what is said where there is none."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.runtime.cluster.session import joining, ray_session
from engine.runtime.cluster.session.joining import ClusterError, try_joining
from engine.runtime.cluster.session.ray_session import RayletLink
from engine.runtime.cluster.session.ray_watch import RayGoneError, RayWatch


@pytest.fixture
def path() -> Iterator[Path]:
    """Where a raylet listens; the folder's name is short, as the kernel demands."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "raylet")


@pytest.fixture
def link(path: Path) -> Iterator[RayletLink]:
    made = RayletLink(f"unix://{path}")
    yield made
    made.close()


def listening(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


def test_a_raylet_that_ends_is_noticed_though_the_control_store_answers(path, link, monkeypatch):
    answers = SimpleNamespace(internal_kv_exists=lambda *_, **__: True)
    monkeypatch.setattr(ray_session.ray_worker, "global_worker", SimpleNamespace(gcs_client=answers))
    watch = RayWatch(lambda: ray_session._ask(link), list)
    with listening(path) as raylet:
        for _ in range(3):
            watch.look()
        served, _ = raylet.accept()
        raylet.setblocking(False)
        with pytest.raises(BlockingIOError):
            raylet.accept()
        assert watch.gone is None
    served.close()
    watch.look()
    assert watch.gone == "ray's process on this machine, the raylet, has ended"


@pytest.mark.parametrize("removed", [True, False])
def test_a_raylet_that_was_started_again_is_another_one(path, link, removed):
    with listening(path) as raylet:
        link.check()
        served, _ = raylet.accept()
    served.close()
    if removed:
        path.unlink()
    else:
        child = (
            "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); "
            "print(flush=True); sys.stdin.read()"
        )
        path.unlink()
        other = subprocess.Popen(
            [sys.executable, "-c", child, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert other.stdout is not None
        other.stdout.readline()
    with pytest.raises(RayGoneError):
        link.check()
    if not removed:
        other.communicate()


def test_a_raylet_that_only_ends_the_connection_is_there_still(path, link):
    with listening(path) as raylet:
        link.check()
        served, _ = raylet.accept()
        served.close()
        link.check()
        served, _ = raylet.accept()
        link.check()
        served.close()


def test_a_file_that_is_not_there_says_nothing_and_one_that_nobody_serves_does(path, link):
    link.check()
    listening(path).close()
    with pytest.raises(RayGoneError):
        link.check()


def test_without_a_raylet_on_this_machine_joining_is_given_up_soon_and_says_so(monkeypatch):
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr(joining, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    monkeypatch.setattr(joining, "_clusters_here", list)
    with socket.create_server(("127.0.0.1", 0)) as store:
        address = f"127.0.0.1:{store.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"`{address}`: no raylet runs on this machine. A raylet"):
            try_joining(address, 30)
    assert 3 <= now_s <= 5


def test_a_raylet_that_starts_meanwhile_is_waited_for(monkeypatch):
    asked: list[list[str]] = []
    found = iter([[], [], ["127.0.0.1:6379"]])

    def attempt(_address: str, _within_s: float, clusters: list[str]) -> None:
        asked.append(clusters)

    monkeypatch.setattr(joining.time, "sleep", lambda _: None)
    monkeypatch.setattr(joining, "_clusters_here", lambda: next(found))
    monkeypatch.setattr(joining, "_attempt", attempt)
    with socket.create_server(("127.0.0.1", 0)) as store:
        try_joining(f"127.0.0.1:{store.getsockname()[1]}", 30)
    assert asked == [["127.0.0.1:6379"]]


@pytest.fixture
def raylet_of():
    """Start processes that pass for raylets of a cluster, in what others see of them."""
    started = []

    def start(address: str) -> None:
        line = ["raylet", "-c", "input('ready')", f"--gcs-address={address}"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(line, executable=sys.executable, **pipes)
        started.append(process)
        # For a moment after its start, others do not see its command line yet.
        assert process.stdout.read(5) == b"ready"

    yield start
    for process in started:
        process.communicate()


def test_the_clusters_of_the_raylets_on_this_machine_are_known(raylet_of):
    raylet_of("192.0.2.7:6379")
    assert "192.0.2.7:6379" in joining._clusters_here()


def test_an_address_of_ipv6_is_tried_without_its_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> None:
        tried.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(ClusterError):
        try_joining("[::1]:6379", 1)
    assert ("::1", 6379) in tried
