"""The table of operations: path, method, parameters, body, result and error codes of each."""

from typing import Final

from api.schema import examples
from api.schema.envelope import JSON, MSGPACK, NDJSON
from api.schema.messages import catalogue, cluster, evaluations, explanations, rules
from api.schema.messages.comparisons import Comparison, ComparisonQuery
from api.schema.messages.state import State, StateQuery
from api.schema.operation import Operation
from engine.evaluation.wire.decoding import BatchBody, EvaluateBody
from engine.evaluation.wire.inspecting.explanations import ExplainBody
from engine.runtime.contract.measurements.figures import NodeFigures

_CONDITION: Final = (1300, 1301, 1302, 1303)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        name="mint_token",
        route="POST /api/token",
        summary="Create a token",
        text="Only this response shows the secret. A body is ignored.",
        own_codes=(1400,),
        result=catalogue.Token,
        result_example=examples.TOKEN,
        is_addition=False,
    ),
    Operation(
        name="revoke_token",
        route="DELETE /api/token/{id}",
        summary="Revoke a token",
        text="A token may revoke itself.",
        own_codes=(1202,),
        is_addition=False,
    ),
    Operation(
        name="list_tokens",
        route="GET /api/tokens",
        summary="List the tokens",
        text="In order of creation, without their secrets. `used_ms` is when a token was last used, to about "
        "a minute; a restart may lose it. A token from the settings is not listed.",
        result=catalogue.Tokens,
        result_example={
            "tokens": [
                {
                    "id": examples.ID,
                    "hint": examples.TOKEN["hint"],
                    "name": "shop",
                    "created_ms": 1_709_542_800_000,
                    "used_ms": 1_709_545_200_000,
                }
            ]
        },
    ),
    Operation(
        name="create_named_token",
        route="POST /api/tokens",
        summary="Create a token with a name",
        text="The same as POST /api/token, with a name that says what the token is for.",
        own_codes=(1400,),
        body=catalogue.NewToken,
        body_example={"name": "shop"},
        result=catalogue.Token,
        result_example=examples.TOKEN,
    ),
    Operation(
        name="list_detectors",
        route="GET /api/detectors",
        summary="List the detectors",
        text="In order of creation. With `limit` or `after`, one page of them: at most `limit`, beginning "
        "after the detector with the id `after`. A page with fewer entries is the last. Without either, a "
        "list of more than 64 MiB is refused with 1400.",
        own_codes=(1400,),
        query=catalogue.DetectorsQuery,
        result=list[catalogue.Detector],
        result_example=[{"id": examples.ID, "name": "logins"}],
        is_addition=False,
    ),
    Operation(
        name="create_detector",
        route="POST /api/detectors",
        summary="Create a detector",
        text="Names need not be unique.",
        body=catalogue.NewDetector,
        body_example={"name": "logins"},
        own_codes=(1400,),
        is_addition=False,
    ),
    Operation(
        name="get_detector",
        route="GET /api/detectors/{detectorId}",
        summary="Show one detector",
        result=catalogue.Detector,
        result_example={"id": examples.ID, "name": "logins"},
    ),
    Operation(
        name="delete_detector",
        route="DELETE /api/detectors/{detectorId}",
        summary="Delete a detector",
        text="Deletes its rules and its state, too.",
        is_addition=False,
    ),
    Operation(
        name="fork_detector",
        route="POST /api/detectors/{detectorId}/fork",
        summary="Copy a detector",
        text="Makes another detector, with the same rules under new ids and with all that they remember. "
        "From then on the two are independent. The original goes on while it is copied.",
        body=catalogue.NewDetector,
        body_example={"name": "logins, with other rules"},
        own_codes=(1400,),
    ),
    Operation(
        name="evaluate",
        route="POST /api/detectors/{detectorId}/evaluate",
        summary="Evaluate an event",
        text="Gives one action for each enabled rule whose condition is true now, by priority. A detector's "
        "clock never runs backwards, and a much older event is refused with `1402`. The example suits a new "
        "detector, and the detector of the demo, where rules fire.",
        query=evaluations.EvaluateQuery,
        body=EvaluateBody,
        body_example={"event": examples.EVENT, "context": {"vars": {"blocklist": ["203.0.113.7"]}}},
        result=evaluations.Actions,
        own_codes=(1400, 1402),
        result_example={"actions": [examples.ACTION]},
        is_addition=False,
    ),
    Operation(
        name="evaluate_batch",
        route="POST /api/detectors/{detectorId}/evaluate/batch",
        summary="Evaluate many events in order",
        text="A refused event has its errors in its place, and the others are evaluated. As msgpack the body "
        "is the same document, and the response is JSON. As NDJSON each line is the body of one "
        "evaluation, or its event alone, and lines are answered while others are still arriving; a stream "
        "takes no Idempotency-Key and no query.",
        query=evaluations.BatchQuery,
        body=BatchBody,
        body_example={"events": [examples.EVENT], "context": {"vars": {}}},
        result=evaluations.BatchResults,
        own_codes=(1400,),
        result_example={"results": [{"actions": [examples.ACTION]}]},
        media_types=(JSON, MSGPACK, NDJSON),
    ),
    Operation(
        name="explain",
        route="POST /api/detectors/{detectorId}/explain",
        summary="Explain why rules fire, or not",
        text="Tells what an evaluation of the event would do, and records nothing. Gives for each rule, or "
        "for the one named, the tree of its condition: what is true, what was looked up, which event settled "
        "it, and until when it stays so.",
        body=ExplainBody,
        body_example={"event": examples.EVENT},
        result=explanations.Explanation,
        own_codes=(1201, 1400, 1402),
        result_example={"rules": [examples.EXPLAINED]},
    ),
    Operation(
        name="state",
        route="GET /api/detectors/{detectorId}/state",
        summary="Look inside a detector",
        text="Gives the detector in numbers: clock, events, rules, keys, bytes, journal, snapshot, worker. "
        "With `list`, one page of its keys, its memories or its rules; with `rule` and `key`, the standing "
        "verdict of a rule, as a tree; with `rule`, `list=keys` and `true=true`, the keys for which it is "
        "true. It delays events by a few milliseconds at most.",
        query=StateQuery,
        result=State,
        own_codes=(1201, 1400, 1401),
        result_example=examples.STATE,
    ),
    Operation(
        name="timeline",
        route="GET /api/detectors/{detectorId}/rules/{id}/timeline",
        summary="Watch a rule at each event",
        text="Gives the last 500 events since the timeline was first asked for, oldest first: whether the "
        "rule fired, and which of its temporal conditions were true. With `key`, only events with these "
        "values count. With `Accept: text/event-stream`, events follow as they happen. Each event that is "
        "watched costs an explanation; a timeline that nobody reads for 30 s ends.",
        query=explanations.TimelineQuery,
        result=explanations.Timeline,
        own_codes=(1006, 1201, 1400),
        result_example=examples.TIMELINE,
    ),
    Operation(
        name="comparison",
        route="GET /api/detectors/{detectorId}/rules/{id}/comparison",
        summary="Compare a rule with its draft",
        text="Gives how often both fired, only the rule, and only the draft, with examples. "
        "Counting begins when both exist and are enabled, and anew when either gets a different condition. "
        "With `after`, the answer also has each event after that number at which only one fired, with the "
        "trees of both. The last 500 such events are kept from the first request with `after`, until nobody "
        "has sent one for 30 s.",
        query=ComparisonQuery,
        result=Comparison,
        own_codes=(1006, 1201, 1400, 1401),
        result_example=examples.COMPARISON,
    ),
    Operation(
        name="promote",
        route="POST /api/detectors/{detectorId}/rules/{id}/promote",
        summary="Exchange a rule and its draft",
        text="The rule gets the draft's condition with its history, and the draft gets the rule's; a second "
        "call undoes the first. Names, ids and priorities stay. A body is ignored.",
        result=rules.Rule,
        own_codes=(1201, 1401),
        result_example=examples.RULE,
    ),
    Operation(
        name="move_detector",
        route="POST /api/detectors/{detectorId}/move",
        summary="Move a detector to another node",
        text="The detector is saved here and activated there. Waiting requests follow it in order, and each "
        "is answered once. A detector that is already there stays.",
        body=cluster.Move,
        body_example={"node": 2 * "9f3c1d"},
        result=cluster.Moved,
        own_codes=(1204,),
        result_example={"node": 2 * "9f3c1d", "worker": "worker-1f0c9a7e-1"},
    ),
    Operation(
        name="list_rules",
        route="GET /api/detectors/{detectorId}/rules",
        summary="List the rules of a detector",
        text="By priority, the lowest number first. With `limit` or `after`, only a page: continue after the "
        "priority of its last rule, until a page is empty. Without them, a list of more than 64 MiB is "
        "refused with 1400.",
        query=rules.RulesQuery,
        result=rules.Rules,
        own_codes=(1006, 1400, 1401),
        result_example={"rules": [examples.RULE]},
        is_addition=False,
    ),
    Operation(
        name="create_rule",
        route="POST /api/detectors/{detectorId}/rules",
        summary="Create a rule",
        text="Its history begins with the first event evaluated after this. Its priority is one more than "
        "the highest ever given in the detector. A `shadow` rule is evaluated and counted, and yields no "
        "action; with `draftOf`, it is compared with that rule.",
        body=rules.NewRule,
        body_example={"condition": examples.CONDITION_TEXT, "name": "a failed login", "notify": False},
        own_codes=(1201, *_CONDITION, 1400),
        result_example={"id": examples.RULE_ID},
        is_addition=False,
    ),
    Operation(
        name="get_rule",
        route="GET /api/detectors/{detectorId}/rules/{id}",
        summary="Show one rule",
        text="Also gives the condition as text: the canonical text, and the text as it was written, with its "
        "comments.",
        result=rules.ShownRule,
        own_codes=(1201, 1401),
        result_example={
            **examples.RULE,
            "text": examples.CONDITION_TEXT,
            "source": f"{examples.CONDITION_TEXT}  # ten minutes",
        },
    ),
    Operation(
        name="change_rule",
        route="PATCH /api/detectors/{detectorId}/rules/{id}",
        summary="Change a rule",
        text="Absent members keep their values. Changing the condition to a different one, or enabling the "
        "rule, starts its history anew. `shadow` does not.",
        body=rules.RuleChange,
        body_example={"enabled": True, "notify": False},
        result=rules.Rule,
        own_codes=(1201, *_CONDITION),
        result_example=examples.RULE,
        is_addition=False,
    ),
    Operation(
        name="delete_rule",
        route="DELETE /api/detectors/{detectorId}/rules/{id}",
        summary="Delete a rule",
        own_codes=(1201, 1401),
        result_example={"id": examples.RULE_ID},
        is_addition=False,
    ),
    Operation(
        name="parse_condition",
        route="POST /api/conditions/parse",
        summary="Parse a condition",
        text="Gives the Condition object, its canonical text and an estimate of its cost; stores nothing.",
        body=rules.ConditionToParse,
        body_example={"condition": examples.CONDITION_TEXT},
        result=rules.ParsedCondition,
        own_codes=_CONDITION,
        result_example=examples.PARSED,
    ),
    Operation(
        name="show_cluster",
        route="GET /api/cluster",
        summary="Show what runs where",
        text="Nodes, front ends, detector workers with their detectors, what waits, memory, and disk room. "
        "The numbers are at most a second old. With `limit` or `after`, only a page of the workers, by name.",
        query=cluster.ClusterQuery,
        result=cluster.Cluster,
        result_example=examples.CLUSTER,
    ),
    Operation(
        name="drain_node",
        route="POST /api/cluster/nodes/{id}/drain",
        summary="Drain a node",
        text="No worker is started there from now on, its detectors are moved to other nodes one after the "
        "other, and its workers end; the directory moves too. `GET /api/cluster` shows the progress. "
        "Repeating it changes nothing.",
        result=NodeFigures,
        own_codes=(1204,),
        result_example={**examples.CLUSTER["nodes"][0], "draining": "operator"},
    ),
    Operation(
        name="undrain_node",
        route="DELETE /api/cluster/nodes/{id}/drain",
        summary="Let a node take detectors again",
        text="Ends a drain that an operator asked for, not one by Ray.",
        result=NodeFigures,
        own_codes=(1204,),
        result_example=examples.CLUSTER["nodes"][0],
    ),
    Operation(
        name="health",
        route="GET /healthz",
        summary="Tell whether the process is alive",
        result=cluster.Alive,
        result_example={"alive": True},
    ),
    Operation(
        name="readiness",
        route="GET /readyz",
        summary="Tell whether requests are served",
        text="With a token, the response also says why they are not, or what is wrong although they are: "
        "`problems`, which names detectors and files. An unknown token counts as none here, so that a "
        "revoked one does not make a probe fail.",
        result=cluster.Ready,
        own_codes=(1501, 1503),
        result_example={"ready": True, "problems": []},
        says_more=True,
    ),
)
"""All operations: those of the interface and the additions."""
