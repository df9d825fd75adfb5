"""`?explain=true` and `?dry_run=true` on their way in, and what the service answers to them."""

import pytest

from engine.runtime.contract.requests import operations as ops
from tests.api.caller import Caller
from tests.api.scripted import DETECTOR, ScriptedBackend

EVENT = {"fields": {"user": "ada", "ok": True}, "timestamp_ms": 2_000}


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("", ops.EVALUATE),
        ("?x=1&explain=false&dry_run=false", ops.EVALUATE),
        ("?explain=true", ops.EVALUATE_EXPLAINED),
        ("?dry_run=true", ops.DRY_RUN),
        ("?dry_run=true&explain=true", ops.DRY_RUN_EXPLAINED),
    ],
)
async def test_a_query_chooses_the_operation(
    scripted_caller: Caller, scripted: ScriptedBackend, query: str, kind: str
) -> None:
    path = f"/api/detectors/{DETECTOR}/evaluate{query}"
    reply = await scripted_caller("POST", path, {"event": EVENT}, headers={"Idempotency-Key": "k"})
    assert reply.status == 200
    ((given, _, key, *_),) = scripted.operations
    # Nothing is stored of a dry run, so its key says nothing.
    assert (given, key) == (kind, "" if kind in ops.READS else "k")


async def test_what_has_no_dry_run_is_refused_and_not_recorded(
    scripted_caller: Caller, scripted: ScriptedBackend
) -> None:
    path = f"/api/detectors/{DETECTOR}/tick?dry_run="
    reply = await scripted_caller("POST", path + "true", {"timestamp_ms": 1})
    said = "dry_run: expected `false`, because this operation has no dry run, got `true`"
    assert (reply.codes, reply.texts) == ([1006], [said])
    assert scripted.operations == []
    assert (await scripted_caller("POST", path + "false", {"timestamp_ms": 1})).status == 200


@pytest.mark.parametrize("media_type", ["application/json", "application/msgpack"])
async def test_a_batch_can_be_tried(
    scripted_caller: Caller, scripted: ScriptedBackend, media_type: str
) -> None:
    path = f"/api/detectors/{DETECTOR}/evaluate/batch?dry_run=true"
    await scripted_caller("POST", path, content=b"{}", headers={"Content-Type": media_type})
    kinds = {"application/json": ops.DRY_RUN_BATCH, "application/msgpack": ops.DRY_RUN_MSGPACK}
    assert [one.kind for one in scripted.operations] == [kinds[media_type]]


@pytest.mark.parametrize(
    ("end", "texts"),
    [
        ("?explain=1", ["explain: expected `true` or `false`, got `1`"]),
        ("?dry_run", ["dry_run: expected `true` or `false`, got ``"]),
        ("?dry_run=True&explain=", [
            "dry_run: expected `true` or `false`, got `True`",
            "explain: expected `true` or `false`, got ``",
        ]),
        ("/batch?dry_run=yes", ["dry_run: expected `true` or `false`, got `yes`"]),
    ],
)  # fmt: skip
async def test_any_other_value_is_1006(
    scripted_caller: Caller, scripted: ScriptedBackend, end: str, texts: list[str]
) -> None:
    reply = await scripted_caller("POST", f"/api/detectors/{DETECTOR}/evaluate{end}", content=b"{")
    assert (reply.codes, reply.texts) == ([1006] * len(texts), texts)
    assert scripted.operations == []


async def test_a_stream_cannot_be_tried(scripted_caller: Caller, scripted: ScriptedBackend) -> None:
    path = f"/api/detectors/{DETECTOR}/evaluate/batch?dry_run=true"
    headers = {"Content-Type": "application/x-ndjson"}
    reply = await scripted_caller("POST", path, content=b"{}\n", headers=headers)
    assert reply.codes == [1006]
    assert scripted.operations == []
