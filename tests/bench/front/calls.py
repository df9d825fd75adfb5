"""The calls of the front end's benchmarks: single evaluations and batches, each beside its baseline.

Every function is for a process of its own, which makes the load; the service and what it is measured beside
are processes of their own, too.
"""

import gc
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from statistics import median, quantiles

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import Done, evaluate_body
from tests.bench.front.load import world
from tests.bench.front.load.load import ClosedLoop, Place, Tally, Unexpected, callers, succeeded
from tests.bench.front.load.peers import Peer, peer
from tests.bench.front.load.service import Service, names_of, run, service
from tests.bench.front.load.wire import Response
from tests.bench.measuring.processes import cpu_s
from tests.bench.sets.bodies import FORMS, Form

CONNECTIONS = (64, 256)
BATCH_EVENTS = 1_000
IN_FLIGHT = 4
"""Concurrent batches, each on its own connection."""
WARM_S = 1.0
BARE_PATH = "/api/detectors/" + 32 * "0" + "/evaluate"


def single(rounds: int, seconds: float, calls: int) -> dict[str, float]:
    """Return the rates of single evaluations, beside a bare application and bare calls of Ray."""

    async def work() -> dict[str, float]:
        with service() as ours, peer("bare") as bare:
            place = Place.of(bare.heard())
            found = await _delays(ours, place, rounds, calls)
            for connections in CONNECTIONS:
                rates = await _rates(ours, bare, place, connections, rounds=rounds, seconds=seconds)
                found |= {f"{name} {connections}": value for name, value in rates.items()}
            return found

    return run(work)


async def _rates(
    ours: Service, bare: Peer, place: Place, connections: int, *, rounds: int, seconds: float
) -> dict[str, float]:
    path = ours.detector(f"{connections} connections")
    requests = world.single_requests(f"{path}/evaluate", ours.token)
    bare_requests = world.single_requests(BARE_PATH, ours.token)
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    spent_s, answered = Counter[str](), Counter[str]()
    gc.collect()
    gc.freeze()
    for one_round in range(1 + rounds):
        for name, at, sent in (("ours", ours.place, requests), ("bare", place, bare_requests)):
            before_s = ours.front_cpu_s, ours.workers_cpu_s, cpu_s(bare.pid)
            async with callers(at, connections) as made:
                tally = await ClosedLoop(sent).run(made, seconds if one_round else min(WARM_S, 2 * seconds))
            after_s = ours.front_cpu_s, ours.workers_cpu_s, cpu_s(bare.pid)
            if name == "ours":
                ours.evaluated(path, tally.kinds["200"])
            # What comes first warms up.
            if one_round:
                rates[name].append(tally.per_s)
                answered[name] += tally.kinds["200"]
                front_s, actor_s, bare_s = (end - start for start, end in zip(before_s, after_s, strict=True))
                spent_s.update({"front": front_s, "actor": actor_s} if name == "ours" else {"bare": bare_s})
    gc.unfreeze()
    return {
        **{name: median(each) for name, each in rates.items()},
        "worst": min(rates["ours"]),
        "share": median(mine / its for mine, its in zip(rates["ours"], rates["bare"], strict=True)),
        **{
            f"{part} us": spent_s[part] / answered["bare" if part == "bare" else "ours"] * 1e6
            for part in ("front", "actor", "bare")
        },
    }


async def _delays(ours: Service, place: Place, rounds: int, calls: int) -> dict[str, float]:
    """Return how long a caller waits that sends one request after another. Each answer is checked."""
    path = ours.detector("one caller")
    requests = world.single_requests(f"{path}/evaluate", ours.token)
    bare_requests = world.single_requests(BARE_PATH, ours.token)
    model = world.detector()
    took_ms: dict[str, list[float]] = {"ours": [], "bare": [], "ray": []}
    each = max(1, calls // rounds)
    with peer("ray") as of_ray:
        assert of_ray.heard() == "ready"
        for one_round in range(1 + rounds):
            asked = _Remembered(itertools.islice(requests, each))
            ours_ms = await asked.run(ours.place)
            ours.evaluated(path, each)
            asked.compare(model)
            bare_ms = await _Remembered(itertools.islice(bare_requests, each)).run(place)
            ray_ms = of_ray.calls_ms(each)
            # What comes first warms up.
            if one_round:
                for name, times in (("ours", ours_ms), ("bare", bare_ms), ("ray", ray_ms)):
                    took_ms[name] += times
    return {
        f"{name} {which}": value
        for name, times in took_ms.items()
        for which, value in (
            ("p50", median(times)),
            ("p99", quantiles(times, n=100)[98]),
            ("worst", max(times)),
        )
    }


class _Remembered:
    """Some requests of one caller, and their answers."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._requests = list(requests)
        self._responses: list[Response] = []

    async def run(self, place: Place) -> list[float]:
        """Ask; return how long each answer took, in ms."""

        def judge(response: Response) -> str:
            self._responses.append(response)
            return succeeded(response)

        async with callers(place, 1) as made:
            tally = await ClosedLoop(iter(self._requests), judge).run(made, 60.0)
        return [took_ns / 1e6 for took_ns in tally.took_ns]

    def compare(self, model: Detector) -> None:
        """Compare the answers with those of a detector in this process."""
        for request, response in zip(self._requests, self._responses, strict=True):
            answer = evaluate_body(model, world.body_of(request))
            assert isinstance(answer, Done)
            if names_of(response.body) != names_of(answer.result):
                raise Unexpected(f"{response.body!r}, expected {answer.result!r}")


# -- batches -------------------------------------------------------------------------------------------------


def batches(rounds: int, seconds: float) -> dict[str, float]:
    """Return events per second for each form, and for decoding the same bodies in this process."""

    async def work() -> dict[str, float]:
        with service() as ours:
            found: dict[str, float] = {}
            for form in FORMS:
                made = await _batches(ours, form, rounds, seconds)
                found |= {f"{form.name} {name}": value for name, value in made.items()}
            return found

    return run(work)


async def _batches(ours: Service, form: Form, rounds: int, seconds: float) -> dict[str, float]:
    path = ours.detector(form.name)
    sent, per_s = await _compared(ours, path, form), 100_000.0
    rates: list[float] = []
    floors: list[float] = []
    spent_s, answered = Counter[str](), 0
    for one_round in range(1 + rounds):
        count = IN_FLIGHT + round(1.4 * per_s * seconds / BATCH_EVENTS)
        firsts = range(sent, sent + count * BATCH_EVENTS, BATCH_EVENTS)
        bodies = [form.written(world.events(first, BATCH_EVENTS)) for first in firsts]
        gc.collect()
        gc.freeze()
        before_s = ours.front_cpu_s, ours.workers_cpu_s
        tally = await _sent(ours, path, form, bodies, seconds)
        after_s = ours.front_cpu_s, ours.workers_cpu_s
        events = BATCH_EVENTS * tally.kinds["200"]
        ours.evaluated(path, events)
        sent += events
        began_s = time.perf_counter()
        for body in bodies[: tally.kinds["200"]]:
            form.decoded(body)
        floor = events / (time.perf_counter() - began_s)
        gc.unfreeze()
        # What comes first warms up.
        if one_round:
            rates.append(BATCH_EVENTS * tally.per_s)
            floors.append(floor)
            per_s = max(per_s, rates[-1])
            answered += events
            for name, start, end in zip(("front", "actor"), before_s, after_s, strict=True):
                spent_s[name] += end - start
    return {
        "rate": median(rates),
        "worst": min(rates),
        "floor": median(floors),
        "share": median(rate / floor for rate, floor in zip(rates, floors, strict=True)),
        **{f"{name} us": cost_s / answered * 1e6 for name, cost_s in spent_s.items()},
    }


async def _compared(ours: Service, path: str, form: Form) -> int:
    """Compare the answers to some batches with those of a detector in this process; return their events."""
    model, told = world.detector(), list[Response]()
    bodies = [form.written(world.events(number * BATCH_EVENTS, BATCH_EVENTS)) for number in range(IN_FLIGHT)]

    def judge(response: Response) -> str:
        told.append(response)
        return succeeded(response)

    async with callers(ours.place, 1) as made:
        await ClosedLoop(_requests(ours, path, form, bodies), judge).run(made, 60.0)
    for body, response in zip(bodies, told, strict=True):
        expected = form.answered(model, body).result
        if names_of(response.body) != names_of(expected):
            raise Unexpected(f"{response.body[:200]!r}, expected {expected[:200]!r}")
    ours.evaluated(path, IN_FLIGHT * BATCH_EVENTS)
    return IN_FLIGHT * BATCH_EVENTS


def _requests(ours: Service, path: str, form: Form, bodies: list[bytes]) -> Iterator[bytes]:
    to = f"{path}/evaluate/batch"
    for body in bodies:
        yield world.head(to, ours.token, f"application/{form.name.lower()}", len(body)) + body


async def _sent(ours: Service, path: str, form: Form, bodies: list[bytes], seconds: float) -> Tally:
    """Send batches for this long."""

    def judge(response: Response) -> str:
        if response.body.count(b'{"actions":[') != BATCH_EVENTS or b'"code":1' in response.body:
            raise Unexpected(f"not {BATCH_EVENTS} results: {response.body[:200]!r}")
        return succeeded(response)

    requests = list(_requests(ours, path, form, bodies))
    async with callers(ours.place, IN_FLIGHT) as made:
        return await ClosedLoop(iter(requests), judge).run(made, seconds)
