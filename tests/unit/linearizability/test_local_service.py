"""The runtime without Ray: two front ends' concurrent callers are answered in one order while workers die.

tests/linearizability/test_proof.py does the same with processes and nodes.
"""

import asyncio
import json
import random
import time
from collections import Counter

import pytest

from engine.evaluation.inspecting.states import StateAsked
from engine.evaluation.wire.events import Answer, Refused
from engine.language.diagnostics import Refusal
from engine.language.json.writer import condition_to_document
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from engine.runtime.front_end.backend import Backend
from snapshots.store import Store
from tests.linearizability.clients import NOT_EXECUTED, Subject, answer_of, request_of
from tests.linearizability.history import (
    AddRule,
    Asked,
    Call,
    ChangeRule,
    Evaluate,
    ListRules,
    Position,
    RemoveRule,
    Unexpected,
)
from tests.linearizability.journal import KEEP_ALL, done
from tests.linearizability.replay import Replay, problems
from tests.linearizability.workload import Workload
from tests.local_runtime.service import LocalService, front_end, local_service
from tests.local_runtime.workers import LocalWorker

CLIENTS = 5
REQUESTS = 100
DETECTORS = 2
NODE_TIMEOUT_S = 0.02
"""So short that a worker that is cut off is replaced long before the last request."""
KILLED_EVERY = 25
"""Requests."""


def operation_of(subject: Subject, asked: Asked) -> Operation:
    body = json.dumps(request_of(subject, asked)[2]).encode()
    match asked:
        case Evaluate(batch=True, key=key):
            return ops.evaluate_batch(body, key)
        case Evaluate(key=key):
            return ops.evaluate(body, key)
        case AddRule(name, condition, notify):
            return ops.add_rule(name, json.dumps(condition_to_document(condition)), notify=notify)
        case ChangeRule(name, changes):
            document = {
                member: json.dumps(condition_to_document(value)) if member == "condition" else value
                for member, value in changes
            }
            return ops.change_rule(subject.ids[name], **document)
        case RemoveRule(name):
            return ops.remove_rule(subject.ids[name])
        case ListRules():
            return ops.rules()
        case Position():
            return ops.state(StateAsked())


def envelope_of(answer: Answer) -> dict:
    if isinstance(answer, Refused):
        errors = [{"code": entry.code, "message": entry.message} for entry in answer.entries]
        return {"errors": errors, "messages": [], "result": {}}
    return {"errors": [], "messages": json.loads(answer.messages), "result": json.loads(answer.result)}


class LocalLoad:
    """Callers of the front ends of one process."""

    def __init__(self, backends, subjects, chance: random.Random) -> None:
        self.backends, self.subjects, self.chance = backends, subjects, chance
        self.outcomes = Counter[str]()
        self.over = False

    async def ask(self, client: str, subject: Subject, asked: Asked) -> bool:
        backend, called_ns = self.chance.choice(self.backends), time.monotonic_ns()
        try:
            answer = await backend.call(subject.id, operation_of(subject, asked))
        except Refusal as refusal:
            answer = Refused(refusal.entries)
        except DetectorUnavailable as error:
            self.outcomes[str(error.code)] += 1
            if error.code not in NOT_EXECUTED:
                subject.calls.append(Call(client, asked, called_ns))
            return False
        found = answer_of(subject, asked, envelope_of(answer))
        assert not isinstance(found, Unexpected), found
        self.outcomes["answered"] += 1
        subject.calls.append(Call(client, asked, called_ns, time.monotonic_ns(), found))
        return True

    async def client(self, name: str) -> None:
        for _ in range(REQUESTS):
            subject = self.chance.choice(self.subjects)
            asked = subject.workload.next()
            for _ in range(3):
                answered = await self.ask(name, subject, asked)
                key = isinstance(asked, Evaluate) and asked.key
                if not key or (answered and self.chance.random() < 0.9):
                    break
            await asyncio.sleep(self.chance.uniform(0, 0.002))


async def _nothing() -> None:
    """End nothing."""


async def kill_workers(service: LocalService, load: LocalLoad) -> None:
    """Kill workers with detectors, before and after what they do, and take others for dead that are not."""
    chance, left = load.chance, list[asyncio.Task[None]]()
    asked = 0
    while not load.over:
        await asyncio.sleep(0.01)
        if load.outcomes.total() < asked:
            continue
        asked = load.outcomes.total() + KILLED_EVERY
        # One that is cut off lives on.
        alive = (worker for worker in service.actors.started if not (worker.dead or worker.silent))
        busy = [worker for worker in alive if worker.hosts]
        if not busy:
            continue
        worker = chance.choice(busy)
        if chance.random() < 0.5:
            left.append(asyncio.create_task(cut_off(worker, load.backends[0])))
        elif chance.random() < 0.5:
            worker.die()
        else:

            async def die(what: str, worker=worker) -> None:
                if what in ("handle", "sync", "begin_saving"):
                    asyncio.get_running_loop().call_soon(worker.die)

            worker.before = die
    await asyncio.gather(*left)


async def cut_off(worker: LocalWorker, backend: Backend) -> None:
    """Have a worker answer no beat, and survive its end, as on a node that is cut off from the directory.

    Another one gets its detectors meanwhile. Of its callers one front end is cut off from it as well.
    """
    worker.silent, worker.end = True, _nothing
    await asyncio.sleep(2 * NODE_TIMEOUT_S)
    if (client := backend.channels._clients.get(worker.name)) is not None:
        client.link.abort()


async def played(tmp_path, seed) -> tuple[list[Subject], LocalLoad]:
    settings = {
        "node_timeout_s": NODE_TIMEOUT_S,
        "retry_s": 0.01,
        "deadline_s": 5.0,
        "snapshot_interval_s": 0.1,
        "snapshots_kept": KEEP_ALL,
    }
    async with (
        local_service(tmp_path, **settings) as service,
        front_end(service) as one,
        front_end(service) as other,
    ):
        backends = [one.backend, other.backend]
        subjects = [
            Subject(await one.backend.create_detector(f"{n}"), Workload(random.Random(f"{seed} {n}")))
            for n in range(DETECTORS)
        ]
        load = LocalLoad(backends, subjects, random.Random(f"{seed}"))
        for subject in subjects:
            for rule in subject.workload.begun:
                assert await load.ask("setup", subject, rule)
        killing = asyncio.create_task(kill_workers(service, load))
        await asyncio.gather(*(load.client(f"c{number}") for number in range(CLIENTS)))
        load.over = True
        await killing
        for subject in subjects:
            for _ in range(100):
                if await load.ask("end", subject, Position()):
                    break
                await asyncio.sleep(0.02)
    return subjects, load


async def judged(tmp_path, seed) -> tuple[list[str], LocalLoad]:
    """Return what is wrong with the answers to a load."""
    subjects, load = await played(tmp_path, seed)
    found = [problems(one.calls, Replay(done(tmp_path / "detectors" / one.id))) for one in subjects]
    return [problem for each in found for problem in each], load


@pytest.mark.slow
@pytest.mark.skipping_clock
async def test_answers_are_in_one_order_while_workers_die_and_are_taken_for_dead(tmp_path, seed):
    found, load = await judged(tmp_path, seed)
    print(load.outcomes)
    assert load.outcomes["1502"], "no request was under way when its worker died"
    assert found == []


def no_check_of_the_owner(monkeypatch):
    """An owner that was replaced goes on answering."""
    monkeypatch.setattr(Store, "check_owner", lambda _: None)


def no_memory_of_answers(monkeypatch):
    """A retry is evaluated again."""
    monkeypatch.setattr(IdempotencyCache, "find", lambda *_: None)


def no_journal(monkeypatch):
    """What is acknowledged is on no disk."""
    monkeypatch.setattr(Store, "append", lambda *_, **__: 0)


@pytest.mark.skipping_clock
@pytest.mark.storm
@pytest.mark.parametrize("defect", [no_check_of_the_owner, no_memory_of_answers, no_journal])
async def test_a_defect_of_the_runtime_is_found(defect, tmp_path, seed, monkeypatch):
    defect(monkeypatch)
    for number in range(3):
        found, _ = await judged(tmp_path / f"{number}", f"{seed} {number}")
        if found:
            return
    pytest.fail("all answers seemed right")
