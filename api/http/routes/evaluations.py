"""The routes of evaluations, and of what shows their course: events in, actions out.

The detector itself decodes the bodies. Nearly all evaluations take the fast path and never come here.
"""

from dataclasses import replace
from functools import partial
from time import time_ns
from typing import Any, Final

import msgspec

from api.http.body.ndjson_stream import NdjsonStream
from api.http.handling import otlp_logs, otlp_protobuf
from api.http.handling.event_stream import EVENT_STREAM, FeedStream, next_of
from api.http.handling.otlp_logs import Exported, ExportLogs
from api.http.handling.state_view import state_view
from api.http.request.head import accepts, authorization, idempotency_key, last_event_id
from api.http.request.timeout import EVALUATIONS_STREAM, FIRINGS_STREAM
from api.http.routes.described import Operations, describe
from api.http.service import request, service
from api.schema import examples
from api.schema.envelope import BATCH_FORMS, JSON, MSGPACK, NDJSON, PROTOBUF, EntryOfReply, Response, answered
from api.schema.messages import evaluations as messages
from api.schema.messages import inspecting
from api.schema.messages.catalogue import given
from api.schema.messages.inspecting import State, StateQuery
from engine.evaluation.inspecting.explanations import ExplainBody
from engine.evaluation.wire.batches import count_events, count_records
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.decoding import BatchBody, EvaluateBody, TickBody
from engine.evaluation.wire.events import Done
from engine.evaluation.wire.records import Ingest
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits
from engine.runtime.contract.requests import operations

blueprint = Operations("evaluations")


@blueprint.post("/api/detectors/<detectorId>/evaluate")
@describe(
    scope="evaluate",
    dry_run_scope="read",
    summary="Evaluate an event",
    text="Gives one action for each enabled rule whose condition is true now, by priority. A detector's "
    "clock never runs backwards, and a much older event is refused with `1402`. The example suits a new "
    "detector, and the detector of the demo, where rules fire.",
    query=messages.EvaluateQuery,
    body=EvaluateBody,
    body_example={"event": examples.EVENT, "context": {"vars": {"blocklist": ["203.0.113.7"]}}},
    result=messages.Actions,
    own_codes=(1400, 1402),
    result_example={"actions": [examples.ACTION]},
    is_addition=False,
)
async def evaluate(detectorId: str, body: bytes, query: messages.EvaluateQuery) -> Response:
    request.permit.spend(1)
    explained = query.explain == "true"
    if query.dry_run == "true":
        operation = operations.dry_run(body, explained=explained)
    else:
        operation = operations.evaluate(body, idempotency_key(request.head), explained=explained)
    return await service.call(detectorId, operation._replace(details=query.details == "true"))


@blueprint.post("/api/detectors/<detectorId>/evaluate/batch")
@describe(
    scope="evaluate",
    dry_run_scope="read",
    summary="Evaluate many events in order",
    text="A refused event has its errors in its place, and the others are evaluated. As msgpack the body "
    "is the same document, and the response is JSON. As NDJSON each line is the body of one "
    "evaluation, or its event alone, and lines are answered while others are still arriving; a stream "
    "takes no Idempotency-Key and no query.",
    query=messages.BatchQuery,
    body=BatchBody,
    body_example={"events": [examples.EVENT], "context": {"vars": {}}},
    result=messages.BatchResults,
    own_codes=(1400,),
    result_example={"results": [{"actions": [examples.ACTION]}]},
    media_types=(JSON, MSGPACK, NDJSON),
)
async def evaluate_batch(
    detectorId: str, query: messages.BatchQuery, body: bytes = b""
) -> Response | NdjsonStream:
    if request.media_type == NDJSON:
        request.progress.operation = EVALUATIONS_STREAM
        return service.streams.open(detectorId, authorization(request.head), request.permit)
    form = BATCH_FORMS[request.media_type]
    if request.permit.rate is not None:
        request.permit.spend(await service.work(partial(count_events, body, form), len(body)))
    if query.dry_run == "true":
        operation = operations.dry_run_batch(body, form)
    else:
        operation = operations.evaluate_batch(body, idempotency_key(request.head), form)
    answer = await service.backend.call(detectorId, operation._replace(details=query.details == "true"))
    if query.strict == "true" and isinstance(answer, Done):
        await service.work(partial(check_accepted, answer.result), len(answer.result))
    return answered(answer)


@blueprint.post("/api/detectors/<detectorId>/ingest")
@describe(
    scope="evaluate",
    summary="Evaluate plain records",
    text="Takes what log shippers send, whatever the Content-Type says of it: a JSON object, an array of "
    "objects, or an object a line. Each is the fields of an event. The records of a body are evaluated in "
    "the order of their times. Those that are refused are counted, and the others evaluated; if all are, the "
    "answer is the first refusal, so that a shipper keeps what it could not deliver.",
    query=messages.IngestQuery,
    body=dict[str, Any] | list[dict[str, Any]],
    body_example=[examples.EVENT["fields"]],
    result=messages.Ingested,
    own_codes=(1400, 1402),
    result_example={"accepted": 1, "refused": 0, "fired": 1, "errors": []},
    takes_any_type=True,
)
async def ingest(detectorId: str, query: messages.IngestQuery, body: bytes) -> Response:
    if request.permit.rate is not None:
        request.permit.spend(await service.work(partial(count_records, body), len(body)))
    with_results = query.actions == "true"
    records = Ingest(body, given(query.time), with_results=with_results)
    return await service.call(detectorId, operations.ingest(records, idempotency_key(request.head)))


@blueprint.post("/api/detectors/<detectorId>/v1/logs")
@describe(
    scope="evaluate",
    summary="Evaluate OpenTelemetry logs",
    text="Takes logs as OTLP/HTTP exporters send them, as protobuf or JSON, and answers as OTLP says: no "
    "envelope, unless it is an error. Each log record is an event at its `timeUnixNano`, or else when it "
    "was observed. Its fields are the attributes of the record, those of its resource as `resource.NAME`, "
    "`scope.name`, `scope.version`, `body`, `severity`, `severity_number`, `trace_id`, `span_id` and "
    "`event_name`. Refused records are counted in `partialSuccess`.",
    body=ExportLogs,
    body_example=examples.LOGS,
    result=Exported,
    own_codes=(1400,),
    result_example={},
    media_types=(JSON, PROTOBUF),
    is_bare=True,
)
async def export_logs(detectorId: str, body: bytes) -> Response:
    in_protobuf, now_us = request.media_type == PROTOBUF, time_ns() // 1_000
    bytes_max = service.settings.max_batch_body_bytes
    read = partial(events_in, body, now_us, service.limits, bytes_max, in_protobuf=in_protobuf)
    records = Ingest(await service.work(read, len(body)), are_events=True)
    request.permit.spend(records.body.count(b"\n") + 1)
    answer = await service.backend.call(detectorId, operations.ingest(records))
    return exported(answer, in_protobuf=in_protobuf) if isinstance(answer, Done) else answered(answer)


@blueprint.post("/api/detectors/<detectorId>/tick")
@describe(
    scope="evaluate",
    summary="Let time pass without an event",
    text="Moves the detector's clock to `timestamp_ms`, and gives the actions of the timed rules that fire "
    "because of it, in order of time. A time that is not after the clock changes nothing. The service "
    "itself ticks each detector when something is due (`--tick-s`).",
    query=messages.RecordedQuery,
    body=TickBody,
    body_example={"timestamp_ms": examples.EVENT["timestamp_ms"]},
    result=messages.ActionsByTime,
    own_codes=(1402,),
    result_example={"actions": [examples.ACTION_BY_TIME]},
)
async def tick(detectorId: str, query: messages.RecordedQuery, body: bytes) -> Response:
    del query
    request.permit.spend(1)
    return await service.call(detectorId, operations.tick(body, idempotency_key(request.head)))


@blueprint.post("/api/detectors/<detectorId>/explain")
@describe(
    scope="read",
    summary="Explain why rules fire, or not",
    text="Tells what an evaluation of the event would do, and records nothing. Gives for each rule, or "
    "for the one named, the tree of its condition: what is true, what was looked up, which event settled "
    "it, and until when it stays so.",
    body=ExplainBody,
    body_example={"event": examples.EVENT},
    result=inspecting.Explanation,
    own_codes=(1201, 1400, 1402),
    result_example={"rules": [examples.EXPLAINED]},
)
async def explain(detectorId: str, body: bytes) -> Response:
    return await service.call(detectorId, operations.explain(body))


@blueprint.get("/api/detectors/<detectorId>/firings")
@describe(
    scope="read",
    summary="Read the feed of a detector",
    text="The actions of rules whose `notify` is true, in order, each with a number that is never used "
    "again: what fired, when, for which keys, and why. At most `limit`, after the number `after`; go on "
    "with `next`. The last ones are kept (setting `max_firings`); where some are gone, the first entry is "
    "a `gap`. With `Accept: text/event-stream`, firings follow as they come, each an event whose `id` is "
    "its number, from the next one on, or after `after` or the header `Last-Event-ID`. Reading delays no "
    "evaluation.",
    query=messages.FiringsQuery,
    result=messages.Firings,
    own_codes=(1006, 1401),
    result_example=examples.FIRINGS,
)
async def firings(detectorId: str, query: messages.FiringsQuery) -> Response | FeedStream:
    after, limit = given(query.after), given(query.limit) or messages.FIRINGS_DEFAULT
    if not accepts(request.head, EVENT_STREAM):
        return await service.call(detectorId, operations.firings(after or 0, limit))
    if (last := last_event_id(request.head)) is not None:
        after = last
    # What is wrong with the request has a status of its own.
    answer = await service.backend.call(detectorId, operations.firings(after, 1))
    if not isinstance(answer, Done):
        return answered(answer)
    after = next_of(answer.result) if after is None else after
    request.progress.operation = FIRINGS_STREAM
    return FeedStream(service.feeds, detectorId, authorization(request.head), after=after)


@blueprint.get("/api/detectors/<detectorId>/state")
@describe(
    scope="read",
    summary="Look inside a detector",
    text="Gives the detector in numbers: clock, events, rules, keys, bytes, journal, snapshot, worker. "
    "With `list`, one page of its keys, its memories or its rules; with `rule` and `key`, the standing "
    "verdict of a rule, as a tree; with `rule`, `list=keys` and `true=true`, the keys for which it is "
    "true. It delays events by a few milliseconds at most.",
    query=StateQuery,
    result=State,
    own_codes=(1201, 1400, 1401),
    result_example=examples.STATE,
)
async def state(detectorId: str, query: StateQuery) -> Response:
    return await state_view(partial(service.backend.call, detectorId), query)


ERRORS_MAX: Final = 20
"""How many errors are told."""


class _Result(msgspec.Struct):
    errors: list[EntryOfReply] = []


class _Results(msgspec.Struct):
    results: list[_Result]


def check_accepted(result: bytes) -> None:
    """Raise Refusal with the first error of a batch and those of its kind, if no event was accepted."""
    if b'"errors":' not in result:
        return
    refused = [one.errors for one in msgspec.json.decode(result, type=_Results).results]
    if not all(refused):
        return
    errors = [(place, error) for place, of_event in enumerate(refused) for error in of_event]
    kind = errors[0][1].code // 10
    same = [(place, error) for place, error in errors if error.code // 10 == kind][:ERRORS_MAX]
    raise Refusal(*[Entry(error.code, f"events[{place}]: {error.message}") for place, error in same])


_TOLD: Final = 3
"""How many refusals the message of the answer tells."""


_DEEPER: Final = 8
"""How many levels a record may be nested deeper than an event before its request is refused as a whole."""


def events_in(body: bytes, now_us: int, limits: Limits, bytes_max: int, *, in_protobuf: bool) -> bytes:
    """Return the events of the log records in a body, a line each. Raises Refusal."""
    if in_protobuf:
        logs = otlp_protobuf.LogsReader(limits).logs(body)
    else:
        # A record that is nested too deep is refused by itself.
        deeper = replace(limits, body_depth_max=otlp_logs.JSON_LEVELS * (limits.body_depth_max + _DEEPER))
        try:
            export = decode(body, ExportLogs, deeper)
        except Refusal:
            if (mended := otlp_logs.with_whole_characters(body)) == body:
                raise
            export = decode(mended, ExportLogs, deeper)
        logs = otlp_logs.logs_of(export)
    return otlp_logs.lines_of(logs, now_us, limits, bytes_max)


def exported(answer: Done, *, in_protobuf: bool) -> Response:
    """Return the response to records that were evaluated, and of which some may have been refused."""
    said = msgspec.json.decode(answer.result)
    refused, message = said["refused"], _message(said["errors"])
    if in_protobuf:
        return Response(200, otlp_protobuf.partial_success(refused, message), content_type=PROTOBUF)
    return Response(200, otlp_logs.partial_success(refused, message), content_type=JSON)


def _message(errors: list[dict[str, Any]]) -> str:
    told = [f"log record {error['index']}: {error['code']} {error['message']}" for error in errors[:_TOLD]]
    return "; ".join(told)
