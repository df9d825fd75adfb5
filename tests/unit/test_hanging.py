"""A test that hangs is ended, even if it has tasks in the background."""

import subprocess
import sys
from pathlib import Path

import pytest

HANGING = """
import asyncio

async def busy():
    while True:
        await asyncio.sleep(0)

async def test_hangs():
    tasks = [asyncio.create_task(busy()) for _ in range(2)]
    await asyncio.Event().wait()
"""


@pytest.mark.slow
def test_a_hanging_test_is_ended_whatever_task_its_alarm_meets(tmp_path: Path) -> None:
    file = tmp_path / "test_hanging.py"
    file.write_text(HANGING)
    options = ["-p", "tests.conftest", "-o", "asyncio_mode=auto", "--timeout", "1"]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert "1 failed" in ended.stdout
    assert "Timeout" in ended.stdout
