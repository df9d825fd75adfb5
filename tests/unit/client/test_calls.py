"""What each call sends, and what its answer is read as."""

import asyncio
import json
from typing import Any

import httpx
import msgspec
import pytest

from api.schema.messages.catalogue import PAGE_MAX
from rule_detector_client import AsyncClient, Client, Event, calls, results
from rule_detector_client.calls import Call

RULE = {
    "id": "r",
    "condition": {},
    "detectorId": "d",
    "enabled": True,
    "name": "n",
    "notify": True,
    "priority": 1,
}
NODE = {"text": "a == 1", "verdict": False}
EXAMPLE = {"number": 1, "timestamp_ms": 0.5, "key": {}, "fields": {}}
EVENT = {"event": {"fields": {"a": 1}, "timestamp_ms": 2}}
TOKEN = {"id": "t", "hint": "cret"}
COUNTS = dict.fromkeys(("since_event", "events", "both", "only_rule", "only_draft"), 0)
BOUNDS = {"scopes": ["read"], "detectors": None, "expires_ms": 5, "events_per_s": 0.5}


@pytest.mark.parametrize(
    ("call", "sent", "document"),
    [
        (calls.get_detector("a/b é"), "GET /api/detectors/a%2Fb%20%C3%A9", None),
        (calls.list_detectors(), f"GET /api/detectors?limit={PAGE_MAX}", None),
        (calls.list_detectors("a&b", 5), "GET /api/detectors?limit=5&after=a%26b", None),
        (calls.create_token(), "POST /api/token", None),
        (calls.create_token("n"), "POST /api/tokens", {"name": "n"}),
        (
            calls.add_rule("d", "n", "a == 1"),
            "POST /api/detectors/d/rules",
            {"name": "n", "condition": "a == 1", "notify": False},
        ),
        (
            calls.add_rule("d", "n", "a == 1", notify=True, shadow=True, draft_of="r"),
            "POST /api/detectors/d/rules",
            {"name": "n", "condition": "a == 1", "notify": True, "shadow": True, "draftOf": "r"},
        ),
        (calls.change_rule("d", "r"), "PATCH /api/detectors/d/rules/r", {}),
        (
            calls.change_rule("d", "r", name="n", enabled=False),
            "PATCH /api/detectors/d/rules/r",
            {"name": "n", "enabled": False},
        ),
        (calls.comparison("d", "r"), "GET /api/detectors/d/rules/r/comparison", None),
        (calls.comparison("d", "r", 0), "GET /api/detectors/d/rules/r/comparison?after=0", None),
        (calls.promote("d", "r"), "POST /api/detectors/d/rules/r/promote", None),
        (calls.move_detector("d"), "POST /api/detectors/d/move", {}),
        (calls.move_detector("d", "n"), "POST /api/detectors/d/move", {"node": "n"}),
        (calls.evaluate("d", {"a": 1}, 2), "POST /api/detectors/d/evaluate", EVENT),
        (
            calls.evaluate("d", {"a": 1}, 2, {}),
            "POST /api/detectors/d/evaluate",
            EVENT | {"context": {"vars": {}}},
        ),
        (calls.evaluate_batch("d", [b"1", b"2"]), "POST /api/detectors/d/evaluate/batch", {"events": [1, 2]}),
        (calls.explain("d", {"a": 1}, 2), "POST /api/detectors/d/explain", EVENT),
        (
            calls.explain("d", {"a": 1}, 2, {"b": 3}, rule_id="r"),
            "POST /api/detectors/d/explain",
            EVENT | {"context": {"vars": {"b": 3}}, "ruleId": "r"},
        ),
        (calls.state("d"), "GET /api/detectors/d/state", None),
        (calls.state("d", per="a b", key="1"), "GET /api/detectors/d/state?per=a+b&key=1", None),
    ],
)
def test_a_call_says_what_to_send(call: Call[Any], sent: str, document: object) -> None:
    assert f"{call.method} {call.path}" == sent
    assert (None if call.body is None else json.loads(call.body)) == document


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (results.Entry, {"code": 1, "message": "m"}),
        (results.Envelope, {"success": True, "errors": [], "messages": [], "result": {}}),
        (results.Identified, {"id": "d"}),
        (results.Detector, {"id": "d", "name": "n"}),
        (results.Token, TOKEN | {"token": "secret"}),
        (results.ListedToken, TOKEN | {"name": "", "created_ms": None, "used_ms": None} | BOUNDS),
        (results.Rule, RULE),
        (results.Rule, RULE | {"shadow": True, "draftOf": "o"}),
        (results.ShownRule, RULE | {"text": "a == 1", "source": "a==1"}),
        (
            results.Action,
            {"type": "match", "ruleId": "r", "name": "n", "priority": 1, "notify": False},
        ),
        (results.EventResult, {"actions": []}),
        (results.ExplainedNode, NODE),
        (results.ExplainedNode, NODE | {"found": {"avg(a)": 10, "last(b)": "DE"}}),
        (results.ExplainedRule, {"ruleId": "r", "name": "n", "verdict": True, "node": NODE}),
        (results.Example, EXAMPLE),
        (results.Difference, EXAMPLE | {"fired": "only_rule"}),
        (
            results.Comparison,
            {"ruleId": "r", "draftId": "d", "examples": {}, "differences": []} | COUNTS,
        ),
        (results.ParsedCondition, {"condition": {}, "text": "a == 1"}),
        (Event, {"fields": {}, "timestamp_ms": 0.5}),
    ],
)
def test_an_answer_has_what_the_service_sent_and_nothing_else_and_stays_so(
    kind: type[msgspec.Struct], document: dict[str, Any]
) -> None:
    answer = msgspec.json.decode(json.dumps(document), type=kind)
    assert json.loads(msgspec.json.encode(answer)) == document
    with pytest.raises(AttributeError):
        setattr(answer, kind.__struct_fields__[0], None)


def test_what_the_service_leaves_out_is_false() -> None:
    assert not msgspec.convert(RULE, results.Rule).shadow
    assert not msgspec.convert(EXAMPLE, results.Example).cut
    explained = {"ruleId": "r", "name": "n", "verdict": True, "node": NODE}
    assert not msgspec.convert(explained, results.ExplainedRule).shadow


class Catalogue:
    """Lists detectors by pages, and keeps after which detector each page was asked for."""

    def __init__(self, count: int) -> None:
        self.ids = [str(number) for number in range(count)]
        self.asked: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        after = request.url.params.get("after")
        self.asked.append(after)
        begin = 0 if after is None else self.ids.index(after) + 1
        page = self.ids[begin : begin + int(request.url.params["limit"])]
        result = [{"id": one, "name": one} for one in page]
        return httpx.Response(200, json={"success": True, "errors": [], "messages": [], "result": result})


def _sync(catalogue: Catalogue) -> list[str]:
    client = Client("http://s", "t", transport=httpx.MockTransport(catalogue))
    with client:
        found = [detector.id for detector in client.detectors()]
    with pytest.raises(RuntimeError, match="closed"):
        client.send(calls.list_detectors())
    return found


def _async(catalogue: Catalogue) -> list[str]:
    async def run() -> list[str]:
        client = AsyncClient("http://s", "t", transport=httpx.MockTransport(catalogue))
        async with client:
            found = [detector.id async for detector in client.detectors()]
        with pytest.raises(RuntimeError, match="closed"):
            await client.send(calls.list_detectors())
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("listed", [_sync, _async])
@pytest.mark.parametrize(
    ("count", "asked"),
    [
        (0, [None]),
        (PAGE_MAX - 1, [None]),
        (2 * PAGE_MAX, [None, f"{PAGE_MAX - 1}", f"{2 * PAGE_MAX - 1}"]),
        (PAGE_MAX + 1, [None, f"{PAGE_MAX - 1}"]),
    ],
)
def test_all_detectors_are_listed_page_by_page_until_a_client_is_closed(
    listed: Any, count: int, asked: list[str | None]
) -> None:
    catalogue = Catalogue(count)
    assert listed(catalogue) == catalogue.ids
    assert catalogue.asked == asked


class RuleBook:
    """Lists rules by pages, each ending where it has three; an old one lists all of them at each request."""

    def __init__(self, count: int, *, knows_pages: bool) -> None:
        self.priorities = range(1, count + 1)
        self.knows_pages = knows_pages
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.query.decode())
        after = int(request.url.params.get("after", 0)) if self.knows_pages else 0
        page = self.priorities[after : after + 3] if self.knows_pages else self.priorities
        rest = {"condition": {}, "detectorId": "d", "enabled": True, "name": "r", "notify": False}
        result = {"rules": [{"id": str(one), "priority": one, **rest} for one in page]}
        return httpx.Response(200, json={"success": True, "errors": [], "messages": [], "result": result})


@pytest.mark.parametrize(
    ("count", "knows_pages", "asked"),
    [
        (0, True, ["limit=1000"]),
        (3, True, ["limit=1000", "limit=1000&after=3"]),
        (7, True, ["limit=1000", "limit=1000&after=3", "limit=1000&after=6", "limit=1000&after=7"]),
        (7, False, ["limit=1000", "limit=1000&after=7"]),
    ],
)
def test_the_client_reads_all_rules_page_by_page(count: int, *, knows_pages: bool, asked: list[str]) -> None:
    book = RuleBook(count, knows_pages=knows_pages)
    with Client("http://s", "t", transport=httpx.MockTransport(book)) as client:
        found = [rule.priority for rule in client.rules("d")]
    assert (found, book.asked) == (list(book.priorities), asked)

    async def run() -> list[int]:
        async with AsyncClient("http://s", "t", transport=httpx.MockTransport(book)) as client:
            return [rule.priority async for rule in client.rules("d")]

    assert asyncio.run(run()) == found
