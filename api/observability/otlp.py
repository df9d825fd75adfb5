"""Makes and sends spans with OpenTelemetry, by OTLP over HTTP. Needs the packages of the extra `tracing`."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from api.observability.request_metrics import CALLER_GONE
from api.observability.tracing import FinishedRequest, trace_parent
from api.schema.operation import Operation, detector_in
from engine.runtime.contract.build import build_version

_NAME: Final = "rule-detector"
_METHODS: Final = frozenset({"GET", "POST", "PATCH", "PUT", "DELETE", "HEAD", "OPTIONS"})
_SERVER_ERROR: Final = 500

Attributes = Mapping[str, str | int | float]


class OtlpSender:
    """Makes a span of each request and sends the spans.

    OpenTelemetry's variables set the sampler, the headers, the name of the service and the rest.
    """

    def __init__(self, endpoint: str, operations: Sequence[Operation]) -> None:
        """`endpoint` is the address of the collector without the path for traces."""
        self._operations = {operation.name: operation for operation in operations}
        self._exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
        self._ended = _Ended()
        ours = {
            "service.name": _NAME,
            "service.version": build_version(),
            "service.instance.id": f"{os.uname().nodename}:{os.getpid()}",
        }
        resource = Resource.create({**ours, **OTELResourceDetector().detect().attributes})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer(_NAME)

    def send(self, finished: Sequence[FinishedRequest]) -> tuple[int, bool]:
        """Send the spans of requests. See Sender."""
        for one in finished:
            self._make_span(one)
        spans = self._ended.take()
        taken = not spans or self._exporter.export(spans) is SpanExportResult.SUCCESS
        return len(spans), taken

    def close(self) -> None:
        """Give up spans that the collector does not take at once."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _make_span(self, finished: FinishedRequest) -> None:
        operation = self._operations.get(finished.operation)
        span = self._tracer.start_span(
            finished.operation if operation is None else operation.route,
            context=_parent_of(finished),
            kind=SpanKind.SERVER,
            attributes=_attributes(finished, operation),
            start_time=finished.ended_ns - round(finished.took_s * 1e9),
            record_exception=False,
        )
        if finished.status >= _SERVER_ERROR:
            span.set_status(StatusCode.ERROR)
        span.end(finished.ended_ns)


class _Ended(SpanProcessor):
    """Keeps sampled, ended spans."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def take(self) -> list[ReadableSpan]:
        taken, self._spans = self._spans, []
        return taken


def _parent_of(finished: FinishedRequest) -> Context:
    parent = trace_parent(finished.request.head)
    if parent is None:
        return Context()
    context = SpanContext(
        int(parent.trace_id, 16),
        int(parent.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(parent.flags & TraceFlags.SAMPLED),
    )
    return set_span_in_context(NonRecordingSpan(context), Context())


def _attributes(finished: FinishedRequest, operation: Operation | None) -> Attributes:
    """Return a request's attributes, without path and query, in which callers put secrets."""
    request = finished.request
    is_gone = finished.status == CALLER_GONE
    said: dict[str, str | int | float | None] = {
        "http.request.method": finished.method if finished.method in _METHODS else "_OTHER",
        "http.route": None if operation is None else operation.path,
        "http.response.status_code": None if is_gone else finished.status,
        "error.type": "caller gone" if is_gone else finished.code and str(finished.code),
        "rule_detector.request": request.id,
        "rule_detector.operation": finished.operation,
        "rule_detector.detector": detector_in(finished.path),
        "rule_detector.queued_ms": _ms(request.queued_s),
        "rule_detector.evaluated_ms": _ms(request.evaluated_s),
        "rule_detector.synced_ms": _ms(request.synced_s),
    }
    return {name: value for name, value in said.items() if value is not None}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
