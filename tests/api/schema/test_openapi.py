"""The document that describes the API says what the application does, no more and no less."""

import json
from typing import Any
from urllib.parse import urljoin

import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from api.http.app import Application
from api.http.routes import OPERATIONS
from api.schema.envelope import CODES
from api.schema.openapi import document
from api.schema.operation import Operation
from api.settings import Settings
from tests.api.caller import Caller
from tests.api.conftest import NODE
from tests.api.scripted import ScriptedBackend

DOCUMENT = json.loads(json.dumps(document(OPERATIONS)))
WITH_BODY = [operation for operation in OPERATIONS if operation.body is not None]


def described(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][operation.path][operation.method.lower()]
    return found


def validator(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]})


@pytest.mark.slow
def test_it_is_valid_openapi_3_1() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    for name, schema in DOCUMENT["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema), name


def test_every_operation_of_the_application_is_in_it_and_the_other_way_round() -> None:
    app = Application(Settings(), ScriptedBackend()).quart
    served = {
        (method, rule.rule.replace("<", "{").replace(">", "}"))
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD"}
        if rule.rule != "/" and not rule.rule.startswith(("/docs", "/openapi", "/metrics", "/console"))
    }
    told = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert served == told
    names = [operation.name for operation in OPERATIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_code_of_an_operation_is_told_under_its_status_with_an_example(operation: Operation) -> None:
    responses = described(operation)["responses"]
    told = {
        (int(status), int(code))
        for status, response in responses.items()
        if status != "200"
        for code in response["content"]["application/json"]["examples"]
    }
    assert told == {(CODES[code].status, code) for code in operation.codes}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_its_examples_fit_its_schemas(operation: Operation) -> None:
    for response in described(operation)["responses"].values():
        content = response["content"]["application/json"]
        examples = [example["value"] for example in content.get("examples", {}).values()]
        examples += [content["example"]] if "example" in content else []
        assert examples
        for example in examples:
            validator(content["schema"]).validate(example)
    if operation.body is not None:
        for content in described(operation)["requestBody"]["content"].values():
            validator(content["schema"]).validate(content["example"])


def test_the_forms_of_a_batch_are_told_and_no_other_has_any() -> None:
    for operation in WITH_BODY:
        taken = set(described(operation)["requestBody"]["content"])
        given = set(described(operation)["responses"]["200"]["content"])
        if operation.name == "evaluate_batch":
            assert taken == {"application/json", "application/msgpack", "application/x-ndjson"}
            assert given == {"application/json", "application/x-ndjson"}
        elif operation.name == "put_relation":
            assert taken == {"application/json", "application/x-ndjson", "text/csv"}
            assert given == {"application/json"}
        elif operation.name == "ingest":
            assert taken == {"application/json", "application/x-ndjson"}
            assert given == {"application/json"}
        elif operation.name == "export_logs":
            assert taken == given == {"application/json", "application/x-protobuf"}
        else:
            assert taken == given == {"application/json"}


def test_the_parameters_of_a_query_are_described_with_their_bounds() -> None:
    [limit, after] = DOCUMENT["paths"]["/api/detectors"]["get"]["parameters"]
    assert (limit["name"], limit["in"], limit["required"]) == ("limit", "query", False)
    assert limit["schema"] == {"type": "integer", "minimum": 1, "maximum": 1000}
    assert after["schema"] == {"type": "string", "pattern": "^[0-9a-f]{32}$"}
    assert all("addition" in one["description"] for one in (limit, after))


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_an_operation_is_under_its_tag_and_its_ids_are_said_to_be_of_what_precedes_them(path: str) -> None:
    things = {"token": "tokens", "tokens": "tokens", "cluster": "cluster", "conditions": "conditions"}
    ids = {"{detectorId}": "detector", "token/{id}": "token", "rules/{id}": "rule", "nodes/{id}": "node"}
    for operation in DOCUMENT["paths"][path].values():
        [tag] = operation["tags"]
        assert tag in {one["name"] for one in DOCUMENT["tags"]}
        assert tag == things.get(path.split("/")[2], tag) if path.startswith("/api/") else tag == "service"
        shown = [each["description"] for each in operation.get("parameters", []) if each["in"] == "path"]
        named = ["The relation's name."] if "{name}" in path else []
        assert shown == [f"The {thing}'s id." for part, thing in ids.items() if part in path] + named


def test_additions_are_marked_and_only_they_are() -> None:
    interface = {
        ("POST", "/api/token"),
        ("DELETE", "/api/token/{id}"),
        ("GET", "/api/detectors"),
        ("POST", "/api/detectors"),
        ("DELETE", "/api/detectors/{detectorId}"),
        ("POST", "/api/detectors/{detectorId}/evaluate"),
        ("GET", "/api/detectors/{detectorId}/rules"),
        ("POST", "/api/detectors/{detectorId}/rules"),
        ("PATCH", "/api/detectors/{detectorId}/rules/{id}"),
        ("DELETE", "/api/detectors/{detectorId}/rules/{id}"),
    }
    assert {(one.method, one.path) for one in OPERATIONS if not one.is_addition} == interface
    for operation in OPERATIONS:
        assert ("addition" in described(operation)["description"]) is operation.is_addition


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda operation: operation.name)
async def test_the_application_takes_the_examples_and_answers_as_described(
    caller: Caller, operation: Operation
) -> None:
    detector = await caller.detector()
    rule = await caller.rule(detector, "per user once within 10m ok == false")
    await caller("PUT", f"/api/detectors/{detector}/relations/r", {"tuples": [["eve", "10.0.0.8"]]})
    path = operation.path.format(detectorId="name:d", id=rule, name="r")
    schema = described(operation)["responses"]["200"]["content"]["application/json"]["schema"]
    await expect_no_detector_of_another_name(caller, operation, path)
    if operation.is_bare:
        headers = {"Authorization": f"Bearer {caller.token}", "Content-Type": "application/json"}
        content = json.dumps(operation.body_example).encode()
        bare = await caller.plain(operation.method, path, content=content, headers=headers)
        assert bare.status_code == 200
        validator(schema).validate(bare.json())
        return
    reply = await caller(operation.method, path, operation.body_example)
    assert reply.status == 200
    validator(schema).validate(reply.envelope)


@pytest.mark.parametrize("service", ["apart"], indirect=True)
@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one.body is None], ids=lambda operation: operation.name
)
async def test_the_application_answers_as_described(caller: Caller, operation: Operation) -> None:
    detector = await caller.detector()
    rule = await caller.rule(detector, "per user once within 10m ok == false")
    await caller.rule(detector, "ok == false", shadow=True, draftOf=rule)
    token = (await caller("POST", "/api/token")).result["id"]
    id_ = NODE if "nodes" in operation.path else rule if "rules" in operation.path else token
    await caller("PUT", f"/api/detectors/{detector}/relations/r", {"tuples": ["a", "b"]})
    path = operation.path.format(detectorId="name:d", id=id_, name="r")
    await expect_no_detector_of_another_name(caller, operation, path)
    reply = await caller(operation.method, path)
    assert reply.status == 200
    schema = described(operation)["responses"]["200"]["content"]["application/json"]["schema"]
    validator(schema).validate(reply.envelope)
    # The schema of failures fits a failure, and no success.
    failure = validator({"$ref": "#/components/schemas/Failure"})
    assert not failure.is_valid(reply.envelope)
    failure.validate((await caller("PROPFIND", path)).envelope)


async def expect_no_detector_of_another_name(caller: Caller, operation: Operation, path: str) -> None:
    """Every operation takes a detector's name in place of its id."""
    if "name:d" in path:
        body = operation.body_example if operation.body is not None else None
        said = await caller(operation.method, path.replace("name:d", "name:none"), body)
        assert said.codes == [1200]


LEAF = {"leaf": {"fact": "a", "op": "eq", "value": 1}}
MEMBERS: dict[str, Any] = {
    "leaf": LEAF["leaf"],
    "ref": {"fact": "a", "op": "in", "reference": "$b"},
    "in_relation": {"args": [{"fact": "a"}, 1, "x", True], "relation": "r"},
    "all": [LEAF],
    "any": [LEAF, LEAF],
    "not": LEAF,
    "once": LEAF,
    "historically": LEAF,
    "since": {"left": LEAF, "right": LEAF},
    "once_within": {"inner": LEAF, "window_secs": 0.3, "min_secs": 0.1},
    "historically_for": {"inner": LEAF, "window_secs": 5, "boundary": "strong"},
    "since_within": {"left": LEAF, "right": LEAF, "window_secs": 1, "min_secs": 0},
    "keyed": {"inner": LEAF, "key": "user", "where": LEAF},
    "previous": LEAF,
    "earlier": LEAF,
    "earlier_within": {"inner": LEAF, "window_secs": 300},
    "count": {"inner": LEAF, "window_secs": 60, "op": "gte", "value": 10_000},
    "count_since": {"inner": LEAF, "reset": LEAF, "op": "lte", "value": 10_000},
    "distinct": {"fact": "a", "where": LEAF, "op": "lt", "value": 0},
    "sum": {"fact": "a", "where": LEAF, "window_secs": 0.5, "op": "neq", "value": -1.5},
    "avg": {"fact": "a", "op": "eq", "value": {"fact": "$b", "times": 0.3}},
}


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize("member", MEMBERS)
async def test_the_schema_of_conditions_takes_what_the_application_takes(caller: Caller, member: str) -> None:
    schema = validator({"$ref": "#/components/schemas/Condition"})
    given = {member: MEMBERS[member]}
    schema.validate(given)
    assert (await caller("POST", "/api/conditions/parse", {"condition": given})).result["condition"] == given


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(
    "given",
    [
        {},
        {**LEAF, "not": LEAF},
        {"none": LEAF},
        {"all": []},
        {"leaf": {"fact": "a", "op": "is", "value": 1}},
        {"leaf": {"fact": "a", "op": "eq"}},
        {"leaf": {"fact": "a", "op": "eq", "value": {}}},
        {"leaf": {"fact": "a", "op": "in", "value": [1, "x"]}},
        {"leaf": {"fact": "a", "op": "eq", "value": 1, "x": 1}},
        {"ref": {"fact": "a", "op": "matches", "reference": "b"}},
        {"once_within": {"inner": LEAF, "window_secs": -1}},
        {"historically_for": {"inner": LEAF, "window_secs": 1, "boundary": "soft"}},
        {"in_relation": {"args": [None], "relation": "r"}},
        {"keyed": {"inner": LEAF, "key": "k", "where": None}},
        {"earlier_within": {"inner": LEAF}},
        {"earlier_within": {"inner": LEAF, "window_secs": 5, "min_secs": -1}},
        {"count_since": {"inner": LEAF, "op": "gte", "value": 1}},
        {"count_since": {"inner": LEAF, "reset": LEAF, "op": "gte", "value": 10_001}},
        {"count_since": {"inner": LEAF, "reset": LEAF, "window_secs": 1, "op": "gte", "value": 1}},
        {"count": {"inner": LEAF, "op": "gte", "value": 10_001}},
        {"count": {"inner": LEAF, "op": "gte", "value": -1}},
        {"count": {"inner": LEAF, "op": "gte", "value": 1.5}},
        {"count": {"inner": LEAF, "op": ">=", "value": 1}},
        {"distinct": {"fact": "", "op": "lt", "value": 0}},
        {"distinct": {"fact": "a", "op": "lt", "value": {"fact": "b"}}},
        {"sum": {"fact": "a", "op": "lt", "value": "1"}},
        {"sum": {"fact": "a", "op": "lt", "value": {"fact": "b", "times": "2"}}},
        {"avg": {"fact": "a", "op": "lt", "value": {"times": 2}}},
        {"avg": {"fact": "a", "window_secs": -1, "op": "lt", "value": 1}},
    ],
)
async def test_the_schema_of_conditions_refuses_what_the_application_refuses(
    caller: Caller, given: dict[str, Any]
) -> None:
    assert not validator({"$ref": "#/components/schemas/Condition"}).is_valid(given)
    reply = await caller("POST", "/api/conditions/parse", {"condition": given})
    assert set(reply.codes) == {1301}


async def test_the_document_is_served_without_a_token_and_without_an_envelope(caller: Caller) -> None:
    response = await caller.plain("GET", "/openapi.json")
    assert response.headers["content-type"] == "application/json"
    assert response.json() == DOCUMENT


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize("prefix", ["", "/detect", "/a/b"])
async def test_all_of_it_holds_behind_a_proxy_that_serves_it_under_a_prefix(
    caller: Caller, prefix: str
) -> None:
    """Every address is resolved against the address of its page, as browsers and clients do."""
    root = f"https://proxy{prefix}/"
    to_docs = await caller.plain("GET", "/")
    assert to_docs.status_code == 307
    docs = urljoin(root, to_docs.headers["location"])
    assert docs == f"https://proxy{prefix}/docs"
    page = (await caller.plain("GET", "/docs")).text
    for name in ("docs/swagger-ui.css", "docs/start.js"):
        assert f'"{name}"' in page
        assert urljoin(docs, name) == f"https://proxy{prefix}/{name}"
    script = (await caller.plain("GET", "/docs/start.js")).text
    assert 'new URL("openapi.json", document.baseURI)' in script
    (server,) = DOCUMENT["servers"]
    base = urljoin(urljoin(docs, "openapi.json"), server["url"])
    assert base == f"https://proxy{prefix}/"


def test_nothing_is_filled_in_that_would_be_refused_the_second_time() -> None:
    for operation in OPERATIONS:
        for parameter in described(operation)["parameters"]:
            assert not {"example", "examples", "default"} & {*parameter, *parameter["schema"]}


async def test_the_page_needs_nothing_from_elsewhere(caller: Caller) -> None:
    page = await caller.plain("GET", "/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "//" not in page.text.replace("<!DOCTYPE html>", "")
    references = [part.split('"')[0] for part in page.text.replace('href="', 'src="').split('src="')[1:]]
    assert len(references) == 4
    for reference in references:
        found = await caller.plain("GET", "/" + reference)
        assert found.status_code == 200, reference
        assert len(found.content) > 100
        assert found.headers["content-type"].split(";")[0] != "application/json"
