"""Ray's processes after the process that started them was killed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.runtime.cluster.session import orphan_watch

NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
SCENE = Path(__file__).with_name("orphans.py")
WATCH = [sys.executable, "-I", "-S", orphan_watch.__file__]


def test_they_are_killed_and_whoever_got_the_number_of_one_that_had_ended_is_not() -> None:
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], check=False).returncode:
        pytest.skip("process namespaces cannot be made here")
    subprocess.run([*NAMESPACE, sys.executable, str(SCENE)], timeout=120, check=True)


@pytest.mark.parametrize("in_order", [True, False])
def test_they_are_killed_unless_the_watch_is_told_of_the_end_in_order(in_order: bool) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    descriptor = os.pidfd_open(child.pid)
    try:
        watch = subprocess.Popen([*WATCH, str(descriptor)], stdin=subprocess.PIPE, pass_fds=[descriptor])
        watch.communicate(b"\n" if in_order else b"", timeout=60)
        assert watch.returncode == 0
        if in_order:
            assert child.poll() is None
        else:
            assert child.wait(60) == -signal.SIGKILL
    finally:
        os.close(descriptor)
        child.kill()
        child.wait()


def test_the_watch_imports_nothing_but_what_every_python_has_loaded() -> None:
    """It runs as long as the service does, and modules such as `os` would double its memory."""
    program = f"import sys; __name__ = 'watch'; exec(open({orphan_watch.__file__!r}).read())"
    assert modules(program) == modules("import sys")


def modules(program: str) -> list[str]:
    command = [sys.executable, "-I", "-S", "-c", f"{program}; print(*sorted(sys.modules))"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
