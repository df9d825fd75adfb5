"""What becomes of the requests of a batch, whatever its worker answers, and of those that wait."""

import asyncio
from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done, Refused
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import DetectorUnavailable, encode_failure, shutting_down
from engine.runtime.contract.requests.current_request import CurrentRequest
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.requests.replies import Crash
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.front_end.channels.mailbox import Mailbox, Request
from engine.runtime.front_end.channels.outcomes import Outcomes
from engine.runtime.front_end.memory_budget import BUSY, SLOTS, STARTING_UP, MemoryBudget
from engine.runtime.transport.messages import Answered, Failed, Moved, Refusing, Unavailable
from snapshots.errors import SyncFailed, WriteFailed

pytestmark = pytest.mark.skipping_clock

SETTINGS = RuntimeSettings(data=Path("unused"), retry_s=5)
DONE = Done(b"1")
UNKNOWN = (1502, "the detector's process died; whether the event was evaluated is not known")


@pytest.fixture
def memory():
    return MemoryBudget(SETTINGS.memory_bytes_max)


@pytest.fixture
async def mailbox(memory):
    return Mailbox(SETTINGS, memory)


@pytest.fixture
async def outcomes(mailbox):
    return Outcomes("d1", SETTINGS, mailbox)


def sent_batch(mailbox: Mailbox, *keys: str) -> list[Request]:
    """Return the batch of these requests, the first time that they are sent."""
    for key in keys:
        answer = asyncio.get_running_loop().create_future()
        mailbox.admit(Request(Operation("evaluate", b"{}", key), answer, deadline_s=10.0))
    batch = mailbox.take()
    for request in batch:
        request.sent += 1
    return batch


def outcome(request: Request) -> object:
    """Return a request's answer, the code and message of its error, or None while it has neither."""
    if not request.answer.done():
        return None
    match request.answer.exception():
        case None:
            return request.answer.result()
        case DetectorUnavailable() as error:
            return error.code, error.message
        case error:
            return error


async def test_what_a_full_reply_left_out_is_sent_again_as_if_for_the_first_time(outcomes, mailbox):
    batch = sent_batch(mailbox, "", "", "")
    assert outcomes.settle(batch, Answered(1, [DONE]))
    assert [outcome(request) for request in batch] == [DONE, None, None]
    assert mailbox.take() == batch[1:]
    assert [request.sent for request in batch[1:]] == [0, 0]


async def test_an_operation_that_crashes_is_an_internal_error_and_later_ones_are_sent_again(
    outcomes, mailbox, caplog
):
    batch = sent_batch(mailbox, "", "", "")
    batch[1].caller = CurrentRequest("r1")
    assert outcomes.settle(batch, Answered(1, [DONE], Crash("ab12", "Traceback")))
    message = "an internal error; its reference in the log is ab12"
    assert [outcome(request) for request in batch] == [DONE, Refused((Entry(1500, message),)), None]
    assert mailbox.take() == batch[2:]
    [record] = caplog.records
    assert (record.getMessage(), record.fields, record.detail) == (
        f"detector d1: {message}",
        {"request": "r1", "detector": "d1", "operation": "evaluate"},
        "Traceback",
    )


async def test_after_the_loss_of_a_worker_only_requests_with_keys_are_sent_again_and_once(outcomes, mailbox):
    batch = sent_batch(mailbox, "", "key")
    assert not outcomes.settle(batch, None)
    assert [outcome(request) for request in batch] == [UNKNOWN, None]
    again = mailbox.take()
    assert again == batch[1:]
    again[0].sent += 1
    assert not outcomes.settle(again, None)
    assert outcome(again[0]) == UNKNOWN


async def test_the_log_names_at_most_ten_requests_of_a_lost_worker(outcomes, mailbox, caplog):
    batch = sent_batch(mailbox, *[""] * 13)
    for number, request in enumerate(batch[:12]):
        request.caller = CurrentRequest(f"r{number}")
    outcomes.settle(batch, None)
    [record] = caplog.records
    assert record.getMessage() == "detector d1: its process died during requests"
    ids = "r0 r1 r2 r3 r4 r5 r6 r7 r8 r9 and 2 more"
    assert record.fields == {"detector": "d1", "operation": "evaluate", "requests": ids}
    assert {outcome(request) for request in batch} == {UNKNOWN}


async def test_all_requests_follow_a_detector_that_has_moved(outcomes, mailbox):
    batch = sent_batch(mailbox, "", "key")
    assert not outcomes.settle(batch, Moved(1))
    assert mailbox.take() == batch
    assert [request.sent for request in batch] == [0, 0]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            Failed(1, encode_failure(WriteFailed("the disk is full"))),
            (1501, "nothing was evaluated: the disk is full"),
        ),
        (
            Failed(1, encode_failure(SyncFailed("the disk is broken"))),
            (1502, "the disk is broken; whether the event was evaluated is not known"),
        ),
        (Unavailable(1, 1501, "it is starting", 2.0), (1501, "it is starting")),
    ],
    ids=["not written", "not synced", "unavailable"],
)
async def test_every_request_of_a_batch_that_failed_gets_the_reason(outcomes, mailbox, response, expected):
    batch = sent_batch(mailbox, "", "key")
    assert outcomes.settle(batch, response)
    assert [outcome(request) for request in batch] == [expected, expected]


async def test_every_request_of_a_refused_batch_is_refused(outcomes, mailbox):
    [request] = sent_batch(mailbox, "")
    assert outcomes.settle([request], Refusing(1, (Entry(1200, "no such detector"),)))
    refusal = outcome(request)
    assert isinstance(refusal, Refusal)
    assert refusal.entries == (Entry(1200, "no such detector"),)


async def test_an_error_of_the_worker_is_logged_and_callers_get_its_reference(outcomes, mailbox, caplog):
    [request] = sent_batch(mailbox, "")
    assert outcomes.settle([request], Failed(1, encode_failure(KeyError("x"))))
    answer = outcome(request)
    assert isinstance(answer, Refused)
    [record] = caplog.records
    [entry] = answer.entries
    assert entry.code == 1500
    assert record.getMessage() == f"detector d1, the worker failed: {entry.message}"
    assert record.exc_info is not None


@pytest.mark.parametrize(
    ("waiting_for_slots", "told"),
    [
        (None, ("was busy with earlier requests", BUSY)),
        (0, ("was starting", STARTING_UP)),
        (3, ("was starting: all slots for active detectors are taken, and 3 wait for one", SLOTS)),
    ],
)
async def test_a_request_past_its_deadline_learns_why_it_waited(
    outcomes, mailbox, memory, waiting_for_slots, told
):
    state, cause = told
    batch = sent_batch(mailbox, "")
    outcomes.settle(batch, Moved(1))
    outcomes.expire_waiting(9.9, waiting_for_slots)
    assert outcome(batch[0]) is None
    outcomes.expire_waiting(10.0, waiting_for_slots)
    message = f"the deadline passed while the detector {state}; nothing was evaluated"
    assert outcome(batch[0]) == (1501, message)
    assert memory.take_expired() == {cause: 1}
    assert memory.take_expired() == {}


async def test_a_request_that_waits_for_its_second_attempt_ends_with_an_unknown_outcome(
    outcomes, mailbox, memory
):
    batch = sent_batch(mailbox, "key", "key")
    outcomes.settle(batch, None)
    batch[1].deadline_s = 20.0
    outcomes.expire_waiting(10.0, None)
    assert not memory.take_expired()[BUSY]
    outcomes.refuse_waiting(shutting_down)
    assert [outcome(request) for request in batch] == [UNKNOWN, UNKNOWN]
