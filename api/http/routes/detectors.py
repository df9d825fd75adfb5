"""The routes of detectors: each has rules and a history."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from api.http.routes.described import Operations, describe
from api.http.service import request, service
from api.schema import examples
from api.schema.envelope import RequestRefusal, Response, success, success_of
from api.schema.messages import catalogue, cluster
from api.schema.messages.catalogue import given
from engine.evaluation.inspecting.lists import LIST_BYTES_MAX
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.errors import TOO_MANY, TOO_MANY_WAIT, DetectorUnavailable
from engine.runtime.contract.tokens import TOKEN_DETECTORS_MAX
from engine.runtime.front_end.memory_budget import AnswerRoom
from engine.runtime.front_end.permits import Permit

blueprint = Operations("detectors")

_PIECE: Final = 1000
"""The entries of a list that are encoded at once, in less than a millisecond."""
_LIST_TOO_LONG: Final = f"the list exceeds {LIST_BYTES_MAX} bytes; use `limit` and `after`"


@blueprint.get("/api/detectors")
@describe(
    scope="read",
    summary="List the detectors",
    text="In order of creation. With `limit` or `after`, one page of them: at most `limit`, beginning "
    "after the detector with the id `after`. A page with fewer entries is the last. Without either, a "
    "list of more than 64 MiB is refused with 1400.",
    own_codes=(1400,),
    query=catalogue.DetectorsQuery,
    result=list[catalogue.Detector],
    result_example=[{"id": examples.ID, "name": "logins"}],
    is_addition=False,
)
async def list_detectors(query: catalogue.DetectorsQuery) -> Response:
    permit = request.permit
    if permit.detectors is not None:
        return await _listed(await _own(permit, query))
    if query == catalogue.DetectorsQuery():
        return await _all()
    after, most = given(query.after), given(query.limit) or catalogue.PAGE_MAX
    page = await service.backend.detectors_page(after, most)
    if page is None:
        raise _no_such_start(after)
    return await _listed(page)


async def _all() -> Response:
    # Lists are made one at a time: many at once would each take a part of every loop iteration.
    async with service.listing:
        return await _listed(await service.backend.detectors())


async def _own(permit: Permit, query: catalogue.DetectorsQuery) -> list[tuple[str, str]]:
    """Return the detectors that a limited token may use. Raises RequestRefusal 1006."""
    seen = [one for one in await service.backend.detectors() if permit.sees(one[0])]
    after, begin = given(query.after), 0
    if after is not None:
        begin = next((number for number, one in enumerate(seen, 1) if one[0] == after), 0)
        if not begin:
            raise _no_such_start(after)
    most = given(query.limit) or (catalogue.PAGE_MAX if after is not None else len(seen))
    return seen[begin : begin + most]


def _no_such_start(after: str | None) -> RequestRefusal:
    return RequestRefusal(1006, f"after: there is no detector `{after}`; it may have been deleted")


@blueprint.post("/api/detectors")
@describe(
    scope="write",
    summary="Create a detector",
    text="Names need not be unique.",
    body=catalogue.NewDetector,
    body_example={"name": "logins"},
    own_codes=(1400,),
    is_addition=False,
)
async def create_detector(body: bytes) -> Response:
    wanted = await service.decode(body, catalogue.NewDetector)
    _check_room()
    detector_id = await service.backend.create_detector(wanted.name, request.permit)
    return success_of(catalogue.Identified(detector_id))


@blueprint.get("/api/detectors/<detectorId>")
@describe(
    scope="read",
    summary="Show one detector",
    result=catalogue.Detector,
    result_example={"id": examples.ID, "name": "logins"},
)
async def get_detector(detectorId: str) -> Response:
    return success_of(catalogue.Detector(detectorId, await service.backend.detector(detectorId)))


@blueprint.delete("/api/detectors/<detectorId>")
@describe(
    scope="write",
    summary="Delete a detector",
    text="Deletes its rules and its state, too.",
    is_addition=False,
)
async def delete_detector(detectorId: str) -> Response:
    await service.backend.delete_detector(detectorId, request.permit)
    return success_of(catalogue.Identified(detectorId))


@blueprint.post("/api/detectors/<detectorId>/fork")
@describe(
    scope="write",
    summary="Copy a detector",
    text="Creates another detector with the same rules, under new ids, and with their whole state. From then "
    "on the two are independent. The original keeps working while it is copied.",
    body=catalogue.NewDetector,
    body_example={"name": "logins, with other rules"},
    own_codes=(1400,),
)
async def fork_detector(detectorId: str, body: bytes) -> Response:
    wanted = await service.decode(body, catalogue.NewDetector)
    _check_room()
    fork_id = await service.backend.fork_detector(detectorId, wanted.name, request.permit)
    return success_of(catalogue.Identified(fork_id))


@blueprint.post("/api/detectors/<detectorId>/move")
@describe(
    scope="admin",
    summary="Move a detector to another node",
    text="The detector is saved here and activated there. Waiting requests follow it in order, and each is "
    "answered once. If the detector is already there, nothing changes.",
    body=cluster.Move,
    body_example={"node": 2 * "9f3c1d"},
    result=cluster.Moved,
    own_codes=(1204,),
    result_example={"node": 2 * "9f3c1d", "worker": "worker-1f0c9a7e-1"},
)
async def move_detector(detectorId: str, body: bytes) -> Response:
    wanted = await service.decode(body, cluster.Move)
    route = await service.backend.move_detector(detectorId, given(wanted.node) or "", request.permit)
    return success_of(cluster.Moved(route.address.node, route.worker))


def _check_room() -> None:
    """Raise Refusal 1400 if the token has the maximum number of detectors."""
    if not request.permit.has_room:
        most = TOKEN_DETECTORS_MAX
        said = f"the token already has {most} detectors; limit {most}"
        raise Refusal(Entry(TOO_MANY, said))


async def _listed(entries: Sequence[tuple[str, str]]) -> Response:
    """Return a list of detectors, yielding to other tasks between its pieces.

    Raises Refusal 1400 if it is too long, and DetectorUnavailable 1401 if there is no memory for it.
    """
    room = AnswerRoom(service.backend.memory)
    pieces, size = [b"["], 0
    try:
        for begin in range(0, len(entries), _PIECE):
            piece = [catalogue.Detector(*entry) for entry in entries[begin : begin + _PIECE]]
            pieces += (b"," if begin else b"", msgspec.json.encode(piece)[1:-1])
            size += len(pieces[-1])
            if size > LIST_BYTES_MAX:
                raise Refusal(Entry(TOO_MANY, _LIST_TOO_LONG))
            # The list is in memory twice when its pieces are joined.
            if not room.grow(2 * len(pieces[-1])):
                message = "no memory is left for the list beside other requests; use `limit` and `after`"
                raise DetectorUnavailable(TOO_MANY_WAIT, message, retry_after_s=1.0)
            await asyncio.sleep(0)
        return success(b"".join((*pieces, b"]")))
    finally:
        room.release()
