"""What becomes of Ray's processes, and of a stranger, if the process that started Ray is killed.

Runs as the first process of a namespace, where it can choose the number of the next process.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

STARTER = """
import subprocess, time
from engine.runtime.cluster.session.ray_processes import RayProcesses
processes = RayProcesses()
with processes.starting():
    script = "sleep 1000 & echo $!; sleep 1000 & echo $!; wait"
    raylet = subprocess.Popen(["raylet", "-c", script], executable="/bin/sh", stdout=subprocess.PIPE)
    agents = [raylet.stdout.readline().decode().strip() for _ in range(2)]
print(raylet.pid, *agents, flush=True)
time.sleep(1000)
"""


def children(parent: int) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
            found.add(int(path.parent.name))
    return found


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def main() -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    raylet, gone, agent = map(int, starter.stdout.readline().split())
    os.kill(gone, 9)
    until(lambda: not Path(f"/proc/{gone}").exists())
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(gone - 1))
    stranger = subprocess.Popen(["sleep", "1000"])
    assert stranger.pid == gone
    watchers = children(starter.pid) - {raylet}
    assert watchers
    starter.kill()
    until(lambda: not any(map(runs, {raylet, agent, *watchers})))
    assert stranger.poll() is None, "the stranger was killed"


if __name__ == "__main__":
    main()
