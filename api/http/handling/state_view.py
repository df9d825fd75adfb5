"""Requests for a detector's state, page by page, and their answers."""

from collections.abc import Awaitable, Callable
from heapq import nsmallest
from typing import Any

import msgspec

from api.http.request.query import read_key
from api.schema.envelope import Response, answered, success
from api.schema.messages.state import StateQuery
from engine.evaluation.wire.events import Answer, Done
from engine.evaluation.wire.inspecting.states import Ranked, StateAsked, after_of
from engine.runtime.contract.requests.operations import Operation, state

Call = Callable[[Operation], Awaitable[Answer]]


async def state_view(call: Call, query: StateQuery) -> Response:
    """Return what a query asks for. Raises RequestRefusal 1006 for a key that cannot be read."""
    if not isinstance(query.rule, msgspec.UnsetType):
        asked = StateAsked(about="rule", rule_id=query.rule, key=read_key(query.key))
        return answered(await call(state(asked)))
    if isinstance(query.list, msgspec.UnsetType):
        return answered(await call(state(StateAsked())))
    after = None if isinstance(query.after, msgspec.UnsetType) else after_of(query.after)
    by_cost = query.list == "rules" and query.sort == "cost"
    about = "costs" if by_cost else query.list
    asked = StateAsked(about=about, prefix=query.prefix, limit=query.limit, after=after)
    ranked = by_cost or query.list == "keys"
    return await _ranked(call, asked, query.list) if ranked else answered(await call(state(asked)))


async def _ranked(call: Call, asked: StateAsked, member: str) -> Response:
    """Read a whole list in several calls, with events evaluated in between; return its first entries."""
    found: list[tuple[int, int, Any]] = []
    while True:
        answer = await call(state(asked))
        if not isinstance(answer, Done):
            return answered(answer)
        read = msgspec.json.decode(answer.result, type=Ranked)
        found = nsmallest(asked.limit, [*found, *read.entries], key=lambda one: (-one[0], one[1]))
        if read.place is None:
            break
        asked = msgspec.structs.replace(asked, place=read.place)
    after = f',"after":"{found[-1][0]}-{found[-1][1]}"' if len(found) == asked.limit else ""
    entries = b",".join(bytes(entry) for _, _, entry in found)
    return success(b'{"%b":[%b]%b}' % (member.encode(), entries, after.encode()))
