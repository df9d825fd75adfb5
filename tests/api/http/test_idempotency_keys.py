"""Idempotency keys on their way in: where they are taken, what is refused, and where they are ignored."""

import pytest

from tests.api.caller import Caller, Said
from tests.api.schema.test_openapi import DOCUMENT
from tests.api.scripted import DETECTOR, ScriptedBackend

EVENT_BODY = {"event": {"fields": {}, "timestamp_ms": 0}}
ESCAPED = "%61" + DETECTOR[1:]
"""Names the same detector, and comes to Quart."""


@pytest.mark.parametrize("named", [DETECTOR, ESCAPED])
@pytest.mark.parametrize(("end", "kind"), [("", "evaluate"), ("/batch", "evaluate_batch")])
async def test_a_key_goes_with_its_evaluation_on_both_ways(
    scripted_caller: Caller, scripted: ScriptedBackend, named: str, end: str, kind: str
) -> None:
    path = f"/api/detectors/{named}/evaluate{end}"
    body = {"events": [EVENT_BODY["event"]]} if end else EVENT_BODY
    assert (await scripted_caller("POST", path, body, headers={"Idempotency-Key": "a-Key:{1}"})).status == 200
    assert (await scripted_caller("POST", path, body)).status == 200
    assert [(one.kind, one.key) for one in scripted.operations] == [(kind, "a-Key:{1}"), (kind, "")]


@pytest.mark.parametrize("key", ["", "two words", "k" * 256, "k\x7f"])
@pytest.mark.parametrize("named", [DETECTOR, ESCAPED])
@pytest.mark.parametrize("end", ["", "/batch"])
async def test_a_key_of_another_form_is_1006_and_nothing_is_evaluated(
    scripted_caller: Caller, scripted: ScriptedBackend, named: str, end: str, key: str
) -> None:
    headers = {"Idempotency-Key": key}
    # Headers are checked before bodies.
    path = f"/api/detectors/{named}/evaluate{end}"
    reply = await scripted_caller("POST", path, content=b"{", headers=headers)
    assert (reply.status, reply.codes) == (400, [1006])
    assert reply.texts == ["Idempotency-Key: expected 1 to 255 visible ASCII characters"]
    assert scripted.operations == []


async def test_a_repeat_is_given_the_first_answer_and_evaluates_nothing(caller: Caller) -> None:
    detector = await caller.detector()
    await caller.rule(detector, "once (a == 1 and once b == 1)")
    path = f"/api/detectors/{detector}/evaluate"

    async def said(key: str, end: str = "", **fields: object) -> Said:
        event = {"fields": fields, "timestamp_ms": 0}
        body = {"events": [event]} if end else {"event": event}
        return await caller("POST", path + end, body, headers={"Idempotency-Key": key})

    first = await said("k1", a=1)
    assert first.result == {"actions": []}
    assert len((await said("k2", "/batch", a=1, b=1)).result["results"][0]["actions"]) == 1
    # Evaluated now, it would fire.
    assert (await said("k1", a=1)).envelope == first.envelope
    for reply in (await said("k1", a=2), await said("k1", "/batch", a=1), await said("k2", a=1, b=1)):
        assert (reply.status, reply.codes) == (400, [1006])
        assert reply.texts[0].startswith("Idempotency-Key: ")
    other = await caller.detector()
    reply = await caller(
        "POST", f"/api/detectors/{other}/evaluate", EVENT_BODY, headers={"Idempotency-Key": "k1"}
    )
    assert reply.status == 200


def test_the_operations_that_take_keys_are_described_so_and_no_other() -> None:
    taking = {
        path
        for path, item in DOCUMENT["paths"].items()
        for described in item.values()
        if any(one["name"] == "Idempotency-Key" for one in described["parameters"])
    }
    assert taking == {
        "/api/detectors/{detectorId}/evaluate",
        "/api/detectors/{detectorId}/evaluate/batch",
        "/api/detectors/{detectorId}/ingest",
    }
    for path in taking:
        described = DOCUMENT["paths"][path]["post"]
        [key] = [one for one in described["parameters"] if one["name"] == "Idempotency-Key"]
        assert (key["in"], key["required"]) == ("header", False)
        assert "addition" in key["description"]
        assert "1006" in described["responses"]["400"]["content"]["application/json"]["examples"]
