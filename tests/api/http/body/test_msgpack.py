"""Batches as msgpack: the same document, the same answers, on both ways to a detector."""

import msgpack
import pytest

from tests.api.caller import Caller
from tests.api.scripted import DETECTOR, ScriptedBackend

PACKED = {"Content-Type": "application/msgpack"}
EVENTS = [
    {"fields": {"user": "ada", "ok": False}, "timestamp_ms": 1_000},
    {"fields": {"user": "ada", "ok": True}, "timestamp_ms": -1e12},
    {
        "fields": {"user": "ada", "ok": True, "more": [1, 2.5, None, {"ä": 2**64 - 1}]},
        "timestamp_ms": 2_000.5,
    },
]


@pytest.mark.parametrize("named", [DETECTOR, "%61" + DETECTOR[1:]])
async def test_the_body_stays_as_it_came(
    scripted_caller: Caller, scripted: ScriptedBackend, named: str
) -> None:
    headers = {**PACKED, "Idempotency-Key": "k"}
    path = f"/api/detectors/{named}/evaluate/batch"
    body = msgpack.packb({"events": EVENTS})
    assert (await scripted_caller("POST", path, content=body, headers=headers)).status == 200
    (operation,) = scripted.operations
    assert operation[:3] == ("evaluate_msgpack", body, "k")


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(
    ("body", "codes"),
    [
        (b"", [1000]),
        (b"{}", [1000]),
        (msgpack.packb({"events": [{"fields": {"a": b"x"}, "timestamp_ms": 0}]}), [1000]),
        (msgpack.packb({"events": [{"fields": {"a": float("nan")}, "timestamp_ms": 0}]}), [1000]),
        (msgpack.packb({"events": 5, "contxt": {}}), [1001, 1001]),
        (msgpack.packb({"events": [EVENTS[0]] * 11}), [1400]),
        (msgpack.packb({"events": [{"fields": {"a": "x" * 40_000}, "timestamp_ms": 0}]}), [1003]),
    ],
)
@pytest.mark.parametrize("known", [True, False])
async def test_what_is_wrong_with_it_is_told_in_the_envelope(
    caller: Caller, body: bytes, codes: list[int], *, known: bool
) -> None:
    detector = await caller.detector() if known else "0" * 32
    # A detector that is not there is judged before the body is read any further than its length.
    if codes != [1003] and not known:
        codes = [1200]
    reply = await caller("POST", f"/api/detectors/{detector}/evaluate/batch", content=body, headers=PACKED)
    assert reply.codes == codes


async def test_a_key_belongs_to_the_body_as_it_was_written(caller: Caller) -> None:
    detector = await caller.detector()
    path = f"/api/detectors/{detector}/evaluate/batch"
    headers = {**PACKED, "Idempotency-Key": "k"}
    document = {"events": EVENTS[:1]}
    first = await caller("POST", path, content=msgpack.packb(document), headers=headers)
    again = await caller("POST", path, content=msgpack.packb(document), headers=headers)
    assert first.envelope == again.envelope
    other = await caller("POST", path, document, headers={"Idempotency-Key": "k"})
    assert other.codes == [1006]
