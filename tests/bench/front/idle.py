"""What callers notice of many connections that are opened and stay idle.

    python -m tests.bench.front.idle HOST PORT COUNT

is a part of them: it connects COUNT times and prints `open`, then `less` once the server has closed one, and
`cut=N` with how many it has closed once that is all of them, or the patience is over.
"""

import gc
import resource
import select
import socket
import struct
import sys
import time
from functools import partial
from statistics import fmean, median
from typing import Final

from tests.bench.front.disturbance import ACTIVE, ALONE, SOME_STRETCHES, Stretches, disturbers, measured
from tests.bench.front.load.load import Place, callers
from tests.bench.front.load.service import Service

PARTS: Final = 2
"""Processes that connect."""
PATIENCE_S: Final = 45.0
"""From the opening of the connections until all are cut."""

COMING, SILENT, LEAVING = "coming", "silent", "leaving"


def idle(connections: int, rounds: int) -> dict[str, float]:
    """Give what becomes of the rate of evaluations while connections come, are idle, and are cut."""
    return measured(partial(_idle, connections=connections, rounds=rounds))


async def _idle(ours: Service, connections: int, rounds: int) -> dict[str, float]:
    kept: list[float] = []
    held: list[int] = []
    grown: list[int] = []
    cut = 0
    gc.collect()
    gc.freeze()
    async with callers(ours.place, ACTIVE) as made:
        stretches = Stretches(ours, made)
        rates = stretches.rates
        await stretches.alone()
        descriptors = ours.descriptors
        for number in range(rounds):
            before_bytes = ours.front_bytes
            async with disturbers(__name__, *ours.place, connections // PARTS, processes=PARTS) as others:
                while "open" not in others.everyone:
                    await stretches.one(COMING)
                await stretches.some(SILENT)
                silent = rates[SILENT][-SOME_STRETCHES:]
                held.append(ours.descriptors - descriptors)
                grown.append(ours.front_bytes - before_bytes)
                if number + 1 == rounds:
                    # In all other rounds they go by themselves, so that there is time for many rounds.
                    while "less" not in others.someone:
                        await stretches.one(SILENT)
                    while "cut" not in others.everyone:
                        await stretches.one(LEAVING)
                    cut = others.counts["cut"]
            await stretches.some(ALONE)
            # What was before, and what was behind.
            kept.append(median(silent) / median(rates[ALONE][-2 * SOME_STRETCHES :]))
        left = ours.descriptors - descriptors
    alone_per_s = fmean(rates[ALONE])
    beside = [one for state in (COMING, SILENT, LEAVING) for one in rates.get(state, ())]
    return {
        "alone": median(rates[ALONE]),
        "silent": median(rates[SILENT]),
        "kept": median(kept),
        "kept of all": fmean(beside) / alone_per_s,
        "kept coming": fmean(rates[COMING]) / alone_per_s,
        "us alone": stretches.cpu_us(ALONE),
        "us silent": stretches.cpu_us(SILENT),
        "us of all": stretches.cpu_us(COMING, SILENT, LEAVING),
        "held": min(held),
        "bytes each": grown[0] / connections,
        "cut": cut,
        "left": left,
    }


# -- in a process of its own ---------------------------------------------------------------------------------


def be_idle(place: Place, connections: int) -> None:
    """Connect, and say nothing."""
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
    print(f"cut={connections - len(plugs)}", flush=True)


if __name__ == "__main__":
    be_idle(Place(sys.argv[1], int(sys.argv[2])), int(sys.argv[3]))
