"""The routes of tokens, the credentials of callers, and of the log of changes."""

import re
import time
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from api.http.routes.described import Operations, describe
from api.http.service import request, service
from api.schema import examples
from api.schema.envelope import RequestRefusal, Response, success_of
from api.schema.messages import catalogue
from api.schema.messages.catalogue import PAGE_MAX, given
from api.schema.operation import ID_PATTERN
from engine.language.diagnostics import Entry, Refusal
from engine.runtime.contract.catalogue_changes import LoggedChange
from engine.runtime.contract.errors import no_such_token
from engine.runtime.contract.tokens import FULL, Grant, Scope, TokenEntry

blueprint = Operations("tokens")

_MEMBERS: Final = {"expires_at_ms": "expires_ms"}
_SCOPES: Final[tuple[Scope, ...]] = ("evaluate", "read", "write", "admin")
_UNBOUNDED: Final = {"scopes": None, "detectors": None, "expires_ms": None, "events_per_s": None}


@blueprint.post("/api/token")
@describe(
    scope="admin",
    summary="Create a token",
    text="Only this response shows the secret. A body is ignored. The new token may do everything, so only a "
    "token that may do everything can create it.",
    own_codes=(1400,),
    result=catalogue.Token,
    result_example=examples.TOKEN,
    is_addition=False,
)
async def mint_token() -> Response:
    _check_within(FULL)
    minted = await service.backend.mint_token(by=request.permit)
    return success_of(catalogue.Token(minted.id, minted.token, minted.stored.hint))


@blueprint.delete("/api/token/<id>")
@describe(
    scope="admin",
    is_for_itself=True,
    summary="Revoke a token",
    text="A token may revoke itself.",
    own_codes=(1202,),
    is_addition=False,
)
async def revoke_token(id: str) -> Response:
    if not re.fullmatch(ID_PATTERN, id):
        raise no_such_token(id)
    permit = request.permit
    if (
        permit.detectors is not None
        and id != permit.token.id
        and id not in {one.id for one in _visible(await service.backend.tokens())}
    ):
        raise no_such_token(id)
    await service.backend.revoke_token(id, permit)
    return success_of(catalogue.Identified(id))


@blueprint.get("/api/tokens")
@describe(
    scope="admin",
    summary="List the tokens",
    text="In order of creation, without their secrets. `used_ms` is when a token was last used, to about a "
    "minute; a restart may lose it. A token from the settings is not listed. A token that is limited to some "
    "detectors sees only tokens that are limited to these.",
    result=catalogue.Tokens,
    result_example={
        "tokens": [
            {
                **_UNBOUNDED,
                "id": examples.ID,
                "hint": examples.TOKEN["hint"],
                "name": "shop",
                "created_ms": 1_709_542_800_000,
                "used_ms": 1_709_545_200_000,
                "scopes": ["evaluate"],
            }
        ]
    },
)
async def list_tokens() -> Response:
    listed = [
        catalogue.ListedToken(
            **_bounds(token.grant),
            id=token.id,
            hint=token.hint,
            name=token.name,
            created_ms=token.created_at_ms,
            used_ms=token.used_at_ms,
        )
        for token in _visible(await service.backend.tokens())
    ]
    return success_of(catalogue.Tokens(listed))


@blueprint.get("/api/tokens/self")
@describe(
    scope="any",
    summary="Show the token of the request",
    text="Shows what it may do, without its secret. Every token may request this.",
    result=catalogue.OwnToken,
    result_example={**_UNBOUNDED, "id": examples.ID, "name": "shop", "scopes": ["evaluate"]},
)
async def show_own_token() -> Response:
    token = request.permit.token
    own = catalogue.OwnToken(**_bounds(request.permit.grant), id=token.id or None, name=token.name)
    return success_of(own)


@blueprint.post("/api/tokens")
@describe(
    scope="admin",
    summary="Create a token with a name, and perhaps bounds",
    text="Only this response shows the secret. Absent members mean no bound. A token with bounds can create "
    "only tokens that may do no more than itself.",
    own_codes=(1200, 1400),
    body=catalogue.NewToken,
    body_example={"name": "shop", "scopes": ["evaluate"], "events_per_s": 500},
    result=catalogue.Token,
    result_example=examples.TOKEN,
)
async def create_named_token(body: bytes) -> Response:
    wanted = await service.decode(body, catalogue.NewToken)
    if wanted.scopes == []:
        raise Refusal(Entry(1001, "scopes: expected at least one; without this member, the token has all"))
    grant = Grant(
        frozenset(msgspec.convert(wanted.scopes, list[Scope])) if wanted.scopes is not UNSET else None,
        frozenset(wanted.detectors) if wanted.detectors is not UNSET else None,
        given(wanted.expires_ms),
        given(wanted.events_per_s),
    )
    if grant.expires_at_ms is not None and grant.expires_at_ms <= time.time() * 1000:
        raise Refusal(Entry(1001, "expires_ms: expected a time in the future, in milliseconds since 1970"))
    _check_within(grant)
    for detector_id in sorted(grant.detectors or ()):
        await service.backend.confirm(detector_id, request.permit)
    minted = await service.backend.mint_token(wanted.name, grant, request.permit)
    return success_of(catalogue.Token(minted.id, minted.token, minted.stored.hint))


def _check_within(grant: Grant) -> None:
    """Raise RequestRefusal 1102 if a grant exceeds that of the caller's token."""
    own = request.permit.grant
    member = grant.beyond(own)
    # For the token, detectors that it may not use do not exist.
    if member is not None and not (member == "detectors" and grant.detectors is not None):
        shown = _MEMBERS.get(member, member)
        raise RequestRefusal(1102, f"{shown}: the token makes only tokens that may do no more than it")


def _visible(tokens: Iterable[TokenEntry]) -> list[TokenEntry]:
    """Return the tokens that the caller's token sees: those limited to its own detectors."""
    own = request.permit.detectors
    return [
        token
        for token in tokens
        if own is None or (token.grant.detectors is not None and token.grant.detectors <= own)
    ]


def _bounds(grant: Grant) -> dict[str, Any]:
    detectors = grant.detectors
    return {
        "scopes": None if grant.scopes is None else [one for one in _SCOPES if one in grant.scopes],
        "detectors": None if detectors is None else sorted(filter(service.backend.exists, detectors)),
        "expires_ms": grant.expires_at_ms,
        "events_per_s": grant.events_per_s,
    }


_OF_DETECTORS = ("rule", "relation")


@blueprint.get("/api/changes")
@describe(
    scope="admin",
    summary="Read the changes log",
    text="Who changed which token, detector, rule, relation or node, oldest first: at most `limit` changes "
    "after the number `after`; continue with `next`. A change is in the log once it is answered. A token "
    "that is limited to some detectors sees only their changes. The log has no secrets.",
    query=catalogue.ChangesQuery,
    result=catalogue.Changes,
    result_example=examples.CHANGES,
)
async def list_changes(query: catalogue.ChangesQuery) -> Response:
    after, limit = given(query.after) or 0, given(query.limit) or PAGE_MAX
    while True:
        page = await service.backend.logged_changes(after, limit)
        seen = [one for one in page.changes if _is_seen(one)]
        if seen or not page.changes:
            return success_of(catalogue.Changes([_shown(one) for one in seen], page.next))
        # This caller may see no change of a full page.
        after = page.next


def _is_seen(change: LoggedChange) -> bool:
    permit = request.permit
    if permit.detectors is None:
        return True
    detector = change.detector if change.kind in _OF_DETECTORS else change.id
    return change.kind in ("detector", *_OF_DETECTORS) and permit.sees(detector)


def _shown(change: LoggedChange) -> catalogue.LoggedChange:
    token_id, _, name = change.made.by.partition(" ")
    return catalogue.LoggedChange(
        seq=change.seq,
        time_ms=change.made.time_ms,
        token=catalogue.TokenOfChange(token_id or None, name) if change.made.by else None,
        request=change.made.request or None,
        kind=change.kind,
        action=change.action,
        id=change.id,
        name=change.name,
        detectorId=change.detector or msgspec.UNSET,
        old=msgspec.Raw(change.old) if change.old else msgspec.UNSET,
        new=msgspec.Raw(change.new) if change.new else msgspec.UNSET,
    )
