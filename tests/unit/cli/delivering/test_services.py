"""What is sent with the templates of the page, judged as Slack, PagerDuty and Kafka document it."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

import api
from api.cli.delivering.targets import DeliveryError, Webhook
from api.cli.delivering.templates import form_of
from rule_detector_client import Detector, Firing

TEMPLATES = Path(api.__file__).parent / "deploy" / "delivering"
HOSTILE = '<!channel> & "quoted" \\ $rule ${keys.user} \n ünï'
LONG = "x" * 9_000
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)")


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


def answer_to(service: str, template: str, firing: Firing) -> httpx.Response:
    """What a service answers to what is sent for a firing."""
    answer, path, _ = SERVICES[service]
    form = form_of(template)
    headers = {"Content-Type": form.content_type}
    body = form.body(Detector("7" * 32, "<shop> & co"), firing)
    return answer(httpx.Request("POST", f"http://s{path}", headers=headers, content=body))


FIRINGS = (
    Firing(1, 1_709_542_800_000.0, "r", "forced", 1, {"user": "ada"}),
    Firing(
        *(2, 0.0, "r", HOSTILE, 1, {"user": HOSTILE, "n": 1 << 70, "b": True}),
        found={"count(a) within 1h": 3},
        labels={"severity": "high"},
        suppressed=7,
    ),
    Firing(3, 0.0, "r", "n" * 255, 1, {"user": LONG}, timed=True),
)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_takes_each_firing_as_it_documents_it(service: str) -> None:
    for firing in FIRINGS:
        answer = answer_to(service, SERVICES[service][2], firing)
        assert (answer.is_success, b'"error_code":4' in answer.content) == (True, False)


WRONG: dict[str, dict[str, Any]] = {
    "slack": {"message": "$rule"},
    "pagerduty": {"routing_key": "k", "event_action": "trigger", "payload": {"summary": "$rule"}},
    "kafka": {"key": {"data": "$rule_id"}, "value": {"type": "JSON", "data": "$keys"}},
}


@pytest.mark.parametrize("service", WRONG)
async def test_what_a_service_refuses_is_refused_for_good(service: str, tmp_path: Path) -> None:
    (tmp_path / "template.json").write_text(json.dumps(WRONG[service]))
    answer = answer_to(service, str(tmp_path / "template.json"), FIRINGS[0])
    with pytest.raises(DeliveryError, match=r"it answered (400|200, with the error 400 inside)$") as refused:
        await webhook(answer).send(b"{}", "application/json", "key")
    assert refused.value.final


def webhook(answer: httpx.Response) -> Webhook:
    """A target that gives this answer."""
    http = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answer))
    return Webhook(http, httpx.URL("http://h"), None, 1.0)


@pytest.mark.parametrize(
    "body", [b"", b"ok", b"[]", b'{"error_code": null}', b'{"error_code": 0}', b"[" * 9_999]
)
async def test_answers_that_report_no_error_are_successes(body: bytes) -> None:
    await webhook(httpx.Response(200, content=body)).send(b"{}", "application/json", "key")
