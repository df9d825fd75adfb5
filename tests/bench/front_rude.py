"""What callers notice of others who trickle, who vanish amid a request, and who are refused amid a body.

    python -m tests.bench.front_rude HOST PORT PATH TOKEN TRICKLES

is all of these others: it says `open` once all who trickle are connected, and `cut` once the server has ended
each of them. When its input ends, it says how many vanished, were refused, and were cut.
"""

import asyncio
import socket
import struct
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from statistics import median
from typing import Final

from tests.bench.fresh import ROOT
from tests.bench.front_crowd import ACTIVE, ALONE, WARM_S, Slices, environment
from tests.bench.front_load import Place, callers
from tests.bench.front_service import Service, run, service

TRICKLES: Final = 200
EACH_PER_S: Final = 20
"""So many vanish each second, and so many are refused."""
TRICKLE_S: Final = 1.0
"""Between two bytes of a body."""
SETTLES_S: Final = 5.0
"""From the end of the others until nothing of them may be left."""

_BESIDE: Final = "beside"
_CHUNKS: Final = 30


def rude(trickles: int) -> dict[str, float]:
    """Give what becomes of the rate of evaluations until all whose bodies trickle were cut."""

    async def work() -> dict[str, float]:
        with service() as ours:
            return await _rude(ours, trickles)

    return run(work)


async def _rude(ours: Service, trickles: int) -> dict[str, float]:
    async with callers(ours.place, ACTIVE) as made:
        slices = Slices(ours, made)
        path = ours.detector("others")
        await slices.one("warm", WARM_S)
        await slices.some(ALONE)
        descriptors = ours.descriptors
        async with _others(ours, path, trickles) as others:
            await others.says("open")
            cut = asyncio.ensure_future(others.says("cut"))
            while not cut.done():
                await slices.some(_BESIDE)
            await cut
            counts = await others.counts()
        await slices.some(ALONE)
        for _ in range(int(SETTLES_S / 0.1)):
            if ours.descriptors <= descriptors:
                break
            await asyncio.sleep(0.1)
        left = ours.descriptors - descriptors
    beside, alone = (median(slices.rates[state]) for state in (_BESIDE, ALONE))
    return {
        "alone": alone,
        "beside": beside,
        "us alone": slices.cpu_us(ALONE),
        "us beside": slices.cpu_us(_BESIDE),
        "left": left,
        **counts,
    }


class _Others:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    async def says(self, word: str) -> None:
        """Wait for a word."""
        said = (await self._output.readline()).decode().strip()
        assert said == word, f"the others said {said!r} in place of {word!r}"

    async def counts(self) -> dict[str, float]:
        """Have them end, and give what became of them."""
        self._input.close()
        pairs = (pair.split("=") for pair in (await self._output.readline()).decode().split())
        return {name: float(count) for name, count in pairs}


@asynccontextmanager
async def _others(ours: Service, path: str, trickles: int) -> AsyncIterator[_Others]:
    where = ours.place.host, str(ours.place.port), path, ours.token, str(trickles)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, *where, cwd=ROOT, env=environment(), stdin=PIPE, stdout=PIPE
    )
    try:
        yield _Others(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


# -- in a process of its own ---------------------------------------------------------------------------------


class _Rude:
    """Those who misbehave, and how often they did."""

    def __init__(self, place: Place, path: str, token: str, trickles: int) -> None:
        self._place = place
        self._path = path
        self._token = token
        self._trickles = trickles
        self._opened = asyncio.Semaphore(0)
        self._counts = Counter(vanished=0, refused=0, cut=0)

    async def work(self) -> None:
        """Misbehave until the input ends."""
        tricklers = [asyncio.create_task(self._trickle()) for _ in range(self._trickles)]
        for _ in tricklers:
            await self._opened.acquire()
        print("open", flush=True)
        each = [asyncio.create_task(self._again(one)) for one in (self._vanish, self._be_refused)]
        await asyncio.gather(*tricklers)
        print("cut", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for task in each:
            task.cancel()
        await asyncio.wait(each)
        assert all(task.cancelled() for task in each), [task for task in each if not task.cancelled()]
        print(*(f"{name}={count}" for name, count in self._counts.items()), flush=True)

    def _head(self, token: str, length: str) -> bytes:
        lines = (f"POST {self._path}/evaluate HTTP/1.1", "Host: bench", f"Authorization: Bearer {token}")
        return "\r\n".join((*lines, "Content-Type: application/json", length, "", "")).encode()

    async def _trickle(self) -> None:
        reader, writer = await asyncio.open_connection(*self._place)
        self._opened.release()
        writer.write(self._head(self._token, "Content-Length: 1000"))
        told = asyncio.ensure_future(reader.read())
        with suppress(OSError):
            while not told.done():
                writer.write(b" ")
                await asyncio.wait([told], timeout=TRICKLE_S)
        assert b" 504 " in (await told).partition(b"\r\n")[0], "whoever trickles is told, and cut"
        self._counts["cut"] += 1
        writer.close()

    async def _again(self, one: Callable[[], Awaitable[None]]) -> None:
        while True:
            await one()
            await asyncio.sleep(1 / EACH_PER_S)

    async def _vanish(self) -> None:
        _, writer = await asyncio.open_connection(*self._place)
        plug = writer.get_extra_info("socket")
        # What is closed in this way is reset.
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.write(self._head(self._token, "Content-Length: 1000") + b"{" * 500)
        await asyncio.sleep(0.01)
        writer.close()
        self._counts["vanished"] += 1

    async def _be_refused(self) -> None:
        reader, writer = await asyncio.open_connection(*self._place)
        writer.write(self._head("rd_unknown", "Transfer-Encoding: chunked") + b"64\r\n%b\r\n" % bytes(100))
        for _ in range(_CHUNKS):
            writer.write(b"64\r\n%b\r\n" % bytes(100))
            await writer.drain()
        assert b" 401 " in await reader.readline(), "who has no token is refused"
        writer.close()
        self._counts["refused"] += 1


if __name__ == "__main__":
    host, port, path, token, trickles = sys.argv[1:]
    asyncio.run(_Rude(Place(host, int(port)), path, token, int(trickles)).work())
