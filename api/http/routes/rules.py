"""The routes of rules: each has a condition over the history of its detector."""

import asyncio
from typing import Any, Final

import msgspec

from api.http.handling.condition_bodies import parse_condition as parsed
from api.http.handling.condition_bodies import put_rules_operation
from api.http.handling.event_stream import EVENT_STREAM, TimelineStream
from api.http.request.head import accepts, authorization
from api.http.request.query import read_key
from api.http.request.timeout import TIMELINE_STREAM
from api.http.routes.described import Operations, describe
from api.http.service import request, service
from api.schema import examples
from api.schema.envelope import Response, success
from api.schema.messages import inspecting
from api.schema.messages import rules as messages
from api.schema.messages.catalogue import PAGE_MAX, given
from api.schema.messages.inspecting import Comparison, ComparisonQuery
from engine.runtime.contract.requests import operations

blueprint = Operations("rules")

_CONDITION: Final = (1300, 1301, 1302, 1303)


@blueprint.get("/api/detectors/<detectorId>/rules")
@describe(
    scope="read",
    summary="List the rules of a detector",
    text="By priority, lowest number first. With `limit` or `after`, returns only a page: continue after "
    "the priority of its last rule, until a page is empty. With `source=true`, also returns a page, in "
    "which each rule has its condition as text; with `name`, a page of the rules of that name. Without any "
    "of these, a list of more than 64 MiB is refused with 1400.",
    query=messages.RulesQuery,
    result=messages.Rules,
    own_codes=(1006, 1400, 1401),
    result_example={"rules": [examples.RULE]},
    is_addition=False,
)
async def list_rules(detectorId: str, query: messages.RulesQuery) -> Response:
    if query == messages.RulesQuery():
        return await service.call(detectorId, operations.rules())
    after, most = given(query.after) or 0, given(query.limit) or PAGE_MAX
    source, name = query.source == "true", given(query.name)
    return await service.call(detectorId, operations.rules(after, most, source=source, name=name))


@blueprint.post("/api/detectors/<detectorId>/rules")
@describe(
    scope="write",
    summary="Create a rule",
    text="Its history begins with the first event evaluated after this. Its priority is one more than the "
    "highest ever assigned in the detector. A `shadow` rule is evaluated and counted, but causes no actions; "
    "with `draftOf`, it is compared with that rule.",
    body=messages.NewRule,
    body_example={"condition": examples.CONDITION_TEXT, "name": "a failed login", "notify": False},
    own_codes=(1201, *_CONDITION, 1400),
    result_example={"id": examples.RULE_ID},
    is_addition=False,
)
async def create_rule(detectorId: str, body: bytes) -> Response:
    wanted = await service.decode(body, messages.NewRule)
    members: dict[str, Any] = {
        member: given(value) for member, value in msgspec.structs.asdict(wanted).items()
    }
    draft_of = members.pop("draftOf")
    operation = operations.add_rule(**members, draft_of=draft_of)
    return await service.change(detectorId, operation)


@blueprint.put("/api/detectors/<detectorId>/rules")
@describe(
    scope="write",
    summary="Create and change many rules",
    text="Creates or changes the rules in the body, by name, as one change: all of them, or none if anything "
    "is wrong. Absent members get their defaults. A rule whose condition does not change keeps its history. "
    "With `prune`, all other rules are removed; with `dryRun`, nothing is changed. Parsing thousands of new "
    "conditions takes a while, so this may take ten minutes longer than other operations.",
    body=messages.RulesToPut,
    body_example={"rules": [{"name": "a failed login", "condition": examples.CONDITION_TEXT}]},
    own_codes=(*_CONDITION, 1400),
    result=messages.RulesChanged,
    result_example={"created": ["a failed login"], "changed": [], "removed": [], "unchanged": []},
)
async def put_rules(detectorId: str, body: bytes) -> Response:
    request.progress.more_s = operations.LONG_S
    loop = asyncio.get_running_loop()
    operation = await loop.run_in_executor(service.parsers, put_rules_operation, body, service.limits)
    return await service.change(detectorId, operation)


@blueprint.get("/api/detectors/<detectorId>/rules/<id>")
@describe(
    scope="read",
    summary="Show one rule",
    text="Also returns the condition as text: the canonical text, and the text as it was written, with its "
    "comments.",
    result=messages.ShownRule,
    own_codes=(1201, 1401),
    result_example={
        **examples.RULE,
        "text": examples.CONDITION_TEXT,
        "source": f"{examples.CONDITION_TEXT}  # ten minutes",
    },
)
async def get_rule(detectorId: str, id: str) -> Response:
    return await service.call(detectorId, operations.rule(id))


@blueprint.patch("/api/detectors/<detectorId>/rules/<id>")
@describe(
    scope="write",
    summary="Change a rule",
    text="Absent members keep their values. Changing the condition to a different one, or enabling the rule, "
    'restarts its history; changing `shadow` does not. With `history: "keep"`, only those parts of the '
    "history restart that the two conditions do not have in common; message 2005 names them.",
    body=messages.RuleChange,
    body_example={"enabled": True, "notify": False},
    result=messages.Rule,
    own_codes=(1201, *_CONDITION),
    result_example=examples.RULE,
    is_addition=False,
)
async def change_rule(detectorId: str, id: str, body: bytes) -> Response:
    wanted = await service.decode(body, messages.RuleChange)
    changes = {member: given(value) for member, value in msgspec.structs.asdict(wanted).items()}
    return await service.change(detectorId, operations.change_rule(id, **changes))


@blueprint.delete("/api/detectors/<detectorId>/rules/<id>")
@describe(
    scope="write",
    summary="Delete a rule",
    own_codes=(1201, 1401),
    result_example={"id": examples.RULE_ID},
    is_addition=False,
)
async def delete_rule(detectorId: str, id: str) -> Response:
    return await service.change(detectorId, operations.remove_rule(id))


@blueprint.get("/api/detectors/<detectorId>/rules/<id>/versions")
@describe(
    scope="read",
    summary="Show the versions of a rule",
    text="The last 100, newest first: the rule as it was, since when, and whose token made the change. To go "
    "back to a version, change the rule to what it was.",
    result=messages.Versions,
    own_codes=(1201, 1401),
    result_example={"versions": [examples.VERSION]},
)
async def versions(detectorId: str, id: str) -> Response:
    return await service.call(detectorId, operations.versions(id))


@blueprint.get("/api/detectors/<detectorId>/rules/<id>/timeline")
@describe(
    scope="read",
    summary="Watch a rule at each event",
    text="Returns the last 500 events since the timeline was first requested, oldest first: whether the rule "
    "fired, and which of its temporal conditions were true. With `key`, only events with these values count. "
    "With `Accept: text/event-stream`, events follow as they happen. Each watched event costs an "
    "explanation; a timeline that nobody reads for 30 s ends.",
    query=inspecting.TimelineQuery,
    result=inspecting.Timeline,
    own_codes=(1006, 1201, 1400),
    result_example=examples.TIMELINE,
)
async def timeline(detectorId: str, id: str, query: inspecting.TimelineQuery) -> Response | TimelineStream:
    key = read_key(query.key)
    if accepts(request.head, EVENT_STREAM):
        request.progress.operation = TIMELINE_STREAM
        return TimelineStream(service.timelines, detectorId, authorization(request.head), rule_id=id, key=key)
    return await service.call(detectorId, operations.timeline(id, key, query.after))


@blueprint.get("/api/detectors/<detectorId>/rules/<id>/comparison")
@describe(
    scope="read",
    summary="Compare a rule with its draft",
    text="Returns how often both fired, only the rule, and only the draft, with examples. Counting begins "
    "when both exist and are enabled, and restarts when either gets a different condition. With `after`, "
    "the answer also has each event after that number at which only one fired, with the trees of both. The "
    "last 500 such events are kept from the first request with `after` until there was none for 30 s.",
    query=ComparisonQuery,
    result=Comparison,
    own_codes=(1006, 1201, 1400, 1401),
    result_example=examples.COMPARISON,
)
async def comparison(detectorId: str, id: str, query: ComparisonQuery) -> Response:
    return await service.call(detectorId, operations.comparison(id, given(query.after)))


@blueprint.post("/api/detectors/<detectorId>/rules/<id>/promote")
@describe(
    scope="write",
    summary="Swap a rule and its draft",
    text="The rule gets the draft's condition and history, and the draft gets the rule's; a second call "
    "undoes the first. Names, ids and priorities do not change. A body is ignored.",
    result=messages.Rule,
    own_codes=(1201, 1401),
    result_example=examples.RULE,
)
async def promote(detectorId: str, id: str) -> Response:
    return await service.change(detectorId, operations.promote(id))


@blueprint.post("/api/conditions/parse")
@describe(
    scope="read",
    summary="Parse a condition",
    text="Returns the Condition object, its canonical text and an estimate of its cost; stores nothing.",
    body=messages.ConditionToParse,
    body_example={"condition": examples.CONDITION_TEXT},
    result=messages.ParsedCondition,
    own_codes=_CONDITION,
    result_example=examples.PARSED,
)
async def parse_condition(body: bytes) -> Response:
    loop = asyncio.get_running_loop()
    return success(*await loop.run_in_executor(service.parsers, parsed, body, service.limits))
