"""The route of the changes log: who changed what."""

import msgspec

from api.http.routes.described import Operations, describe
from api.http.service import request, service
from api.schema import examples
from api.schema.envelope import Response, success_of
from api.schema.messages import catalogue as messages
from api.schema.messages.catalogue import PAGE_MAX, given
from engine.runtime.contract.catalogue_changes import LoggedChange

blueprint = Operations("changes")

_OF_DETECTORS = ("rule", "relation")


@blueprint.get("/api/changes")
@describe(
    scope="admin",
    summary="Read the changes log",
    text="Who changed which token, detector, rule, relation or node, oldest first: at most `limit` changes "
    "after the number `after`; go on with `next`. A change is there once it was answered. To a token that is "
    "for some detectors only, it shows the changes of those. It has no secrets.",
    query=messages.ChangesQuery,
    result=messages.Changes,
    result_example=examples.CHANGES,
)
async def list_changes(query: messages.ChangesQuery) -> Response:
    after, limit = given(query.after) or 0, given(query.limit) or PAGE_MAX
    while True:
        page = await service.backend.logged_changes(after, limit)
        seen = [one for one in page.changes if _is_seen(one)]
        if seen or not page.changes:
            return success_of(messages.Changes([_shown(one) for one in seen], page.next))
        # None of a whole page is for this caller.
        after = page.next


def _is_seen(change: LoggedChange) -> bool:
    permit = request.permit
    if permit.detectors is None:
        return True
    detector = change.detector if change.kind in _OF_DETECTORS else change.id
    return change.kind in ("detector", *_OF_DETECTORS) and permit.sees(detector)


def _shown(change: LoggedChange) -> messages.LoggedChange:
    token_id, _, name = change.made.by.partition(" ")
    return messages.LoggedChange(
        seq=change.seq,
        time_ms=change.made.time_ms,
        token=messages.TokenOfChange(token_id or None, name) if change.made.by else None,
        request=change.made.request or None,
        kind=change.kind,
        action=change.action,
        id=change.id,
        name=change.name,
        detectorId=change.detector or msgspec.UNSET,
        old=msgspec.Raw(change.old) if change.old else msgspec.UNSET,
        new=msgspec.Raw(change.new) if change.new else msgspec.UNSET,
    )
