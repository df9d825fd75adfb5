"""Logs of OpenTelemetry: their fields and times, both forms, what is refused, and the SDK's own exporter."""

import asyncio
import gzip
import json
import random
from typing import Any

import pytest

from api.http.app import Application
from api.http.handling import otlp_logs, otlp_protobuf
from api.http.routes.evaluations import events_in
from api.settings import Settings
from engine.language.diagnostics import Refusal
from engine.language.limits import Limits
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.wire import served

NOON_NS = 1_709_553_600_000_000_000
PROTOBUF = "application/x-protobuf"
LIMITS = Limits()

# The messages of OTLP, as the project itself has them in Python.
logs_service_pb2 = pytest.importorskip("opentelemetry.proto.collector.logs.v1.logs_service_pb2")
common_pb2 = pytest.importorskip("opentelemetry.proto.common.v1.common_pb2")
json_format = pytest.importorskip("google.protobuf.json_format")
Request = logs_service_pb2.ExportLogsServiceRequest


def any_value(value: Any) -> Any:
    made = common_pb2.AnyValue()
    match value:
        case bool():
            made.bool_value = value
        case str():
            made.string_value = value
        case int():
            made.int_value = value
        case float():
            made.double_value = value
        case bytes():
            made.bytes_value = value
        case list():
            made.array_value.SetInParent()
            made.array_value.values.extend(map(any_value, value))
        case dict():
            made.kvlist_value.SetInParent()
            made.kvlist_value.values.extend(pairs(value))
    return made


def pairs(attributes: dict[str, Any]) -> list[Any]:
    return [common_pb2.KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def request_of(*records: dict[str, Any], resource: dict[str, Any] | None = None, scope: str = "") -> Any:
    request = Request()
    of_resource = request.resource_logs.add()
    of_resource.resource.attributes.extend(pairs(resource or {}))
    of_scope = of_resource.scope_logs.add()
    of_scope.scope.name = scope
    for record in records:
        made = of_scope.log_records.add()
        for name, value in record.items():
            if name == "attributes":
                made.attributes.extend(pairs(value))
            elif name == "body":
                made.body.CopyFrom(any_value(value))
            else:
                setattr(made, name, value)
    return request


def as_json(request: Any) -> bytes:
    """Return OTLP's JSON, which has ids in hexadecimal digits."""
    document = json_format.MessageToDict(request, use_integers_for_enums=True)
    for of_resource, there in zip(document.get("resourceLogs", ()), request.resource_logs, strict=True):
        for of_scope, scope in zip(of_resource.get("scopeLogs", ()), there.scope_logs, strict=True):
            for record, given in zip(of_scope.get("logRecords", ()), scope.log_records, strict=True):
                record |= {"traceId": given.trace_id.hex().upper(), "spanId": given.span_id.hex()}
    return json.dumps(document).encode()


def events(
    body: bytes, *, in_protobuf: bool = True, limits: Limits = LIMITS, most: int = 1 << 24
) -> list[Any]:
    lines = events_in(body, 5_000_000, limits, most, in_protobuf=in_protobuf)
    return [json.loads(line) for line in lines.splitlines()]


FULL = {
    "time_unix_nano": NOON_NS + 1_500,
    "observed_time_unix_nano": NOON_NS + 10**9,
    "severity_number": 17,
    "severity_text": "ERROR",
    "body": {"said": ["no", 1, 2.5, True, b"\x00\xff", {}, []], "n": -5},
    "attributes": {"http.status_code": 500, "user": "ada", "span_id": "spoofed"},
    "trace_id": bytes(range(16)),
    "span_id": b"12345678",
    "event_name": "login",
}


@pytest.mark.parametrize("in_protobuf", [True, False])
def test_a_record_has_all_of_its_fields_by_their_names(in_protobuf: bool) -> None:
    request = request_of(FULL, resource={"service.name": "web", "user": "of the resource"}, scope="app.auth")
    body = request.SerializeToString() if in_protobuf else as_json(request)
    assert events(body, in_protobuf=in_protobuf) == [
        {
            "fields": {
                "http.status_code": 500,
                "user": "ada",
                "resource.service.name": "web",
                "resource.user": "of the resource",
                "scope.name": "app.auth",
                "body": {"said": ["no", 1, 2.5, True, "AP8=", {}, []], "n": -5},
                "severity": "ERROR",
                "severity_number": 17,
                "trace_id": "000102030405060708090a0b0c0d0e0f",
                "span_id": "3132333435363738",
                "event_name": "login",
            },
            "timestamp_ms": NOON_NS / 1e6 + 0.001,
        }
    ]


@pytest.mark.parametrize("in_protobuf", [True, False])
def test_what_a_record_does_not_have_is_missing_and_its_time_is_when_it_was_observed_or_came(
    in_protobuf: bool,
) -> None:
    request = request_of({}, {"observed_time_unix_nano": NOON_NS}, {"body": ""}, {"body": 0})
    body = request.SerializeToString() if in_protobuf else as_json(request)
    assert events(body, in_protobuf=in_protobuf) == [
        {"fields": {}, "timestamp_ms": 5_000},
        {"fields": {}, "timestamp_ms": NOON_NS // 10**6},
        {"fields": {"body": ""}, "timestamp_ms": 5_000},
        {"fields": {"body": 0}, "timestamp_ms": 5_000},
    ]


def drawn_value(drawn: random.Random, depth: int = 0) -> Any:
    kinds = [
        lambda: drawn.choice(("", "x" * drawn.choice((3, 127, 128, 300)), "é\U0001f600", "NaN")),
        lambda: drawn.choice((True, False)),
        lambda: drawn.choice((0, 1, -1, 2**63 - 1, -(2**63), drawn.randrange(-300, 300))),
        lambda: drawn.choice((0.5, -1e300, float("nan"), float("inf"), float("-inf"), 1e-320, 3.0)),
        lambda: drawn.randbytes(drawn.randrange(5)),
    ]
    if depth < 4:
        kinds += [
            lambda: [drawn_value(drawn, depth + 1) for _ in range(drawn.randrange(4))],
            lambda: {f"k{n}": drawn_value(drawn, depth + 1) for n in range(drawn.randrange(4))},
        ]
    return drawn.choice(kinds)()


def drawn_request(drawn: random.Random) -> Any:
    request = Request()
    for _ in range(drawn.randrange(1, 3)):
        records = []
        for _ in range(drawn.randrange(4)):
            record = {
                "time_unix_nano": drawn.choice((0, NOON_NS + drawn.randrange(10**9))),
                "severity_text": drawn.choice(("", "INFO")),
                "severity_number": drawn.choice((0, 9)),
                "attributes": {f"a{n}": drawn_value(drawn) for n in range(drawn.randrange(5))},
                "trace_id": drawn.randbytes(drawn.choice((0, 16))),
                "flags": drawn.randrange(4),
                "dropped_attributes_count": drawn.choice((0, 300)),
            }
            records.append(record | ({"body": drawn_value(drawn)} if drawn.random() < 0.7 else {}))
        part = request_of(*records, resource={"r": drawn_value(drawn)}, scope=drawn.choice(("", "s")))
        request.MergeFrom(part)
    return request


def as_event_value(value: Any) -> Any:
    """Return what an AnyValue is in an event, by the library's own reading of it."""
    kind = value.WhichOneof("value")
    match kind:
        case None:
            return None
        case "array_value":
            return [as_event_value(each) for each in value.array_value.values]
        case "kvlist_value":
            return {each.key: as_event_value(each.value) for each in value.kvlist_value.values}
        case "bytes_value" | "double_value":
            return json_format.MessageToDict(value)[kind.replace("_v", "V")]
    return getattr(value, kind)


@pytest.mark.parametrize("seed", range(20))
def test_both_forms_are_read_as_the_library_of_the_project_reads_them(seed: int) -> None:
    drawn = random.Random(seed)
    for _ in range(10):
        request = drawn_request(drawn)
        found = events(request.SerializeToString())
        assert events(as_json(request), in_protobuf=False) == found
        records = [
            (scope, record, of.resource)
            for of in request.resource_logs
            for scope in of.scope_logs
            for record in scope.log_records
        ]
        assert len(found) == len(records)
        for event, (scope, record, resource) in zip(found, records, strict=True):
            fields = event["fields"]
            for each in record.attributes:
                assert fields[each.key] == as_event_value(each.value)
            assert fields["resource.r"] == as_event_value(resource.attributes[0].value)
            assert fields.get("scope.name", "") == scope.scope.name
            assert fields.get("trace_id", "") == record.trace_id.hex()
            assert fields.get("body") == as_event_value(record.body)


def test_every_cut_and_every_flipped_byte_is_read_or_refused() -> None:
    body = request_of(FULL, FULL, resource={"a": "b"}).SerializeToString()
    refused = 0
    for at in range(len(body)):
        for broken in (body[:at], body[:at] + bytes([body[at] ^ 0xFF]) + body[at + 1 :]):
            try:
                events(broken)
            except Refusal as refusal:
                refused += [entry.code for entry in refusal.entries] == [1000]
    assert refused > len(body) / 2


def wrapped(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + otlp_protobuf._as_varint(len(data)) + data


def nested(*depths: int) -> bytes:
    """Return a request with records whose bodies are arrays in so many others."""
    records = b""
    for depth in depths:
        value = b"\x18\x01"
        for _ in range(depth):
            value = wrapped(0x2A, wrapped(0x0A, value))
        records += wrapped(0x12, wrapped(0x2A, value))
    return wrapped(0x0A, wrapped(0x12, records))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\x0a", "it ends early"),
        (b"\x0a\x05ab", "it ends early"),
        (b"\x08", "it ends early"),
        (b"\x09\x01", "it ends early"),
        (b"\x0b\x0c", "a field of an unknown type"),
        (b"\xff" * 11, "a number has too many bytes"),
        (b"\x80" * 10 + b"\x01", "a number has too many bytes"),
        (b'{"resourceLogs":[]}', "protobuf"),
    ],
)
def test_what_is_no_protobuf_of_logs_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(Refusal, match=said) as raised:
        events(body)
    assert [entry.code for entry in raised.value.entries] == [1000]


def test_the_work_for_a_body_is_bounded() -> None:
    assert len(events(nested(60))) == 1
    with pytest.raises(Refusal, match="holds more than 1000 values"):
        events(b"\x08\x01" * 2_000, limits=Limits(body_values_max=1_000))
    with pytest.raises(Refusal, match="more than 10 log records") as raised:
        events(request_of(*[{}] * 11).SerializeToString(), limits=Limits(batch_events_max=10))
    assert raised.value.entries[0].code == 1400
    # Each event repeats what its resource has.
    bomb = request_of(*[{}] * 5_000, resource={"x": "y" * 100_000}).SerializeToString()
    assert len(bomb) < 200_000
    with pytest.raises(Refusal, match="becomes events of more than 1000000 bytes") as raised:
        events(bomb, most=1_000_000)
    assert raised.value.entries[0].code == 1003


def test_the_answer_is_what_the_library_of_the_project_reads() -> None:
    answer = logs_service_pb2.ExportLogsServiceResponse
    assert otlp_protobuf.partial_success(0, "") == b""
    for count, said in ((1, "x"), (300, "é" * 100), (2**40, "")):
        read = answer.FromString(otlp_protobuf.partial_success(count, said)).partial_success
        assert (read.rejected_log_records, read.error_message) == (count, said)
        other = json_format.Parse(otlp_logs.partial_success(count, said), answer()).partial_success
        assert other == read
    assert otlp_logs.partial_success(0, "") == b"{}"


def test_bytes_that_are_no_utf_8_are_replaced_and_lose_no_record() -> None:
    request = request_of({"severity_text": "xy", "attributes": {"xa": "xb"}}, {}, resource={"r": "x"})
    first, other = events(request.SerializeToString().replace(b"x", b"\xff"))
    assert first["fields"] == {"severity": "\ufffdy", "\ufffda": "\ufffdb", "resource.r": "\ufffd"}
    assert other["fields"] == {"resource.r": "\ufffd"}


def test_half_a_character_in_json_is_replaced_and_loses_no_record() -> None:
    text = r"\ud83d\uDE00 \ud83d \\ud83d \\\uDE00\ud83d\n\ud83d\ud83d\ude00"
    record = f'{{"severityText":"{text}"}}'
    body = f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{record},{{}}]}}]}}]}}'.encode()
    event, _other = events(body, in_protobuf=False)
    with pytest.raises(Refusal, match="surrogate"):
        events(body + b" " * otlp_logs.MENDED_BYTES_MAX, in_protobuf=False)
    assert event["fields"]["severity"] == "\U0001f600 \ufffd \\ud83d \\\ufffd\ufffd\n\ufffd\U0001f600"


@pytest.mark.parametrize(
    "document",
    [
        {"resourceLogs": None},
        {"resourceLogs": [{"resource": None, "scopeLogs": None}]},
        {"resourceLogs": [{"resource": {"attributes": None}, "scopeLogs": [{"logRecords": None}]}]},
    ],
)
def test_null_in_json_is_what_is_not_there(document: Any) -> None:
    assert events(json.dumps(document).encode(), in_protobuf=False) == []


def test_null_in_a_record_in_json_is_what_is_not_there() -> None:
    names = ("timeUnixNano", "observedTimeUnixNano", "severityNumber", "severityText", "body", "attributes")
    record = dict.fromkeys((*names, "traceId", "spanId", "eventName"))
    scope = {"scope": {"name": None, "version": None}, "logRecords": [record]}
    document = {"resourceLogs": [{"scopeLogs": [scope]}]}
    assert events(json.dumps(document).encode(), in_protobuf=False) == [{"fields": {}, "timestamp_ms": 5_000}]


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ({"doubleValue": "2.5"}, 2.5),
        ({"doubleValue": "-1e3"}, -1000.0),
        ({"doubleValue": "NaN"}, "NaN"),
        ({"doubleValue": "1e999"}, "Infinity"),
        ({"arrayValue": {"values": None}}, []),
        ({"kvlistValue": {"values": [{"key": None, "value": {"intValue": "7"}}]}}, {"": 7}),
    ],
)
def test_values_in_json_are_read_as_protobuf_s_json_has_them(value: Any, meant: Any) -> None:
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": value}]}]}]}
    [event] = events(json.dumps(document).encode(), in_protobuf=False)
    assert event["fields"]["body"] == meant


async def sent(caller: Caller, detector: str, body: bytes, **headers: str) -> Any:
    headers = {"Authorization": f"Bearer {caller.token}", "Content-Type": PROTOBUF} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return await caller.plain("POST", f"/api/detectors/{detector}/v1/logs", content=body, headers=headers)


async def test_records_are_evaluated_by_their_times_and_the_refused_ones_are_counted(caller: Caller) -> None:
    detector = await caller.detector()
    await caller.rule(detector, 'once severity == "ERROR" and resource.service.name == "web"', notify=True)
    request = request_of(
        {"time_unix_nano": NOON_NS + 10**9},
        {"time_unix_nano": NOON_NS, "severity_text": "ERROR"},
        resource={"service.name": "web"},
    )
    body = request.SerializeToString()
    for content, headers in (
        (body, {}),
        (gzip.compress(body), {"Content_Encoding": "gzip"}),
        (as_json(request), {"Content_Type": "application/json; charset=utf-8"}),
    ):
        reply = await sent(caller, detector, content, **headers)
        assert reply.status_code == 200
        in_json = "Content_Type" in headers
        assert reply.headers["content-type"] == ("application/json" if in_json else PROTOBUF)
        assert reply.content == (b"{}" if in_json else b"")
    feed = await caller("GET", f"/api/detectors/{detector}/firings")
    assert [one["time_ms"] for one in feed.result["firings"]][:2] == [NOON_NS / 1e6, NOON_NS / 1e6 + 1_000]
    late = request_of({"time_unix_nano": 1}, {"time_unix_nano": NOON_NS + 2 * 10**9}, {"time_unix_nano": 2})
    reply = await sent(caller, detector, as_json(late), Content_Type="application/json")
    said = reply.json()["partialSuccess"]
    assert said["rejectedLogRecords"] == "2"
    assert said["errorMessage"].startswith("log record 0: 1402 the event is ")
    # Also if all are refused: an exporter must not send them again.
    reply = await sent(caller, detector, request_of({"time_unix_nano": 1}).SerializeToString())
    partial = logs_service_pb2.ExportLogsServiceResponse.FromString(reply.content).partial_success
    assert (reply.status_code, partial.rejected_log_records) == (200, 1)


@pytest.mark.parametrize("in_protobuf", [True, False])
@pytest.mark.parametrize(("depth", "is_taken"), [(62, True), (63, False), (65, False), (70, False)])
async def test_a_record_that_is_nested_too_deep_is_refused_alone(
    caller: Caller, depth: int, *, is_taken: bool, in_protobuf: bool
) -> None:
    detector = await caller.detector()
    await caller.rule(detector, "not exists x", notify=True)
    if in_protobuf:
        body, media_type = nested(depth, depth) + nested(1), PROTOBUF
    else:
        value = '{"intValue":1}'
        for level in range(depth):
            kind, element = [("array", value), ("kvlist", f'{{"key":"k","value":{value}}}')][level % 2]
            value = f'{{"{kind}Value":{{"values":[{element}]}}}}'
        records = f'{{"body":{value}}},{{"attributes":[{{"key":"a","value":{value}}}]}},{{}}'
        body = f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{records}]}}]}}]}}'.encode()
        media_type = "application/json"
    reply = await sent(caller, detector, body, Content_Type=media_type)
    assert reply.status_code == 200
    for place in (b"0", b"1"):
        said = b"log record %b: 1000 the record is nested more than 64 deep" % place
        assert (said in reply.content) != is_taken
    feed = await caller("GET", f"/api/detectors/{detector}/firings")
    assert len(feed.result["firings"]) == (3 if is_taken else 1)


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        (b"\x0a", {}, 400, 1000),
        (b"{", {"Content_Type": "application/json"}, 400, 1000),
        (b"[]", {"Content_Type": "application/json"}, 400, 1001),
        (b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"x"}]}]}]}', None, 400, 1001),
        (b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":1e3}]}]}]}', None, 400, 1001),
        (
            b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":%d}]}]}]}' % 10**400,
            None,
            400,
            1001,
        ),
        (b'{"resourceLogs":[{"resource":7}]}', None, 400, 1001),
        (b"", {"Content_Type": "text/plain"}, 415, 1002),
        (b"", {"Content_Type": "application/grpc"}, 415, 1002),
        (b"", {"Content_Encoding": "zstd"}, 415, 1002),
        (b"x", {"Content_Encoding": "gzip"}, 400, 1000),
        (gzip.compress(b"\x0a\x00" * 10**6), {"Content_Encoding": "gzip"}, 413, 1003),
        (b"\x0a\x00" * 10**6, {}, 413, 1003),
    ],
)
async def test_what_is_wrong_has_an_envelope(
    caller: Caller, body: bytes, headers: dict[str, str] | None, status: int, code: int
) -> None:
    headers = {"Content_Type": "application/json"} if headers is None else headers
    reply = await sent(caller, await caller.detector(), body, **headers)
    assert (reply.status_code, reply.json()["errors"][0]["code"]) == (status, code)


async def test_nothing_sent_is_nothing_refused(caller: Caller) -> None:
    detector = await caller.detector()
    assert (await sent(caller, detector, b"")).status_code == 200
    reply = await sent(caller, detector, b'{"resourceLogs":[],"new":1}', Content_Type="application/json")
    assert reply.json() == {}
    assert (await sent(caller, "0" * 32, b"")).json()["errors"][0]["code"] == 1200


async def test_the_sdk_s_own_exporter_delivers_to_a_detector(
    caller: Caller, settings: Settings, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry._logs import LogRecord  # noqa: PLC0415 -- of the extra
    from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter  # noqa: PLC0415
    from opentelemetry.sdk._logs import LoggerProvider  # noqa: PLC0415
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    monkeypatch.setenv("NO_PROXY", "*")
    detector = await caller.detector()
    condition = (
        'severity == "ERROR" and resource.service.name == "shop" and body like "*refused*" and user == "ada"'
    )
    await caller.rule(detector, condition, notify=True)
    async with served(Application(settings, service.backend), settings) as wire:

        def log() -> None:
            exporter = OTLPLogExporter(
                f"http://127.0.0.1:{wire.port}/api/detectors/{detector}/v1/logs",
                headers={"Authorization": f"Bearer {BOOTSTRAP}"},
                compression=Compression.Gzip,
            )
            provider = LoggerProvider(Resource({"service.name": "shop"}))
            provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
            logger = provider.get_logger("shop.payments")
            for severity, user in (("INFO", "ada"), ("ERROR", "ada"), ("ERROR", "bob")):
                attributes = {"user": user, "amount": 4200}
                body = "a payment was refused"
                logger.emit(LogRecord(severity_text=severity, body=body, attributes=attributes))
            provider.shutdown()

        await asyncio.to_thread(log)
    [firing] = (await caller("GET", f"/api/detectors/{detector}/firings")).result["firings"]
    assert firing["name"] == "r"
    state = await caller("GET", f"/api/detectors/{detector}/state")
    assert state.result["events"] == 3
