"""Answers requests for a detector's state, page by page."""

from collections.abc import Awaitable, Callable
from heapq import nsmallest
from typing import Any, Final, Literal

import msgspec

from api.http.request.query import read_key
from api.schema.envelope import RequestRefusal, Response, answered, success
from api.schema.messages.inspecting import StateQuery
from engine.evaluation.inspecting.holdings import KeyPlace
from engine.evaluation.inspecting.states import Ranked, StateAsked, after_of
from engine.evaluation.wire.events import Answer, Done
from engine.runtime.contract.requests.operations import Operation, state

CALLS_MAX = 100
"""The maximum number of calls for one page of keys in their internal order."""

Call = Callable[[Operation], Awaitable[Answer]]

_SORTED: Final[dict[tuple[str, object], Literal["costs", "seen"]]] = {
    ("rules", "cost"): "costs",
    ("keys", "seen"): "seen",
}
"""The request for a list, by list and order, for lists that must be read whole for a page."""


async def state_view(call: Call, query: StateQuery) -> Response:
    """Return what a query asks for. Raises RequestRefusal 1006 for a key that cannot be read."""
    if not isinstance(query.true, msgspec.UnsetType):
        if isinstance(query.rule, msgspec.UnsetType) or query.list != "keys":
            raise RequestRefusal(1006, "true: expected together with `rule` and `list=keys`")
        return await _placed(call, query, StateAsked(about="true", rule_id=query.rule, prefix=query.prefix))
    if not isinstance(query.rule, msgspec.UnsetType):
        asked = StateAsked(about="rule", rule_id=query.rule, key=read_key(query.key))
        return answered(await call(state(asked)))
    if isinstance(query.list, msgspec.UnsetType):
        return answered(await call(state(StateAsked())))
    about = _SORTED.get((query.list, query.sort), query.list)
    if about == "keys":
        return await _placed(call, query, StateAsked(about="keys", prefix=query.prefix))
    after = None if isinstance(query.after, msgspec.UnsetType) else after_of(query.after)
    asked = StateAsked(about=about, prefix=query.prefix, limit=query.limit, after=after)
    if about in _SORTED.values():
        return await _ranked(call, asked, query.list)
    return answered(await call(state(asked)))


async def _placed(call: Call, query: StateQuery, asked: StateAsked) -> Response:
    """Read a page of keys in their internal order, in several calls."""
    place = (
        KeyPlace() if isinstance(query.after, msgspec.UnsetType) else KeyPlace(*after_of(query.after)[::-1])
    )
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
