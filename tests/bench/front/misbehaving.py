"""What callers notice of others who trickle, who vanish amid a request, and who are refused amid a body.

    python -m tests.bench.front.misbehaving HOST PORT PATH TOKEN TRICKLES

is all of these others: it prints `open` once all who trickle are connected, and `ended` once the server has
cut each of them. When its input ends, it prints how many vanished, were refused, and were cut.
"""

import asyncio
import socket
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Final

from tests.bench.front.disturbance import ACTIVE, ALONE, Stretches, disturbers, measured
from tests.bench.front.load.load import Place, callers
from tests.bench.front.load.service import Service

TRICKLES: Final = 200
EACH_PER_S: Final = 20
"""So many vanish each second, and so many are refused."""
TRICKLE_S: Final = 1.0
"""Between two bytes of a body."""
SETTLES_S: Final = 5.0
"""From the end of the others until nothing of them may be left."""

_BESIDE: Final = "beside"
_CHUNKS: Final = 30


def misbehaving(trickles: int) -> dict[str, float]:
    """Give what becomes of the rate of evaluations until all whose bodies trickle were cut."""
    return measured(partial(_misbehaving, trickles=trickles))


async def _misbehaving(ours: Service, trickles: int) -> dict[str, float]:
    async with callers(ours.place, ACTIVE) as made:
        stretches = Stretches(ours, made)
        path = ours.detector("others")
        await stretches.alone()
        descriptors = ours.descriptors
        async with disturbers(__name__, *ours.place, path, ours.token, trickles) as others:
            await others.until("open")
            while "ended" not in others.everyone:
                await stretches.some(_BESIDE)
            await others.end()
        await stretches.some(ALONE)
        for _ in range(int(SETTLES_S / 0.1)):
            if ours.descriptors <= descriptors:
                break
            await asyncio.sleep(0.1)
        left = ours.descriptors - descriptors
    beside, alone = (median(stretches.rates[state]) for state in (_BESIDE, ALONE))
    return {
        "alone": alone,
        "beside": beside,
        "us alone": stretches.cpu_us(ALONE),
        "us beside": stretches.cpu_us(_BESIDE),
        "left": left,
        **{name: others.counts[name] for name in ("vanished", "refused", "cut")},
    }


# -- in a process of its own ---------------------------------------------------------------------------------


class _Misbehaving:
    """Callers who misbehave, and how often they did."""

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
        print("ended", flush=True)
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
    asyncio.run(_Misbehaving(Place(host, int(port)), path, token, int(trickles)).work())
