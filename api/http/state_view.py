"""What is asked of a detector's state, page by page, and the answer."""

from collections.abc import Awaitable, Callable
from heapq import nsmallest
from typing import Any

import msgspec

from api.http.request.query import read_key
from api.schema.envelope import Response, answered, success
from api.schema.state_messages import StateQuery
from engine.evaluation.wire.events import Answer, Done
from engine.evaluation.wire.states import KeysRead, StateAsked, after_of
from engine.runtime.contract.operations import Operation, state

Call = Callable[[Operation], Awaitable[Answer]]


async def state_view(call: Call, query: StateQuery) -> Response:
    """Return what a query asks for. Raises RequestRefusal 1006 for a key that cannot be read."""
    if not isinstance(query.rule, msgspec.UnsetType):
        asked = StateAsked(about="rule", rule_id=query.rule, key=read_key(query.key))
        return answered(await call(state(asked)))
    if isinstance(query.list, msgspec.UnsetType):
        return answered(await call(state(StateAsked())))
    after = None if isinstance(query.after, msgspec.UnsetType) else after_of(query.after)
    asked = StateAsked(about=query.list, prefix=query.prefix, limit=query.limit, after=after)
    return answered(await call(state(asked))) if query.list != "keys" else await _keys(call, asked)


async def _keys(call: Call, asked: StateAsked) -> Response:
    """Read all keys in several looks, between which events are evaluated."""
    found: list[tuple[int, int, Any]] = []
    while True:
        answer = await call(state(asked))
        if not isinstance(answer, Done):
            return answered(answer)
        read = msgspec.json.decode(answer.result, type=KeysRead)
        found = nsmallest(asked.limit, [*found, *read.keys], key=lambda one: (-one[0], one[1]))
        if read.place is None:
            break
        asked = msgspec.structs.replace(asked, place=read.place)
    after = ""
    if len(found) == asked.limit:
        event, path, _ = found[-1]
        after = f',"after":"{event}-{path}"'
    keys = b",".join(bytes(key) for _, _, key in found)
    return success(b'{"keys":[' + keys + b"]" + after.encode() + b"}")
