"""The routes of tokens: the credentials of callers."""

import re

from api.http.routes.described import Operations, describe
from api.http.service import service
from api.schema import examples
from api.schema.envelope import Response, success_of
from api.schema.messages import catalogue
from api.schema.operation import ID_PATTERN
from engine.runtime.contract.errors import no_such_token

blueprint = Operations("tokens")


@blueprint.post("/api/token")
@describe(
    summary="Create a token",
    text="Only this response shows the secret. A body is ignored.",
    own_codes=(1400,),
    result=catalogue.Token,
    result_example=examples.TOKEN,
    is_addition=False,
)
async def mint_token() -> Response:
    minted = await service.backend.mint_token()
    return success_of(catalogue.Token(minted.id, minted.token, minted.stored.hint))


@blueprint.delete("/api/token/<id>")
@describe(
    summary="Revoke a token",
    text="A token may revoke itself.",
    own_codes=(1202,),
    is_addition=False,
)
async def revoke_token(id: str) -> Response:
    if not re.fullmatch(ID_PATTERN, id):
        raise no_such_token(id)
    await service.backend.revoke_token(id)
    return success_of(catalogue.Identified(id))


@blueprint.get("/api/tokens")
@describe(
    summary="List the tokens",
    text="In order of creation, without their secrets. `used_ms` is when a token was last used, to about "
    "a minute; a restart may lose it. A token from the settings is not listed.",
    result=catalogue.Tokens,
    result_example={
        "tokens": [
            {
                "id": examples.ID,
                "hint": examples.TOKEN["hint"],
                "name": "shop",
                "created_ms": 1_709_542_800_000,
                "used_ms": 1_709_545_200_000,
            }
        ]
    },
)
async def list_tokens() -> Response:
    listed = [
        catalogue.ListedToken(token.id, token.hint, token.name, token.created_at_ms, token.used_at_ms)
        for token in await service.backend.tokens()
    ]
    return success_of(catalogue.Tokens(listed))


@blueprint.post("/api/tokens")
@describe(
    summary="Create a token with a name",
    text="The same as POST /api/token, with a name that says what the token is for.",
    own_codes=(1400,),
    body=catalogue.NewToken,
    body_example={"name": "shop"},
    result=catalogue.Token,
    result_example=examples.TOKEN,
)
async def create_named_token(body: bytes) -> Response:
    wanted = await service.decode(body, catalogue.NewToken)
    minted = await service.backend.mint_token(wanted.name)
    return success_of(catalogue.Token(minted.id, minted.token, minted.stored.hint))
