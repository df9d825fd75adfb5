"""Changes of many rules over HTTP, and the versions of rules."""

import json
from typing import Any

import msgspec
import pytest

from api.http.handling.condition_bodies import put_rules_operation
from engine.language.limits import DEFAULT_LIMITS
from engine.runtime.contract.requests.operations import PutRules
from tests.api.caller import Caller

pytestmark = pytest.mark.parametrize("service", ["here"], indirect=True)

CHARACTERS = "1 to 255 characters without control characters other than tab and newline"


def bodies(*conditions: str) -> list[dict[str, Any]]:
    return [{"name": f"r{number}", "condition": each} for number, each in enumerate(conditions)]


async def test_the_shape_is_judged_before_the_conditions_and_all_defects_are_listed(caller: Caller) -> None:
    path = f"/api/detectors/{await caller.detector()}/rules"
    bad = bodies("a ==", "a == 1")
    reply = await caller(
        "PUT", path, {"rules": [*bad, {"name": "", "notify": 1}, {"nmae": "x"}], "prune": True}
    )
    assert (reply.status, set(reply.codes)) == (400, {1001})
    assert reply.texts == [
        f"rules[2].name: expected {CHARACTERS}, got an empty string",
        "rules[2].notify: expected a boolean, got a number",
        "rules[2].condition: missing",
        "rules[3].nmae: unknown member; did you mean `name`?",
        "rules[3].condition: missing",
        "rules[3].name: missing",
    ]
    reply = await caller("PUT", path, {"rules": [*bad, {"name": "r0", "condition": "a == 1"}]})
    assert reply.texts == ["rules[2].name: rules[0] is named `r0`, too"]
    reply = await caller("PUT", path, {"rules": bad})
    assert (reply.codes, reply.texts[0][:20]) == ([1300], "rules[0].condition: ")
    assert (await caller("PUT", path, content=b"[")).codes == [1000]
    assert (await caller("PUT", path, {"rules": None})).texts == ["rules: expected an array, got null"]
    assert (await caller("GET", path)).result == {"rules": []}
    unknown = await caller("PUT", f"/api/detectors/{'0' * 32}/rules", {"rules": 1})
    assert unknown.codes == [1200]


async def test_how_changed_rules_differ_is_told_if_it_is_asked_for(caller: Caller) -> None:
    path = f"/api/detectors/{await caller.detector()}/rules"
    await caller("PUT", path, {"rules": bodies("a == 1", "a == 2", "a == 3")})
    changed = {"rules": bodies("a == 1", "a == 5  # why"), "dryRun": True, "prune": True}
    assert "details" not in (await caller("PUT", path, changed)).result
    for dry_run in (True, False):
        reply = await caller("PUT", path, {**changed, "dryRun": dry_run, "details": True})
        assert reply.result == {
            "created": [],
            "changed": ["r1"],
            "removed": ["r2"],
            "unchanged": ["r0"],
            "details": [
                {
                    "name": "r1",
                    "members": ["condition"],
                    "history": "begins anew",
                    "before": "a == 2",
                    "after": "a == 5",
                }
            ],
        }
    assert (await caller("PUT", path, {**changed, "details": 1})).codes == [1001]


async def test_a_rule_that_is_nested_too_deep_is_refused(caller: Caller) -> None:
    path = f"/api/detectors/{await caller.detector()}/rules"
    deep = b"[" * 62 + b"]" * 62
    rules = [b'{"name": "r%d", "condition": "a == 1", "labels": {}}' % number for number in range(100)]
    body = b'{"rules": [%b, {"name": 1}, {"name": "deep", "x": %b}]}' % (b", ".join(rules), deep)
    reply = await caller("PUT", path, content=body)
    assert (reply.codes, reply.texts) == ([1000], ["the body is nested more than 64 deep"])
    assert (await caller("PUT", path, content=body.replace(deep, deep[1:-1]))).codes == [1001] * 4


async def test_messages_know_the_relations_that_are_stored(caller: Caller) -> None:
    detector = f"/api/detectors/{await caller.detector()}"
    rules = {"rules": bodies("staff(user)"), "dryRun": True}
    unknown = await caller("PUT", f"{detector}/rules", rules)
    assert [one["code"] for one in unknown.envelope["messages"]] == [2003]
    await caller("PUT", f"{detector}/relations/staff", {"tuples": ["ada"]})
    assert (await caller("PUT", f"{detector}/rules", rules)).envelope["messages"] == []
    for rules in (bodies("user in staff"), bodies("user in other")):
        reply = await caller("PUT", f"{detector}/rules", {"rules": rules})
        codes = [one["code"] for one in reply.envelope["messages"]]
        assert codes == ([2006] if "staff" in rules[0]["condition"] else [])


async def test_a_version_names_the_token_that_made_it(caller: Caller) -> None:
    path = f"/api/detectors/{await caller.detector()}/rules"
    await caller("PUT", path, {"rules": bodies("a == 1")})
    [rule] = (await caller("GET", path)).result["rules"]
    ada = (await caller("POST", "/api/tokens", {"name": "ada, the first"})).result
    caller.token = ada["token"]
    await caller("PATCH", f"{path}/{rule['id']}", {"notify": True})
    second, first = (await caller("GET", f"{path}/{rule['id']}/versions")).result["versions"]
    assert second["token"] == {"id": ada["id"], "name": "ada, the first"}
    assert first["token"]["id"] != ada["id"]
    assert second["rule"] == {**rule, "notify": True, "source": "a == 1"}
    assert second["time_ms"] >= first["time_ms"] > 1_600_000_000_000
    assert (await caller("GET", f"{path}/{'0' * 32}/versions")).codes == [1201]


@pytest.mark.usefixtures("service")
def test_ten_thousand_rules_with_labels_are_not_too_many_values() -> None:
    rules = [{**each, "labels": {"a": 1, "b": 2, "c": 3}} for each in bodies(*["a == 1"] * 10_000)]
    operation = put_rules_operation(json.dumps({"rules": rules}).encode(), DEFAULT_LIMITS)
    assert len(msgspec.json.decode(operation.payload, type=PutRules).rules) == 10_000


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    "body",
    [
        b'{"rules": 5, "rules": [{"name": "r", "condition": "a == 1"}]}',
        msgspec.json.encode({"rules": bodies(*(f'hash == "{"0" * 39}{n % 10}"' for n in range(3_000)))}),
    ],
    ids=["the last of repeated members counts", "texts with many long numbers in them"],
)
def test_rules_are_read_the_slow_way_too(body: bytes) -> None:
    operation = put_rules_operation(body, DEFAULT_LIMITS)
    put = msgspec.json.decode(operation.payload, type=PutRules)
    assert [(rule.name, rule.condition) for rule in put.rules] == [
        (rule["name"], rule["condition"]) for rule in json.loads(body)["rules"]
    ]


async def test_details_are_for_events_and_batches_and_not_for_streams(caller: Caller) -> None:
    detector = await caller.detector()
    await caller.rule(detector, "per k (count(a == 1) >= 1)")
    path, event = f"/api/detectors/{detector}/evaluate", {"fields": {"a": 1, "k": "x"}, "timestamp_ms": 1}
    expected = {"keys": {"k": "x"}, "found": {"count(a == 1)": 1}}
    [action] = (await caller("POST", f"{path}?details=true&dry_run=true", {"event": event})).result["actions"]
    assert action == action | expected
    [again] = (await caller("POST", f"{path}?details=true", {"event": event})).result["actions"]
    assert again == action
    batch = await caller("POST", f"{path}/batch?details=true", {"events": [event]})
    [[action]] = [each["actions"] for each in batch.result["results"]]
    assert action["found"] == {"count(a == 1)": 1}
    lines = {"content": b"", "headers": {"Content-Type": "application/x-ndjson"}}
    assert (await caller("POST", f"{path}/batch?details=true", **lines)).codes == [1006]
    assert (await caller("POST", f"{path}?details=yes", {"event": event})).codes == [1006]
