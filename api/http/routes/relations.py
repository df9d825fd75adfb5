"""The routes of relations: tuples stored with a detector, which its conditions look up."""

from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec

from api.http.handling.relation_upload import RelationUpload, TupleParts
from api.http.request.head import authorization
from api.http.routes.described import Operations, describe
from api.http.service import request, service
from api.schema import examples
from api.schema.envelope import CSV, JSON, NDJSON, RequestRefusal, Response
from api.schema.messages import catalogue as messages
from api.schema.messages.catalogue import PAGE_MAX, given
from engine.runtime.contract.requests import operations
from engine.runtime.contract.requests.tuples import CellType, TuplesForm, TuplesPart

blueprint = Operations("relations")

_FORMS: Final[dict[bytes, TuplesForm]] = {JSON: "json", NDJSON: "ndjson", CSV: "csv"}
_PATH: Final = "/api/detectors/<detectorId>/relations/<name>"


class _Change(msgspec.Struct, forbid_unknown_fields=True):
    """A RelationChange whose tuples are decoded by the worker."""

    add: msgspec.Raw = msgspec.Raw(b"[]")
    remove: msgspec.Raw = msgspec.Raw(b"[]")


@blueprint.get("/api/detectors/<detectorId>/relations")
@describe(
    scope="read",
    summary="List the relations of a detector",
    text="By name, without their tuples.",
    result=messages.Relations,
    own_codes=(1401,),
    result_example={"relations": [examples.RELATION]},
)
async def list_relations(detectorId: str) -> Response:
    return await service.call(detectorId, operations.relations())


@blueprint.get(_PATH)
@describe(
    scope="read",
    summary="Show the tuples of a relation",
    text="Returns a page, in an internal order. Tuples that are added or removed between two pages may be "
    "missed; all others occur once.",
    query=messages.TuplesQuery,
    result=messages.RelationPage,
    own_codes=(1203, 1401),
    result_example={"tuples": examples.TUPLES, "next": None},
)
async def get_relation(detectorId: str, name: str, query: messages.TuplesQuery) -> Response:
    after, limit = given(query.after) or 0, given(query.limit) or PAGE_MAX
    return await service.call(detectorId, operations.relation(_named(name), after, limit))


@blueprint.put(_PATH)
@describe(
    scope="write",
    summary="Create or replace a relation",
    text="The change is atomic: every event evaluated after the answer sees the new tuples, and no event "
    "sees only some of them. The body is JSON, NDJSON with a tuple in each line, or CSV with one in each "
    "row. It may have up to 256 MiB and a million tuples, none longer than 64 KiB, and is read while it "
    "arrives. A JSON body of more than 64 KiB must begin with its member `tuples`. Equal tuples count once.",
    query=messages.RelationQuery,
    body=messages.NewRelation,
    body_example={"tuples": examples.TUPLES},
    media_types=(JSON, NDJSON, CSV),
    is_upload=True,
    result=messages.Relation,
    own_codes=(1400,),
    result_example=examples.RELATION,
)
async def put_relation(detectorId: str, name: str, query: messages.RelationQuery) -> RelationUpload:
    types = given(query.types)
    first = TuplesPart(
        _FORMS[request.media_type],
        b"",
        types=msgspec.convert(types.split(",") if types else (), tuple[CellType, ...]),
        header=query.header == "true",
    )
    # A body that loses its memory learns of it when it next needs some.
    reservation = request.reservation = service.memory.reserve(None, lambda _: None)
    settings = service.settings
    parts = TupleParts(
        request.receive,
        reservation,
        first,
        bytes_max=settings.max_relation_body_bytes,
        part_s=settings.deadline_s,
        limits=service.limits,
    )
    return RelationUpload(
        service.backend,
        service.authenticator,
        authorization(request.head),
        detectorId,
        _named(name),
        parts,
        settings.deadline_s,
        request.permit.token.label,
    )


@blueprint.patch(_PATH)
@describe(
    scope="write",
    summary="Change a relation",
    text="Removes tuples and adds others, as one change; a tuple in both lists is present afterwards. Adding "
    "a present tuple, or removing an absent one, changes nothing and succeeds.",
    body=messages.RelationChange,
    body_example={"add": [["ada", "10.0.0.7"]], "remove": [["bob", "10.0.0.9"]]},
    result=messages.Relation,
    own_codes=(1203, 1400),
    result_example=examples.RELATION,
)
async def change_relation(detectorId: str, name: str, body: bytes) -> Response:
    change = await service.decode(body, _Change)
    operation = operations.change_relation(_named(name), change.add, change.remove)
    return await service.change(detectorId, operation)


@blueprint.delete(_PATH)
@describe(
    scope="write",
    summary="Delete a relation",
    text="Conditions that use it are then false, with message 2003, unless the event brings the relation.",
    result=messages.NamedRelation,
    own_codes=(1203, 1401),
    result_example={"name": examples.RELATION["name"]},
)
async def delete_relation(detectorId: str, name: str) -> Response:
    return await service.change(detectorId, operations.delete_relation(_named(name)))


def _named(name: str) -> str:
    """Return the name of the relation in the matched path. Raises RequestRefusal 1004.

    In that path, a segment with an escaped slash is still escaped.
    """
    if "%" not in name and "\ufffd" not in name:
        return name
    try:
        return unquote_to_bytes(request.scope["raw_path"].rpartition(b"/")[2]).decode()
    except UnicodeDecodeError:
        raise RequestRefusal(1004, "the name of the relation is not UTF-8") from None
