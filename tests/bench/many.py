"""Thousands of detectors that are busy, in few processes: latency, memory and CPU.

    python -m tests.bench.many             2 000 detectors, 200 a worker, for two and a half minutes

Each detector has two rules and gets an event every two seconds, over HTTP, synced before it is answered.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from tests.bench.measuring.processes import cpu_s, held_bytes
from tests.process_table import workers as workers_of
from tests.service_process import Served, served

DETECTORS: Final = 2_000
PER_WORKER: Final = 200
SECONDS: Final = 150.0
PERIOD_S: Final = 2.0
CONNECTIONS: Final = 64
RULES: Final = (
    'action == "login" and ok == false and per user (count(ok == false) within 1m >= 10)',
    "per user (once within 10m ok == false) and amount > 100",
)


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
        """Send a request once a connection is free, and return the reply."""
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

    async def create(self, count: int) -> list[str]:
        """Create detectors, and return their ids."""

        async def one(number: int) -> str:
            reply = await self.post("/api/detectors", {"name": f"detector {number}"})
            return str(msgspec.json.decode(reply.result, type=dict[str, str])["id"])

        return await asyncio.gather(*map(one, range(count)))

    async def add(self, ids: Sequence[str], rule: str) -> None:
        """Give each detector a rule."""

        async def one(detector: str) -> None:
            path = f"/api/detectors/{detector}/rules"
            added = await self.post(path, {"name": rule, "condition": rule})
            assert added.success, added.errors

        await asyncio.gather(*map(one, ids))


async def load(callers: Callers, ids: Sequence[str], seconds: float) -> list[float]:
    """Send each detector an event every `PERIOD_S`, all spread evenly, whatever becomes of earlier ones.

    Gives how long each answer took from when its event was due, in ms.
    """
    loop = asyncio.get_running_loop()
    begin_s = loop.time()

    async def send(detector: str, number: int, due_s: float) -> float:
        fields = {"user": f"u{number % 50}", "action": "login", "ok": number % 3 != 0, "amount": number % 200}
        event = {"fields": fields, "timestamp_ms": time.time_ns() // 1_000_000}
        reply = await callers.post(f"/api/detectors/{detector}/evaluate", {"event": event})
        assert reply.success, reply.errors
        return (loop.time() - due_s) * 1e3

    sent = []
    for number in range(int(seconds / PERIOD_S * len(ids))):
        due_s = begin_s + number * PERIOD_S / len(ids)
        if (wait_s := due_s - loop.time()) > 0:
            await asyncio.sleep(wait_s)
        sent.append(loop.create_task(send(ids[number % len(ids)], number // len(ids), due_s)))
    return await asyncio.gather(*sent)


async def busy(running: Served) -> None:
    """Create detectors, keep them busy, and print the costs."""
    callers, front = Callers(running), running.process.pid
    await callers.open()
    while not (spares := workers_of(front)):  # noqa: ASYNC110 -- no event tells of it
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    empty_bytes = held_bytes(spares[0])
    times_s = [time.monotonic()]
    ids = await callers.create(DETECTORS)
    times_s.append(time.monotonic())
    for rule in RULES:
        await callers.add(ids, rule)
        times_s.append(time.monotonic())
    created, *rules = (f"{DETECTORS / (after - before):.0f}/s" for before, after in pairwise(times_s))
    print(f"{DETECTORS} detectors created at {created}, their rules at {' and '.join(rules)}", flush=True)
    await load(callers, ids, 2 * PERIOD_S)
    workers = workers_of(front)
    used_s = sum(map(cpu_s, workers)), cpu_s(front)
    took_ms = await load(callers, ids, SECONDS)
    hosting = [pid for pid in workers if held_bytes(pid) > empty_bytes + 2**20]
    each_bytes = sum(held_bytes(pid) - empty_bytes for pid in hosting) / DETECTORS
    in_workers, in_front = sum(map(cpu_s, workers)) - used_s[0], cpu_s(front) - used_s[1]
    parts = statistics.quantiles(took_ms, n=100)
    print(f"in {len(hosting)} workers, {len(took_ms) / SECONDS:.0f} events/s: answered within", end=" ")
    print(f"{parts[49]:.1f} ms (median), {parts[94]:.1f} (95 %), {parts[98]:.1f} (99 %), {max(took_ms):.0f}")
    each_us = in_workers / len(took_ms) * 1e6, in_front / len(took_ms) * 1e6
    print(f"CPU for an event: workers {each_us[0]:.0f} µs, front end {each_us[1]:.0f}")
    print(f"memory: {each_bytes / 1024:.0f} KB a detector, and {empty_bytes / 2**20:.0f} MB a worker")


def main() -> None:
    """Measure, and print."""
    options = ("--detectors-per-worker", str(PER_WORKER), "--max-resident", str(DETECTORS), "--spares", "1")
    with tempfile.TemporaryDirectory() as folder, served(Path(folder) / "busy", *options) as running:
        asyncio.run(busy(running))
        began_s = time.monotonic()
        running.end()
        print(f"ended, with everything saved, within {time.monotonic() - began_s:.1f} s")


if __name__ == "__main__":
    main()
