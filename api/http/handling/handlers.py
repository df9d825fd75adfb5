"""The handlers: for each operation, what it asks of the fleet and the result that it returns."""

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from api.http.handling.condition_parsing import parse_condition
from api.http.handling.state_view import state_view
from api.http.request.query import read_key
from api.observability.readiness import Readiness
from api.schema.envelope import BATCH_FORMS, RequestRefusal, Response, answered, success
from api.schema.messages import catalogue, cluster, evaluations, explanations, rules
from api.schema.messages.comparisons import ComparisonQuery
from api.schema.messages.state import StateQuery
from api.schema.operation import ID_PATTERN
from api.settings import Settings
from engine.evaluation.wire.bodies import decode
from engine.evaluation.wire.inspecting.rule_lists import LIST_BYTES_MAX
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.broker.fleet import Fleet
from engine.runtime.contract.errors import TOO_MANY, TOO_MANY_WAIT, DetectorUnavailable, no_such_token
from engine.runtime.contract.requests import operations

T = TypeVar("T")

DECODED_AT_ONCE_BYTES_MAX: Final = 4 * 1024
"""Larger bodies are decoded in a thread, so that they do not block the event loop."""

_PARSERS: Final = 2
"""Threads that parse conditions; a long text keeps one busy for up to a second."""
_DECODERS: Final = 2
"""Threads that decode bodies, so that parsing does not delay them."""
_PIECE: Final = 1000
"""Entries of a list that are encoded at once, in less than a millisecond."""
_LIST_TOO_LONG: Final = (
    f"the detectors take more than {LIST_BYTES_MAX} bytes together, which is the limit of one answer; "
    "ask for pages, with `limit` and `after`"
)


class Handlers:
    """A method for each operation, with its name; `schema/operations.py` describes the operations.

    Each method takes the ids of the path and, if its operation has them, query, body, media type and key.
    The slow path has confirmed before that the detector exists.
    """

    def __init__(self, settings: Settings, fleet: Fleet, readiness: Readiness) -> None:
        self._fleet = fleet
        self._readiness = readiness
        self._limits = settings.limits()
        self._listing = asyncio.Lock()
        self._parsers = ThreadPoolExecutor(_PARSERS, thread_name_prefix="parse")
        self._decoders = ThreadPoolExecutor(_DECODERS, thread_name_prefix="decode")

    async def close(self) -> None:
        """End the threads."""
        for executor in (self._parsers, self._decoders):
            executor.shutdown(wait=False, cancel_futures=True)

    # Tokens.

    async def mint_token(self) -> Response:
        minted = await self._fleet.mint_token()
        return _success(catalogue.Token(minted.id, minted.token, minted.stored.hint))

    async def list_tokens(self) -> Response:
        listed = [
            catalogue.ListedToken(token.id, token.hint, token.name, token.created_at_ms, token.used_at_ms)
            for token in await self._fleet.tokens()
        ]
        return _success(catalogue.Tokens(listed))

    async def create_named_token(self, body: bytes) -> Response:
        wanted = await self._decode(body, catalogue.NewToken)
        minted = await self._fleet.mint_token(wanted.name)
        return _success(catalogue.Token(minted.id, minted.token, minted.stored.hint))

    async def revoke_token(self, id: str) -> Response:
        if not re.fullmatch(ID_PATTERN, id):
            raise no_such_token(id)
        await self._fleet.revoke_token(id)
        return _success(catalogue.Identified(id))

    # Detectors.

    async def list_detectors(self, query: catalogue.DetectorsQuery) -> Response:
        if query == catalogue.DetectorsQuery():
            # One after another: each of many at once would take a part of every turn of the loop.
            async with self._listing:
                return await self._listed(await self._fleet.detectors())
        after, most = _given(query.after), _given(query.limit) or catalogue.PAGE_MAX
        page = await self._fleet.detectors_page(after, most)
        if page is None:
            raise RequestRefusal(1006, f"after: there is no detector `{after}`; it may have been deleted")
        return await self._listed(page)

    async def create_detector(self, body: bytes) -> Response:
        wanted = await self._decode(body, catalogue.NewDetector)
        return _success(catalogue.Identified(await self._fleet.create_detector(wanted.name)))

    async def get_detector(self, detectorId: str) -> Response:
        entry = await self._fleet.detector(detectorId)
        return _success(catalogue.Detector(entry.id, entry.name))

    async def delete_detector(self, detectorId: str) -> Response:
        await self._fleet.delete_detector(detectorId)
        return _success(catalogue.Identified(detectorId))

    async def fork_detector(self, detectorId: str, body: bytes) -> Response:
        wanted = await self._decode(body, catalogue.NewDetector)
        return _success(catalogue.Identified(await self._fleet.fork_detector(detectorId, wanted.name)))

    async def move_detector(self, detectorId: str, body: bytes) -> Response:
        wanted = await self._decode(body, cluster.Move)
        route = await self._fleet.move_detector(detectorId, _given(wanted.node) or "")
        return _success(cluster.Moved(route.address.node, route.worker))

    # Evaluation.

    async def evaluate(
        self, detectorId: str, body: bytes, key: str, query: evaluations.EvaluateQuery
    ) -> Response:
        """Evaluate an event; the detector decodes the body."""
        explained = query.explain == "true"
        if query.dry_run == "true":
            return await self._call(detectorId, operations.dry_run(body, explained=explained))
        return await self._call(detectorId, operations.evaluate(body, key, explained=explained))

    async def evaluate_batch(
        self, detectorId: str, body: bytes, media_type: bytes, key: str, query: evaluations.BatchQuery
    ) -> Response:
        """Evaluate the events of a batch; the detector decodes the body."""
        form = BATCH_FORMS[media_type]
        if query.dry_run == "true":
            return await self._call(detectorId, operations.dry_run_batch(body, form))
        return await self._call(detectorId, operations.evaluate_batch(body, key, form))

    async def explain(self, detectorId: str, body: bytes) -> Response:
        return await self._call(detectorId, operations.explain(body))

    async def state(self, detectorId: str, query: StateQuery) -> Response:
        return await state_view(partial(self._fleet.call, detectorId), query)

    async def timeline(self, detectorId: str, id: str, query: explanations.TimelineQuery) -> Response:
        """Return the last events on the timeline of a rule."""
        operation = operations.timeline(id, read_key(query.key), query.after)
        return await self._call(detectorId, operation)

    # Rules.

    async def list_rules(self, detectorId: str, query: rules.RulesQuery) -> Response:
        if query == rules.RulesQuery():
            return await self._call(detectorId, operations.rules())
        after, most = _given(query.after) or 0, _given(query.limit) or catalogue.PAGE_MAX
        return await self._call(detectorId, operations.rules(after, most))

    async def create_rule(self, detectorId: str, body: bytes) -> Response:
        wanted = await self._decode(body, rules.NewRule)
        operation = operations.add_rule(
            wanted.name,
            wanted.condition,
            notify=wanted.notify,
            shadow=wanted.shadow,
            draft_of=_given(wanted.draftOf),
        )
        return await self._call(detectorId, operation)

    async def get_rule(self, detectorId: str, id: str) -> Response:
        return await self._call(detectorId, operations.rule(id))

    async def change_rule(self, detectorId: str, id: str, body: bytes) -> Response:
        wanted = await self._decode(body, rules.RuleChange)
        given = {member: _given(value) for member, value in msgspec.structs.asdict(wanted).items()}
        return await self._call(detectorId, operations.change_rule(id, **given))

    async def delete_rule(self, detectorId: str, id: str) -> Response:
        return await self._call(detectorId, operations.remove_rule(id))

    async def comparison(self, detectorId: str, id: str, query: ComparisonQuery) -> Response:
        return await self._call(detectorId, operations.comparison(id, _given(query.after)))

    async def promote(self, detectorId: str, id: str) -> Response:
        return await self._call(detectorId, operations.promote(id))

    # The service.

    async def parse_condition(self, body: bytes) -> Response:
        loop = asyncio.get_running_loop()
        return success(*await loop.run_in_executor(self._parsers, parse_condition, body, self._limits))

    async def show_cluster(self, query: cluster.ClusterQuery) -> Response:
        found = await self._fleet.cluster()
        workers = sorted(found.workers, key=lambda worker: worker.name)
        if query != cluster.ClusterQuery():
            after, most = _given(query.after) or "", _given(query.limit) or catalogue.PAGE_MAX
            workers = [worker for worker in workers if worker.name > after][:most]
        page = msgspec.structs.replace(found, workers=workers)
        shown = msgspec.convert(page, cluster.Cluster, from_attributes=True)
        return _success(msgspec.structs.replace(shown, busiest=cluster.Busiest.of(found.workers)))

    async def drain_node(self, id: str) -> Response:
        return _success(await self._fleet.drain_node(id, draining=True))

    async def undrain_node(self, id: str) -> Response:
        return _success(await self._fleet.drain_node(id, draining=False))

    async def health(self) -> Response:
        return _success(cluster.Alive(alive=True))

    async def readiness(self, *, has_token: bool) -> Response:
        return await self._readiness.answer(has_token=has_token)

    async def _listed(self, entries: Sequence[tuple[str, str]]) -> Response:
        """Return a list of detectors, yielding to other tasks between its pieces.

        Raises Refusal 1400 if it is too long, and DetectorUnavailable 1401 if there is no memory for it.
        """
        room = self._fleet.memory.render()
        pieces, size = [b"["], 0
        try:
            for begin in range(0, len(entries), _PIECE):
                piece = [catalogue.Detector(*entry) for entry in entries[begin : begin + _PIECE]]
                pieces += (b"," if begin else b"", msgspec.json.encode(piece)[1:-1])
                size += len(pieces[-1])
                if size > LIST_BYTES_MAX:
                    raise Refusal(Entry(TOO_MANY, _LIST_TOO_LONG))
                # It is there twice when it is put together.
                if not room.grow(2 * len(pieces[-1])):
                    message = "there is no memory for the list beside the requests of others; ask for pages"
                    raise DetectorUnavailable(TOO_MANY_WAIT, message, retry_after_s=1.0)
                await asyncio.sleep(0)
            return success(b"".join((*pieces, b"]")))
        finally:
            room.release()

    async def _call(self, detector_id: str, operation: operations.Operation) -> Response:
        return answered(await self._fleet.call(detector_id, operation))

    async def _decode(self, body: bytes, type_: type[T]) -> T:
        """Decode a body, a larger one in a thread. Raises Refusal 1000 or 1001."""
        decoding = partial(decode, body, type_, self._limits)
        if len(body) <= DECODED_AT_ONCE_BYTES_MAX:
            return decoding()
        return await asyncio.get_running_loop().run_in_executor(self._decoders, decoding)


def _success(result: Any) -> Response:
    return success(msgspec.json.encode(result))


def _given(value: T | msgspec.UnsetType) -> T | None:
    return None if isinstance(value, msgspec.UnsetType) else value
