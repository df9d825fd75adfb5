"""What callers notice of a crowd that connects and says nothing.

    python -m tests.bench.front_crowd HOST PORT COUNT

is one part of a crowd: it connects so often and says `open`, then `less` once the server closes the first,
and `cut` with how many it has closed by the time that all are, or that there is no more patience.
"""

import asyncio
import gc
import os
import resource
import select
import socket
import struct
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import fmean, median
from typing import Final

from tests.bench import front_world
from tests.bench.fresh import ROOT
from tests.bench.front_load import Caller, ClosedLoop, Place, callers
from tests.bench.front_service import Service, run, service

ACTIVE: Final = 64
PARTS: Final = 2
"""Processes that the crowd comes from."""
SLICE_S: Final = 0.5
SOME_SLICES: Final = 5
PATIENCE_S: Final = 45.0
"""From the opening of a crowd until all of it is cut."""
WARM_S: Final = 1.0

ALONE, COMING, SILENT, LEAVING = "alone", "coming", "silent", "leaving"


def crowd(connections: int, rounds: int) -> dict[str, float]:
    """Give what becomes of the rate of evaluations while a crowd comes, is silent, and is cut."""

    async def work() -> dict[str, float]:
        with service() as ours:
            return await _crowd(ours, connections, rounds)

    return run(work)


class Slices:
    """Short stretches of a load, by what else happens meanwhile."""

    def __init__(self, ours: Service, made: list[Caller]) -> None:
        self._ours = ours
        self._made = made
        self._path = ours.detector("active")
        self._load = ClosedLoop(front_world.single_requests(f"{self._path}/evaluate", ours.token))
        self.rates: dict[str, list[float]] = {}
        self._answers = Counter[str]()
        self._cpu_s = Counter[str]()

    async def one(self, state: str, seconds: float = SLICE_S) -> None:
        """Ask for so long."""
        before_s = self._ours.front_cpu_s
        tally = await self._load.run(self._made, seconds)
        self._ours.evaluated(self._path, tally.kinds["200"])
        self.rates.setdefault(state, []).append(tally.per_s)
        self._answers[state] += tally.kinds["200"]
        self._cpu_s[state] += self._ours.front_cpu_s - before_s

    async def some(self, state: str) -> None:
        """Ask for some slices."""
        for _ in range(SOME_SLICES):
            await self.one(state)

    def cpu_us(self, *states: str) -> float:
        """Give what a request cost the front end, all else that it did meanwhile included."""
        answers = sum(self._answers[state] for state in states)
        return sum(self._cpu_s[state] for state in states) / answers * 1e6


async def _crowd(ours: Service, connections: int, rounds: int) -> dict[str, float]:
    kept: list[float] = []
    held: list[int] = []
    grown: list[int] = []
    cut = 0
    gc.collect()
    gc.freeze()
    async with callers(ours.place, ACTIVE) as made:
        slices = Slices(ours, made)
        rates = slices.rates
        await slices.one("warm", WARM_S)
        await slices.some(ALONE)
        descriptors = ours.descriptors
        for number in range(rounds):
            before_bytes = ours.front_bytes
            async with _Crowd.of(ours.place, connections) as parts:
                while not parts.all_open:
                    await slices.one(COMING)
                await slices.some(SILENT)
                silent = rates[SILENT][-SOME_SLICES:]
                held.append(ours.descriptors - descriptors)
                grown.append(ours.front_bytes - before_bytes)
                if number + 1 == rounds:
                    # All the others went by themselves, so that there are many turns.
                    while not parts.any_cut:
                        await slices.one(SILENT)
                    while not parts.all_cut:
                        await slices.one(LEAVING)
                    cut = parts.cut
            await slices.some(ALONE)
            # What was before, and what was behind.
            kept.append(median(silent) / median(rates[ALONE][-2 * SOME_SLICES :]))
        left = ours.descriptors - descriptors
    alone_per_s = fmean(rates[ALONE])
    beside = [one for state in (COMING, SILENT, LEAVING) for one in rates.get(state, ())]
    return {
        "alone": median(rates[ALONE]),
        "silent": median(rates[SILENT]),
        "kept": median(kept),
        "kept of all": fmean(beside) / alone_per_s,
        "kept coming": fmean(rates[COMING]) / alone_per_s,
        "us alone": slices.cpu_us(ALONE),
        "us silent": slices.cpu_us(SILENT),
        "us of all": slices.cpu_us(COMING, SILENT, LEAVING),
        "held": min(held),
        "bytes each": grown[0] / connections,
        "cut": cut,
        "left": left,
    }


def environment() -> dict[str, str]:
    """Give what a process needs to find this package."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


class _Crowd:
    """Connections without a word, from some processes."""

    def __init__(self, parts: Sequence[asyncio.subprocess.Process]) -> None:
        self._said = {"open": 0, "less": 0, "cut": 0}
        self._parts = parts
        self.cut = 0
        """How many the server has closed."""

    @classmethod
    @asynccontextmanager
    async def of(cls, place: Place, connections: int) -> AsyncIterator["_Crowd"]:
        """Give a crowd that begins to come. Its processes end by themselves, or at the end."""
        command = (sys.executable, "-m", __name__, place.host, str(place.port), str(connections // PARTS))
        parts = [
            await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment(), stdout=PIPE)
            for _ in range(PARTS)
        ]
        made = cls(parts)
        listening = [asyncio.create_task(made._listen(part)) for part in parts]
        try:
            yield made
        finally:
            for part in parts:
                if part.returncode is None:
                    part.kill()
            await asyncio.gather(*listening)

    async def _listen(self, part: asyncio.subprocess.Process) -> None:
        assert part.stdout is not None
        async for line in part.stdout:
            word, _, number = line.decode().strip().partition(" ")
            self._said[word] += 1
            self.cut += int(number or 0)
        await part.wait()

    @property
    def all_open(self) -> bool:
        """Whether everyone is connected."""
        self._check()
        return self._said["open"] == PARTS

    @property
    def any_cut(self) -> bool:
        """Whether the server has closed a connection."""
        self._check()
        return self._said["less"] > 0

    @property
    def all_cut(self) -> bool:
        """Whether nobody is connected any more."""
        self._check()
        return self._said["cut"] == PARTS

    def _check(self) -> None:
        assert not any(part.returncode for part in self._parts), "a part of the crowd failed"


# -- in a process of its own ---------------------------------------------------------------------------------


def be_silent(place: Place, connections: int) -> None:
    """Be a part of a crowd."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    plugs = {}
    looking = select.epoll()
    for _ in range(connections):
        plug = socket.create_connection(place)
        # Where it is not cut, it goes with this process, and leaves no port behind for a while.
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        plugs[plug.fileno()] = plug
        looking.register(plug, select.EPOLLIN | select.EPOLLRDHUP)
    print("open", flush=True)
    give_up_s = time.monotonic() + PATIENCE_S
    while plugs and time.monotonic() < give_up_s:
        for number, _ in looking.poll(1.0):
            if len(plugs) == connections:
                print("less", flush=True)
            looking.unregister(number)
            plugs.pop(number).close()
    print(f"cut {connections - len(plugs)}", flush=True)


if __name__ == "__main__":
    be_silent(Place(sys.argv[1], int(sys.argv[2])), int(sys.argv[3]))
