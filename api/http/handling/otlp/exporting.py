"""An export of logs: the events that it becomes, and the answer, which says what was refused."""

from typing import Any, Final

import msgspec

from api.http.handling.otlp import json_form, protobuf
from api.http.handling.otlp.logs import lines_of
from api.schema.envelope import JSON, PROTOBUF, Response
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.events import Done
from engine.language.limits import Limits

_TOLD: Final = 3
"""How many refusals the message of the answer tells."""


def events_in(body: bytes, now_us: int, limits: Limits, bytes_max: int, *, in_protobuf: bool) -> bytes:
    """Return the events of the log records in a body, a line each. Raises Refusal."""
    if in_protobuf:
        logs = protobuf.LogsReader(limits).logs(body)
    else:
        logs = json_form.logs_of(decode(body, json_form.ExportLogs, limits))
    return lines_of(logs, now_us, limits, bytes_max)


def exported(answer: Done, *, in_protobuf: bool) -> Response:
    """Return the response to records that were evaluated, and of which some may have been refused."""
    said = msgspec.json.decode(answer.result)
    refused, message = said["refused"], _message(said["errors"])
    if in_protobuf:
        return Response(200, protobuf.partial_success(refused, message), content_type=PROTOBUF)
    return Response(200, json_form.partial_success(refused, message), content_type=JSON)


def _message(errors: list[dict[str, Any]]) -> str:
    told = [f"log record {error['index']}: {error['code']} {error['message']}" for error in errors[:_TOLD]]
    return "; ".join(told)
