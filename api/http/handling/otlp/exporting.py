"""Answers an export of logs: makes events of them, has them evaluated, and says what was refused."""

from functools import partial
from time import time_ns
from typing import Any, Final

import msgspec

from api.http.handling.otlp import json_form, protobuf
from api.http.handling.otlp.logs import lines_of
from api.http.service import service
from api.schema.envelope import JSON, PROTOBUF, Response, answered
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.events import Refused
from engine.evaluation.wire.records.decoding import Ingest
from engine.language.limits import Limits
from engine.runtime.contract.requests import operations

_TOLD: Final = 3
"""How many refusals the message of the answer tells."""


async def exported(detector_id: str, body: bytes, *, in_protobuf: bool) -> Response:
    """Evaluate the log records of a body, and return the response. Raises Refusal."""
    bytes_max = service.settings.max_batch_body_bytes
    read = partial(events_in, body, time_ns() // 1_000, service.limits, bytes_max, in_protobuf=in_protobuf)
    lines = await service.work(read, len(body))
    answer = await service.backend.call(detector_id, operations.ingest(Ingest(lines, are_events=True)))
    if isinstance(answer, Refused):
        return answered(answer)
    said = msgspec.json.decode(answer.result)
    refused, message = said["refused"], _message(said["errors"])
    if in_protobuf:
        return Response(200, protobuf.partial_success(refused, message), content_type=PROTOBUF)
    return Response(200, json_form.partial_success(refused, message), content_type=JSON)


def events_in(body: bytes, now_us: int, limits: Limits, bytes_max: int, *, in_protobuf: bool) -> bytes:
    """Return the events of the log records in a body, a line each. Raises Refusal."""
    if in_protobuf:
        logs = protobuf.LogsReader(limits).logs(body)
    else:
        logs = json_form.logs_of(decode(body, json_form.ExportLogs, limits))
    return lines_of(logs, now_us, limits, bytes_max)


def _message(errors: list[dict[str, Any]]) -> str:
    told = [f"log record {error['index']}: {error['code']} {error['message']}" for error in errors[:_TOLD]]
    return "; ".join(told)
