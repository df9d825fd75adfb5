"""All Windows rules of SigmaHQ in one detector, over a recorded attack.

    RULE_DETECTOR_TEST_DATA=… python -m tests.bench.sigma            events/s, in process
    RULE_DETECTOR_TEST_DATA=… python -m tests.bench.sigma --http     and over the batch operation of a service

The folder has `sigmahq-rules.tar.gz` and `windows-dcsync.ndjson.gz`. The recording is evaluated twice before
it is measured, so that no code is generated meanwhile. Rates are by processor time, medians of some rounds.
The checksum is that of the names of the rules that fire at each event, to compare two versions of the engine.
"""

import argparse
import json
import os
import statistics
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import httpx
import msgspec

from api.cli.recordings.reading import ReadingOptions, Recording
from api.cli.sigma.conversion import Converter
from engine import Detector, format  # noqa: A004 -- the engine's name for it
from engine.evaluation.kernel.indexing import indexed_stream
from engine.evaluation.wire.events import evaluate_batch_body
from engine.language.condition import Condition
from tests.bench.measuring.processes import cpu_by_kind_s
from tests.service_process import served

KEYWORD_FIELDS: Final = ("Message",)
ROUNDS: Final = 5
BATCH_EVENTS: Final = 500

Events = list[tuple[dict[str, Any], float, None]]


def main() -> None:
    """Convert, add, evaluate, and print the time of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sigma", description=__doc__.splitlines()[0])
    parser.add_argument("--http", action="store_true", help="evaluate over HTTP, too")
    options = parser.parse_args()
    data = Path(os.environ["RULE_DETECTOR_TEST_DATA"])
    started = time.process_time()
    conditions = converted(data)
    print(f"converted  {len(conditions)} rules in {time.process_time() - started:.1f} s of CPU")
    started = time.process_time()
    detector = Detector()
    for place, condition in enumerate(conditions):
        detector.add_rule(str(place), condition)
    print(f"added      in {time.process_time() - started:.1f} s of CPU")
    with Recording(str(data / "windows-dcsync.ndjson.gz"), None, ReadingOptions("@timestamp")) as recording:
        events: Events = [(event.fields, event.time_us / 1000, None) for event in recording.events()]
    fired = detector.evaluate_many(events)
    names = [[rule.name for rule in rules] for rules in fired]
    checksum = zlib.crc32(json.dumps(names).encode())
    print(f"evaluated  {len(events)} events, {sum(map(len, names))} firings, checksum {checksum:08x}")
    last_ms = max(time_ms for _, time_ms, _ in events)
    again: Events = [(fields, last_ms, None) for fields, *_ in events]
    # Rules that joined the index at the first pass are analysed at the second.
    detector.evaluate_many(again)
    _print_rate("in process", len(events), lambda: detector.evaluate_many(again))
    parts = bodies(again)
    _print_rate(
        f"bodies of {BATCH_EVENTS} events",
        len(events),
        lambda: [evaluate_batch_body(detector, one) for one in parts],
    )
    print(f"looked at  {looked_at(detector, again) / len(conditions):.2%} of the rules at an event")
    if options.http:
        over_http(conditions, parts, len(events))


def converted(data: Path) -> list[Condition]:
    """Return the conditions of the Windows rules."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(data / "sigmahq-rules.tar.gz") as packed:
        packed.extractall(folder, filter="data")
        conversion = Converter(keyword_fields=KEYWORD_FIELDS).convert([f"{folder}/rules/windows"])
    return [each.condition for each in conversion.converted]


def bodies(events: Events) -> list[bytes]:
    """Return the bodies of batches of these events."""
    objects = [{"fields": fields, "timestamp_ms": time_ms} for fields, time_ms, _ in events]
    starts = range(0, len(objects), BATCH_EVENTS)
    return [msgspec.json.encode({"events": objects[start : start + BATCH_EVENTS]}) for start in starts]


def looked_at(detector: Detector, events: Events) -> float:
    """Return how many rules are evaluated at an event, on average."""
    samples = detector.rule_set.samples
    before, seen = samples.ran.total(), samples.events
    with patch.object(indexed_stream, "SAMPLED_EVERY", 1):
        detector.evaluate_many(events)
    # Events that meet no rule are not sampled.
    assert samples.events > seen
    return (samples.ran.total() - before) / len(events)


def over_http(conditions: list[Condition], parts: list[bytes], count: int) -> None:
    """Evaluate the bodies at a service; print the rate, and the rate per CPU time of each process."""
    with tempfile.TemporaryDirectory() as name, served(Path(name) / "data") as service:
        detector = service.call("POST", "/api/detectors", {"name": "windows"})["id"]
        rules = [{"name": str(place), "condition": format(one)} for place, one in enumerate(conditions)]
        service.call("PUT", f"/api/detectors/{detector}/rules", {"rules": rules})
        url = f"{service.url}/api/detectors/{detector}/evaluate/batch"
        headers = {"Authorization": f"Bearer {service.token}", "Content-Type": "application/json"}
        client = httpx.Client(headers=headers, timeout=60, trust_env=False)
        took_s, used = [], []
        for _ in range(ROUNDS):
            before_s, started_s = cpu_by_kind_s(service.process.pid), time.perf_counter()
            for part in parts:
                client.post(url, content=part).raise_for_status()
            took_s.append(time.perf_counter() - started_s)
            used.append(cpu_by_kind_s(service.process.pid) - before_s)
        print(f"over HTTP  {count / statistics.median(took_s[1:]):.0f} events/s, one batch after another")
        for kind in used[0]:
            cpu = statistics.median([each.get(kind, 0.0) for each in used[1:]])
            if cpu:
                print(f"           {count / cpu:.0f} events/s of CPU: {kind}")


def _print_rate(what: str, events: int, evaluate: Callable[[], object]) -> None:
    rates = []
    for _ in range(ROUNDS):
        started = time.process_time()
        evaluate()
        rates.append(events / (time.process_time() - started))
    print(f"{what}: {statistics.median(rates):.0f} events/s, from {min(rates):.0f} to {max(rates):.0f}")


if __name__ == "__main__":
    main()
