"""Runs a function in its own process, so that memory and pauses are those of the function alone.

    python -m tests.bench.measuring.fresh MODULE FUNCTION ARGUMENTS

ARGUMENTS is a JSON object. What the function returns is printed as JSON.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
WITHIN_S = 400
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def call(module: str, function: str, **arguments: object) -> dict[str, float]:
    """Return the function's result from a process of its own. Raises CalledProcessError if it fails."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    run = subprocess.run(
        [sys.executable, "-m", __name__, module, function, json.dumps(arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
        timeout=WITHIN_S,
    )
    answer: dict[str, float] = json.loads(run.stdout)
    return answer


def resident_bytes() -> int:
    """Return the memory that this process holds, after it returned what it could."""
    gc.collect()
    # Freed memory that the C library's allocator keeps for later is not in use.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE_BYTES


def main() -> None:
    module, function, arguments = sys.argv[1:]
    answer: Any = getattr(import_module(module), function)(**json.loads(arguments))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
