"""Batches that wait are executed together within bounds, and each is answered once, whatever is executed."""

import random
from pathlib import Path
from typing import Any

from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests.calls import Crash, Reply
from engine.runtime.contract.requests.operations import EVALUATE, Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.transport.server_connection import Submission, WaitingBatches, operations_of

OPERATIONS, BYTES = 5, 29
SETTINGS = RuntimeSettings(data=Path(), batch_operations_max=OPERATIONS, batch_bytes_max=BYTES)


def fits(operations: list[Operation]) -> bool:
    return len(operations) <= OPERATIONS and sum(len(one.payload) for one in operations) <= BYTES


def test_each_batch_is_answered_once_in_order_with_its_own_answers(seed: int) -> None:
    drawn = random.Random(seed)
    waiting = WaitingBatches(SETTINGS)
    outcomes: dict[int, list[Any]] = {}
    submissions: list[Submission] = []
    settled: list[int] = []
    for step in range(1_200):
        # In bursts, so that several wait for one turn.
        for _ in range(drawn.choice((0, 0, 0, 3)) if step < 1_100 else 0):
            number = len(submissions)
            operations = [
                Operation(EVALUATE, b"%03d" % ((10 * number + place) % 1_000) * drawn.randrange(1, 4))
                for place in range(drawn.randrange(1, 4))
            ]
            outcomes[number] = []

            def note(outcome: Any, number: int = number) -> None:
                outcomes[number].append(outcome)
                settled.append(number)

            submissions.append(Submission(operations, note, float(step)))
            waiting.submissions.append(submissions[-1])
        if waiting and drawn.random() < 0.1:
            drawn.choice(waiting.submissions).done = True
        taken = waiting.take()
        asked = operations_of(taken)
        assert not any(one.done for one in taken)
        assert len(taken) <= 1 or fits(asked)
        if waiting:
            assert not fits(asked + waiting.submissions[0].operations)
        if not taken or drawn.random() < 0.2:
            waiting.put_back(taken)
            continue
        crash = Crash("reference", "detail") if drawn.random() < 0.3 else None
        done = drawn.randrange(len(asked)) if crash else drawn.randrange(1, len(asked) + 1)
        waiting.answer(taken, Reply([Done(one.payload) for one in asked[:done]], crash), float(step))
    assert not waiting
    assert settled == sorted(settled)
    for submission, outcome in zip(submissions, outcomes.values(), strict=True):
        if not outcome:
            assert submission.done, "nobody waits for it"
            continue
        (reply,) = outcome
        whole = [Done(one.payload) for one in submission.operations]
        assert reply.answers == whole[: len(reply.answers)]
        assert reply.answers or reply.crash
        assert len(reply.answers) < len(whole) or reply.crash is None
