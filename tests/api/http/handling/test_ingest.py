"""Plain records as log shippers send them: what is taken for one, its time, and what the answer counts."""

import gzip
import json
from typing import Any

import pytest

from api.http.pipeline import FastPath
from tests.api.caller import Caller, Said

NOON_MS = 1_709_553_600_000
NOON = "2024-03-04T12:00:00"


async def ingest(caller: Caller, detector: str, body: Any, query: str = "", **headers: str) -> Said:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await caller("POST", f"/api/detectors/{detector}/ingest{query}", content=content, headers=headers)


def counts(said: Said) -> tuple[int, int, int]:
    return tuple(said.result[name] for name in ("accepted", "refused", "fired"))


async def detector_of(caller: Caller, condition: str = "a == 1") -> str:
    detector = await caller.detector()
    await caller.rule(detector, condition)
    return detector


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"a": 1, "b": {"c": [1, "\n"]}}, (1, 0, 1)),
        (b'\r\n {"a":\n 1,\n"b": "}"}\n', (1, 0, 1)),
        ([{"a": 1}, {"a": 2}, {"a": 1}], (3, 0, 2)),
        (b'[\n{"a"\n:1},\n{"a":2}\n]\n', (2, 0, 1)),
        (b'{"a":1}\n{"a":2}\n\n  \r\n{"a":1}', (3, 0, 2)),
        (b'{"a":1}\r\n{"a":1}\r\n', (2, 0, 2)),
        (b'\xef\xbb\xbf{"a":1}\r\n{"a":1}', (2, 0, 2)),
        (b'\xef\xbb\xbf[{"a":1}]', (1, 0, 1)),
        (b"[]", (0, 0, 0)),
        (b"\xef\xbb\xbf", (0, 0, 0)),
        (b"", (0, 0, 0)),
        (b" \n\t\r\n", (0, 0, 0)),
    ],
)
async def test_an_object_an_array_and_lines_are_records_whatever_their_type(
    caller: Caller, body: Any, expected: tuple[int, int, int]
) -> None:
    detector = await detector_of(caller)
    for media_type in (None, "application/x-ndjson", "text/plain", "x"):
        headers = {} if media_type is None else {"Content-Type": media_type}
        said = await ingest(caller, detector, body, **headers)
        assert (counts(said), said.result["errors"]) == (expected, []), media_type


async def test_what_is_no_record_is_refused_and_the_others_are_evaluated(caller: Caller) -> None:
    detector = await detector_of(caller)
    body = b'{"a":1}\n{"a":\n7\n{"a":1}}, {"x": {\n{"a":1e999}\n{},"timestamp_ms":5,"fields":{"a":1}\n{"a":1}'
    said = await ingest(caller, detector, body)
    assert counts(said) == (2, 5, 2)
    assert [(one["index"], one["code"]) for one in said.result["errors"]] == [
        *((1, 1000), (2, 1001), (3, 1000), (4, 1000), (5, 1000)),
    ]
    assert "the record is not JSON" in said.result["errors"][0]["message"]
    said = await ingest(caller, detector, b'[{"a"\n:1}, {"a":1e999}, {"a":1}]')
    assert counts(said) == (2, 1, 2)
    said = await ingest(caller, detector, [{"a": 1}, 7, None, [{"a": 1}], "x"])
    assert counts(said) == (1, 4, 1)
    assert [one["index"] for one in said.result["errors"]] == [1, 2, 3, 4]


async def test_if_all_are_refused_the_answer_is_the_first_refusal(caller: Caller) -> None:
    detector = await detector_of(caller)
    said = await ingest(caller, detector, b'7\n{"a"')
    assert (said.status, said.codes) == (400, [1001, 1000])
    assert said.texts[0].startswith("record 0: ")
    await caller.evaluate(detector, {"a": 1}, NOON_MS)
    late = {"a": 1, "t": NOON_MS - 10_000_000}
    said = await ingest(caller, detector, [late, 7], "?time=t")
    assert (said.status, said.codes) == (422, [1402])
    assert counts(await ingest(caller, detector, [late, {"t": NOON_MS}], "?time=t")) == (1, 1, 0)


async def test_what_to_send_instead_is_told(caller: Caller) -> None:
    detector = await detector_of(caller)
    said = await ingest(caller, detector, b'{"a":1} {"a":2}')
    assert said.codes == [1000]
    assert said.texts[0].endswith(
        "; each record stands on a line of its own (`curl -d` joins lines, `curl --data-binary` does not)"
    )
    assert "line of its own" not in (await ingest(caller, detector, b'{"a":1},')).texts[0]
    for body in (b"[]", b'{"a":1}'):
        said = await ingest(caller, detector, gzip.compress(body))
        assert (said.codes, said.texts) == (
            [1000],
            ["the body is gzip, but its `Content-Encoding` does not say so"],
        )


async def test_at_most_twenty_refusals_are_told(caller: Caller, settings: Any) -> None:
    detector = await detector_of(caller)
    said = await ingest(caller, detector, b'{"a":1}\n' + b"7\n" * (settings.max_batch_events - 1))
    assert counts(said) == (1, settings.max_batch_events - 1, 1)
    assert len(said.result["errors"]) == min(20, settings.max_batch_events - 1)
    said = await ingest(caller, detector, b'{"a":1}\n' * (settings.max_batch_events + 1))
    assert (said.status, said.codes) == (409, [1400])


async def test_records_are_evaluated_by_their_times_and_answered_in_the_order_of_the_body(
    caller: Caller,
) -> None:
    detector = await detector_of(caller, "once a == 1 and b == 2")
    body = [
        {"b": 2, "n": 0, "time": "2024-03-04T12:00:03Z"},
        {"a": 1, "n": 1, "time": "2024-03-04T12:00:02Z"},
        {"n": 2},
        {"b": 2, "n": 3, "time": "2024-03-04T12:00:01Z"},
    ]
    said = await ingest(caller, detector, body, "?time=time&actions=true")
    assert counts(said) == (3, 1, 1)
    results = said.result["results"]
    assert [len(one["actions"]) for one in results] == [1, 0, 0, 0]
    assert results[2]["errors"] == [{"code": 1001, "message": "`time` is missing"}]
    assert said.result["errors"] == [{"index": 2, "code": 1001, "message": "`time` is missing"}]


@pytest.mark.parametrize(
    "time",
    [
        *(f"{NOON}Z", f"{NOON}", f"{NOON}.000000999Z", "2024-03-04T13:00:00+01:00", "20240304T120000Z"),
        *(NOON_MS // 1000, NOON_MS / 1000, NOON_MS, NOON_MS * 1_000, NOON_MS * 1_000_000),
        # As journald and CSV have them.
        *(f"{NOON_MS // 1000}.000", f"{NOON_MS}", f"{NOON_MS}000", f"{NOON_MS}000000", f" {NOON_MS} "),
    ],
)
async def test_times_of_each_kind_are_read(caller: Caller, time: Any) -> None:
    detector = await detector_of(caller, f"now() == {NOON_MS // 1000}")
    assert counts(await ingest(caller, detector, {"log": {"at.time": time}}, "?time=log.at.time")) == (
        1,
        0,
        1,
    )


async def test_times_are_precise_to_a_microsecond(caller: Caller) -> None:
    detector = await detector_of(caller, "earlier within 1ms exists t")
    body = [{"t": f"{NOON}.000000Z"}, {"t": f"{NOON}.001000Z"}, {"t": f"{NOON}.002001Z"}]
    said = await ingest(caller, detector, body, "?time=t&actions=true")
    assert [len(one["actions"]) for one in said.result["results"]] == [0, 1, 0]
    before = [{"t": "1969-12-31T23:59:59.998500Z"}, {"t": -0.0005}]
    said = await ingest(caller, await detector_of(caller, "earlier within 1ms exists t"), before, "?time=t")
    assert counts(said) == (2, 0, 1)


@pytest.mark.parametrize(
    "time", [None, True, "noon", "", [], {}, 1e300, 10**400, "0000-01-01", "1e300", "9" * 30, "9" * 5_000]
)
async def test_what_is_no_time_is_refused(caller: Caller, time: Any) -> None:
    detector = await detector_of(caller)
    said = await ingest(caller, detector, [{"a": 1, "t": time}, {"a": 1, "t": NOON_MS}], "?time=t")
    assert counts(said) == (1, 1, 1)
    assert said.result["errors"][0]["code"] == 1001


async def test_without_a_time_records_arrive_now(caller: Caller) -> None:
    detector = await detector_of(caller, "now() > 1700000000")
    assert counts(await ingest(caller, detector, {"t": "2001-01-01"})) == (1, 0, 1)


@pytest.mark.parametrize("query", ["?time=", "?actions=yes", "?dry_run=true"])
async def test_a_wrong_query_is_refused(caller: Caller, query: str) -> None:
    assert (await ingest(caller, await detector_of(caller), {}, query)).codes == [1006]


async def test_a_body_with_a_key_can_be_sent_again_also_where_records_are_timed_by_their_arrival(
    caller: Caller,
) -> None:
    detector = await detector_of(caller, "count(a == 1) >= 3")
    key = {"Idempotency-Key": "k"}
    for _ in range(3):
        assert counts(await ingest(caller, detector, [{"a": 1}, {"a": 1}, 7], **key)) == (2, 1, 0)
    assert (await ingest(caller, detector, [{"a": 2}], **key)).codes == [1006]
    assert (await ingest(caller, detector, [{"a": 1}, {"a": 1}, 7], "?actions=true", **key)).codes == [1006]
    assert counts(await ingest(caller, detector, [{"a": 1}])) == (1, 0, 1)
    # What was refused as a whole is not remembered.
    other = {"Idempotency-Key": "l"}
    assert (await ingest(caller, detector, [7], **other)).codes == [1001]
    assert counts(await ingest(caller, detector, [{"a": 1}], **other)) == (1, 0, 1)


async def batch(caller: Caller, detector: str, events: list[Any], query: str, **headers: str) -> Said:
    path = f"/api/detectors/{detector}/evaluate/batch{query}"
    return await caller("POST", path, {"events": events}, headers=headers)


async def test_a_strict_batch_fails_if_no_event_was_accepted(caller: Caller) -> None:
    detector = await detector_of(caller)
    good = {"fields": {"a": 1}, "timestamp_ms": NOON_MS}
    late = {"fields": {"a": 1}, "timestamp_ms": 0}
    for query in ("?strict=true", "?strict=true&dry_run=true"):
        assert (await batch(caller, detector, [], query)).result == {"results": []}
        assert len((await batch(caller, detector, [good, late], query)).result["results"]) == 2
        # The dry run, which recorded nothing, comes after what set the clock.
        said = await batch(caller, detector, [late, late], query)
        assert (said.status, said.codes) == (422, [1402, 1402])
        assert said.texts[1].startswith("events[1]: the event is ")
    for query in ("", "?strict=false"):
        assert [
            bool(one["errors"]) for one in (await batch(caller, detector, [late], query)).result["results"]
        ]
    assert (await batch(caller, detector, [good], "?strict=1")).codes == [1006]
    said = await batch(caller, detector, [good], "?strict=true", **{"Content-Type": "application/x-ndjson"})
    assert said.codes == [1006]
    # A retry gets the first answer, which is a failure again.
    for _ in range(2):
        key = {"Idempotency-Key": "k"}
        assert (await batch(caller, detector, [late], "?strict=true", **key)).status == 422


@pytest.mark.parametrize(
    "media_type",
    ["application/ndjson", "application/jsonl", "Application/JSONL; charset=utf-8", "text/x-ndjson"],
)
async def test_ndjson_has_many_names(caller: Caller, media_type: str) -> None:
    detector = await detector_of(caller)
    headers = {"Authorization": f"Bearer {caller.token}", "Content-Type": media_type}
    line = json.dumps({"fields": {"a": 1}, "timestamp_ms": NOON_MS}).encode()
    path = f"/api/detectors/{detector}/evaluate/batch"
    reply = await caller.plain("POST", path, content=line + b"\n" + line, headers=headers)
    assert json.loads(reply.text.splitlines()[-1]) == {"done": 2}
    path = f"/api/detectors/{detector}/relations/r"
    assert (await caller("PUT", path, content=b"1\n2\n", headers=headers)).result["tuples"] == 2
    said = await caller("POST", f"/api/detectors/{detector}/rules", content=b"{}", headers=headers)
    assert said.codes == [1002]


async def test_what_the_fast_path_does_not_take_is_answered_the_same(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = ("", "?time=t", "?time=", "?time=a%2eb", "?x=1", "?time=t&time=t", "?actions=true", "?time=t&")
    bodies = (b'{"a":1,"t":1}', b"7", b"[]", b'{"a":1}')
    sent = ({}, {"Content-Type": "x"}, {"Idempotency-Key": ""}, {"Content-Encoding": "x"})
    seen = []
    for _ in ("the fast path", "the slow path"):
        detector = await detector_of(caller)
        for query in queries:
            for body in bodies:
                for headers in sent:
                    said = await ingest(caller, detector, body, query, **headers)
                    seen.append((said.status, said.codes, said.envelope["result"].get("accepted")))
        monkeypatch.setattr(FastPath, "answer", nothing)
    half = len(seen) // 2
    assert seen[:half] == seen[half:]


async def nothing(*_: Any) -> None:
    """Leave a request to Quart."""
