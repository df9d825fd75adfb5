"""Every operation of the API as data: where it is, what it takes and gives, and how it can fail."""

from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from api.schema import messages
from api.schema.envelope import JSON, MSGPACK, NDJSON
from engine.evaluation.wire.events import BatchBody, EvaluateBody

Method = Literal["GET", "POST", "PATCH", "DELETE"]

_ANYWHERE: Final = (1003, 1006, 1500, 1502)
"""A body that nobody asked for is read past too, up to a bound and a deadline."""
_WITH_TOKEN: Final = (1100, 1101, 1501, 1503)
_WITH_BODY: Final = (1000, 1001, 1002, 1401)
_CONDITION: Final = (1300, 1301, 1302, 1303)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. `name` is its handler's; `body` is None where a body is ignored."""

    name: str
    method: Method
    path: str
    summary: str
    text: str = ""
    query: type[msgspec.Struct] | None = None
    """The parameters that its query may have; None where a query is ignored."""
    body: Any = None
    result: Any
    own_codes: tuple[int, ...] = ()
    body_example: Any = None
    result_example: Any
    is_evaluation: bool = False
    """Whether the body goes on to its detector as it came."""

    is_batch: bool = False
    media_types: tuple[bytes, ...] = (JSON,)
    """Of the body; the first is that of one that does not say."""

    takes_key: bool = False
    """Whether an Idempotency-Key may come with it."""

    says_more: bool = False
    """Whether it needs no token and says more to who has one."""

    is_addition: bool = False

    @property
    def is_open(self) -> bool:
        """Whether no token is needed."""
        return not self.path.startswith("/api/")

    @property
    def codes(self) -> tuple[int, ...]:
        """Every code that a reply of this operation can bear in `errors`."""
        found = {*_ANYWHERE, *self.own_codes}
        if not self.is_open:
            found.update(_WITH_TOKEN)
        if self.body is not None:
            found.update(_WITH_BODY)
        if "{detectorId}" in self.path:
            found.add(1200)
        return tuple(sorted(found))


_ID: Final = "6f1c2a9be07d4c58a3f0d1e2b3c4d5e6"
_RULE_ID: Final = "0b7d3c41f2a84e6d9c5b1a0f8e7d6c5b"
_CONDITION_OBJECT: Final = {
    "keyed": {
        "inner": {
            "once_within": {
                "inner": {"leaf": {"fact": "ok", "op": "eq", "value": False}},
                "window_secs": 600,
            }
        },
        "key": "user",
    }
}
_CONDITION_TEXT: Final = "per user once within 10m ok == false"
_RULE: Final = {
    "id": _RULE_ID,
    "condition": _CONDITION_OBJECT,
    "detectorId": _ID,
    "enabled": True,
    "name": "a failed login within ten minutes",
    "notify": False,
    "priority": 1,
}
EVENT_EXAMPLE: Final = {
    "fields": {"action": "payment", "amount": 4200, "user": {"id": "u0305"}},
    # A minute after the end of the sample recording, where the clock of the demo's detector stands.
    "timestamp_ms": 1_709_545_260_000,
}
"""An event that a new detector takes, and for which rules of the demo's detector fire."""
_ACTION: Final = {
    "type": "match",
    "ruleId": _RULE_ID,
    "name": "a failed login within ten minutes",
    "priority": 1,
    "notify": False,
}

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        name="mint_token",
        method="POST",
        path="/api/token",
        summary="Create a token",
        text="The secret is in this reply and nowhere else. A body is ignored.",
        result=messages.Token,
        result_example={
            "id": _ID,
            "token": "rd_Zk9vYm1hcmtzLWFyZS1ub3Qtc2VjcmV0cy1hdC1hbGw",
            "hint": "YWxs"[-4:],
        },
    ),
    Operation(
        name="revoke_token",
        method="DELETE",
        path="/api/token/{id}",
        summary="Revoke a token",
        text="A token may revoke itself.",
        result=messages.Identified,
        own_codes=(1202,),
        result_example={"id": _ID},
    ),
    Operation(
        name="list_detectors",
        method="GET",
        path="/api/detectors",
        summary="List the detectors",
        text="In order of creation. With `limit` or `after`, one page of them: at most `limit`, beginning "
        "after the detector with the id `after`. A page with fewer is the last.",
        query=messages.DetectorsQuery,
        result=list[messages.Detector],
        result_example=[{"id": _ID, "name": "logins"}],
    ),
    Operation(
        name="create_detector",
        method="POST",
        path="/api/detectors",
        summary="Create a detector",
        text="Names need not be unique.",
        body=messages.NewDetector,
        body_example={"name": "logins"},
        result=messages.Identified,
        own_codes=(1400,),
        result_example={"id": _ID},
    ),
    Operation(
        name="get_detector",
        method="GET",
        path="/api/detectors/{detectorId}",
        summary="Show one detector",
        result=messages.Detector,
        result_example={"id": _ID, "name": "logins"},
        is_addition=True,
    ),
    Operation(
        name="delete_detector",
        method="DELETE",
        path="/api/detectors/{detectorId}",
        summary="Delete a detector",
        text="Its rules and its state go with it.",
        result=messages.Identified,
        result_example={"id": _ID},
    ),
    Operation(
        name="evaluate",
        method="POST",
        path="/api/detectors/{detectorId}/evaluate",
        summary="Evaluate an event",
        text="Gives one action for each enabled rule whose condition is true now, by priority. A detector's "
        "clock never runs backwards, and an event that is much older is refused with `1402`: the example "
        "suits a new detector, and that of the demo, where rules fire.",
        body=EvaluateBody,
        body_example={"event": EVENT_EXAMPLE, "context": {"vars": {"blocklist": ["203.0.113.7"]}}},
        result=messages.Actions,
        own_codes=(1402,),
        result_example={"actions": [_ACTION]},
        takes_key=True,
        is_evaluation=True,
    ),
    Operation(
        name="evaluate_batch",
        method="POST",
        path="/api/detectors/{detectorId}/evaluate/batch",
        summary="Evaluate many events in order",
        text="An event that is refused says so in its place, and the others go on. As msgpack the body "
        "is the same document, and the reply is JSON as ever. As NDJSON each line is the body of an "
        "evaluation, and lines are answered while others are still coming; a stream takes no "
        "Idempotency-Key.",
        body=BatchBody,
        body_example={"events": [EVENT_EXAMPLE], "context": {"vars": {}}},
        result=messages.BatchResults,
        own_codes=(1400,),
        result_example={"results": [{"actions": [_ACTION]}]},
        is_batch=True,
        media_types=(JSON, MSGPACK, NDJSON),
        takes_key=True,
        is_evaluation=True,
        is_addition=True,
    ),
    Operation(
        name="list_rules",
        method="GET",
        path="/api/detectors/{detectorId}/rules",
        summary="List the rules of a detector",
        text="By priority, the lowest number first.",
        result=messages.Rules,
        own_codes=(1401,),
        result_example={"rules": [_RULE]},
    ),
    Operation(
        name="create_rule",
        method="POST",
        path="/api/detectors/{detectorId}/rules",
        summary="Create a rule",
        text="Its history begins with the first event evaluated after this. Its priority is one more than "
        "the highest ever given in the detector.",
        body=messages.NewRule,
        body_example={
            "condition": _CONDITION_TEXT,
            "name": "a failed login within ten minutes",
            "notify": False,
        },
        result=messages.Identified,
        own_codes=(*_CONDITION, 1400),
        result_example={"id": _RULE_ID},
    ),
    Operation(
        name="get_rule",
        method="GET",
        path="/api/detectors/{detectorId}/rules/{id}",
        summary="Show one rule",
        result=messages.Rule,
        own_codes=(1201, 1401),
        result_example=_RULE,
        is_addition=True,
    ),
    Operation(
        name="change_rule",
        method="PATCH",
        path="/api/detectors/{detectorId}/rules/{id}",
        summary="Change a rule",
        text="What is absent stays. A condition that is not equal to the one before, and turning the rule "
        "on, begin its history anew.",
        body=messages.RuleChange,
        body_example={"enabled": True, "notify": False},
        result=messages.Rule,
        own_codes=(1201, *_CONDITION),
        result_example=_RULE,
    ),
    Operation(
        name="delete_rule",
        method="DELETE",
        path="/api/detectors/{detectorId}/rules/{id}",
        summary="Delete a rule",
        result=messages.Identified,
        own_codes=(1201, 1401),
        result_example={"id": _RULE_ID},
    ),
    Operation(
        name="parse_condition",
        method="POST",
        path="/api/conditions/parse",
        summary="Parse a condition",
        text="Gives the Condition object and its canonical text; stores nothing.",
        body=messages.ConditionToParse,
        body_example={"condition": _CONDITION_TEXT},
        result=messages.ParsedCondition,
        own_codes=_CONDITION,
        result_example={"condition": _CONDITION_OBJECT, "text": _CONDITION_TEXT},
        is_addition=True,
    ),
    Operation(
        name="health",
        method="GET",
        path="/healthz",
        summary="Tell whether the process answers",
        result=messages.Alive,
        result_example={"alive": True},
        is_addition=True,
    ),
    Operation(
        name="readiness",
        method="GET",
        path="/readyz",
        summary="Tell whether requests are served",
        text="To who has a token it also says why they are not, and what is amiss although they are: "
        "`amiss`, with the names of detectors and files. A token that is not known is no token here, so "
        "that one which was revoked does not make a probe fail.",
        result=messages.Ready,
        own_codes=(1501, 1503),
        result_example={"ready": True, "amiss": []},
        says_more=True,
        is_addition=True,
    ),
)
"""The operations, the interface's own and the additions."""
