"""Front ends as processes, over detectors in this one: those that hang, and those that never serve."""

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from api.process import front_end as front_end_program
from api.process import front_ends
from api.process.front_ends import FrontEndFailed, FrontEnds, Signs
from api.process.listening import StartError, listening
from api.settings import Settings
from engine.runtime.contract.measures import FRONT_ENDS_LOST
from engine.runtime.contract.settings import RuntimeSettings
from tests.certificates import certificates
from tests.local_runtime.service import local_service, until


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(port=0, front_ends=2, data=tmp_path, shutdown_wait_s=0, shutdown_grace_s=1)


def pids(started: FrontEnds) -> set[int]:
    return {front_end.process.pid for front_end in started._all}


@pytest.mark.storm
async def test_one_that_is_stopped_is_ended_and_replaced(settings, caplog):
    async with local_service(settings.data) as service:
        with listening(settings) as listeners:
            started = FrontEnds(settings, service.backend.scheduler, listeners)
            await started.start()
            try:
                before = pids(started)
                hanging = min(before)
                os.kill(hanging, signal.SIGSTOP)
                await until(lambda: hanging not in pids(started) and len(pids(started)) == 2)
                assert len(pids(started) & before) == 1
                # The count is on its way to the scheduler.
                counts = service.scheduler._front_end_counts
                await until(lambda: (FRONT_ENDS_LOST,) in counts)
                assert counts[FRONT_ENDS_LOST,] == 1
                assert f"{hanging} has been stopped for 3 s" in caplog.text
            finally:
                await started.stop()
            assert not pids(started)


@pytest.mark.storm
async def test_one_that_does_not_come_to_serve_says_how_it_ended_and_leaves_no_other(settings, monkeypatch):
    monkeypatch.setattr(front_end_program, "encode_settings", lambda _: b"no settings")
    async with local_service(settings.data) as service:
        with listening(settings) as listeners:
            started = FrontEnds(settings, service.backend.scheduler, listeners)
            with pytest.raises(FrontEndFailed, match="it ended with status 1"):
                await started.start()
            assert not pids(started)


@pytest.mark.storm
async def test_one_whose_certificate_does_not_fit_its_key_does_not_count_as_serving(
    settings, tmp_path, capfd
):
    for name in ("one", "other"):
        certificates(tmp_path / name)
    files = {"tls_cert": tmp_path / "one" / "node.crt", "tls_key": tmp_path / "other" / "node.key"}
    async with local_service(settings.data) as service:
        with listening(settings) as listeners:
            started = FrontEnds(replace(settings, **files), service.backend.scheduler, listeners)
            with pytest.raises(FrontEndFailed, match=r"--tls-cert .*: they do not fit each other"):
                await started.start()
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False], ids=["told how to serve", "told nothing"])
def test_one_whose_main_process_ends_before_it_serves_ends_without_a_traceback(settings, told):
    ours, theirs = socket.socketpair()
    with theirs, socket.create_server(("127.0.0.1", 0)) as listener:
        descriptors = theirs.fileno(), listener.fileno()
        ours.close()
        ended = subprocess.run(
            [sys.executable, "-m", "api.process.front_end", *map(str, descriptors)],
            input=front_end_program.encode_settings(settings) if told else b"",
            pass_fds=descriptors,
            capture_output=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.storm
async def test_one_that_cannot_be_replaced_is_tried_again_until_it_can(settings, monkeypatch, caplog):
    monkeypatch.setattr(front_ends, "_AGAIN_S", 0.01)
    async with local_service(settings.data) as service:
        with listening(settings) as listeners:
            started = FrontEnds(settings, service.backend.scheduler, listeners)
            await started.start()
            try:
                encode = front_end_program.encode_settings
                monkeypatch.setattr(front_end_program, "encode_settings", lambda _: b"no settings")
                os.kill(min(pids(started)), signal.SIGKILL)
                await until(lambda: "did not start: it ended with status 1" in caplog.text)
                monkeypatch.setattr(front_end_program, "encode_settings", encode)
                await until(lambda: sum(one.serves.is_set() for one in started._all) == 2)
            finally:
                await started.stop()


def test_a_port_that_others_share_is_not_shared_with_them(settings):
    with listening(settings) as listeners:
        port = listeners[0].getsockname()[1]
        assert {listener.getsockname()[1] for listener in listeners} == {port}
        with (
            pytest.raises(StartError, match="address already in use"),
            listening(Settings(port=port, front_ends=3)),
        ):
            pass


SETTINGS = RuntimeSettings(data=None)  # type: ignore[arg-type]


def signs() -> Signs:
    return Signs(SETTINGS.node_timeout_s, SETTINGS.hung_s)


def test_one_that_is_stopped_counts_as_lost_as_soon_as_a_worker() -> None:
    found = signs()
    looks = 0
    while found.look(7, stopped=True) is None:
        looks += 1
    assert (looks + 1) * found.look_s == SETTINGS.node_timeout_s


def test_one_that_goes_on_in_time_is_kept() -> None:
    found = signs()
    for _ in range(100):
        for stopped in (True, True, True, False):
            # It catches up once it goes on.
            assert found.look(int(not stopped), stopped=stopped) is None


def test_one_that_is_heard_now_and_then_is_not_silent() -> None:
    found = signs()
    assert all(found.look(look // 2, stopped=False) is None for look in range(1_000))


def test_one_whose_loop_hangs_has_the_time_of_a_worker_that_hangs() -> None:
    found = signs()
    looks = 0
    while (lost := found.look(7, stopped=False)) is None:
        looks += 1
    assert looks * found.look_s == SETTINGS.hung_s
    assert "silent for 60 s" in lost


def test_one_is_given_none_of_rays_secrets(monkeypatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    assert "secret" not in front_ends._environment().values()
