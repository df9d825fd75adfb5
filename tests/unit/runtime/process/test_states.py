"""What the kernel says of a process: that it was stopped, goes on, or has ended."""

import signal
import subprocess
import time

from engine.runtime.process.processes import ENDED, STOPPED, state_of


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
