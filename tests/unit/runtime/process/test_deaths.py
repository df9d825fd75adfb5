"""How a process ended is told in words, also of one that is no child of the teller."""

import os
import signal
import subprocess
import sys
import time

import pytest

from engine.runtime.process.processes import Process, in_words

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
