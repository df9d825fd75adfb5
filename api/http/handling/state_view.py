"""Requests for a detector's state, page by page, and their answers."""

from collections.abc import Awaitable, Callable
from heapq import nsmallest
from typing import Any

import msgspec

from api.http.request.query import read_key
from api.schema.envelope import RequestRefusal, Response, answered, success
from api.schema.messages.state import StateQuery
from engine.evaluation.explanation.looking.holdings import KeyPlace
from engine.evaluation.wire.events import Answer, Done
from engine.evaluation.wire.inspecting.states import Ranked, StateAsked, after_of
from engine.runtime.contract.requests.operations import Operation, state

CALLS_MAX = 100
"""The most calls for one page of the keys for which a rule is true."""

Call = Callable[[Operation], Awaitable[Answer]]


async def state_view(call: Call, query: StateQuery) -> Response:
    """Return what a query asks for. Raises RequestRefusal 1006 for a key that cannot be read."""
    if not isinstance(query.true, msgspec.UnsetType):
        return await _true_keys(call, query)
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


async def _true_keys(call: Call, query: StateQuery) -> Response:
    """Read a page of the keys for which a rule is true, in several calls."""
    if isinstance(query.rule, msgspec.UnsetType) or query.list != "keys":
        raise RequestRefusal(1006, "true: expected together with `rule` and `list=keys`")
    place = (
        KeyPlace() if isinstance(query.after, msgspec.UnsetType) else KeyPlace(*after_of(query.after)[::-1])
    )
    asked = StateAsked(about="true", rule_id=query.rule, prefix=query.prefix)
    entries: list[bytes] = []
    for _ in range(CALLS_MAX):
        asked = msgspec.structs.replace(asked, place=place, limit=query.limit - len(entries))
        answer = await call(state(asked))
        if not isinstance(answer, Done):
            return answered(answer)
        read = msgspec.json.decode(answer.result, type=Ranked)
        entries += [bytes(entry) for _, _, entry in read.entries]
        if read.place is None:
            return success(b'{"keys":[%b]}' % b",".join(entries))
        place = read.place
        if len(entries) >= query.limit:
            break
    after = f"{place.slot}-{place.path}".encode()
    return success(b'{"keys":[%b],"after":"%b"}' % (b",".join(entries), after))


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
