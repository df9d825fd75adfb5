from collections.abc import Callable

import httpx
import pytest

from api.cli.client.detectors import add_rules, find_detector
from api.cli.client.service import Service, ServiceError
from api.cli.rule_files import NamedCondition, conditions_of

Handler = Callable[[httpx.Request], httpx.Response]


def done(result: object) -> httpx.Response:
    return httpx.Response(200, json={"success": True, "errors": [], "messages": [], "result": result})


def refused(status: int, code: int, headers: dict[str, str] | None = None) -> httpx.Response:
    errors = [{"code": code, "message": "the reason"}]
    body = {"success": False, "errors": errors, "messages": [], "result": {}}
    return httpx.Response(status, json=body, headers=headers)


def service(handler: Handler, slept: list[float] | None = None, patience_s: float = 60.0) -> Service:
    """A service whose time passes only while somebody sleeps."""
    slept = [] if slept is None else slept
    return Service(
        "http://s:1/base",
        "rd_x",
        transport=httpx.MockTransport(handler),
        sleep=slept.append,
        now_s=lambda: sum(slept),
        patience_s=patience_s,
    )


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


def test_a_call_bears_the_token_and_gives_the_bare_result() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return done([1])

    assert service(handler).call("POST", "/api/detectors", b"{}") == [1]
    assert str(seen[0].url) == "http://s:1/base/api/detectors"
    assert seen[0].headers["Authorization"] == "Bearer rd_x"
    assert seen[0].headers["Content-Type"] == "application/json"


def test_a_service_that_asks_to_wait_is_waited_for() -> None:
    answers = [refused(429, 1401, {"Retry-After": "2"}), refused(503, 1501), done("ok")]
    slept: list[float] = []
    assert service(lambda _: answers.pop(0), slept).call("GET", "/") == "ok"
    assert slept == [2.0, 1.0]


def test_patience_ends() -> None:
    slept: list[float] = []
    with pytest.raises(ServiceError, match="1401"):
        service(lambda _: refused(429, 1401, {"Retry-After": "9"}), slept, patience_s=30).call("GET", "/")
    assert sum(slept) <= 30


@pytest.mark.parametrize("code", [1101, 1200, 1500, 1502, 1503])
def test_other_refusals_are_final_since_what_was_sent_may_have_been_evaluated(code: int) -> None:
    calls: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return refused(400, code)

    with pytest.raises(ServiceError, match=f"{code} the reason") as error:
        service(handler).call("GET", "/")
    assert error.value.code == code
    assert len(calls) == 1


LOST = [
    refused(504, 1502),
    refused(503, 1503),
    httpx.ReadTimeout("late"),
    httpx.ConnectTimeout("late"),
    httpx.ConnectError("refused"),
    httpx.ReadError("reset"),
    httpx.WriteError("reset"),
    httpx.RemoteProtocolError("half an answer"),
    httpx.Response(502, text="<html>"),
    httpx.Response(504, text="<html>"),
]


@pytest.mark.parametrize("lost", LOST, ids=repr)
def test_with_a_key_what_was_lost_is_repeated_with_the_same_key_and_body(
    lost: httpx.Response | Exception,
) -> None:
    script = Script(lost, refused(503, 1501, {"Retry-After": "3"}), lost, done("once"))
    slept: list[float] = []
    assert service(script, slept).call("POST", "/", b"body", key="k") == "once"
    assert script.keys == ["k"] * 4
    assert script.bodies == [b"body"] * 4
    assert slept == [1.0, 3.0, 1.0]


@pytest.mark.parametrize("lost", LOST, ids=repr)
def test_without_a_key_nothing_is_repeated_of_which_it_is_not_known_whether_it_was_done(
    lost: httpx.Response | Exception,
) -> None:
    script = Script(lost, done("twice"))
    with pytest.raises(ServiceError):
        service(script).call("POST", "/", b"body")
    assert script.keys == [None]


@pytest.mark.parametrize("lost", [*LOST, refused(503, 1501)], ids=repr)
def test_patience_ends_with_a_key_too(lost: httpx.Response | Exception) -> None:
    slept: list[float] = []
    with pytest.raises(ServiceError):
        service(Script(lost), slept, patience_s=30).call("POST", "/", b"body", key="k")
    assert 29 <= sum(slept) <= 30


def test_time_that_answers_took_to_fail_counts_from_the_first_failure_on() -> None:
    clock = [0.0]

    def handler(request: httpx.Request) -> httpx.Response:
        clock.append(clock[-1] + 40)
        raise httpx.ReadTimeout("late", request=request)

    there = Service(
        "http://s:1",
        "rd_x",
        transport=httpx.MockTransport(handler),
        sleep=lambda _: None,
        now_s=lambda: clock[-1],
        patience_s=60,
    )
    with pytest.raises(ServiceError, match="did not answer in time"):
        there.call("POST", "/", key="k")
    # The first, one within a minute after it, and the one during which the minute ended.
    assert clock[1:] == [40, 80, 120]


@pytest.mark.parametrize("code", [1000, 1006, 1101, 1200, 1500])
def test_with_a_key_other_refusals_are_final_too(code: int) -> None:
    script = Script(refused(400, code))
    with pytest.raises(ServiceError, match=f"{code} the reason"):
        service(script).call("POST", "/", key="k")
    assert len(script.keys) == 1


def test_where_there_is_no_room_for_another_answer_it_goes_on_without_a_key() -> None:
    script = Script(refused(503, 1501), refused(429, 1401), done("ok"))
    slept: list[float] = []
    assert service(script, slept).call("POST", "/", key="k") == "ok"
    assert script.keys == ["k", "k", None]
    assert slept == [1.0], "nothing has to end before it can be sent without"


def test_without_its_key_it_is_as_final_as_any() -> None:
    script = Script(refused(429, 1401), refused(429, 1401), refused(504, 1502), done("twice"))
    with pytest.raises(ServiceError, match="1502"):
        service(script).call("POST", "/", key="k")
    assert script.keys == ["k", None, None]


@pytest.mark.parametrize("lost", [refused(504, 1502), httpx.ReadTimeout("late")], ids=repr)
def test_what_may_have_been_done_never_goes_without_its_key(lost: httpx.Response | Exception) -> None:
    script = Script(lost, refused(429, 1401), refused(429, 1401), done("once"))
    assert service(script).call("POST", "/", key="k") == "once"
    assert script.keys == ["k"] * 4


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="hello"),
        httpx.Response(200, json={"ok": 1}),
        httpx.Response(502, text="<html>"),
        httpx.Response(500, json={"success": False, "errors": [], "messages": [], "result": {}}),
    ],
)
def test_something_else_that_answers_is_recognised(answer: httpx.Response) -> None:
    with pytest.raises(ServiceError, match="but not with this service's envelope"):
        service(lambda _: answer).call("GET", "/")


def test_a_service_that_is_not_there_is_said_so() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(ServiceError, match="no service answers at http://s:1/base"):
        service(handler).call("GET", "/")


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://x", "http://", "http://a:b", "::"])
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ServiceError, match="not the address of a service"):
        Service(url, "t")


def test_no_proxy_stands_between_two_processes_of_one_machine() -> None:
    for url, proxied in (
        ("http://127.0.0.1:1", False),
        ("http://localhost", False),
        ("http://[::1]:1", False),
    ):
        assert Service(url, "t")._client.trust_env is proxied
    assert Service("https://rules.example", "t")._client.trust_env is True


DETECTORS = [{"id": "a" * 32, "name": "x"}, {"id": "b" * 32, "name": "y"}, {"id": "c" * 32, "name": "y"}]


def test_a_detector_is_found_by_id_or_by_a_name_of_its_own() -> None:
    there = service(lambda _: done(DETECTORS))
    assert find_detector(there, "b" * 32).name == "y"
    assert find_detector(there, "x").id == "a" * 32
    with pytest.raises(ServiceError, match=r"2 detectors are named `y`.*b{32}, c{32}"):
        find_detector(there, "y")
    with pytest.raises(ServiceError, match="`z`: there are `x`, `y`, `y`"):
        find_detector(there, "z")
    with pytest.raises(ServiceError, match="there is none yet"):
        find_detector(service(lambda _: done([])), "z")


def test_rules_are_added_all_or_none() -> None:
    requests: list[tuple[str, str]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return done({"rules": []})
        requests.append((request.method, request.url.path))
        if request.method == "DELETE":
            return done({"id": "1"})
        return refused(409, 1400) if len(requests) == 3 else done({"id": str(len(requests))})

    rules: list[NamedCondition] = conditions_of("a: x == 1\nb: x == 2\nc: x == 3\n", "r.yaml")
    with pytest.raises(ServiceError, match="`c`: 1400"):
        add_rules(service(handler), "d", rules)
    assert requests[3:] == [
        ("DELETE", "/base/api/detectors/d/rules/1"),
        ("DELETE", "/base/api/detectors/d/rules/2"),
    ]
