"""The calls of the front end's benchmarks: single evaluations and batches, beside what each is measured by.

Every function is for a process of its own, which makes the load; the service and what it is measured beside
are processes of their own, too.
"""

import asyncio
import gc
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median, quantiles
from typing import Any, Final, NamedTuple

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import Done, evaluate_batch_body, evaluate_body, evaluate_lines
from tests.bench.front.load import world
from tests.bench.front.load.load import (
    ClosedLoop,
    Place,
    Stream,
    Tally,
    Unexpected,
    callers,
    succeeded,
    together,
)
from tests.bench.front.load.peers import Peer, peer
from tests.bench.front.load.service import Service, names_of, run, service
from tests.bench.front.load.wire import Response
from tests.bench.measuring.processes import cpu_s

CONNECTIONS = (64, 256)
FRONT_ENDS = 2
LINES: Final = "application/x-ndjson"
ONE_STREAM: Final = "NDJSON on one stream"
BATCH_EVENTS = 1_000
IN_FLIGHT = 4
"""Batches under way at a time: on as many connections, or on the one of a stream."""
WARM_S = 1.0
BARE_PATH = "/api/detectors/" + 32 * "0"


def evaluate_path(detector_path: str) -> str:
    """Give where single events go."""
    return f"{detector_path}/evaluate"


def single(rounds: int, seconds: float, calls: int) -> dict[str, float]:
    """Give what single evaluations come to, beside a bare application and bare calls of Ray."""

    async def work() -> dict[str, float]:
        with service() as ours, peer("bare") as bare, peer("short") as short:
            places = {"bare": Place.of(bare.heard()), "short": Place.of(short.heard())}
            peers = {"bare": bare, "short": short}
            found = await _rates(ours, peers, places, rounds, seconds)
            return found | await _delays(ours, places["bare"], rounds, calls)

    return run(work)


def several(rounds: int, seconds: float) -> dict[str, float]:
    """Give what a request takes of each process where several front ends share the address."""

    async def work() -> dict[str, float]:
        with service("--front-ends", str(FRONT_ENDS)) as ours:
            path = ours.detector("several")
            requests = world.single_requests(evaluate_path(path), ours.token)
            rates: list[float] = []
            us: dict[str, list[float]] = {"main": [], "front": []}
            for one_round in range(1 + rounds):
                before_s = ours.front_cpu_s, ours.front_ends_cpu_s
                async with callers(ours.place, CONNECTIONS[-1]) as made:
                    tally = await ClosedLoop(requests).run(made, seconds)
                after_s = ours.front_cpu_s, ours.front_ends_cpu_s
                answered = tally.kinds["200"]
                ours.evaluated(path, answered)
                # What comes first warms up.
                if one_round:
                    rates.append(tally.per_s)
                    for each, began_s, ended_s in zip(us.values(), before_s, after_s, strict=True):
                        each.append((ended_s - began_s) / answered * 1e6)
            medians = {name: median(each) for name, each in us.items()}
            return medians | {"per s": median(rates), "worst": max(us["main"])}

    return run(work)


class _Side(NamedTuple):
    """One of some servers that take turns."""

    place: Place
    requests: Iterator[bytes]
    cpu_s: Callable[[], float]


async def _rates(
    ours: Service, peers: dict[str, Peer], places: dict[str, Place], rounds: int, seconds: float
) -> dict[str, float]:
    path = ours.detector("single")
    sides = {
        "ours": _Side(
            ours.place,
            world.single_requests(evaluate_path(path), ours.token),
            lambda: ours.front_cpu_s,
        ),
    }
    for name, peer_ in peers.items():
        requests = world.single_requests(evaluate_path(BARE_PATH), ours.token)
        sides[name] = _Side(places[name], requests, partial(cpu_s, peer_.pid))
    late = Counter[str]()
    found: dict[str, float] = {}
    gc.collect()
    gc.freeze()

    def judge(response: Response) -> str:
        late["late"] += b'"messages":[]' not in response.body
        late["all"] += 1
        return succeeded(response)

    for connections in CONNECTIONS:
        rates: dict[str, list[float]] = {name: [] for name in sides}
        cost_s, answers, waited_s = Counter[str](), Counter[str](), Counter[str]()
        late.clear()
        for one_round in range(1 + rounds):
            for name, side in sides.items():
                cpu_before_s, own_before_s = side.cpu_s(), time.process_time()
                workers_before_s, waited_before_s = ours.workers_cpu_s, ours.waited_s()
                async with callers(side.place, connections) as made:
                    tally = await ClosedLoop(side.requests, judge if name == "ours" else succeeded).run(
                        made, seconds if one_round else min(WARM_S, 2 * seconds)
                    )
                if name == "ours":
                    ours.evaluated(path, tally.kinds["200"])
                # What comes first warms up.
                if one_round:
                    rates[name].append(tally.per_s)
                    answers[name] += tally.kinds["200"]
                    cost_s[name] += side.cpu_s() - cpu_before_s
                    cost_s["own"] += time.process_time() - own_before_s
                    if name == "ours":
                        cost_s["actor"] += ours.workers_cpu_s - workers_before_s
                        waited_s.update({n: s - waited_before_s[n] for n, s in ours.waited_s().items()})
        answers["own"], answers["actor"] = answers.total(), answers["ours"]
        found |= {f"{name} {connections}": median(each) for name, each in rates.items()}
        found[f"worst {connections}"] = min(rates["ours"])
        for name in peers:
            pairs = zip(rates["ours"], rates[name], strict=True)
            found[f"share {name} {connections}"] = median(
                ours_per_s / its_per_s for ours_per_s, its_per_s in pairs
            )
        found |= {f"{name} us {connections}": cost_s[name] / answers[name] * 1e6 for name in cost_s}
        found |= {f"{name} waited {connections}": waited_s[name] / rounds / seconds for name in waited_s}
        found[f"late {connections}"] = late["late"] / late["all"]
    return found


async def _delays(ours: Service, place: Place, rounds: int, calls: int) -> dict[str, float]:
    """Give how long one caller waits who sends one request after another. Each answer is looked into."""
    path = ours.detector("one caller")
    requests = world.single_requests(evaluate_path(path), ours.token)
    bare_requests = world.single_requests(evaluate_path(BARE_PATH), ours.token)
    model = world.detector()
    took_ms: dict[str, list[float]] = {"ours": [], "bare": [], "ray": []}
    each = max(1, calls // rounds)
    with peer("ray") as of_ray:
        assert of_ray.heard() == "ready"
        for one_round in range(1 + rounds):
            async with callers(ours.place, 1) as made:
                asked = _Remembered(itertools.islice(requests, each))
                ours_ms = await asked.run(made)
            ours.evaluated(path, each)
            asked.compare(model)
            async with callers(place, 1) as made:
                bare_ms = await _Remembered(itertools.islice(bare_requests, each)).run(made)
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

    async def run(self, made: list[Any]) -> list[float]:
        """Ask, and give how long each answer took, in ms."""

        def judge(response: Response) -> str:
            self._responses.append(response)
            return succeeded(response)

        tally = await ClosedLoop(iter(self._requests), judge).run(made, 60.0)
        return [took_ns / 1e6 for took_ns in tally.took_ns]

    def compare(self, model: Detector) -> None:
        """Hold the answers to what a detector in this process says."""
        for request, response in zip(self._requests, self._responses, strict=True):
            answer, _ = evaluate_body(model, world.body_of(request)), None
            assert isinstance(answer, Done)
            if names_of(response.body) != names_of(answer.result):
                raise Unexpected(f"{response.body!r}, expected {answer.result!r}")


# -- batches -------------------------------------------------------------------------------------------------


class Form(NamedTuple):
    """One way to send batches."""

    name: str
    sent: str
    """How, in words."""
    content_type: str
    written: Callable[[list[world.Document]], bytes]
    evaluated: Callable[[Detector, bytes], bytes]


def _batch(form: Any) -> Callable[[Detector, bytes], bytes]:
    def evaluated(detector: Detector, body: bytes) -> bytes:
        answer, _ = evaluate_batch_body(detector, body, form)
        assert isinstance(answer, Done)
        return answer.result

    return evaluated


def _lines(detector: Detector, body: bytes) -> bytes:
    return evaluate_lines(detector, body)[0].result


_ON_CONNECTIONS: Final = f"{IN_FLIGHT} connections"

FORMS = (
    Form("JSON", _ON_CONNECTIONS, "application/json", world.json_batch, _batch("json")),
    Form("msgpack", _ON_CONNECTIONS, "application/msgpack", world.msgpack_batch, _batch("msgpack")),
    Form("NDJSON", f"{IN_FLIGHT} streams", LINES, world.lines, _lines),
    Form(ONE_STREAM, f"{IN_FLIGHT} times {BATCH_EVENTS} lines under way", LINES, world.lines, _lines),
)


def batches(rounds: int, seconds: float) -> dict[str, float]:
    """Give events a second of each form, and of the same bodies evaluated in this process."""

    async def work() -> dict[str, float]:
        with service() as ours:
            return await _batches(ours, rounds, seconds)

    return run(work)


async def _batches(ours: Service, rounds: int, seconds: float) -> dict[str, float]:
    paths = {form.name: ours.detector(form.name) for form in FORMS}
    models = {form.name: world.detector() for form in FORMS}
    sent = Counter[str]()
    rates: dict[str, list[float]] = {form.name: [] for form in FORMS}
    floors: dict[str, list[float]] = {form.name: [] for form in FORMS}
    costs_s: dict[str, Counter[str]] = {form.name: Counter() for form in FORMS}
    answered = Counter[str]()
    late = Counter[str]()
    per_s = dict.fromkeys(rates, 100_000.0)
    for one_round in range(1 + rounds):
        for form in FORMS:
            count = IN_FLIGHT + round(1.4 * per_s[form.name] * seconds / BATCH_EVENTS)
            first = sent[form.name]
            bodies = [
                form.written(world.events(first + BATCH_EVENTS * number, BATCH_EVENTS))
                for number in range(count)
            ]
            gc.collect()
            gc.freeze()
            before = ours.front_cpu_s, ours.workers_cpu_s, time.process_time()
            tally = await _sent(ours, paths[form.name], form, bodies, seconds)
            after = ours.front_cpu_s, ours.workers_cpu_s, time.process_time()
            gc.unfreeze()
            events = tally.kinds["200"]
            ours.evaluated(paths[form.name], events)
            sent[form.name] += events
            floor = _floor(models[form.name], form, bodies[: events // BATCH_EVENTS])
            # What comes first warms up.
            if one_round:
                per_s[form.name] = max(per_s[form.name], tally.per_s)
                rates[form.name].append(tally.per_s)
                floors[form.name].append(floor)
                answered[form.name] += events
                late[form.name] += tally.kinds["late"]
                for name, one, other in zip(("front", "actor", "own"), before, after, strict=True):
                    costs_s[form.name][name] += other - one
    found: dict[str, float] = {}
    for form in FORMS:
        name = form.name
        pairs = zip(rates[name], floors[name], strict=True)
        found[f"{name}"] = median(rates[name])
        found[f"{name} worst"] = min(rates[name])
        found[f"{name} floor"] = median(floors[name])
        found[f"{name} share"] = median(rate / floor for rate, floor in pairs)
        found[f"{name} late"] = late[name] / answered[name]
        found |= {f"{name} {which} us": cost / answered[name] * 1e6 for which, cost in costs_s[name].items()}
    return found


async def _sent(ours: Service, path: str, form: Form, bodies: list[bytes], seconds: float) -> Tally:
    """Send batches for this long; answers are counted in events, those that were late as `late`."""
    to = f"{path}/evaluate/batch"
    late = Counter[str]()
    if form.content_type == LINES:
        head = world.head(to, ours.token, form.content_type, None)
        under_way = [IN_FLIGHT] if form.name == ONE_STREAM else [1] * IN_FLIGHT
        pieces = iter(bodies)
        streams = [Stream(head, pieces, BATCH_EVENTS, count) for count in under_way]
        return together(await asyncio.gather(*(stream.run(ours.place, seconds) for stream in streams)))

    def judge(response: Response) -> str:
        kind = succeeded(response)
        if response.body.count(b'{"actions":[') != BATCH_EVENTS or b'"code":1' in response.body:
            raise Unexpected(f"not {BATCH_EVENTS} results: {response.body[:200]!r}")
        late["late"] += response.body.count(b'"code":2001')
        return kind

    requests = [world.head(to, ours.token, form.content_type, len(body)) + body for body in bodies]
    async with callers(ours.place, IN_FLIGHT) as made:
        tally = await ClosedLoop(iter(requests), judge).run(made, seconds)
    tally.in_time *= BATCH_EVENTS
    tally.kinds["200"] *= BATCH_EVENTS
    tally.kinds += late
    return tally


def _floor(model: Detector, form: Form, bodies: list[bytes]) -> float:
    """Give events a second of decoding and evaluating the same bodies here, one after another."""
    gc.collect()
    gc.freeze()
    began_s = time.perf_counter()
    for body in bodies:
        form.evaluated(model, body)
    took_s = time.perf_counter() - began_s
    gc.unfreeze()
    return BATCH_EVENTS * len(bodies) / took_s
