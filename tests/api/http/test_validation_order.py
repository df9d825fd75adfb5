"""The order of validation: of two defects, the first in the documented order sets the response."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from quart.routing import QuartRule
from werkzeug.routing import MapAdapter

from api.http.service import Service
from tests.api.caller import Caller

UNKNOWN = "0" * 32
STATUS = {
    1000: 400, 1001: 400, 1002: 415, 1003: 413, 1004: 404, 1005: 405, 1006: 400,
    1100: 401, 1101: 401, 1200: 404, 1201: 404, 1202: 404, 1203: 404, 1300: 400, 1400: 409, 1402: 422,
}  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """A request in the making; each defect changes one side of it, so that all of them go together."""

    method: str
    path: str
    document: Any
    detector: str
    rule: str
    token: str | None
    relation: str = "owns"
    headers: dict[str, str] = field(default_factory=dict)
    after_path: str = ""
    padding: int = 0
    after_body: bytes = b""

    def content(self) -> bytes | None:
        if self.document is None:
            return None
        return b" " * self.padding + json.dumps(self.document).encode() + self.after_body


Defect = Callable[[Sent], Sent]


def header(name: str, value: str) -> Defect:
    return lambda sent: replace(sent, headers={**sent.headers, name: value})


def member(name: str, value: object) -> Defect:
    return lambda sent: replace(sent, document={**sent.document, name: value})


def changed(**members: object) -> Defect:
    return lambda sent: replace(sent, **members)


def far_ahead(sent: Sent) -> Sent:
    return replace(sent, document={**sent.document, "timestamp_ms": 8e15})


def late(sent: Sent) -> Sent:
    event = {**sent.document["event"], "timestamp_ms": -1e12}
    return replace(sent, document={**sent.document, "event": event})


EVERY: list[tuple[int, Defect]] = [
    (1100, changed(token=None)),
    (1101, changed(token="unknown")),
    (1004, changed(after_path="/")),
    (1005, changed(method="WHATEVER")),
    (1006, header("X-Long", "x" * 17_000)),
]
BEFORE_BODY: list[tuple[int, Defect]] = [
    (1002, header("Content-Type", "text/plain")),
    (1003, changed(padding=50_000)),
]
IN_BODY: list[tuple[int, Defect]] = [
    (1000, changed(after_body=b"}")),
    (1001, member("x", 1)),
]
NO_DETECTOR: tuple[int, Defect] = (1200, changed(detector=UNKNOWN))
NO_RELATION: tuple[int, Defect] = (1203, changed(relation="unknown"))
BAD_CONDITION: tuple[int, Defect] = (1300, member("condition", "a =="))

LADDERS: dict[str, list[tuple[int, Defect]]] = {
    "GET /api/detectors": EVERY,
    "POST /api/detectors": EVERY + BEFORE_BODY + IN_BODY,
    "GET /api/detectors/{detector}": [*EVERY, NO_DETECTOR],
    "DELETE /api/detectors/{detector}": [*EVERY, NO_DETECTOR],
    "POST /api/detectors/{detector}/evaluate": [*EVERY, *BEFORE_BODY, NO_DETECTOR, *IN_BODY, (1402, late)],
    "POST /api/detectors/{detector}/evaluate/batch": [*EVERY, *BEFORE_BODY, NO_DETECTOR, *IN_BODY],
    "POST /api/detectors/{detector}/tick": [*EVERY, *BEFORE_BODY, NO_DETECTOR, *IN_BODY, (1402, far_ahead)],
    "POST /api/detectors/{detector}/explain": [
        *EVERY, *BEFORE_BODY, NO_DETECTOR, *IN_BODY, (1201, member("ruleId", UNKNOWN)), (1402, late),
    ],
    "GET /api/detectors/{detector}/rules": [*EVERY, NO_DETECTOR],
    # The detector is full, so that what has no other defect is 1400.
    "POST /api/detectors/{detector}/rules": [
        *EVERY, *BEFORE_BODY, NO_DETECTOR, *IN_BODY, BAD_CONDITION, (1400, lambda sent: sent),
    ],
    "PUT /api/detectors/{detector}/rules": [
        *EVERY, *BEFORE_BODY, NO_DETECTOR, *IN_BODY,
        (1300, member("rules", [{"name": "n", "condition": "a =="}])),
    ],
    "GET /api/detectors/{detector}/rules/{rule}": [*EVERY, NO_DETECTOR, (1201, changed(rule=UNKNOWN))],
    "DELETE /api/detectors/{detector}/rules/{rule}": [*EVERY, NO_DETECTOR, (1201, changed(rule="x"))],
    "PATCH /api/detectors/{detector}/rules/{rule}": [
        *EVERY, *BEFORE_BODY, NO_DETECTOR, *IN_BODY, (1201, changed(rule=UNKNOWN)), BAD_CONDITION,
    ],
    "GET /api/detectors/{detector}/rules/{rule}/versions": [
        *EVERY, NO_DETECTOR, (1201, changed(rule=UNKNOWN)),
    ],
    "GET /api/detectors/{detector}/relations": [*EVERY, NO_DETECTOR],
    "GET /api/detectors/{detector}/relations/{relation}": [*EVERY, NO_DETECTOR, NO_RELATION],
    "DELETE /api/detectors/{detector}/relations/{relation}": [*EVERY, NO_DETECTOR, NO_RELATION],
    "PATCH /api/detectors/{detector}/relations/{relation}": [
        *EVERY, *BEFORE_BODY, NO_DETECTOR, *IN_BODY, NO_RELATION,
    ],
    # Its bound is that of bodies of relations, and it is read in parts.
    "PUT /api/detectors/{detector}/relations/{relation}": [
        *EVERY, BEFORE_BODY[0], NO_DETECTOR, IN_BODY[0], (1001, member("tuples", [[{}]])),
    ],
    "POST /api/conditions/parse": [*EVERY, *BEFORE_BODY, *IN_BODY, BAD_CONDITION],
    "POST /api/token": EVERY,
    "DELETE /api/token/{token}": [*EVERY, (1202, lambda sent: sent)],
}  # fmt: skip
EVENT = {"fields": {}, "timestamp_ms": 0}
DOCUMENTS: dict[str, Any] = {
    "POST /api/detectors": {"name": "n"},
    "POST /api/detectors/{detector}/evaluate": {"event": EVENT},
    "POST /api/detectors/{detector}/evaluate/batch": {"events": [EVENT]},
    "POST /api/detectors/{detector}/tick": {"timestamp_ms": 0},
    "POST /api/detectors/{detector}/explain": {"event": EVENT},
    "POST /api/detectors/{detector}/rules": {"name": "n", "condition": "a == 1"},
    "PUT /api/detectors/{detector}/rules": {"rules": []},
    "PATCH /api/detectors/{detector}/rules/{rule}": {},
    "PATCH /api/detectors/{detector}/relations/{relation}": {},
    "PUT /api/detectors/{detector}/relations/{relation}": {"tuples": ["a"]},
    "POST /api/conditions/parse": {"condition": "a == 1"},
}


@pytest.mark.parametrize("service", ["apart"], indirect=True)
@pytest.mark.parametrize("operation", LADDERS)
async def test_the_first_kind_of_defect_sets_the_reply(caller: Caller, operation: str) -> None:
    method, path = operation.split()
    detector = await caller.detector()
    await caller.evaluate(detector, {})
    rules = [await caller.rule(detector, "a == 1") for _ in range(3)]
    await caller("PUT", f"/api/detectors/{detector}/relations/owns", {"tuples": ["ada"]})
    base = Sent(method, path, DOCUMENTS.get(operation), detector, rules[0], caller.token)
    ladder = LADDERS[operation]
    # Each defect alone, and all from each one on together.
    for start, (code, alone) in enumerate(ladder):
        assert await tried(caller, alone(base)) == (STATUS[code], {code}), (operation, code)
        sent = base
        for _, defect in reversed(ladder[start:]):
            sent = defect(sent)
        assert await tried(caller, sent) == (STATUS[code], {code}), (operation, start)


async def tried(caller: Caller, sent: Sent) -> tuple[int, set[int]]:
    caller.token = sent.token
    path = sent.path.format(detector=sent.detector, rule=sent.rule, relation=sent.relation, token=UNKNOWN)
    reply = await caller(sent.method, path + sent.after_path, content=sent.content(), headers=sent.headers)
    return reply.status, set(reply.codes)


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api", 1004),
        ("/api/", 1004),
        ("/api//detectors", 1004),
        ("/api/detectors/", 1004),
        ("/api/detectors//rules", 1004),
        (f"/api/detectors/{UNKNOWN}/rules/", 1004),
        (f"/api/detectors/{UNKNOWN}/nothing", 1004),
        ("/api/Detectors", 1004),
        ("/api/%2E%2E/api/detectors", 1004),
        ("/api/detectors/%2E", 1200),
        ("/api/detectors/%2F", 1200),
        ("/api/detectors/a%2Frules", 1200),
        (f"/api/detectors/{UNKNOWN}%2Frules", 1200),
        ("/api/detectors/%00", 1200),
        ("/api/detectors/%FF", 1200),
        ("/api/detectors/%C3%A4", 1200),
        ("/api/detectors/" + "A" * 32, 1200),
        ("/api/detectors/" + "0" * 31, 1200),
        ("/api/detectors/" + "0" * 32 + "%0A", 1200),
        (f"/api/detectors/{UNKNOWN}/rules", 1200),
        (f"/api/detectors/{UNKNOWN}/rules/x", 1200),
    ],
)
async def test_paths_are_taken_as_they_are_written(caller: Caller, path: str, code: int) -> None:
    reply = await caller.plain("GET", path, headers={"Authorization": f"Bearer {caller.token}"})
    assert [entry["code"] for entry in reply.json()["errors"]] == [code]
    assert reply.status_code == 404
    without = await caller.plain("GET", path)
    assert [entry["code"] for entry in without.json()["errors"]] == [1100]


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize("path", ["/apis", "//api/detectors", "/api%2Fdetectors", "/healthz/", "/docs/"])
async def test_paths_elsewhere_need_no_token_to_be_unknown(caller: Caller, path: str) -> None:
    caller.token = None
    reply = await caller("GET", path)
    assert (reply.status, reply.codes) == (404, [1004])


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/api/token", "POST"),
        (f"/api/token/{UNKNOWN}", "DELETE"),
        ("/api/detectors", "GET, POST"),
        (f"/api/detectors/{UNKNOWN}", "DELETE, GET"),
        (f"/api/detectors/{UNKNOWN}/evaluate", "POST"),
        (f"/api/detectors/{UNKNOWN}/evaluate/batch", "POST"),
        (f"/api/detectors/{UNKNOWN}/explain", "POST"),
        (f"/api/detectors/{UNKNOWN}/rules", "GET, POST, PUT"),
        (f"/api/detectors/{UNKNOWN}/relations", "GET"),
        (f"/api/detectors/{UNKNOWN}/relations/owns", "DELETE, GET, PATCH, PUT"),
        (f"/api/detectors/{UNKNOWN}/rules/{UNKNOWN}", "DELETE, GET, PATCH"),
        ("/api/conditions/parse", "POST"),
        ("/healthz", "GET, HEAD"),
        ("/openapi.json", "GET"),
        ("/metrics", "GET"),
    ],
)
async def test_other_methods_are_told_which_are_taken(caller: Caller, path: str, allowed: str) -> None:
    for method in {"HEAD", "OPTIONS", "PUT", "TRACE", "WHATEVER"} - set(allowed.split(", ")):
        response = await caller.plain(method, path, headers={"Authorization": f"Bearer {caller.token}"})
        assert (response.status_code, response.headers["allow"]) == (405, allowed), method
        if method != "HEAD":
            assert [entry["code"] for entry in response.json()["errors"]] == [1005]


async def test_a_body_needs_no_content_type(caller: Caller) -> None:
    headers = {"Authorization": f"Bearer {caller.token}"}
    response = await caller.plain("POST", "/api/detectors", content=b'{"name": "n"}', headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("n", True),
        ("tab\tand\nnewline", True),
        ("\u00e4\U0001f600", True),
        ("\U0001f600" * 255, True),
        (" ", True),
        ("\u200b", True),
        ("", False),
        ("n" * 256, False),
        ("\r", False),
        ("a\x00b", False),
        ("\x7f", False),
        ("\x85", False),
        ("\x9b31m", False),
        ("\x1b[31m", False),
    ],
)
async def test_names_are_bounded_and_have_no_control_characters(
    caller: Caller, name: str, *, good: bool
) -> None:
    detector = await caller.detector()
    rules = f"/api/detectors/{detector}/rules"
    rule = await caller.rule(detector, "a == 1")
    for method, path, document in (
        ("POST", "/api/detectors", {"name": name}),
        ("POST", f"/api/detectors/{detector}/fork", {"name": name}),
        ("POST", "/api/tokens", {"name": name}),
        ("POST", rules, {"name": name, "condition": "a == 1"}),
        ("PATCH", f"{rules}/{rule}", {"name": name}),
    ):
        reply = await caller(method, path, document)
        assert reply.codes == ([] if good else [1001]), path
        assert good or reply.texts[0].startswith("name: expected 1 to 255 characters")


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize("end", ["", "/batch"])
async def test_the_fast_path_and_quart_agree(caller: Caller, end: str) -> None:
    """An id with an escape in it comes to Quart, and nothing else about it is different."""
    body = {"events": [EVENT]} if end else {"event": EVENT}
    plain = json.dumps(body).encode()
    largest = 40_000 if end else 20_000
    token = f"Bearer {caller.token}"
    json_type = ("Content-Type", "application/json")
    contents = [
        plain.rjust(largest),
        plain.rjust(largest + 1),
        b"",
        b"{",
        b"{}",
        b"[[" * 100,
        json.dumps({**body, "x": 1}).encode(),
        plain.replace(b": 0}", b": -1e12}"),
        plain.replace(b": 0}", b": 1e300}"),
    ]
    heads = [
        [("Authorization", token), json_type],
        [("Authorization", token)],
        [("Authorization", token), json_type, ("X-Long", "x" * 16_000)],
        [("Authorization", token), json_type, ("X-Long", "x" * 17_000)],
        [("Authorization", token), ("Content-Type", "application/json; x=y")],
        [("Authorization", token), ("Content-Type", "text/plain")],
        [("Authorization", token), json_type, json_type],
        [("Authorization", token), json_type, ("Content-Encoding", "gzip")],
        [("Authorization", token), ("Authorization", token), json_type],
        [("Authorization", "Bearer x"), json_type],
        [("Authorization", token.upper()), json_type],
        [json_type],
        [("Authorization", token), json_type, ("Idempotency-Key", "k" * 255)],
        [("Authorization", token), json_type, ("Idempotency-Key", "k" * 256)],
        [("Authorization", token), json_type, ("Idempotency-Key", "k l")],
        [("Authorization", token), json_type, ("Idempotency-Key", "k"), ("Idempotency-Key", "k")],
        [("Authorization", "Bearer x"), json_type, ("Idempotency-Key", "")],
    ]
    known = await caller.detector()
    # The first event alone may be told that its time is doubtful.
    await caller.evaluate(known, {})
    for detector in (known, UNKNOWN):
        escaped = f"%{ord(detector[0]):02x}" + detector[1:]
        for content, headers in [(one, heads[0]) for one in contents] + [(plain, one) for one in heads]:
            found = []
            for named in (detector, escaped):
                path = f"/api/detectors/{named}/evaluate{end}"
                reply = await caller.plain("POST", path, content=content, headers=headers)
                found.append((reply.status_code, reply.content))
            assert found[0] == found[1], (content[:50], headers)


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(
    ("content_type", "end"),
    [
        ("application/json", ""),
        ("application/json; charset=utf-8", ""),
        ("application/json;charset=UTF-8", "/batch"),
        ("Application/JSON", ""),
        ("application/msgpack ; x=y", "/batch"),
    ],
)
async def test_each_spelling_of_a_content_type_takes_the_fast_path(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, content_type: str, end: str
) -> None:
    detector = await caller.detector()

    async def slow(*_: object) -> None:
        raise AssertionError("it came to Quart")

    monkeypatch.setattr(Service, "handle_request", slow)
    body = {"events": [EVENT]} if end else {"event": EVENT}
    content = msgspec.msgpack.encode(body) if "msgpack" in content_type else json.dumps(body).encode()
    path = f"/api/detectors/{detector}/evaluate{end}"
    reply = await caller("POST", path, content=content, headers={"Content-Type": content_type})
    assert reply.status == 200


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(
    ("headers", "content", "code"),
    [
        ({"Content-Type": "text/plain"}, b"{}", 1002),
        ({"X-Long": "x" * 17_000}, b"{}", 1006),
        ({"Idempotency-Key": "k l"}, b"{}", 1006),
        ({}, b"x" * 20_001, 1003),
    ],
)
async def test_what_is_wrong_with_a_head_is_told_without_quart(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], content: bytes, code: int
) -> None:
    detector = await caller.detector()

    async def slow(*_: object) -> None:
        raise AssertionError("it came to Quart")

    monkeypatch.setattr(Service, "handle_request", slow)
    reply = await caller("POST", f"/api/detectors/{detector}/evaluate", content=content, headers=headers)
    assert reply.codes == [code]


async def test_no_operation_is_found_under_a_path_for_which_no_token_was_asked(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the URL map and the check for a token ever read a path differently, nothing is served."""
    rule = QuartRule("/api/detectors", methods={"GET"}, endpoint="detectors.list_detectors")
    monkeypatch.setattr(MapAdapter, "match", lambda *_, **__: (rule, {}))
    caller.token = None
    reply = await caller("GET", "/apis/detectors")
    assert (reply.status, reply.codes) == (401, [1100])


async def test_a_path_is_matched_once(scripted_caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    match, matched = MapAdapter.match, []

    def counted(adapter: MapAdapter, *arguments: Any, **options: Any) -> Any:
        matched.append(adapter.path_info)
        return match(adapter, *arguments, **options)

    monkeypatch.setattr(MapAdapter, "match", counted)
    assert (await scripted_caller("GET", "/api/detectors")).status == 200
    assert matched == ["/api/detectors"]
