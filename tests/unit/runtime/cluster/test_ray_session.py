"""How Ray is started, as far as that shows without starting it."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ray._private import utils as ray_utils
from ray._private import worker as ray_worker

from engine.runtime.cluster.node_checks import WANTED
from engine.runtime.cluster.session import ray_session as cluster
from engine.runtime.cluster.session.joining import ClusterError


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Starts Ray, or joins it, up to what Ray itself would do; returns what Ray was given."""

    def begin(
        address: str = "127.0.0.1:1", fails: str = "that is enough", init: Any = None
    ) -> dict[str, Any]:
        seen: dict[str, Any] = {}

        def stop(**options: Any) -> None:
            seen.update(options)
            if init is not None:
                init()
            raise RuntimeError("that is enough")

        monkeypatch.setattr(cluster.ray, "init", stop)
        monkeypatch.setattr(cluster, "try_joining", lambda *_: None)
        monkeypatch.setattr(cluster.ray_security, "require_token", lambda _: None)
        monkeypatch.setattr(cluster.ray_security, "listen_on_loopback", lambda: None)
        with pytest.raises(ClusterError, match=fails):
            cluster.start(address)
        return seen

    return begin


Begun = Callable[..., dict[str, Any]]


def test_ray_leaves_the_log_of_this_process_as_it_is_set_up(begun: Begun) -> None:
    """Else it sets its logger up anew, and its warnings go to the terminal."""
    seen = begun()
    assert seen["configure_logging"] is False
    assert seen["log_to_driver"] is False


def test_ray_does_not_learn_the_command_line_which_may_have_a_token(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stores that in its list of jobs, for whoever asks."""
    secret = "a" * 32
    monkeypatch.setattr("psutil.Process.cmdline", lambda _: ["rule-detector", "--bootstrap-token", secret])
    monkeypatch.setattr(ray_utils, "get_entrypoint_name", ray_utils.get_entrypoint_name)
    seen: list[str] = []
    begun(init=lambda: seen.append(ray_utils.get_entrypoint_name()))
    assert seen == ["rule-detector"]


def test_what_ray_says_of_a_worker_that_was_killed_goes_to_the_log(
    begun: Begun,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Ray prints it in spite of `log_to_driver=False`."""
    monkeypatch.setattr(ray_worker, "print_to_stdstream", ray_worker.print_to_stdstream)
    begun()
    given: list[dict[str, Any]] = []

    class Subscriber:
        def subscribe(self) -> None:
            pass

        def poll(self) -> tuple[bytes, dict[str, Any]]:
            if given:
                raise ConnectionError("that is all")
            given.append({"job_id": None, "error_message": "A worker died or was killed"})
            return b"", given[0]

    class Driver:
        gcs_error_subscriber = Subscriber()
        current_job_id = ray_worker.JobID.nil()

    class Never:
        def is_set(self) -> bool:
            return False

    with caplog.at_level(logging.DEBUG):
        ray_worker.listen_error_messages(Driver(), Never())
    assert "A worker died" in caplog.text
    assert capfd.readouterr().out == ""


def test_an_embedded_ray_does_not_take_a_raylet_that_was_stopped_for_a_while_for_dead(begun: Begun) -> None:
    assert begun(cluster.LOCAL)["_system_config"]["health_check_failure_threshold"] == WANTED


@pytest.mark.parametrize(("registers_after_s", "starts"), [(80.0, True), (200.0, False)])
def test_a_busy_machine_may_take_longer_to_start_ray_than_ray_allows(
    begun: Begun, monkeypatch: pytest.MonkeyPatch, registers_after_s: float, starts: bool
) -> None:
    """Ray asks for its node for 30 s, and then gives up."""
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def get_node(*_: object) -> str:
        if now_s < registers_after_s:
            raise RuntimeError("no node is found")
        return "the node"

    found: list[str] = []
    # Looking through all processes at each of 2 000 polls would take seconds.
    monkeypatch.setattr(cluster.RayProcesses, "ended_early", lambda _: [])
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    monkeypatch.setattr(cluster.ray_services, "get_node", get_node)
    begun(
        fails="that is enough" if starts else "no node is found",
        init=lambda: found.append(cluster.ray_services.get_node("address", "id")),
    )
    assert found == (["the node"] if starts else [])
    assert cluster.ray_services.get_node is get_node
