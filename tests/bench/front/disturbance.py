"""Callers at work while others disturb the service: what the scenarios of the front end have in common.

A scenario measures the callers alone, has processes disturb the service, and measures again. Such a process
runs the scenario's module with arguments. It prints a word for each stage that it has reached, and counts as
`name=number`. It ends with its input, or by itself.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from tests.bench.front.load import world
from tests.bench.front.load.load import Caller, ClosedLoop
from tests.bench.front.load.service import Service, run, service
from tests.bench.measuring.fresh import ROOT

ACTIVE: Final = 64
"""Connections of the callers at work."""
WARM_S: Final = 1.0
STRETCH_S: Final = 0.5
SOME_STRETCHES: Final = 5
ALONE: Final = "alone"


def measured(scenario: Callable[[Service], Awaitable[dict[str, float]]], *options: str) -> dict[str, float]:
    """Give what a scenario finds, on a service started with these options."""

    async def work() -> dict[str, float]:
        with service(*options) as ours:
            return await scenario(ours)

    return run(work)


class Stretches:
    """Short stretches of a load, by what happens beside them."""

    def __init__(self, ours: Service, made: list[Caller]) -> None:
        self._ours = ours
        self._made = made
        self._path = ours.detector("active")
        self._load = ClosedLoop(world.single_requests(f"{self._path}/evaluate", ours.token))
        self.rates: dict[str, list[float]] = {}
        self._answers = Counter[str]()
        self._cpu_s = Counter[str]()

    async def one(self, state: str, seconds: float = STRETCH_S) -> None:
        """Ask for this long."""
        before_s = self._ours.front_cpu_s
        tally = await self._load.run(self._made, seconds)
        self._ours.evaluated(self._path, tally.kinds["200"])
        self.rates.setdefault(state, []).append(tally.per_s)
        self._answers[state] += tally.kinds["200"]
        self._cpu_s[state] += self._ours.front_cpu_s - before_s

    async def some(self, state: str) -> None:
        """Ask for some stretches."""
        for _ in range(SOME_STRETCHES):
            await self.one(state)

    async def alone(self) -> None:
        """Warm up, and ask while nobody disturbs."""
        await self.one("warm", WARM_S)
        await self.some(ALONE)

    def cpu_us(self, *states: str) -> float:
        """Give what a request cost the front end, all else that it did meanwhile included."""
        answers = sum(self._answers[state] for state in states)
        return sum(self._cpu_s[state] for state in states) / answers * 1e6


class Disturbers:
    """Processes that disturb a service, and what they have printed so far."""

    def __init__(self, processes: Sequence[asyncio.subprocess.Process]) -> None:
        self._processes = processes
        self._printed = Counter[str]()
        self._changed = asyncio.Event()
        self.counts = Counter[str]()
        self._listening = [asyncio.create_task(self._listen(process)) for process in processes]

    @property
    def someone(self) -> set[str]:
        """The words that a process has printed."""
        self._check()
        return set(self._printed)

    @property
    def everyone(self) -> set[str]:
        """The words that all processes have printed."""
        self._check()
        return {word for word, times in self._printed.items() if times == len(self._processes)}

    async def until(self, word: str) -> None:
        """Wait until all have printed a word."""
        while word not in self.everyone:
            self._changed.clear()
            await self._changed.wait()

    async def end(self) -> None:
        """Close their inputs, and wait until all have ended."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        await asyncio.gather(*self._listening)
        self._check()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            for word in line.decode().split():
                name, _, number = word.partition("=")
                self._printed[name] += 1
                self.counts[name] += int(number or 0)
            self._changed.set()
        await process.wait()
        self._changed.set()

    def _check(self) -> None:
        assert not any(process.returncode for process in self._processes), "a process that disturbs failed"


@asynccontextmanager
async def disturbers(module: str, *arguments: object, processes: int = 1) -> AsyncIterator[Disturbers]:
    """Start processes that disturb. Those that still run at the end are killed."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    started = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *map(str, arguments)),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=PIPE,
            stdout=PIPE,
        )
        for _ in range(processes)
    ]
    made = Disturbers(started)
    try:
        yield made
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*made._listening)
