"""What keeping a detector costs those who use it: the pause while it is saved, the wait while it is loaded.

Each figure comes from a process of its own, over an actor with its real files.
"""

import gc
import json
import statistics
import tempfile
import threading
import time
from array import array
from functools import partial
from pathlib import Path
from typing import Any

from engine.evaluation.detector import Detector
from engine.evaluation.persistence import saved
from engine.language.limits import Limits
from engine.runtime.contract.requests import operations
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.persistence import detector_snapshot as kept
from engine.runtime.process.collector import FrozenHeap, collect_seldom
from snapshots.folders import create_folder
from snapshots.format.snapshot_file import decode
from tests.bench.detectors.keys import RULE, time_of, user
from tests.bench.measuring.effort import Effort
from tests.bench.measuring.fresh import call
from tests.bench.measuring.rows import Part, Row, at_most

CASE = "durability"
PAUSE_MS_MAX = 50
LOADS = 3
ID = "d" * 32


def parts(effort: Effort) -> list[Part]:
    """Give a part for saving and one for loading."""
    return [
        Part(CASE, partial(measure_pause, effort), "pause"),
        Part(CASE, partial(measure_load, effort), "load"),
    ]


# -- in processes of their own -------------------------------------------------------------------------------


def _body(keys: int) -> bytes:
    """Give what is saved of a detector with this many live keys."""
    detector = Detector(limits=_limits(keys))
    detector.add_rule("failed lately", RULE)
    detector.evaluate_many(
        [({"user": user(number), "failed": True}, time_of(number), None) for number in range(keys)]
    )
    assert detector.histories.live == keys
    return b"".join(kept.pieces(kept.take_snapshot(detector)))


def _limits(keys: int) -> Limits:
    return Limits(keys_max=keys, late_ms_max=10**12)


def _folder(data: Path, keys: int) -> Path:
    folder = data / "detectors" / ID
    create_folder(folder, _body(keys), version=kept.SNAPSHOT_VERSION)
    return folder


def pause(keys: int) -> dict[str, float]:
    """Give the longest of many evaluations while nothing else happens, and while a snapshot is made."""
    with tempfile.TemporaryDirectory() as name:
        _folder(Path(name), keys)
        collect_seldom()
        actor = OperationExecutor(
            RuntimeSettings(data=Path(name), limits=_limits(keys), journal_sync="interval"),
            now_us=lambda: 10**15,
        )
        actor.activate(ID, 1)
        gc.collect()
        FrozenHeap()
        bodies = [_evaluation(number * 7919 % keys, time_of(keys)) for number in range(50_000)]
        usual = _longest_ms(actor, bodies, threading.Event(), 2.0)
        done = threading.Event()

        def finish() -> None:
            try:
                actor.finish_saving()
            finally:
                done.set()

        started_s = time.perf_counter()
        assert actor.begin_saving()
        capturing_ms = (time.perf_counter() - started_s) * 1e3
        threading.Thread(target=finish).start()
        while_saving = _longest_ms(actor, bodies, done, 60.0)
        saving_s = time.perf_counter() - started_s
        # Whoever sends an evaluation while the copy is made waits for all of that, and for its own.
        return {
            "usual_ms": usual,
            "capturing_ms": capturing_ms,
            "longest_ms": max(while_saving, capturing_ms),
            "saving_s": saving_s,
        }


def _evaluation(number: int, at_ms: float) -> operations.Operation:
    event = {"fields": {"user": user(number), "failed": True}, "timestamp_ms": at_ms}
    return operations.evaluate(json.dumps({"event": event}).encode())


def _longest_ms(
    actor: OperationExecutor, bodies: list[operations.Operation], done: threading.Event, within_s: float
) -> float:
    longest_ns, now_ns = 0, time.perf_counter_ns
    until_ns = now_ns() + int(within_s * 1e9)
    while not done.is_set():
        for body in bodies:
            started_ns = now_ns()
            actor.handle([body])
            longest_ns = max(longest_ns, now_ns() - started_ns)
            if done.is_set() or started_ns > until_ns:
                return longest_ns / 1e6
    return longest_ns / 1e6


def load(keys: int) -> dict[str, float]:
    """Give the seconds until a detector is usable again, and until a plain dict is, from the same file."""
    with tempfile.TemporaryDirectory() as name:
        folder = _folder(Path(name), keys)
        collect_seldom()
        actor = OperationExecutor(RuntimeSettings(data=Path(name), limits=_limits(keys)))
        ours_s, plain_s = [], []
        for epoch in range(1, 1 + LOADS):
            gc.collect()
            started_s = time.perf_counter()
            actor.activate(ID, epoch)
            ours_s.append(time.perf_counter() - started_s)
            actor.discard()
            gc.collect()
            (path,) = folder.glob("snapshot-*")
            started_s = time.perf_counter()
            plain = _plain_dict(path.read_bytes())
            plain_s.append(time.perf_counter() - started_s)
            assert len(plain) == keys
            del plain
        return {
            "ours_s": statistics.median(ours_s),
            "worst_s": max(ours_s),
            "plain_s": statistics.median(plain_s),
            "bytes": path.stat().st_size,
        }


def _plain_dict(data: bytes) -> dict[Any, int]:
    """Give the time of each key, read from a snapshot."""
    _, _, document = saved.unpack(decode(data).body)
    ((_, _, _, portions),) = document["slices"]
    return {
        keys[slot]: time_us
        for keys, _, entries in portions
        for slots, _, (times, _) in entries.values()
        for slot, time_us in zip(array("q", slots), array("q", times), strict=True)
    }


# -- what comes of them --------------------------------------------------------------------------------------


def measure_pause(effort: Effort) -> list[Row]:
    """Give by how much the slowest evaluation is slower than usual while a snapshot is made."""
    runs = [call(__name__, "pause", keys=effort.keys) for _ in range(effort.long_runs)]
    runs.sort(key=_beyond_ms)
    run, worst = runs[len(runs) // 2], runs[-1]
    beyond_ms = _beyond_ms(run)
    return [
        Row(
            case=CASE,
            name=f"slowest evaluation while {effort.keys} live keys are saved",
            unit="ms beyond the usual slowest",
            ours=beyond_ms,
            worst=_beyond_ms(worst),
            floor=run["usual_ms"],
            ratio=max(beyond_ms, 1.0) / PAUSE_MS_MAX,
            over=f"{PAUSE_MS_MAX} ms",
            target=at_most(PAUSE_MS_MAX, beyond_ms, f"under {PAUSE_MS_MAX} ms"),
            tolerance=2.0,
            remark=f"copied in {run['capturing_ms']:.1f}, written in {run['saving_s']:.1f} s",
        )
    ]


def _beyond_ms(run: dict[str, float]) -> float:
    return run["longest_ms"] - run["usual_ms"]


def measure_load(effort: Effort) -> list[Row]:
    """Give how long a detector takes to be usable again."""
    run = call(__name__, "load", keys=effort.keys)
    ratio = run["ours_s"] / run["plain_s"]
    return [
        Row(
            case=CASE,
            name=f"{effort.keys} live keys usable again from a snapshot",
            unit="s",
            ours=run["ours_s"],
            worst=run["worst_s"],
            floor=run["plain_s"],
            ratio=ratio,
            over="a plain dict from the same file",
            target=at_most(3, ratio, "at most 3x a plain dict from the same file"),
            remark=f"{run['bytes'] / 1e6:.0f} MB",
        )
    ]
