"""What each scope may do: every operation with every scope."""

import itertools
import re
from typing import Any

import pytest

from api.http.routes import OPERATIONS
from api.schema.operation import ANY, NONE, Operation
from tests.api.caller import Caller
from tests.api.http.scopes.tokens import with_token

SCOPES = ("evaluate", "read", "write", "admin")
NEEDED = {
    "evaluate": {"evaluate", "evaluate_batch", "ingest", "export_logs", "tick"},
    "read": {
        *("list_detectors", "get_detector", "explain", "firings", "state", "parse_condition"),
        *("list_rules", "get_rule", "versions", "timeline", "comparison", "list_relations", "get_relation"),
    },
    "write": {
        *("create_detector", "delete_detector", "fork_detector"),
        *("create_rule", "put_rules", "change_rule", "delete_rule", "promote"),
        *("put_relation", "change_relation", "delete_relation"),
    },
    "admin": {
        *("mint_token", "revoke_token", "list_tokens", "create_named_token"),
        *("show_cluster", "drain_node", "undrain_node", "move_detector", "list_changes"),
    },
    ANY: {"show_own_token"},
    NONE: {"health", "readiness"},
}
"""The operations by the scope that they need. It is said here once more, so that none changes unseen."""
UNKNOWN = "0" * 32


def test_every_operation_says_its_scope() -> None:
    said: dict[str, set[str]] = {}
    for operation in OPERATIONS:
        said.setdefault(operation.scope, set()).add(operation.name)
    assert said == NEEDED


@pytest.mark.parametrize("service", ["apart"], indirect=True)
@pytest.mark.parametrize("scope", SCOPES)
async def test_a_scope_is_needed_and_enough_for_its_operations_and_for_no_others(
    caller: Caller, scope: str
) -> None:
    bounded = await with_token(caller, scopes=[scope])
    lacking = await with_token(caller, scopes=[one for one in SCOPES if one != scope])
    for operation, query in itertools.product(OPERATIONS, ("", "?explain=true&details=true")):
        # What would make a token that may do everything is for those who may.
        may = operation.scope in (scope, ANY, NONE) and operation.name != "mint_token"
        assert await is_refused(bounded, operation, query) != may, (operation.name, query)
        may_lacking = operation.scope != scope and operation.name != "mint_token"
        assert await is_refused(lacking, operation, query) != may_lacking, (operation.name, query)


@pytest.mark.parametrize("end", ["", "/batch"])
@pytest.mark.parametrize("query", ["dry_run=true", "dry%5Frun=true", "explain=true&dry_run=true"])
async def test_a_dry_run_is_for_those_who_may_read(caller: Caller, end: str, query: str) -> None:
    event = {"fields": {}, "timestamp_ms": 0}
    path = f"/api/detectors/{await caller.detector()}/evaluate{end}?{query}"
    body: dict[str, Any] = {"events": [event]} if end else {"event": event}
    for scope in SCOPES:
        reply = await (await with_token(caller, scopes=[scope]))("POST", path, body)
        assert (reply.status, reply.codes) == ((200, []) if scope == "read" else (403, [1102]))


async def is_refused(caller: Caller, operation: Operation, query: str) -> bool:
    """Whether the answer is 1102, and nothing else is judged before it but the token, path and method."""
    path = re.sub(r"{\w+}", UNKNOWN, operation.path)
    reply = await caller(operation.method, path + query, content=b"{", headers={"Content-Type": "no/type"})
    if 1102 in reply.codes:
        assert (reply.status, reply.codes) == (403, [1102])
    return reply.codes == [1102]
