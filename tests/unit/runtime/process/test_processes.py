"""Processes: what they inherit, what state they are in, and how they ended."""

import os
import signal
import subprocess
import sys
import time

import pytest

from engine.runtime.process.processes import (
    ENDED,
    STOPPED,
    Process,
    in_words,
    keep_needed,
    of_tracing,
    state_of,
)

PARENT = """
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
sys.stdin.read()
"""


def test_a_status_in_words() -> None:
    assert in_words(signal.SIGKILL) == "killed by SIGKILL"
    assert in_words(signal.SIGSEGV | 0x80) == "killed by SIGSEGV"
    assert in_words(3 << 8) == "ended with status 3"


def test_the_signal_that_killed_the_child_of_another_process_is_known() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        process = Process(pid, "10.0.0.1", here=True)
        assert str(process) == f"pid {pid} on the node 10.0.0.1"
        os.kill(pid, signal.SIGKILL)
        for _ in range(1000):
            if process.end():
                break
            time.sleep(0.01)
        parent.kill()
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 15):
        assert process.end() == ""
    else:
        assert str(process) == f"pid {pid} on the node 10.0.0.1, killed by SIGKILL"


@pytest.mark.parametrize("here", [True, False])
def test_of_a_process_that_is_gone_or_elsewhere_nothing_is_known(here: bool) -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert str(Process(process.pid, "h", here=here)) == f"pid {process.pid} on the node h"
    assert str(Process(0, "h", here=here)) == "pid unknown on the node h"


def test_a_process_is_seen_to_be_stopped_to_go_on_and_to_end() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        process.send_signal(signal.SIGSTOP)
        assert becomes(process.pid, STOPPED)
        process.send_signal(signal.SIGCONT)
        assert becomes(process.pid, "S")
        process.kill()
        assert becomes(process.pid, ENDED)
    assert state_of(process.pid) == ""


def becomes(pid: int, state: str) -> bool:
    for _ in range(1000):
        if state_of(pid) == state:
            return True
        time.sleep(0.01)
    return False


def test_only_variables_that_something_needs_are_inherited() -> None:
    kept = {
        "PATH": "/bin",
        "HOME": "/root",
        "LANG": "C",
        "LC_TIME": "C",
        "TZ": "UTC",
        "TMPDIR": "/t",
        "PYTHONPATH": "p",
        "LD_LIBRARY_PATH": "l",
        "RAY_TLS_CA_CERT": "c",
        "RAY_AUTH_MODE": "token",
    }
    secret = {
        "AWS_SECRET_ACCESS_KEY": "s",
        "HTTPS_PROXY": "http://u:p@h",
        "http_proxy": "h",
        "PGPASSWORD": "s",
        "RULE_DETECTOR_BOOTSTRAP_TOKEN": "s",
        "RULE_DETECTOR_TOKEN": "s",
        "PYTHON_API_KEY": "s",
        "RAY_REDIS_PASSWORD": "s",
        "LANGSMITH_API_KEY": "s",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=s",
        "path": "s",
    }
    environment = kept | secret
    assert of_tracing(environment) == {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=s"}
    keep_needed(environment)
    assert environment == kept
