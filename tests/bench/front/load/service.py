"""The real service under measurement: started as users start it, and checked at its end."""

import asyncio
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.front.load.load import Place
from tests.bench.front.load.world import RULES
from tests.bench.measuring.processes import cpu_s
from tests.process_table import workers
from tests.service_process import Served, served

WITHIN_S: Final = 300.0
"""A measurement that takes longer fails; what it started is then ended."""

_NAME: Final = re.compile(rb'"name":"([^"]*)"')


class Service:
    """A running service and its detectors, with how many events each must have seen."""

    def __init__(self, running: Served, data: Path) -> None:
        self._running = running
        self._data = data
        self._expected: dict[str, int] = {}
        self.place = Place.of(running.url)
        self.token = running.token

    def detector(self, name: str) -> str:
        """Return the path to a new detector with all rules."""
        detector_id: str = self._running.call("POST", "/api/detectors", {"name": name})["id"]
        path = f"/api/detectors/{detector_id}"
        for number, rule in enumerate(RULES):
            self._running.call("POST", f"{path}/rules", {"name": f"rule {number}", "condition": rule})
        self._expected[path] = 0
        return path

    def evaluated(self, path: str, events: int) -> None:
        """Record that this many more events were answered successfully."""
        self._expected[path] += events

    def check_events_seen(self) -> None:
        """Compare the detectors on the disk with the answers; for use after the service has ended."""
        from api.cli.inspection.data_folder import read_data_folder  # noqa: PLC0415 -- other cases need no service

        report = read_data_folder(self._data)
        assert report.whole, report.damage
        seen = {one.id: one.contents.events_seen for one in report.detectors if one.contents is not None}
        for path, expected in self._expected.items():
            came = seen[path.rpartition("/")[2]]
            assert came == expected, f"{expected} events were answered, the detector has seen {came}"

    # -- what it takes ---------------------------------------------------------------------------------------

    @property
    def workers(self) -> list[int]:
        """The workers, active or spare."""
        return workers(self._running.process.pid)

    @property
    def front_cpu_s(self) -> float:
        """The processor time of the front end so far."""
        return cpu_s(self._running.process.pid)

    @property
    def workers_cpu_s(self) -> float:
        """The processor time of all workers together."""
        return sum(map(cpu_s, self.workers))


@contextmanager
def service(*options: str) -> Iterator[Service]:
    """Yield a service over an empty folder on the disk. At its end, compare its state with its answers."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with served(data, *options) as running:
            made = Service(running, data)
            yield made
        made.check_events_seen()


def run(work: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, float]:
    """Return what the work comes to, on the loop that callers are to have, within the time."""
    import uvloop  # noqa: PLC0415 -- the other cases need no loop

    async def within() -> dict[str, float]:
        async with asyncio.timeout(WITHIN_S):
            return await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(within())


def names_of(answer: bytes) -> list[str]:
    """Return the names of the rules that an answer says are true."""
    return [name.decode() for name in _NAME.findall(answer)]
