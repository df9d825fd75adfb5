"""An actor's large blocks stay mapped, also after one has been freed."""

import subprocess
import sys

import pytest

CODE = """
import ctypes

class Figures(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", *"123456")]

C = ctypes.CDLL(None)
C.mallinfo2.restype = Figures
{before}
large = bytearray(16 << 20)
del large
before = C.mallinfo2().hblks
held = [bytearray(4 << 20) for _ in range(5)]
print(C.mallinfo2().hblks - before)
"""

ACTOR = """
from pathlib import Path
from engine.runtime.cluster.actors.detector_actor import DetectorActor
from engine.runtime.contract.settings import RuntimeSettings

actor = DetectorActor(RuntimeSettings(data=Path("none")))
"""


def mapped(before: str) -> int:
    """How many of five blocks of 4 MiB are mapped after one of 16 MiB was freed."""
    run = subprocess.run(
        [sys.executable, "-c", CODE.replace("{before}", before)], capture_output=True, text=True, check=True
    )
    return int(run.stdout)


@pytest.mark.slow
def test_large_blocks_stay_mapped_after_one_was_freed() -> None:
    assert mapped(ACTOR) == 5
    # Otherwise this would show nothing.
    assert mapped("") == 0
