"""The program with the templates of the page, beside servers that play Slack, PagerDuty and Kafka.

They check what these services ask for, and answer as they document it.
"""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

import api
from tests.unit.cli.delivering.feeds import served
from tests.unit.cli.delivering.test_command import Delivering, until

TEMPLATES = Path(api.__file__).parent / "deploy" / "delivering"
HOSTILE = '<!channel> & "quoted" \\ $rule ${keys.user} \n ünï'
LONG = "x" * 9_000
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)")


@pytest.fixture
def delivering(tmp_path: Path) -> Delivering:
    return Delivering(tmp_path)


def slack(request: httpx.Request) -> httpx.Response:
    """Check and answer as an incoming webhook does."""
    if not request.headers["Content-Type"].startswith("application/json"):
        return httpx.Response(400, text="invalid_payload")
    text = json.loads(request.content).get("text")
    if not isinstance(text, str) or not text:
        return httpx.Response(400, text="no_text")
    # What is left is read as a link, a mention or an entity.
    if "<" in text or ">" in text or re.search("&(?!amp;|lt;|gt;)", text) or len(text) > 40_000:
        return httpx.Response(400, text="invalid_payload")
    return httpx.Response(200, text="ok")


def pagerduty(request: httpx.Request) -> httpx.Response:
    """Check and answer as the Events API v2 does."""
    body = json.loads(request.content)
    payload = body.get("payload", {})
    right = [
        request.url.path == "/v2/enqueue",
        isinstance(body.get("routing_key"), str),
        body.get("event_action") in {"trigger", "acknowledge", "resolve"},
        0 < len(body.get("dedup_key", "?")) <= 255,
        0 < len(payload.get("summary", "")) <= 1_024,
        isinstance(payload.get("source"), str) and payload["source"] != "",
        payload.get("severity") in {"critical", "error", "warning", "info"},
        _TIME.fullmatch(payload.get("timestamp", "")),
        isinstance(payload.get("custom_details", {}), dict),
        body.keys()
        <= {"routing_key", "event_action", "dedup_key", "payload", "client", "client_url", "links"},
    ]
    if not all(right):
        return httpx.Response(400, json={"status": "invalid event", "message": "Event object is invalid"})
    said = {"status": "success", "message": "Event processed", "dedup_key": body["dedup_key"]}
    return httpx.Response(202, json=said)


def kafka(request: httpx.Request) -> httpx.Response:
    """Check and answer as version 3 of the REST Proxy does, which reports errors of a record in a 200."""
    assert re.fullmatch(r"/v3/clusters/[^/]+/topics/[^/]+/records", request.url.path)
    if request.headers["Content-Type"] != "application/json":
        return httpx.Response(415, json={"error_code": 415, "message": "HTTP 415 Unsupported Media Type"})
    body = json.loads(request.content)
    for part in ("key", "value"):
        if not (body[part].keys() == {"type", "data"} and body[part]["type"] in {"JSON", "STRING", "BINARY"}):
            return httpx.Response(200, json={"error_code": 400, "message": "Bad Request"})
    if body["key"]["type"] == "STRING" and not isinstance(body["key"]["data"], str):
        return httpx.Response(200, json={"error_code": 40002, "message": "Bad Request"})
    report = {"error_code": 200, "cluster_id": "c", "topic_name": "firings", "partition_id": 0, "offset": 1}
    return httpx.Response(200, json=report)


SERVICES = {
    "slack": (slack, "/services/T0/B0/X", "slack"),
    "pagerduty": (pagerduty, "/v2/enqueue", str(TEMPLATES / "pagerduty.json")),
    "kafka": (kafka, "/v3/clusters/c/topics/firings/records", str(TEMPLATES / "kafka.json")),
}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_takes_each_firing_as_it_documents_it(delivering: Delivering, service: str) -> None:
    answer, path, template = SERVICES[service]
    one = delivering.feeds.detector("<shop> & co")
    answers = list[httpx.Response]()

    async def checked(request: httpx.Request) -> httpx.Response:
        answers.append(answer(request))
        return answers[-1]

    dead = delivering.folder / "dead"
    with served(delivering.feeds) as port, served(checked) as hook:
        options = ("--all", "--to", f"http://127.0.0.1:{hook}{path}", "--template", template)
        with delivering.running(port, *options, "--dead-letters", str(dead), "--attempts", "1"):
            delivering.feeds.fire(one)
            more = {"found": {"count(a) within 1h": 3}, "labels": {"severity": "high"}, "suppressed": 7}
            delivering.feeds.fire(one, name=HOSTILE, keys={"user": HOSTILE, "n": 1 << 70, "b": True}, **more)
            delivering.feeds.fire(one, name="n" * 255, keys={"user": LONG}, timed=True)
            until(lambda: delivering.places == {one: 3})
    assert [each.is_success for each in answers] == [True] * 3
    assert not dead.exists() or not dead.read_bytes()


WRONG: dict[str, dict[str, Any]] = {
    "slack": {"message": "$rule"},
    "pagerduty": {"routing_key": "k", "event_action": "trigger", "payload": {"summary": "$rule"}},
    "kafka": {"key": {"data": "$rule_id"}, "value": {"type": "JSON", "data": "$keys"}},
}


@pytest.mark.parametrize("service", WRONG)
def test_what_a_service_refuses_is_a_dead_letter(delivering: Delivering, service: str) -> None:
    answer, path, _ = SERVICES[service]
    one = delivering.feeds.detector("shop")

    async def checked(request: httpx.Request) -> httpx.Response:
        return answer(request)

    template, dead = delivering.folder / "template.json", delivering.folder / "dead"
    template.write_text(json.dumps(WRONG[service]))
    with served(delivering.feeds) as port, served(checked) as hook:
        options = ("--all", "--to", f"http://127.0.0.1:{hook}{path}", "--template", str(template))
        with delivering.running(port, *options, "--dead-letters", str(dead), "--attempts", "1"):
            delivering.feeds.fire(one)
            until(lambda: delivering.places == {one: 1})
    [letter] = dead.read_text().splitlines()
    assert re.search("it answered (400|200, with the error 400 inside)", letter)


def test_answers_that_report_no_error_are_successes(delivering: Delivering) -> None:
    one = delivering.feeds.detector("shop")
    bodies = [b"", b"ok", b"[]", b'{"error_code": null}', b'{"error_code": 0}', b"[" * 9_999]
    delivering.receiver.answer = lambda body: httpx.Response(200, content=bodies[body["seq"] - 1])
    with (
        served(delivering.feeds) as port,
        served(delivering.receiver) as hook,
        delivering.running(port, "--all", "--to", f"http://127.0.0.1:{hook}/"),
    ):
        delivering.feeds.fire(one, len(bodies))
        until(lambda: delivering.places == {one: len(bodies)})
    assert delivering.receiver.seqs(one) == [*range(1, len(bodies) + 1)]
