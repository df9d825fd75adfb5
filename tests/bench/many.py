"""Thousands of detectors that are busy, in few processes: latency, memory, and the death of one process.

    python -m tests.bench.many             2 000 detectors, 200 a worker, for five minutes
    python -m tests.bench.many --quick     200 detectors, 50 a worker, for twenty seconds

Each detector has two rules and gets an event every two seconds, over HTTP, synced before it is answered. In
the middle one worker is killed. At the end every acknowledged event must be in the detectors' files. The exit
status is 1 if

* an acknowledged event is lost;
* before the kill, or after it, 95 % of the answers do not come within 50 ms of the time at which their event
  was due; events that are due in the first second after the kill do not count, for detectors recover then.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.measuring.processes import cpu_s, held_bytes
from tests.process_table import workers as workers_of
from tests.service_process import Served, served

PERIOD_S: Final = 2.0
P95_MS_MAX: Final = 50.0
RECOVERY_S: Final = 1.0
CONNECTIONS: Final = 64
RULES: Final = (
    'action == "login" and ok == false and per user (count(ok == false) within 1m >= 10)',
    "per user (once within 10m ok == false) and amount > 100",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    detectors: int
    per_worker: int
    seconds: float


FULL: Final = Size(detectors=2_000, per_worker=200, seconds=300)
QUICK: Final = Size(detectors=200, per_worker=50, seconds=20)


@dataclass(slots=True)
class Seen:
    """What became of the events."""

    took_ms: list[float] = field(default_factory=list)
    """From when each was due to its answer."""
    due_s: list[float] = field(default_factory=list)
    """When each was due, of the loop's clock."""
    acknowledged: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    refused: Counter[int] = field(default_factory=Counter)
    last_trouble_s: float = 0.0
    """When the last event was refused, or answered later than a second after it was due."""

    def __str__(self) -> str:
        p50, p95, p99 = (self.within_ms(share) for share in (0.5, 0.95, 0.99))
        refused = f", refused {dict(self.refused)}" if self.refused else ""
        return (
            f"p50 {p50:.1f} ms, p95 {p95:.1f} ms, p99 {p99:.1f} ms, worst {max(self.took_ms):.0f} ms{refused}"
        )

    def within_ms(self, share: float, from_s: float = 0.0) -> float:
        """Give the time within which that share was answered of the events that were due from a moment on."""
        timed = zip(self.due_s, self.took_ms, strict=True)
        ordered = sorted(took_ms for due_s, took_ms in timed if due_s >= from_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Envelope(msgspec.Struct):
    """What a caller reads of a reply."""

    success: bool
    errors: list[dict[str, object]]
    result: msgspec.Raw = msgspec.Raw(b"{}")


_decoder: Final = msgspec.json.Decoder(Envelope)


class Callers:
    """Connections to the service, each with one request at a time."""

    def __init__(self, running: Served, connections: int = CONNECTIONS) -> None:
        self._connections = connections
        self._place = running.url.removeprefix("http://").split(":")
        self._token = running.token
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def open(self) -> None:
        """Connect."""
        host, port = self._place
        for _ in range(self._connections):
            self._free.put_nowait(await asyncio.open_connection(host, int(port)))

    async def post(self, path: str, document: object) -> Envelope:
        """Send a request once a connection is free, and give the reply."""
        body = msgspec.json.encode(document)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: service\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        reader, writer = connection = await self._free.get()
        writer.write(head.encode() + body)
        fields = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(fields.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        reply = await reader.readexactly(length)
        self._free.put_nowait(connection)
        return _decoder.decode(reply)

    async def create(self, count: int, rules: Sequence[str]) -> list[str]:
        """Make detectors, and give their ids."""

        async def one(number: int) -> str:
            reply = await self.post("/api/detectors", {"name": f"detector {number}"})
            return str(msgspec.json.decode(reply.result, type=dict[str, str])["id"])

        ids = await asyncio.gather(*map(one, range(count)))
        for rule in rules:
            await self.add(ids, rule)
        return ids

    async def add(self, ids: Sequence[str], rule: str) -> None:
        """Give each detector a rule."""

        async def one(detector: str) -> None:
            path = f"/api/detectors/{detector}/rules"
            added = await self.post(path, {"name": rule, "condition": rule})
            assert added.success, added.errors

        await asyncio.gather(*map(one, ids))


async def load(callers: Callers, ids: list[str], seconds: float, seen: Seen) -> None:
    """Send each detector an event every `PERIOD_S`, all spread evenly, whatever becomes of earlier ones."""
    loop = asyncio.get_running_loop()
    begin_s = loop.time()
    under_way: set[asyncio.Task[None]] = set()

    async def send(detector: str, number: int, due_s: float) -> None:
        fields = {"user": f"u{number % 50}", "action": "login", "ok": number % 3 != 0, "amount": number % 200}
        event = {"fields": fields, "timestamp_ms": time.time_ns() // 1_000_000}
        reply = await callers.post(f"/api/detectors/{detector}/evaluate", {"event": event})
        took_s = loop.time() - due_s
        seen.took_ms.append(took_s * 1e3)
        seen.due_s.append(due_s)
        if reply.success:
            seen.acknowledged[detector] += 1
        else:
            seen.refused[int(str(reply.errors[0]["code"]))] += 1
            seen.unknown[detector] += 1
        if not reply.success or took_s > 1:
            seen.last_trouble_s = loop.time()

    for number in range(int(seconds / PERIOD_S * len(ids))):
        due_s = begin_s + number * PERIOD_S / len(ids)
        if (wait_s := due_s - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        task = loop.create_task(send(ids[number % len(ids)], number // len(ids), due_s))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)


async def busy(running: Served, size: Size) -> tuple[list[str], Seen, list[str]]:
    """Keep detectors busy, and kill a worker amid it; give ids, what was seen, and what was too slow."""
    callers = Callers(running)
    await callers.open()
    while not (spares := workers_of(running.process.pid)):  # noqa: ASYNC110 -- no event tells of it
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    empty_bytes = held_bytes(spares[0])
    times_s = [time.monotonic()]
    ids = await callers.create(size.detectors, ())
    times_s.append(time.monotonic())
    for rule in RULES:
        await callers.add(ids, rule)
        times_s.append(time.monotonic())
    created, first, second = (size.detectors / (after - before) for before, after in pairwise(times_s))
    print(
        f"{size.detectors} detectors created at {created:.0f}/s, their first rules at {first:.0f}/s, "
        f"their second ones at {second:.0f}/s",
        flush=True,
    )
    warm = Seen()
    await load(callers, ids, 2 * PERIOD_S, warm)
    before = Seen(acknowledged=warm.acknowledged, unknown=warm.unknown)
    workers = workers_of(running.process.pid)
    front = running.process.pid
    used_s = sum(map(cpu_s, workers)), cpu_s(front)
    await load(callers, ids, size.seconds / 2, before)
    hosting = [pid for pid in workers if held_bytes(pid) > empty_bytes + 2**20]
    each_bytes = sum(held_bytes(pid) - empty_bytes for pid in hosting) / size.detectors
    sent = len(before.took_ms)
    in_workers, in_front = sum(map(cpu_s, workers)) - used_s[0], cpu_s(front) - used_s[1]
    print(f"in {len(hosting)} workers, {2 * sent / size.seconds:.0f} events/s: {before}")
    print(
        f"CPU for an event: workers {in_workers / sent * 1e6:.0f}, front end {in_front / sent * 1e6:.0f} us"
    )
    print(f"memory: {each_bytes / 1024:.0f} KB a detector, and {empty_bytes / 2**20:.0f} MB a worker")
    after = Seen(acknowledged=before.acknowledged, unknown=before.unknown)
    os.kill(max(hosting, key=held_bytes), signal.SIGKILL)
    killed_s = asyncio.get_running_loop().time()
    await load(callers, ids, size.seconds / 2, after)
    trouble_s = max(0.0, after.last_trouble_s - killed_s)
    p95_ms = {"before": before.within_ms(0.95), "after": after.within_ms(0.95, killed_s + RECOVERY_S)}
    print(f"a worker killed: {after}; the last trouble {trouble_s:.1f} s later")
    print(f"p95 without the first {RECOVERY_S:.0f} s after the kill: {p95_ms['after']:.1f} ms", flush=True)
    slow = [
        f"95 % {when} the kill within {ms:.1f} ms, more than {P95_MS_MAX:.0f}"
        for when, ms in p95_ms.items()
        if ms > P95_MS_MAX
    ]
    return ids, after, slow


def lost(data: Path, ids: list[str], seen: Seen) -> list[str]:
    """Give what is wrong in the detectors' files."""
    from api.cli.inspection.data_folder import read_data_folder  # noqa: PLC0415 -- slow to import

    report = read_data_folder(data)
    found = {one.id: one.contents.events_seen for one in report.detectors if one.contents is not None}
    return [
        f"{detector}: {seen.acknowledged[detector]} acknowledged, {found.get(detector)} seen"
        for detector in ids
        if not 0 <= found.get(detector, 0) - seen.acknowledged[detector] <= seen.unknown[detector]
    ]


def main(given: Sequence[str]) -> int:
    """Measure, print, and give the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.many", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer detectors, for a shorter time")
    size = QUICK if parser.parse_args(given).quick else FULL
    options = ("--detectors-per-worker", str(size.per_worker), "--max-resident", str(size.detectors))
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "busy"
        with served(data, *options, "--spares", "1") as running:
            ids, after, wrong = asyncio.run(busy(running, size))
            began_s = time.monotonic()
            running.end()
        print(f"ended, with everything saved, within {time.monotonic() - began_s:.1f} s")
        losses = lost(data, ids, after)
        print(f"{after.acknowledged.total()} events acknowledged, lost in {len(losses)} detectors")
        wrong += losses[:5]
    print(*(f"wrong: {one}" for one in wrong), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
