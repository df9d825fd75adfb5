from collections.abc import Callable

import httpx
import pytest

from api.commands.detectors import add_rules, find_detector
from api.commands.rule_files import NamedCondition, conditions_of
from api.commands.service import Service, ServiceError

Handler = Callable[[httpx.Request], httpx.Response]


def done(result: object) -> httpx.Response:
    return httpx.Response(200, json={"success": True, "errors": [], "messages": [], "result": result})


def refused(status: int, code: int, headers: dict[str, str] | None = None) -> httpx.Response:
    errors = [{"code": code, "message": "the reason"}]
    body = {"success": False, "errors": errors, "messages": [], "result": {}}
    return httpx.Response(status, json=body, headers=headers)


def service(handler: Handler, slept: list[float] | None = None, patience_s: float = 60.0) -> Service:
    sleep = (slept if slept is not None else []).append
    return Service(
        "http://s:1/base", "rd_x", transport=httpx.MockTransport(handler), sleep=sleep, patience_s=patience_s
    )


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
    with pytest.raises(ServiceError, match="not as this service does"):
        service(lambda _: answer).call("GET", "/")


def test_a_service_that_is_not_there_is_said_so() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(ServiceError, match="no service answers at http://s:1/base"):
        service(handler).call("GET", "/")


@pytest.mark.parametrize("url", ["", "localhost:80", "ftp://x", "http://", "http://a:b", "::"])
def test_what_is_no_address_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ServiceError, match="no address of a service"):
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
