"""Spans of requests: what a collector gets over OTLP, and that one that is away costs nothing but spans."""

import json
import logging
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from api.http.app import Application
from api.observability import tracing
from api.observability.request_metrics import SPANS_LOST, SPANS_QUEUE_FULL, SPANS_SENT
from api.observability.tracing import (
    QUEUED_MAX,
    FinishedRequest,
    HttpRequest,
    TraceParent,
    Tracing,
    trace_parent,
)
from api.server.requests import Fields
from api.settings import Settings
from engine.runtime.detector import apply as apply_module
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.observability.test_refusals import counted
from tests.api.wire import request, served
from tests.local_runtime.service import local_service

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
EVENT = {"event": {"fields": {"a": 1}, "timestamp_ms": 0}}


class Collector:
    """A collector on the loopback interface, which decodes what it gets."""

    def __init__(self) -> None:
        self.status = 200
        self.headers: list[dict[str, str]] = []
        self.resources: list[dict[str, Any]] = []
        self.spans: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                collector.take(dict(self.headers), self.rfile.read(int(self.headers["content-length"])))
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def take(self, headers: dict[str, str], body: bytes) -> None:
        # Imported here, so that this file is collected without the extra.
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: PLC0415
            ExportTraceServiceRequest,
        )

        self.headers.append(headers)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(attributes(resource.resource))
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)


def attributes(of: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in of.attributes}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("NO_PROXY", "*")
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


def application(folder: Path, backend: Any, endpoint: str | None) -> Application:
    return Application(Settings(data=folder, bootstrap_token=BOOTSTRAP, otlp_endpoint=endpoint), backend)


async def test_a_collector_gets_a_span_of_each_request_with_where_its_time_went(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=for-the-collector")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=a-test")
    async with local_service(tmp_path) as service:
        app = application(tmp_path, service.backend, collector.url)
        assert app.tracing is not None
        caller = Caller(app, BOOTSTRAP)
        detector = await caller.detector()
        await caller.rule(detector, "a == 1")
        path = f"/api/detectors/{detector}/evaluate"
        async with served(app, Settings()) as wire:

            async def status_of(
                parent: str, method: str = "POST", path: str = path, token: str = BOOTSTRAP
            ) -> int:
                headers = (f"traceparent: {parent}", "X-Request-ID: r-1")
                body = json.dumps(EVENT).encode() if method == "POST" else b""
                return (
                    await wire.once(request(method, path, body, token=token, headers=headers), method)
                ).status

            assert await status_of(f"00-{TRACE}-{SPAN}-01") == 200
            assert await status_of(f"00-{TRACE}-{SPAN}-00") == 200, "the caller does not record its own"
            assert await status_of("malformed", "GET", "/api/detectors/secret") == 404
            # Neither probes nor strangers fill a collector.
            assert await status_of("", "GET", "/healthz") == 200
            assert await status_of(f"00-{TRACE}-{SPAN}-01", token="unknown") == 401
        app.tracing._thread.join(60)
        sent = await counted(caller, "spans", "outcome")
    assert sent == {(SPANS_SENT,): len(collector.spans)}
    by_name = {span.name: span for span in collector.spans}
    assert sorted(span.name for span in collector.spans) == sorted(
        [
            "POST /api/detectors",
            "POST /api/detectors/{detectorId}/rules",
            "POST /api/detectors/{detectorId}/evaluate",
            "GET /api/detectors/{detectorId}",
        ]
    )
    span = by_name["POST /api/detectors/{detectorId}/evaluate"]
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.kind) == (TRACE, SPAN, 2)
    assert 0 < span.end_time_unix_nano - span.start_time_unix_nano < 60e9
    said = attributes(span)
    times = [said.pop(f"rule_detector.{name}_ms") for name in ("queued", "evaluated", "synced")]
    assert all(time >= 0 for time in times)
    assert sum(times) * 1e6 <= span.end_time_unix_nano - span.start_time_unix_nano + 1e6
    assert said == {
        "http.request.method": "POST",
        "http.route": "/api/detectors/{detectorId}/evaluate",
        "http.response.status_code": 200,
        "rule_detector.request": "r-1",
        "rule_detector.operation": "evaluate",
        "rule_detector.detector": detector,
    }
    lost = by_name["GET /api/detectors/{detectorId}"]
    assert not lost.parent_span_id
    assert lost.trace_id.hex() != TRACE
    assert attributes(lost)["error.type"] == "1200"
    assert "secret" not in str(lost)
    assert {headers["api-key"] for headers in collector.headers} == {"for-the-collector"}
    resource = collector.resources[0]
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("rule-detector", "a-test")


@pytest.mark.parametrize("away", [True, False], ids=["away", "refuses"])
async def test_a_collector_that_is_away_or_refuses_costs_its_spans_and_nothing_else(
    tmp_path: Path, collector: Collector, *, away: bool
) -> None:
    collector.status = 400
    if away:
        collector.server.shutdown()
        collector.server.server_close()
    async with local_service(tmp_path) as service:
        app = application(tmp_path, service.backend, collector.url)
        caller = Caller(app, BOOTSTRAP)
        detector = await caller.detector()
        assert (await caller("POST", f"/api/detectors/{detector}/evaluate", EVENT)).status == 200
        assert app.tracing is not None
        # It tries again for seconds, for which nobody waits.
        await app.tracing.close()
        app.tracing._thread.join(60)
        assert await counted(caller, "spans", "outcome") == {(SPANS_LOST,): 2}


async def test_without_a_collector_nothing_of_it_is_there(tmp_path: Path) -> None:
    threads = threading.active_count()
    async with local_service(tmp_path) as service:
        app = application(tmp_path, service.backend, None)
        assert app.tracing is None
        caller = Caller(app, BOOTSTRAP)
        await caller.detector()
        assert await counted(caller, "spans", "outcome") == {}
    assert not [one for one in threading.enumerate() if one.name == "spans"], threads


class Held:
    """A sender that blocks until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.began = threading.Event()
        self.batches: list[int] = []
        self.fails = False

    def send(self, finished: Sequence[FinishedRequest]) -> tuple[int, bool]:
        self.began.set()
        assert self.released.wait(60)
        if self.fails:
            raise ValueError("a span that cannot be made")
        self.batches.append(len(finished))
        return len(finished), True

    def close(self) -> None:
        self.released.set()


FINISHED = FinishedRequest(HttpRequest("r", Fields()), "evaluate", "POST", b"/", 200, None, 0, 0.0)


async def test_what_a_full_queue_drops_is_counted_and_logged_and_nobody_waits(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_EVERY_S", 0.01)
    held = Held()
    queue = Tracing(lambda: held)
    queue.put(FINISHED)
    assert held.began.wait(60)
    for _ in range(QUEUED_MAX + 7):
        queue.put(FINISHED)
    with caplog.at_level(logging.WARNING):
        assert queue.take_counts() == {SPANS_QUEUE_FULL: 7}
        assert queue.take_counts() == {}
    assert [record.getMessage() for record in caplog.records] == [
        f"7 spans were dropped: {QUEUED_MAX} others wait"
    ]
    # The end does not wait for the collector for long, and then has the sender give up.
    await queue.close(0.0)
    queue._thread.join(60)
    assert not queue._thread.is_alive()
    assert sum(held.batches) == QUEUED_MAX + 1
    assert max(held.batches) == tracing.TOGETHER_MAX
    assert queue.take_counts() == {SPANS_SENT: QUEUED_MAX + 1}


async def test_a_span_that_cannot_be_made_is_lost_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "_EVERY_S", 0.01)
    held = Held()
    held.fails = True
    queue = Tracing(lambda: held)
    queue.put(FINISHED)
    assert held.began.wait(60)
    queue.put(FINISHED)
    held.began.clear()
    held.released.set()
    assert held.began.wait(60), "the thread goes on"
    await queue.close(60)
    assert queue.take_counts() == {SPANS_LOST: 2}
    assert any("could not be made" in record.getMessage() for record in caplog.records)


SENT = f"00-{TRACE}-{SPAN}-01"


def read(*values: str) -> TraceParent | None:
    sent = ((b"traceparent", value.encode("latin-1")) for value in values)
    return trace_parent(Fields([(b"host", b"x"), *sent]))


@pytest.mark.parametrize(
    ("value", "flags"),
    [
        (SENT, 1),
        (f"00-{TRACE}-{SPAN}-00", 0),
        (f"00-{TRACE}-{SPAN}-ff", 255),
        (f"cc-{TRACE}-{SPAN}-01", 1),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", 1),
    ],
)
def test_a_trace_parent_is_read(value: str, flags: int) -> None:
    assert read(value) == TraceParent(TRACE, SPAN, flags)


@pytest.mark.parametrize(
    "value",
    [
        "",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01 x",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"cc-{TRACE}-{SPAN}-01-\x00",
        f"{SENT},{SENT}",
    ],
)
def test_whatever_is_malformed_is_ignored(value: str) -> None:
    assert read(value) is None


def test_without_one_or_with_two_there_is_no_trace() -> None:
    assert read() is None
    assert read(SENT, SENT) is None
    assert HttpRequest("r", Fields()).fields == {"request": "r"}
    assert HttpRequest("r", Fields([(b"traceparent", SENT.encode())])).fields == {
        "request": "r",
        "trace": TRACE,
    }


async def test_every_record_about_a_request_has_its_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(detector: object, body: bytes) -> None:
        raise RuntimeError("an engine that breaks")

    async with local_service(tmp_path) as service:
        settings = Settings(data=tmp_path, bootstrap_token=BOOTSTRAP, slow_request_ms=0.000_001)
        caller = Caller(Application(settings, service.backend), BOOTSTRAP)
        detector = await caller.detector()
        await caller.rule(detector, "a == 1")
        monkeypatch.setattr(apply_module, "evaluate_body", breaks)
        event = {"event": {"fields": {"a": 1}, "timestamp_ms": 0}}
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            path = f"/api/detectors/{detector}/evaluate"
            said = await caller("POST", path, event, headers={"traceparent": SENT})
            assert said.codes == [1500]
            assert "traceparent" not in said.headers
    found = {record.getMessage(): record.fields for record in caplog.records if hasattr(record, "fields")}
    (broken,) = (fields for message, fields in found.items() if "internal error" in message)
    assert broken["trace"] == found["a slow request"]["trace"] == TRACE
    assert json.dumps(found["a slow request"], allow_nan=False)
