"""Evaluations that can be retried: each has an idempotency key, whose answer is kept and is in the journal.

For a process of its own, which makes the load.
"""

from statistics import median
from typing import Final

from tests.bench.front.load import world
from tests.bench.front.load.load import ClosedLoop, callers
from tests.bench.front.load.service import run, service

KEYED_CONNECTIONS: Final = 64


def keyed(rounds: int, seconds: float) -> dict[str, float]:
    """Give the rate of evaluations with keys, half of them of late events, and the rate without either."""

    async def work() -> dict[str, float]:
        with service() as ours:
            rates: dict[str, list[float]] = {"keyed": [], "plain": []}
            paths = {name: ours.detector(name) for name in rates}
            requests = {
                "keyed": world.keyed_requests(f"{paths['keyed']}/evaluate", ours.token),
                "plain": world.single_requests(f"{paths['plain']}/evaluate", ours.token),
            }
            for one_round in range(1 + rounds):
                for name, each in rates.items():
                    async with callers(ours.place, KEYED_CONNECTIONS) as made:
                        tally = await ClosedLoop(requests[name]).run(made, seconds)
                    ours.evaluated(paths[name], tally.kinds["200"])
                    # What comes first warms up.
                    if one_round:
                        each.append(tally.per_s)
            return {
                **{name: median(each) for name, each in rates.items()},
                "worst": min(rates["keyed"]),
            }

    return run(work)
