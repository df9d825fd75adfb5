"""`rule-detector try` over a recording on disk, beside programs that only search it: jq and grep.

The floor is `json.loads` of each line in this Python. jq and grep answer a question without time or keys.
"""

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench.measuring.effort import Effort
from tests.bench.measuring.rows import Other, Part, Row, at_most
from tests.bench.rules.peers import NOT_INSTALLED

CASE = "try"
ROUNDS: Final = 3
SECONDS_MAX: Final = 15
START_S: Final = 2
"""What the program takes to start, generously."""
RULES: Final = """\
failed often: ok == false and per ip (count(ok == false) within 10m >= 5)
success after failure: ok == true and per user once within 10m ok == false
from two places: per user (distinct(ip) within 1h >= 3)
"""


def parts(effort: Effort) -> list[Part]:
    """Give the one part."""
    return [Part(CASE, partial(measure, effort))]


def measure(effort: Effort) -> list[Row]:
    """Measure the seconds for a recording, from the start of the process to its end."""
    events = effort.tried_events
    with tempfile.TemporaryDirectory() as folder:
        rules, recording = Path(folder, "rules.yaml"), Path(folder, "events.ndjson")
        rules.write_text(RULES, "utf-8")
        write_recording(recording, events)
        ours = ["-c", "from api.cli import main; main()", "try", str(rules), str(recording), "--show", "0"]
        contestants: dict[str, Callable[[], None]] = {
            "try": partial(_run, [sys.executable, *ours], {0}),
            "json.loads": partial(_load, recording),
        }
        for name, command in (
            ("jq", ["jq", "-c", 'select(.ok == false and .ip == "10.0.0.1")', str(recording)]),
            ("grep", ["grep", "-c", '"ok": false', str(recording)]),
        ):
            if shutil.which(name):
                contestants[name] = partial(_run, command, {0, 1})
        took_s: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(ROUNDS):
            for name, run in contestants.items():
                began_s = time.perf_counter()
                run()
                took_s[name].append(time.perf_counter() - began_s)
    floor_s = median(took_s["json.loads"])
    peers: dict[str, Other] = {
        name: median(took_s[name]) if name in took_s else NOT_INSTALLED for name in ("jq", "grep")
    }
    ours_s = median(took_s["try"])
    return [
        Row(
            case=CASE,
            name=f"three rules over {events:,} events",
            unit="s",
            ours=ours_s,
            worst=max(took_s["try"]),
            floor=floor_s,
            peers=peers,
            ratio=ours_s / floor_s,
            target=at_most(
                START_S + SECONDS_MAX * events / 1_000_000, ours_s, f"{SECONDS_MAX} s for a million"
            ),
        )
    ]


def write_recording(path: Path, events: int) -> None:
    """Write logins of a thousand users from five hundred addresses, ten a second."""
    drawn = random.Random(events)
    with path.open("w", encoding="utf-8") as file:
        for number in range(events):
            event = {
                "time": 1_700_000_000 + number / 10,
                "user": f"user{drawn.randrange(1000)}",
                "ip": f"10.0.{drawn.randrange(2)}.{drawn.randrange(250)}",
                "ok": drawn.random() < 0.9,
            }
            file.write(json.dumps(event) + "\n")


def _run(command: Sequence[str], expected: set[int]) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode in expected, command


def _load(recording: Path) -> None:
    with recording.open("rb") as file:
        for line in file:
            json.loads(line)
