"""Ray seen from the service: whether it answers, and how it is ended where it does not come to an end."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from api.process.ray_lifetime import silent_too_long
from engine.runtime.cluster.session import ray_processes
from engine.runtime.cluster.session.ray_processes import RayProcesses
from engine.runtime.cluster.session.ray_watch import RayGoneError, RayWatch
from engine.runtime.concurrency.threads import off_loop
from tests.local_runtime.service import until

# -- whether it answers --------------------------------------------------------------------------------------


class Ray:
    """Something that answers or does not."""

    def __init__(self) -> None:
        self.answers = True
        self.stopped: list[str] = []
        self.watch = RayWatch(self.ask, lambda: self.stopped)

    def ask(self) -> None:
        if not self.answers:
            raise ConnectionError("no answer")

    def passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self.watch.tick()
            self.watch.look()


def test_while_it_answers_there_is_no_trouble():
    ray = Ray()
    ray.passes(100)
    assert ray.watch.problem() is None
    assert ray.watch.silent_s == 0


def test_a_raylet_that_is_stopped_is_silent_though_the_control_store_answers_until_it_goes_on():
    ray = Ray()
    ray.stopped = ["raylet"]
    ray.passes(29)
    assert silent_too_long(ray.watch) is None
    ray.stopped = []
    ray.passes(1)
    ray.stopped = ["raylet"]
    ray.passes(29)
    assert silent_too_long(ray.watch) is None
    ray.passes(1)
    assert silent_too_long(ray.watch) == (
        "ray has not answered for 30 seconds (ray does not answer: raylet was stopped)"
    )


def test_its_silence_is_told_within_a_few_seconds_and_its_return_at_once():
    ray = Ray()
    ray.passes(10)
    ray.answers = False
    ray.passes(2)
    assert ray.watch.problem() is None, "one late answer means nothing"
    ray.passes(1)
    assert "does not answer" in str(ray.watch.problem())
    assert ray.watch.silent_s == 3
    ray.answers = True
    ray.passes(1)
    assert ray.watch.problem() is None


def test_a_process_that_was_stopped_is_told_at_once_and_by_name():
    ray = Ray()
    ray.stopped = ["raylet"]
    assert "raylet was stopped" in str(ray.watch.problem())


def test_a_ray_that_will_never_answer_is_told_with_the_reason():
    def ask() -> None:
        raise RayGoneError("another cluster")

    watch = RayWatch(ask, list)
    assert watch.gone is None
    watch.look()
    assert watch.gone == "another cluster"


async def test_a_question_that_hangs_keeps_nobody_waiting():
    asked = threading.Event()

    def ask() -> None:
        asked.set()
        threading.Event().wait()

    watch = RayWatch(ask, list)
    watch.start()
    await until(asked.is_set)
    for _ in range(60):
        watch.tick()
    assert "does not answer" in str(watch.problem())
    watch.end()


WATCHING = """
import time
from engine.runtime.cluster.session.ray_watch import RayWatch
watch = RayWatch(lambda: time.sleep(0.5), list)
watch.start()
print("begun", flush=True)
while True:
    if problem := watch.problem():
        print(problem, flush=True)
    time.sleep(0.01)
"""


@pytest.mark.storm
def test_the_time_in_which_the_service_was_stopped_itself_is_no_silence_of_ray():
    with subprocess.Popen([sys.executable, "-c", WATCHING], stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        try:
            assert watching.stdout.readline() == b"begun\n"
            watching.send_signal(signal.SIGSTOP)
            time.sleep(4)
            watching.send_signal(signal.SIGCONT)
            time.sleep(0.3)
        finally:
            watching.kill()
        assert watching.stdout.read() == b""


# -- its processes -------------------------------------------------------------------------------------------


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for child in started:
        child.kill()
        child.wait()


def rays(children: list[subprocess.Popen[bytes]]) -> RayProcesses:
    """Processes named as Ray's are, started as Ray is."""
    processes = RayProcesses()
    with processes.starting():
        children += [
            subprocess.Popen([name, "1000"], executable="/bin/sleep")
            for name in ("gcs_server", "raylet", "dashboard")
        ]
    return processes


def test_the_essential_processes_are_known_and_their_ends_can_be_waited_for(children, monkeypatch):
    monkeypatch.setattr(ray_processes, "_SHUTDOWN_MOST_S", 0.1)
    processes = rays(children)
    assert set(processes.essential) == {"gcs_server", "raylet"}
    assert processes.stopped() == []
    os.kill(children[1].pid, signal.SIGSTOP)
    while not processes.stopped():
        time.sleep(0.01)
    assert processes.stopped() == ["raylet"]
    assert processes.end(lambda: None)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_shutdown_that_never_comes_back_is_given_up_and_every_process_killed(
    children, monkeypatch, stopped
):
    monkeypatch.setattr(ray_processes, "_SHUTDOWN_MOST_S", 0.1)
    monkeypatch.setattr(ray_processes, "_KILLED_MOST_S", 0.1)
    processes = rays(children)
    if stopped:
        for child in children:
            child.send_signal(signal.SIGSTOP)
    never = threading.Event()
    assert not processes.end(lambda: never.wait() and None)
    assert [child.wait(10) for child in children] == [-signal.SIGKILL] * 3
    never.set()


# -- calls that may block ------------------------------------------------------------------------------------


async def test_the_loop_goes_on_while_a_call_blocks_and_whoever_waits_gets_what_it_returns_or_raises():
    go_on = threading.Event()
    returns = off_loop(lambda: go_on.wait() and "done", "test")
    raises = off_loop(lambda: go_on.wait() and {}["gone"], "test")
    gone = off_loop(go_on.wait, "test")
    for _ in range(5):
        await asyncio.sleep(0)
    assert not returns.done()
    # Nobody minds if a caller has gone.
    gone.cancel()
    go_on.set()
    assert await returns == "done"
    with pytest.raises(KeyError, match="gone"):
        await raises
    await asyncio.sleep(0.01)
    assert gone.cancelled()
