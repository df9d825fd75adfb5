"""The log: what can be found in it, and that nothing a caller sends passes for a record or shows a token."""

import asyncio
import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from api.http.app import Application
from api.http.request import log as request_log
from api.http.request.log import SLOW_LINES_MAX, RequestLog
from api.observability.logs import JsonFormatter, TextFormatter, set_up
from api.schema.envelope import error_code
from api.settings import Settings
from engine.evaluation.wire.events import Answer
from engine.runtime.contract.requests.operations import Operation
from tests.api.scripted import DETECTOR, NO_ACTIONS, TOKEN, ScriptedBackend
from tests.api.wire import EVALUATE, EVENT, Wire, chunked, request, served

SECRET = "a-fixed-token\\with\"odd'characters."
MINTED = "rd_" + "Ab-_" * 10 + "xyz"
FORGED = "a\n2026-01-01T00:00:00.000Z ERROR x: forged\r\x1b[2J\x00\x7f\x9b31m\u2028\u202eb\x85"
"""Line ends of every kind, and what moves or colours a terminal."""


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """All that this process writes to its log, as text; each record begins with a time."""
    yield from writing_to(TextFormatter((SECRET,)))


@pytest.fixture
def logged_json() -> Iterator[io.StringIO]:
    yield from writing_to(JsonFormatter((SECRET,)))


def writing_to(formatter: logging.Formatter) -> Iterator[io.StringIO]:
    sink = io.StringIO()
    handler = logging.StreamHandler(sink)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.addHandler(handler)
    yield sink
    root.removeHandler(handler)


def requests(sink: io.StringIO) -> list[dict[str, Any]]:
    """Return the records about requests, from a log in JSON."""
    records = [json.loads(line) for line in sink.getvalue().splitlines()]
    return [record for record in records if record["logger"] == "rule_detector.requests"]


# Records


WHERE = ["message", "field", "detail", "traceback"]


def log_forged(where: str) -> None:
    """Log a record in which a caller has put something."""
    extra: dict[str, Any] = {"fields": {"f": FORGED if where == "field" else "v"}}
    if where == "detail":
        extra["detail"] = FORGED
    error = ValueError(FORGED) if where == "traceback" else None
    said = FORGED if where == "message" else "nothing"
    logging.getLogger("x").error("said %s", said, exc_info=error, extra=extra)


@pytest.mark.parametrize("where", WHERE)
def test_nothing_forges_a_record_in_the_text(logged: io.StringIO, where: str) -> None:
    log_forged(where)
    first, *others = logged.getvalue().removesuffix("\n").split("\n")
    assert " ERROR x: said " in first
    assert all(line.startswith("    ") for line in others)
    assert bool(others) == (where in {"detail", "traceback"})
    assert all(line.isprintable() for line in [first, *others])


@pytest.mark.parametrize("where", WHERE)
def test_nothing_forges_a_record_in_json(logged_json: io.StringIO, where: str) -> None:
    log_forged(where)
    text = logged_json.getvalue().removesuffix("\n")
    assert text.isascii()
    assert text.isprintable()
    record = json.loads(text)
    assert (record["level"], record["logger"]) == ("error", "x")
    assert FORGED in "".join(record.values())


def test_an_infinity_is_a_text_in_json(logged_json: io.StringIO) -> None:
    logging.getLogger("x").error("said", extra={"fields": {"rate": float("inf"), "share": 0.5}})
    record = json.loads(logged_json.getvalue(), parse_constant=pytest.fail)
    assert (record["rate"], record["share"]) == ("inf", 0.5)


@pytest.mark.parametrize("make", [TextFormatter, JsonFormatter])
@pytest.mark.parametrize("where", ["message", "field", "detail"])
def test_tokens_are_never_in_a_record(make: type[logging.Formatter], where: str) -> None:
    both = f"{MINTED} and {SECRET}"
    record = logging.LogRecord("x", logging.ERROR, "f", 1, both if where == "message" else "m", None, None)
    record.fields = {"f": both} if where == "field" else {}
    record.detail = both if where == "detail" else ""
    said = make((SECRET,)).format(record)  # type: ignore[call-arg]
    assert said.count("[hidden]") == 2
    assert MINTED not in said
    assert "odd" not in said


def test_a_record_says_when_and_what_and_what_is_not_known_is_left_out(logged: io.StringIO) -> None:
    fields = {"none": None, "empty": "", "zero": 0, "plain": "a/b:c=1", "blank": "a b", "quote": 'a"b'}
    logging.getLogger("x.y").warning("it %s", "happened", extra={"fields": fields})
    time_, rest = logged.getvalue().split(" ", 1)
    assert len(time_) == len("2026-11-22T08:40:01.123Z")
    assert rest == 'WARNING x.y: it happened zero=0 plain=a/b:c=1 blank="a b" quote="a\\"b"\n'


@pytest.fixture
def restored() -> Iterator[None]:
    """Leave logging as it was found."""
    root = logging.getLogger()
    others = [logging.getLogger(name) for name in ("ray", "py.warnings", "hypercorn.error")]
    before = [(one, one.handlers[:], one.level, one.propagate) for one in (root, *others)]
    yield
    logging.captureWarnings(capture=False)
    for one, handlers, level, propagate in before:
        one.handlers[:] = handlers
        one.setLevel(level)
        one.propagate = propagate


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
@pytest.mark.usefixtures("restored")
def test_the_level_is_that_of_the_settings_and_ray_is_heard_at_debug_only(
    level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = io.StringIO()
    monkeypatch.setattr(sys, "stderr", sink)
    # As Ray leaves its own when it is imported.
    logging.getLogger("ray").addHandler(logging.StreamHandler(sink))
    logging.getLogger("ray").propagate = False
    set_up(Settings(log_level=level, log_format="json"))  # type: ignore[arg-type]
    for said in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger("x"), said)("ours")
        getattr(logging.getLogger("ray._private.worker"), said)("theirs")
    warnings.showwarning("python's", FutureWarning, "some.py", 1)
    logging.getLogger("hypercorn.error").info("Running on each socket (CTRL + C to quit)")
    logging.getLogger("hypercorn.error").error("a server's error")
    records = [json.loads(line) for line in sink.getvalue().splitlines()]
    levels = ["debug", "info", "warning", "error"]
    heard = levels[levels.index(level) :]
    assert [record["level"] for record in records if record["message"] == "ours"] == heard
    theirs = [record["level"] for record in records if record["message"] == "theirs"]
    assert theirs == (heard if level == "debug" else [])
    assert ("python's" in sink.getvalue()) is (level == "debug")
    assert ("Running on" in sink.getvalue()) is (level == "debug")
    assert "a server's error" in sink.getvalue()


# Requests


def scope(path: bytes = b"/api/detectors", **more: Any) -> dict[str, Any]:
    return {"method": "GET", "raw_path": path, "headers": [], "client": ("127.0.0.1", 5), **more}


def test_slow_requests_are_logged_and_only_so_many_in_a_second(logged_json: io.StringIO) -> None:
    now_s = 0.0
    log = RequestLog(Settings(slow_request_ms=50), lambda: now_s)
    assert log.from_s == 0.05
    for _ in range(SLOW_LINES_MAX + 7):
        log.write(scope(), "list_detectors", 200, 0.05)
    log.write(scope(), "evaluate_stream", 200, 50, may_be_slow=False)
    assert len(requests(logged_json)) == SLOW_LINES_MAX
    now_s = 1.0
    log.write(scope(), "list_detectors", 200, 0.06)
    log.write(scope(), "list_detectors", 200, 0.06)
    *_, next_, last = requests(logged_json)
    assert (next_["message"], next_["left_out"], next_["took_ms"]) == ("a slow request", 7, 60.0)
    assert "left_out" not in last


def test_nothing_is_slow_where_that_is_turned_off() -> None:
    assert RequestLog(Settings(slow_request_ms=0)).from_s > 10**9
    assert RequestLog(Settings(slow_request_ms=0, access_log=True)).from_s == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"success":false,"errors":[{"code":1402,"message":"x"}]', 1402),
        (b'{"success":true,"errors":[],"messages":[],"result":{}}', None),
        (b'{"success":false,"errors":[{"code":', None),
        (b"", None),
    ],
)
def test_the_code_is_the_first_error_of_the_envelope(body: bytes, code: int | None) -> None:
    assert error_code(body) == code


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request is slow."""
    monkeypatch.setattr(request_log, "SLOW_LINES_MAX", 10_000)


async def asked(data: bytes, **chosen: Any) -> Any:
    """Send a request; return the reply."""
    settings = Settings(max_body_bytes=100_000, **chosen)
    backend = ScriptedBackend()

    async def crash(_: str, operation: Operation) -> Answer:
        if operation.kind == "rules":
            raise RuntimeError(FORGED)
        return NO_ACTIONS

    backend.answers = crash
    async with served(Application(settings, backend), settings) as wire:
        return await wire.once(data)


RULES = request("GET", f"/api/detectors/{DETECTOR}/rules", token=TOKEN, headers=("X-Request-ID: the-one/1",))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            request(
                path=EVALUATE, body=EVENT, token=TOKEN, headers=("X-Request-ID: 7f:1", "User-Agent: ours/1")
            ),
            {
                "request": "7f:1",
                "operation": "evaluate",
                "detector": DETECTOR,
                "status": 200,
                "agent": "ours/1",
            },
        ),
        (RULES, {"request": "the-one/1", "operation": "list_rules", "status": 500, "code": 1500}),
        (
            request("PUT", "/api/detectors", token=TOKEN),
            {"method": "PUT", "operation": "other", "status": 405, "code": 1005, "path": "/api/detectors"},
        ),
        (
            request("GET", "/api/x%0a2026%1b%5b2Jforged?token=secret", token=TOKEN),
            {"path": "/api/x\n2026\x1b[2Jforged", "status": 404, "code": 1004},
        ),
        (
            request("GET", "/api/detectors", headers=("User-Agent: \x9b31m\x85",)),
            {"agent": "Â\x9b31mÂ\x85", "status": 401, "code": 1100},
        ),
        (
            request("DELETE", f"/api/token/{MINTED}", token=TOKEN, headers=(f"User-Agent: {MINTED}",)),
            {"path": "/api/token/[hidden]", "status": 404, "code": 1202, "agent": "[hidden]"},
        ),
    ],
    ids=["plain", "fails", "method", "path", "agent", "token"],
)
@pytest.mark.parametrize("how", [{"access_log": True}, {"slow_request_ms": 0.000_001}], ids=["all", "slow"])
@pytest.mark.usefixtures("quick")
async def test_a_request_is_found_with_all_that_is_known_of_it(
    logged_json: io.StringIO, data: bytes, told: dict[str, Any], how: dict[str, Any]
) -> None:
    reply = await asked(data, **how)
    if told.get("code") == 1100 and "access_log" not in how:
        assert requests(logged_json) == [], "without a token nobody fills the log"
        return
    record = requests(logged_json)[-1]
    assert told.items() <= record.items()
    assert record.get("token") == (None if told.get("code") == 1100 else "1" * 32)
    assert record["took_ms"] >= 0
    assert record["client"].startswith("127.0.0.1:")
    assert reply.headers["x-request-id"] == record["request"]
    whole = logged_json.getvalue()
    assert TOKEN not in whole
    assert "secret" not in whole
    assert all(line.isprintable() for line in whole.splitlines())


async def test_an_internal_error_is_logged_with_the_id_of_its_request(logged_json: io.StringIO) -> None:
    reply = await asked(RULES)
    (record,) = [json.loads(line) for line in logged_json.getvalue().splitlines()]
    assert record["request"] == "the-one/1"
    assert record["message"].split()[-1] in reply.envelope["errors"][0]["message"]
    assert "RuntimeError" in record["detail"]


async def test_nothing_is_logged_of_usual_requests(logged_json: io.StringIO) -> None:
    assert (await asked(request(path=EVALUATE, body=EVENT, token=TOKEN))).status == 200
    assert logged_json.getvalue() == ""


# Ids


@pytest.mark.parametrize(
    ("sent", "taken"),
    [
        ("4bf92f3577b34da6a3ce929d0e0e4736", True),
        ("Root=1-67891233-abcdef012345678912345678", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("", False),
        ("a b", False),
        ("a\x1bb", False),
        ('a"b', False),
        ("a, b", False),
        ("a\r\nx-request-id: b", False),
    ],
)
async def test_an_id_is_taken_if_it_is_short_and_harmless(wire: Wire, sent: str, *, taken: bool) -> None:
    reply = await wire.once(request("GET", "/healthz", headers=(f"X-Request-ID: {sent}",)))
    if reply.status == 200:
        assert (reply.headers["x-request-id"] == sent) is taken
        assert reply.headers["x-request-id"]
    else:
        assert not taken


WAYS = {
    "plain": request(path=EVALUATE, body=EVENT, token=TOKEN),
    "that expects something": request(path=EVALUATE, body=EVENT, token=TOKEN, headers=("Expect: nothing",)),
    "in chunks": request(path=EVALUATE, token=TOKEN, headers=("Transfer-Encoding: chunked",))
    + chunked(EVENT),
    "by Quart": request("GET", f"/api/detectors/{DETECTOR}/rules", token=TOKEN),
    "refused": request(path=EVALUATE, body=EVENT),
    "refused, its body unread": request(path=EVALUATE, headers=("Transfer-Encoding: chunked",))
    + chunked(EVENT),
    "a page": request("GET", "/docs"),
    "the last": request(path=EVALUATE, body=EVENT, token=TOKEN, headers=("Connection: close",)),
}


@pytest.mark.parametrize("way", WAYS)
async def test_every_reply_has_an_id_and_each_its_own(wire: Wire, way: str) -> None:
    mine = WAYS[way].replace(b"\r\n", b"\r\nX-Request-ID: mine\r\n", 1)
    connections = [await wire.connect() for _ in range(3)]
    sent = (mine, WAYS[way], WAYS[way])
    replies = [await (await each.send(data)).receive() for each, data in zip(connections, sent, strict=True)]
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert ids[0] == "mine"
    assert len(set(ids)) == 3
    if way != "the last":
        again = await (await connections[0].send(WAYS[way])).receive()
        assert again.headers["x-request-id"] not in ids


async def test_a_stream_has_an_id(wire: Wire) -> None:
    stream = request(
        path=EVALUATE + "/batch",
        token=TOKEN,
        headers=("Content-Type: application/x-ndjson", "Transfer-Encoding: chunked", "X-Request-ID: mine"),
    )
    connection = await (await wire.connect()).send(stream + b"0\r\n\r\n")
    async with asyncio.timeout(5):
        assert b"\r\nx-request-id: mine\r\n" in await connection.reader.readuntil(b"\r\n\r\n")
