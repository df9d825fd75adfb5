"""The memory of detectors, rules and keys: `python -m tests.bench.sizing`.

Each figure comes from a process of its own: the growth of its resident memory, divided by what it grew by.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from engine import Detector, Limits
from engine.runtime.cluster.actors.detector_actor import map_large_blocks
from engine.runtime.contract.requests import operations
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.persistence import detector_snapshot
from engine.runtime.process.collector import collect_seldom
from snapshots.folders import create_folder
from tests.bench.measuring.fresh import call, resident_bytes

RULES: Final = 10_000
KEYS: Final = 200_000
TIMED: Final = 1_000_000
TUPLES: Final = 500_000
DETECTORS: Final = 200

RULES_BY_NAME: Final[dict[str, Callable[[int], str]]] = {
    '`amount > N and country == "C"`': lambda n: f'amount > {n} and country == "c{n}"',
    "`per user (once within 10m code == N)`": lambda n: f"per user (once within 10m code == {n})",
    "`per user (count(code == N) within 10m >= 10)`": lambda n: (
        f"per user (count(code == {n}) within 10m >= 10)"
    ),
    '`text matches "wN.*\\.exe$"`': lambda n: f"text matches 'w{n}.*\\.exe$'",
}
KEYED: Final = {
    "`once within 10m`": "per user (once within 10m ok == false)",
    "`since within 10m`": "per user (x == 1 since within 10m ok == false)",
    "`count … >= 10`": "per user (count(ok == false) within 10m >= 10)",
    "`distinct … > 20`": "per user (distinct(x) within 10m > 20)",
    "`avg` over a day": "per user (avg(x) within 1d > 3)",
}


def rules(name: str) -> dict[str, float]:
    """Bytes of one of many rules of this kind, after an event."""
    make = RULES_BY_NAME[name]
    detector = Detector()
    detector.add_rule("first", make(0))
    detector.evaluate({"user": "u", "text": "w", "amount": 1}, 0.0, None)
    before = resident_bytes()
    for number in range(1, RULES + 1):
        detector.add_rule(f"rule {number}", make(number))
    detector.evaluate({"user": "u", "text": "w", "amount": 1}, 0.0, None)
    return {"each_bytes": (resident_bytes() - before) / RULES}


def keys(condition: str) -> dict[str, float]:
    """Bytes of one of many live keys under a rule, one event for each."""
    collect_seldom()
    map_large_blocks()
    detector = Detector(limits=Limits(keys_max=KEYS + 1))
    detector.add_rule("r", condition)
    detector.evaluate({"user": "user-0", "ok": False, "x": 0}, 0.0, None)
    before = resident_bytes()
    for number in range(1, KEYS + 1):
        detector.evaluate({"user": f"user-{number:07d}", "ok": False, "x": number}, number / 1e3, None)
    return {"each_bytes": (resident_bytes() - before) / KEYS}


def deadlines(timed: bool) -> dict[str, float]:
    """Bytes and event of each of a million keys, which all have deadlines if the rule is `timed`."""
    collect_seldom()
    map_large_blocks()
    detector = Detector(limits=Limits(keys_max=TIMED + 1, state_bytes_max=1 << 34))
    detector.add_rule("r", "per user (not once within 1d ok == false)", timed=timed)
    detector.evaluate({"user": "user-0", "ok": False}, 0.0, None)
    before, began_s = resident_bytes(), time.process_time()
    for number in range(1, TIMED + 1):
        detector.evaluate({"user": f"user-{number:07d}", "ok": False}, number / 1e3, None)
    return {
        "each_bytes": (resident_bytes() - before) / TIMED,
        "said_bytes": detector.histories.bytes / TIMED,
        "event_us": (time.process_time() - began_s) / TIMED * 1e6,
    }


def tuples() -> dict[str, float]:
    """Bytes of one of many tuples of two short texts in a stored relation."""
    detector = Detector()
    detector.put_relation("first", [("user", "account")], 0)
    before = resident_bytes()
    detector.put_relation("owns", ((f"user-{n:07d}", f"account-{n:07d}") for n in range(TUPLES)), 0)
    return {"each_bytes": (resident_bytes() - before) / TUPLES}


def detectors() -> dict[str, float]:
    """Bytes of one of many active detectors of ten rules and a hundred keys in one process."""
    with tempfile.TemporaryDirectory() as name:
        data = Path(name)
        ids = [f"{number:032x}" for number in range(DETECTORS + 1)]
        for each in ids:
            create_folder(
                data / "detectors" / each,
                detector_snapshot.empty_snapshot(),
                version=detector_snapshot.SNAPSHOT_VERSION,
            )
        actors = [_active(data, ids[0])]
        before = resident_bytes()
        actors += [_active(data, each) for each in ids[1:]]
        return {"each_bytes": (resident_bytes() - before) / DETECTORS}


def _active(data: Path, detector_id: str) -> OperationExecutor:
    actor = OperationExecutor(RuntimeSettings(data=data))
    actor.activate(detector_id, 1)
    conditions = [f"per user (once within 10m code == {number})" for number in range(10)]
    actor.handle([operations.add_rule("r", condition) for condition in conditions])
    for number in range(100):
        event = {"event": {"fields": {"user": f"u{number}", "code": number % 10}, "timestamp_ms": 0}}
        actor.handle([operations.evaluate(json.dumps(event).encode())])
    return actor


def main() -> None:
    """Print the figures as a table."""
    print("| what | bytes of each |\n|---|---|")
    for name in RULES_BY_NAME:
        _print(f"a rule {name}", call(__spec__.name, "rules", name=name))
    for name, condition in KEYED.items():
        _print(f"a key under {name}", call(__spec__.name, "keys", condition=condition))
    for timed in (False, True):
        measured = call(__spec__.name, "deadlines", timed=timed)
        said = (
            f"{measured['said_bytes']:.0f} by its own estimate, {measured['event_us']:.1f} µs for its event"
        )
        _print(f"a key of a million under `not once within`{', timed' if timed else ''} ({said})", measured)
    _print("a tuple of two short texts in a stored relation", call(__spec__.name, "tuples"))
    said = "an active detector of ten rules and a hundred keys, beside its process"
    _print(said, call(__spec__.name, "detectors"))


def _print(what: str, measured: dict[str, float]) -> None:
    print(f"| {what} | {measured['each_bytes']:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
