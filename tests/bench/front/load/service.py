"""The real service under measurement: started as its users start it, and looked into at its end."""

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
"""A measurement that takes longer has failed; what it has started is ended then."""

_NAME: Final = re.compile(rb'"name":"([^"]*)"')


class Service:
    """A service that answers, and its detectors, with how many events each is to have seen."""

    def __init__(self, running: Served, data: Path) -> None:
        self._running = running
        self._data = data
        self._expected: dict[str, int] = {}
        self.place = Place.of(running.url)
        self.token = running.token

    def detector(self, name: str) -> str:
        """Give the path to a new detector with all rules."""
        detector_id: str = self._running.call("POST", "/api/detectors", {"name": name})["id"]
        path = f"/api/detectors/{detector_id}"
        for number, rule in enumerate(RULES):
            self._running.call("POST", f"{path}/rules", {"name": f"rule {number}", "condition": rule})
        self._expected[path] = 0
        return path

    def evaluated(self, path: str, events: int) -> None:
        """Take note that so many more events were answered with success."""
        self._expected[path] += events

    def check_events_seen(self) -> None:
        """Hold what the detectors have on the disk to what was answered; for when the service has ended."""
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
        """What the front end has taken of a processor so far."""
        return cpu_s(self._running.process.pid)

    @property
    def workers_cpu_s(self) -> float:
        """What all workers together have taken."""
        return sum(map(cpu_s, self.workers))


@contextmanager
def service(*options: str) -> Iterator[Service]:
    """Give a service over an empty folder on the disk. At its end it is held to what it answered."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with served(data, *options) as running:
            made = Service(running, data)
            yield made
        made.check_events_seen()


def run(work: Callable[[], Awaitable[dict[str, float]]]) -> dict[str, float]:
    """Give what the work comes to, on the loop that callers are to have, within the time."""
    import uvloop  # noqa: PLC0415 -- the other cases need no loop

    async def within() -> dict[str, float]:
        async with asyncio.timeout(WITHIN_S):
            return await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(within())


def names_of(answer: bytes) -> list[str]:
    """Give the names of the rules that an answer says are true."""
    return [name.decode() for name in _NAME.findall(answer)]
