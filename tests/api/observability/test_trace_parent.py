"""The `traceparent` that callers send: taken if it is as W3C Trace Context says, ignored if it is not."""

import json
import logging
from pathlib import Path

import pytest

from api.http.app import Application
from api.observability.tracing.http_request import HttpRequest, TraceParent, trace_parent
from api.settings import Settings
from engine.runtime.detector import apply as apply_module
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.local_runtime.service import local_service

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{SPAN}-01"


def read(*values: str) -> TraceParent | None:
    return trace_parent([(b"host", b"x"), *((b"traceparent", value.encode("latin-1")) for value in values)])


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
        TRACE,
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-0g",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{SPAN}-01 ",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}0-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01.more",
        f"cc-{TRACE}-{SPAN}-01-\x00",
        f"00_{TRACE}_{SPAN}_01",
        f"{SENT},{SENT}",
    ],
)
def test_whatever_is_malformed_is_ignored(value: str) -> None:
    assert read(value) is None


def test_without_one_or_with_two_there_is_no_trace() -> None:
    assert read() is None
    assert read(SENT, SENT) is None
    assert HttpRequest("r", []).fields == {"request": "r"}
    assert HttpRequest("r", [(b"traceparent", SENT.encode())]).fields == {"request": "r", "trace": TRACE}


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
