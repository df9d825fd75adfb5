"""Reads the protobuf form of OTLP logs, and writes that of the answer."""

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from engine.evaluation.wire.bodies import too_many_values
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits

_OUTER_TAGS: Final = b"\x0a\x12"
_TAGS: Final = b"\x0a\x12\x2a\x32"
"""The bytes with which messages begin that stand in a record, in a resource or in a scope."""
_OUTER_COSTS: Final = 4
"""A message in another takes as much memory as so many pieces of bytes."""


def _parts_message() -> Any:
    """Return a message whose fields 1 and 2 are bytes, as which the outer messages of a request are read."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="parts.proto", syntax="proto3")
    message = file.message_type.add(name="Parts")
    for number, name in enumerate(("first", "second"), 1):
        message.field.add(name=name, number=number, type=field.TYPE_BYTES, label=field.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Parts"))


_Parts: Final = _parts_message()


def logs_of(body: bytes, limits: Limits) -> Iterator[tuple[Any, Any, Iterator[Any]]]:
    """Yield the log records of an ExportLogsServiceRequest, each parsed by itself.

    So one large body neither fills the memory nor holds up other requests. Raises Refusal 1000.
    """
    values_max = left = limits.body_values_max

    def parsed(message: Any, data: bytes, tags: bytes = _TAGS, most: int = values_max) -> Any:
        # Each nested message takes at least two bytes, of which the first is a tag.
        if len(data) > 2 * most and sum(map(data.count, tags)) > most:
            raise too_many_values(values_max)
        try:
            return message.FromString(data)
        except DecodeError as error:
            reason = str(error).partition("': ")[2] or str(error)
            raise Refusal(Entry(1000, f"the body is no protobuf of logs: {reason}")) from None

    def parts_of(data: bytes) -> Any:
        nonlocal left
        parts = parsed(_Parts, data, _OUTER_TAGS, values_max * _OUTER_COSTS)
        left -= len(parts.first) + len(parts.second)
        if left < 0:
            raise too_many_values(values_max)
        return parts

    for resource_logs in parts_of(body).first:
        of_resource = parts_of(resource_logs)
        resource = parsed(Resource, b"".join(of_resource.first))
        for scope_logs in of_resource.second:
            of_scope = parts_of(scope_logs)
            scope = parsed(InstrumentationScope, b"".join(of_scope.first))
            yield resource, scope, (parsed(LogRecord, record) for record in of_scope.second)


def partial_success(refused: int, message: str) -> bytes:
    """Return an ExportLogsServiceResponse, empty if nothing was refused."""
    said = ExportLogsPartialSuccess(rejected_log_records=refused, error_message=message) if refused else None
    answer: bytes = ExportLogsServiceResponse(partial_success=said).SerializeToString()
    return answer
