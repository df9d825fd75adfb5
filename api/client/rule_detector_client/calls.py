"""The calls of the service as data: what to send, how to read the answer, and whether to repeat a call."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypedDict, Unpack
from urllib.parse import quote, urlencode

import msgspec

from .call import Call as Call  # noqa: PLC0414 -- callers of this module name it
from .call import listed, path_of, post, typed, with_messages
from .call import raw as raw  # noqa: PLC0414
from .json_values import event_body, object_json, time_json
from .results import (
    Changes,
    Comparison,
    Detector,
    EventResult,
    ExplainedRule,
    Identified,
    Ingested,
    ListedToken,
    Named,
    OwnToken,
    ParsedCondition,
    Relation,
    RelationPage,
    Rule,
    RulesChanged,
    ShownRule,
    Token,
    Version,
)

Value = str | int | float | bool
Tuple = Sequence[Value] | Value

PAGE: Final = 1_000
"""The number of detectors or rules in a page, the maximum of the service."""


def _of(detector_id: str, *parts: str, **query: object) -> str:
    """Return a path of a detector. None in the query is left out."""
    asked = urlencode({name: value for name, value in query.items() if value is not None})
    return path_of("detectors", detector_id, *parts) + (f"?{asked}" if asked else "")


# Tokens and changes


class TokenBounds(TypedDict, total=False):
    """The bounds of a new token."""

    scopes: Sequence[Literal["evaluate", "read", "write", "admin"]]
    detectors: Sequence[str]
    """The ids of the detectors that it may use."""
    expires_ms: int
    """When it expires, in milliseconds since 1970."""
    events_per_s: float


def list_tokens() -> Call[list[ListedToken]]:
    """Return all tokens, in order of creation."""
    return Call("GET", path_of("tokens"), listed("tokens", ListedToken))


def create_token(name: str | None = None, **bounds: Unpack[TokenBounds]) -> Call[Token]:
    """Create a token. A token with bounds needs a name; absent members mean no bound."""
    if name is None and not bounds:
        return post(path_of("token"), Token)
    return post(path_of("tokens"), Token, {"name": name or "", **bounds})


def own_token() -> Call[OwnToken]:
    """Return what the client's own token may do."""
    return Call("GET", path_of("tokens", "self"), typed(OwnToken))


def revoke_token(token_id: str) -> Call[Identified]:
    """Revoke a token."""
    return Call("DELETE", path_of("token", token_id), typed(Identified))


def changes(after: int = 0, limit: int = PAGE) -> Call[Changes]:
    """Return a page of the changes log after a number, oldest first."""
    return Call("GET", f"/api/changes?after={after}&limit={limit}", typed(Changes))


# Detectors


def list_detectors(after: str = "", limit: int = PAGE) -> Call[list[Detector]]:
    """Return a page of detectors, in order of creation; `Client.detectors` yields all."""
    page = f"?limit={limit}" + (f"&after={quote(after, safe='')}" if after else "")
    return Call("GET", path_of("detectors") + page, typed(list[Detector]))


def get_detector(detector_id: str) -> Call[Detector]:
    """Return one detector."""
    return Call("GET", _of(detector_id), typed(Detector))


def create_detector(name: str) -> Call[Identified]:
    """Create a detector."""
    return post(path_of("detectors"), Identified, {"name": name})


def delete_detector(detector_id: str) -> Call[Identified]:
    """Delete a detector with its rules and its state."""
    return Call("DELETE", _of(detector_id), typed(Identified))


def fork_detector(detector_id: str, name: str) -> Call[Identified]:
    """Create a detector with the same rules, under new ids, and with their state."""
    return post(_of(detector_id, "fork"), Identified, {"name": name})


# Rules


class RuleMembers(TypedDict, total=False):
    """The optional members of a rule. None means absent."""

    notify: bool | None
    shadow: bool | None
    """Whether it is a shadow rule, which causes no actions."""
    description: str | None
    labels: Mapping[str, Any] | None
    timed: bool | None
    """Whether it also fires when time alone makes its condition true."""
    every_secs: float | None
    """It acts at most once in this time, unless 0, for the same values of `every_by`."""
    every_by: Sequence[str] | None


def list_rules(detector_id: str) -> Call[list[Rule]]:
    """Return the rules of a detector by priority, up to 64 MiB; `Client.rules` yields all."""
    return Call("GET", _of(detector_id, "rules"), listed("rules", Rule))


def rules_page(detector_id: str, after: int = 0, limit: int = PAGE, name: str = "") -> Call[list[Rule]]:
    """Return a page of the rules after a priority, or of those of a name. No page before the end is empty."""
    path = _of(detector_id, "rules", limit=limit, after=after or None, name=name or None)
    return Call("GET", path, listed("rules", Rule))


def shown_rules_page(detector_id: str, after: int = 0) -> Call[list[ShownRule]]:
    """Return a page of the rules like `rules_page`, with their conditions as text."""
    return Call("GET", _of(detector_id, "rules", source="true", after=after), listed("rules", ShownRule))


def get_rule(detector_id: str, rule_id: str) -> Call[ShownRule]:
    """Return one rule, with its condition as text."""
    return Call("GET", _of(detector_id, "rules", rule_id), typed(ShownRule))


def add_rule(
    detector_id: str,
    name: str,
    condition: str,
    *,
    draft_of: str | None = None,
    **members: Unpack[RuleMembers],
) -> Call[Identified]:
    """Add a rule; return its id and the messages about it. The condition is text, in the language or JSON.

    With `draft_of`, a shadow rule is compared with the rule of that id.
    """
    given = {member: value for member, value in members.items() if value or member == "every_by"}
    asked = {"name": name, "condition": condition, "notify": False, "draftOf": draft_of, **given}
    return Call("POST", _of(detector_id, "rules"), with_messages(Identified), _rule(asked))


def change_rule(
    detector_id: str,
    rule_id: str,
    *,
    name: str | None = None,
    condition: str | None = None,
    enabled: bool | None = None,
    keep_history: bool = False,
    **members: Unpack[RuleMembers],
) -> Call[Rule]:
    """Change the given members of a rule; return the rule, and the messages about the change.

    With `keep_history`, a different condition keeps as much history as it can. `every_secs` 0 also removes
    `every_by`.
    """
    asked: dict[str, Any] = {"name": name, "condition": condition, "enabled": enabled, **members}
    asked["history"] = "keep" if keep_history else None
    path = _of(detector_id, "rules", rule_id)
    return Call("PATCH", path, with_messages(Rule), _rule(asked))


def _rule(members: Mapping[str, Any]) -> bytes:
    """Return the JSON of the members of a rule that are not None."""
    given = {member: value for member, value in members.items() if value is not None}
    if "labels" in given:
        given["labels"] = msgspec.Raw(object_json(given["labels"], "labels"))
    return msgspec.json.encode(given)


def put_rules(
    detector_id: str,
    rules: Sequence[Mapping[str, Any]] | msgspec.Raw,
    *,
    prune: bool = False,
    dry_run: bool = False,
    details: bool = False,
) -> Call[RulesChanged]:
    """Create and change rules, by name, as one change: all of them, or none.

    Each has `name`, `condition` and any of `notify`, `enabled`, `shadow`, `draftOf` (a name), `description`,
    `labels`, `timed`, `every_secs`, `every_by` and `history` (`keep`: a different condition keeps as much
    history as it can); absent members get their defaults. `rules` may also be the JSON of an array. With
    `prune`, all other rules are removed; with `details`, the result shows how each changed rule differs.
    """
    asked = {"prune": prune, "dryRun": dry_run, "details": details}
    document = {name: value for name, value in asked.items() if value}
    if isinstance(rules, msgspec.Raw):
        body = msgspec.json.encode({"rules": rules, **document})
    else:
        body = object_json({"rules": [*map(dict, rules)], **document}, "body")
    path = _of(detector_id, "rules")
    return Call("PUT", path, with_messages(RulesChanged), body, idempotent=True, timeout_s=660.0)


def rule_versions(detector_id: str, rule_id: str) -> Call[list[Version]]:
    """Return the last versions of a rule, newest first."""
    return Call("GET", _of(detector_id, "rules", rule_id, "versions"), listed("versions", Version))


def remove_rule(detector_id: str, rule_id: str) -> Call[Identified]:
    """Delete a rule."""
    return Call("DELETE", _of(detector_id, "rules", rule_id), typed(Identified))


def comparison(detector_id: str, rule_id: str, after: int | None = None) -> Call[Comparison]:
    """Return how a rule and its draft differ; with `after`, also the differences after an event."""
    return Call("GET", _of(detector_id, "rules", rule_id, "comparison", after=after), typed(Comparison))


def promote(detector_id: str, rule_id: str) -> Call[Rule]:
    """Swap the conditions and histories of a rule and its draft, and return the rule."""
    return post(_of(detector_id, "rules", rule_id, "promote"), Rule)


# Relations


def list_relations(detector_id: str) -> Call[list[Relation]]:
    """Return the relations of a detector, by name."""
    return Call("GET", _of(detector_id, "relations"), listed("relations", Relation))


def relation_page(detector_id: str, name: str, after: int = 0, limit: int = PAGE) -> Call[RelationPage]:
    """Return a page of the tuples of a relation; `Client.tuples` yields all."""
    path = _of(detector_id, "relations", name, limit=limit, after=after or None)
    return Call("GET", path, typed(RelationPage))


def put_relation(
    detector_id: str,
    name: str,
    tuples: Iterable[Tuple] | bytes,
    content_type: str = "application/x-ndjson",
    **query: str,
) -> Call[Relation]:
    """Create or replace a relation. A tuple is a sequence of strings, numbers and booleans, or a single one.

    `tuples` may also be a body of `content_type`, such as `text/csv`; `query` may then have `header` and
    `types`.
    """
    lines = (msgspec.json.encode(one) + b"\n" for one in tuples)
    body = tuples if isinstance(tuples, bytes) else b"".join(lines)
    path = _of(detector_id, "relations", name, **query)
    return Call("PUT", path, typed(Relation), body, content_type=content_type, idempotent=True)


def patch_relation(
    detector_id: str, name: str, *, add: Iterable[Tuple] = (), remove: Iterable[Tuple] = ()
) -> Call[Relation]:
    """Remove tuples from a relation and add others, as one change."""
    body = msgspec.json.encode({"add": list(add), "remove": list(remove)})
    path = _of(detector_id, "relations", name)
    return Call("PATCH", path, typed(Relation), body, idempotent=True)


def delete_relation(detector_id: str, name: str) -> Call[Named]:
    """Delete a relation."""
    return Call("DELETE", _of(detector_id, "relations", name), typed(Named))


# The service


def show_cluster() -> Call[dict[str, Any]]:
    """Show nodes, front ends, workers and detectors."""
    return Call("GET", path_of("cluster"), typed(dict[str, Any]))


def move_detector(detector_id: str, node: str | None = None) -> Call[dict[str, Any]]:
    """Move a detector to the node with that id, by default to the one with the most room."""
    document = {} if node is None else {"node": node}
    return post(_of(detector_id, "move"), dict[str, Any], document)


def drain_node(node: str) -> Call[dict[str, Any]]:
    """Move all detectors off a node, which gets none until `undrain_node`."""
    return post(path_of("cluster", "nodes", node, "drain"), dict[str, Any])


def undrain_node(node: str) -> Call[dict[str, Any]]:
    """Let a node take detectors again."""
    return Call("DELETE", path_of("cluster", "nodes", node, "drain"), typed(dict[str, Any]))


# Events


def evaluate(
    detector_id: str,
    fields: Mapping[str, Any],
    timestamp_ms: float | datetime,
    variables: Mapping[str, Any] | None = None,
    *,
    key: str = "",
    details: bool = False,
) -> Call[EventResult]:
    """Evaluate an event; `variables` are its `context.vars`. `details` adds `keys` and `found` to actions."""
    path = _of(detector_id, "evaluate") + "?details=true" * details
    body = event_body(fields, timestamp_ms, variables)
    return Call("POST", path, with_messages(EventResult), body, key)


def evaluate_batch(
    detector_id: str,
    events: Sequence[bytes],
    variables: Mapping[str, Any] | None = None,
    *,
    key: str = "",
    details: bool = False,
) -> Call[list[EventResult]]:
    """Evaluate events in order, each the JSON of `{fields, timestamp_ms}`, with the same variables."""
    context = b"" if variables is None else b',"context":{"vars":%b}' % object_json(variables, "vars")
    body = b'{"events":[' + b",".join(events) + b"]" + context + b"}"
    path = _of(detector_id, "evaluate", "batch") + "?details=true" * details
    return Call("POST", path, listed("results", EventResult), body, key)


def ingest(
    detector_id: str, records: Iterable[Mapping[str, Any] | bytes], *, time: str | None = None, key: str = ""
) -> Call[Ingested]:
    """Evaluate plain records, or their JSON, in the order of their times, which the field `time` has."""
    lines = [x if isinstance(x, bytes) else object_json(x, f"records[{n}]") for n, x in enumerate(records)]
    path = _of(detector_id, "ingest", time=time or None)
    return Call("POST", path, typed(Ingested), b"\n".join(lines), key, "application/x-ndjson")


def tick(detector_id: str, timestamp_ms: float | datetime, *, key: str = "") -> Call[EventResult]:
    """Move the clock without an event; the actions are those of timed rules that fire because of it."""
    body = b"{%b}" % time_json(timestamp_ms)
    return Call("POST", _of(detector_id, "tick"), with_messages(EventResult), body, key)


def explain(
    detector_id: str,
    fields: Mapping[str, Any] | msgspec.Raw,
    timestamp_ms: float | datetime,
    variables: Mapping[str, Any] | None = None,
    *,
    rule_id: str | None = None,
) -> Call[list[ExplainedRule]]:
    """Explain what an event would do, for all rules or for one; nothing is recorded."""
    body = event_body(fields, timestamp_ms, variables, {} if rule_id is None else {"ruleId": rule_id})
    return Call("POST", _of(detector_id, "explain"), listed("rules", ExplainedRule), body)


def state(detector_id: str, **query: str) -> Call[dict[str, Any]]:
    """Return the state of a detector, or the part that the query requests, as sent by the service."""
    return Call("GET", _of(detector_id, "state", **query), typed(dict[str, Any]))


def parse_condition(condition: str | Mapping[str, Any]) -> Call[ParsedCondition]:
    """Parse a condition; nothing is stored."""
    path, body = "/api/conditions/parse", msgspec.json.encode({"condition": condition})
    return Call("POST", path, with_messages(ParsedCondition), body)
