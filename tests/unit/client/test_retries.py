"""What the client repeats, for how long, and what it takes for an answer of the service."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from rule_detector_client import AsyncClient, Client, ServiceError, calls
from rule_detector_client.calls import Call
from rule_detector_client.results import Envelope

Handler = Callable[[httpx.Request], httpx.Response]


def done(result: object) -> httpx.Response:
    return httpx.Response(200, json={"success": True, "errors": [], "messages": [], "result": result})


def refused(status: int, code: int, headers: dict[str, str] | None = None) -> httpx.Response:
    errors = [{"code": code, "message": "the reason"}]
    body = {"success": False, "errors": errors, "messages": [], "result": {}}
    return httpx.Response(status, json=body, headers=headers)


@dataclass
class Sent:
    """Sends calls with one of the two clients, whose time passes only while somebody sleeps."""

    kind: str

    def __call__(
        self,
        handler: Handler,
        *calls_: Call[Any],
        slept: list[float] | None = None,
        patience_s: float = 60.0,
        now_s: Callable[[], float] | None = None,
    ) -> Any:
        """Send the calls one after another, and return the result of the last."""
        slept = [] if slept is None else slept
        options: dict[str, Any] = {
            "transport": httpx.MockTransport(lambda request: _fresh(handler(request))),
            "now_s": now_s or (lambda: sum(slept)),
            "patience_s": patience_s,
        }
        if self.kind == "sync":
            with Client("http://s:1/base", "rd_x", sleep=slept.append, **options) as client:
                return [client.send(call) for call in calls_][-1]

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        async def send() -> Any:
            async with AsyncClient("http://s:1/base", "rd_x", sleep=sleep, **options) as client:
                return [await client.send(call) for call in calls_][-1]

        return asyncio.run(send())


def _fresh(response: httpx.Response) -> httpx.Response:
    """Copy a response, which can be read only by the kind of client that read it first."""
    return httpx.Response(response.status_code, headers=response.headers, content=response.content)


@pytest.fixture(params=["sync", "async"])
def send(request: pytest.FixtureRequest) -> Sent:
    return Sent(request.param)


def _result(envelope: Envelope) -> Any:
    return json.loads(bytes(envelope.result))


READ = Call(method="GET", path="/", read=_result)
CHANGE = Call(method="POST", path="/", read=_result, body=b"body")
KEYED = Call(method="POST", path="/", read=_result, body=b"body", key="k")


class Script:
    """Answers one request after another as it is told, and keeps the key of each. The last answer stays."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.keys: list[str | None] = []
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers.get("Idempotency-Key"))
        self.bodies.append(request.content)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_call_bears_the_token_and_gives_the_bare_result(send: Sent) -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return done([1])

    assert send(handler, replace(CHANGE, path="/api/detectors")) == [1]
    assert str(seen[0].url) == "http://s:1/base/api/detectors"
    assert seen[0].headers["Authorization"] == "Bearer rd_x"
    assert seen[0].headers["Content-Type"] == "application/json"


def test_a_service_that_asks_to_wait_is_waited_for(send: Sent) -> None:
    answers = [refused(429, 1401, {"Retry-After": "2"}), refused(503, 1501), done("ok")]
    slept: list[float] = []
    assert send(lambda _: answers.pop(0), READ, slept=slept) == "ok"
    assert slept == [2.0, 1.0]


def test_patience_ends(send: Sent) -> None:
    slept: list[float] = []
    with pytest.raises(ServiceError, match="1401"):
        send(lambda _: refused(429, 1401, {"Retry-After": "9"}), READ, slept=slept, patience_s=30)
    assert slept == [9.0, 9.0, 9.0]


@pytest.mark.parametrize("code", [1101, 1200, 1400, 1402, 1500, 1502, 1504])
def test_other_refusals_of_a_change_are_final_since_it_may_have_been_made(send: Sent, code: int) -> None:
    script = Script(refused(400, code))
    with pytest.raises(ServiceError, match=f"{code} the reason") as error:
        send(script, CHANGE)
    assert (error.value.code, error.value.status) == (code, 400)
    assert len(script.keys) == 1


@pytest.mark.parametrize("code", [1401, 1501, 1503])
def test_a_change_that_was_certainly_not_made_is_repeated(send: Sent, code: int) -> None:
    assert send(Script(refused(503, code), done("made")), CHANGE) == "made"


LOST = [
    refused(504, 1502),
    httpx.ReadTimeout("late"),
    httpx.ConnectTimeout("late"),
    httpx.ConnectError("refused"),
    httpx.ReadError("reset"),
    httpx.WriteError("reset"),
    httpx.RemoteProtocolError("half an answer"),
    httpx.Response(502, text="<html>"),
    httpx.Response(503, text="<html>"),
    httpx.Response(504, text="<html>"),
]


@pytest.mark.parametrize("lost", LOST, ids=repr)
def test_with_a_key_what_was_lost_is_repeated_with_the_same_key_and_body(
    send: Sent,
    lost: httpx.Response | Exception,
) -> None:
    script = Script(lost, refused(503, 1501, {"Retry-After": "3"}), lost, done("once"))
    slept: list[float] = []
    assert send(script, KEYED, slept=slept) == "once"
    assert script.keys == ["k"] * 4
    assert script.bodies == [b"body"] * 4
    assert slept == [1.0, 3.0, 1.0]


@pytest.mark.parametrize("lost", LOST, ids=repr)
def test_without_a_key_nothing_is_repeated_of_which_it_is_not_known_whether_it_was_done(
    send: Sent,
    lost: httpx.Response | Exception,
) -> None:
    script = Script(lost, done("twice"))
    with pytest.raises(ServiceError):
        send(script, CHANGE)
    assert script.keys == [None]


@pytest.mark.parametrize("lost", [*LOST, refused(503, 1501)], ids=repr)
def test_patience_ends_with_a_key_too(send: Sent, lost: httpx.Response | Exception) -> None:
    slept: list[float] = []
    with pytest.raises(ServiceError):
        send(Script(lost), KEYED, slept=slept, patience_s=30)
    assert sum(slept) == 30


@pytest.mark.parametrize(("code", "in_doubt"), [(1400, False), (1500, True), (1502, True)])
def test_an_error_that_may_follow_the_work_is_in_doubt(send: Sent, code: int, *, in_doubt: bool) -> None:
    with pytest.raises(ServiceError) as raised:
        send(Script(refused(500, code)), CHANGE)
    assert raised.value.in_doubt is in_doubt


def test_time_that_answers_took_to_fail_counts_from_the_first_failure_on(send: Sent) -> None:
    clock = [0.0]

    def handler(request: httpx.Request) -> httpx.Response:
        clock.append(clock[-1] + 40)
        raise httpx.ReadTimeout("late", request=request)

    with pytest.raises(ServiceError, match="did not answer in time"):
        send(handler, KEYED, now_s=lambda: clock[-1])
    # The first, one within a minute after it, and the one during which the minute ended.
    assert clock[1:] == [40, 80, 120]


@pytest.mark.parametrize("code", [1000, 1006, 1101, 1200, 1500])
def test_with_a_key_other_refusals_are_final_too(send: Sent, code: int) -> None:
    script = Script(refused(400, code))
    with pytest.raises(ServiceError, match=f"{code} the reason"):
        send(script, KEYED)
    assert len(script.keys) == 1


def test_where_there_is_no_room_for_another_answer_it_goes_on_without_a_key(send: Sent) -> None:
    script = Script(refused(503, 1501), refused(429, 1401), done("ok"))
    slept: list[float] = []
    assert send(script, KEYED, slept=slept) == "ok"
    assert script.keys == ["k", "k", None]
    assert slept == [1.0], "nothing has to end before it can be sent without"


def test_without_its_key_it_is_as_final_as_any(send: Sent) -> None:
    script = Script(refused(429, 1401), refused(429, 1401), refused(504, 1502), done("twice"))
    with pytest.raises(ServiceError, match="1502"):
        send(script, KEYED)
    assert script.keys == ["k", None, None]


@pytest.mark.parametrize("lost", [refused(504, 1502), httpx.ReadTimeout("late")], ids=repr)
def test_what_may_have_been_done_never_goes_without_its_key(
    send: Sent, lost: httpx.Response | Exception
) -> None:
    script = Script(lost, refused(429, 1401), refused(429, 1401), done("once"))
    assert send(script, KEYED) == "once"
    assert script.keys == ["k"] * 4


@pytest.mark.parametrize(
    "last", [refused(503, 1501), refused(401, 1101), httpx.ConnectError(""), httpx.Response(404)], ids=repr
)
def test_an_error_is_in_doubt_if_an_earlier_attempt_may_have_been_carried_out(
    send: Sent, last: httpx.Response | Exception
) -> None:
    with pytest.raises(ServiceError) as raised:
        send(Script(httpx.ReadError("reset"), last), KEYED)
    assert raised.value.in_doubt


@pytest.mark.parametrize(
    ("answer", "in_doubt"),
    [
        (httpx.Response(200, text="hello"), True),
        (httpx.Response(500, text="a proxy's page"), True),
        (done({"actions": 7}), True),
        (httpx.Response(308), False),
        (httpx.Response(413, text="a proxy's page"), False),
    ],
)
def test_what_cannot_be_read_is_in_doubt_and_not_repeated(
    send: Sent, answer: httpx.Response, *, in_doubt: bool
) -> None:
    script = Script(answer)
    with pytest.raises(ServiceError) as raised:
        send(script, calls.evaluate("d", {}, 1, key="k"))
    assert raised.value.in_doubt is in_doubt
    assert script.keys == ["k"]


@pytest.mark.parametrize("result", [b'{"id":"\xff"}', b"null"])
def test_what_is_no_result_is_told(send: Sent, result: bytes) -> None:
    content = b'{"success":true,"errors":[],"messages":[],"result":%b}' % result
    for call in (calls.get_detector("d"), calls.state("d")):
        with pytest.raises(ServiceError, match="something else"):
            send(lambda _: httpx.Response(200, content=content), call)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="hello"),
        httpx.Response(200, json={"ok": 1}),
        httpx.Response(502, text="<html>"),
        httpx.Response(500, json={"success": False, "errors": [], "messages": [], "result": {}}),
    ],
)
def test_something_else_that_answers_is_recognised(send: Sent, answer: httpx.Response) -> None:
    with pytest.raises(ServiceError, match="but not with this service's envelope"):
        send(lambda _: answer, READ)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("refused", "no service answers at http://s:1/base"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "http://s:1/base does not use TLS"),
    ],
)
def test_a_service_that_is_not_there_is_said_so(send: Sent, reason: str, said: str) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(reason, request=request)

    with pytest.raises(ServiceError, match=said):
        send(handler, CHANGE)


def test_an_address_with_the_path_of_an_operation_is_told() -> None:
    transport = httpx.MockTransport(lambda _: refused(404, 1004))
    client = Client("http://s:1/base/api/", "rd_x", transport=transport)
    with pytest.raises(ServiceError, match="is the service at http://s:1/base, without `/api`"):
        client.send(READ)


@pytest.mark.parametrize("token", ["rd_…", "rd_x\n"])
def test_a_token_that_no_header_can_bear_is_refused_before_anything_is_sent(token: str) -> None:
    with pytest.raises(ServiceError, match="the token has characters that no token has"):
        Client("http://s:1", token)


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://x", "http://", "http://a:b", "::"])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_is_no_address_is_refused_before_anything_is_sent(
    kind: type[Client] | type[AsyncClient], url: str
) -> None:
    with pytest.raises(ServiceError, match="not the address of a service"):
        kind(url, "t")


def test_no_proxy_stands_between_two_processes_of_one_machine() -> None:
    for url in ("http://127.0.0.1:1", "http://localhost", "http://[::1]:1"):
        assert Client(url, "t")._http.trust_env is False
    assert Client("https://rules.example", "t")._http.trust_env is True


NEVER_SENT = [httpx.ConnectError("refused"), httpx.ConnectTimeout("late")]


@pytest.mark.parametrize("lost", LOST, ids=repr)
def test_a_read_that_was_lost_is_repeated_once_the_address_is_known_to_be_right(
    send: Sent, lost: httpx.Response | Exception
) -> None:
    assert send(Script(done("first"), lost, lost, done("second")), READ, READ) == "second"


@pytest.mark.parametrize("lost", NEVER_SENT, ids=repr)
def test_a_change_that_was_never_sent_is_repeated_once_the_address_is_known_to_be_right(
    send: Sent, lost: Exception
) -> None:
    assert send(Script(done("read"), lost, done("made")), READ, CHANGE) == "made"
    with pytest.raises(ServiceError):
        send(Script(lost, done("made")), CHANGE)


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        (calls.list_rules("d"), False),
        (calls.explain("d", {}, 0), False),
        (calls.parse_condition("a == 1"), False),
        (calls.evaluate("d", {}, 0), True),
        (calls.create_token(), True),
        (calls.change_rule("d", "r", enabled=False), True),
        (calls.delete_detector("d"), True),
    ],
    ids=lambda given: getattr(given, "path", None),
)
def test_reads_are_told_from_changes(call: Call[Any], *, changes: bool) -> None:
    assert call.changes is changes


def test_an_answer_of_another_shape_is_told_with_its_place(send: Sent) -> None:
    with pytest.raises(ServiceError, match=r"GET /api/detectors/d .* `\$\.name`"):
        send(lambda _: done({"id": "d", "name": 7}), calls.get_detector("d"))
