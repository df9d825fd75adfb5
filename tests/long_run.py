"""Runs what takes too long for every change; all of it takes some hours on two cores.

python -m tests.long_run [STEP…]    runs these steps, or all of them

seeds       the property tests and the storms, on a thousand examples of each property, from three new seeds
fuzz        very many nearly valid bodies, conditions, files and connections
storms      every storm for ten minutes, and the tests that are marked `long`
nodes       every scenario of nodes that fail, five times
mutants     every mutant of every room
benchmarks  every benchmark with its peers, held against the ratios recorded

A step that fails does not stop the next ones. The seed of each run is printed; RULE_DETECTOR_SEED repeats it.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PYTEST: Final = ("-m", "pytest", "-q", "--timeout=3600")
STEPS: Final[dict[str, list[tuple[str, ...]]]] = {
    "seeds": 3 * [(*PYTEST, "tests/property", "tests/crash", "-m", "not ray and not long")],
    "fuzz": [(*PYTEST, "tests/api/fuzz")],
    "storms": [("-m", "tests.crash", "600"), (*PYTEST, "tests", "-m", "long")],
    "nodes": [("-m", "tests.linearizability", "--rounds", "5")],
    "mutants": [("-m", "tests.mutation")],
    "benchmarks": [("-m", "tests.bench", "--check")],
}


def main(*chosen: str) -> int:
    """Run the steps with these names. Return 1 if a command failed."""
    if unknown := set(chosen) - set(STEPS):
        print(f"unknown: {', '.join(sorted(unknown))}; the steps are {', '.join(STEPS)}", file=sys.stderr)
        return 2
    environment = {"RULE_DETECTOR_PROFILE": "deep"} | os.environ
    failed = []
    for step in chosen or STEPS:
        for arguments in STEPS[step]:
            print(f"\n== {step}: python {' '.join(arguments)}", flush=True)
            began_s = time.monotonic()
            ended = subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, check=False)
            print(f"-- {time.monotonic() - began_s:.0f} s, exit status {ended.returncode}", flush=True)
            if ended.returncode:
                failed.append(f"{step}: {' '.join(arguments)}")
    print(*(f"failed: {what}" for what in failed) if failed else ["all passed"], sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
