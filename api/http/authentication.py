"""Who may call: tokens in the Authorization header, known by their digests."""

import hashlib
import hmac
import re
from typing import Final, Protocol

from api.schema.envelope import RequestRefusal
from engine.runtime.contract.errors import DetectorUnavailable

_BEARER: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] ([!-~]+)", re.DOTALL)
_CHALLENGE: Final = ((b"www-authenticate", b"Bearer"),)


class Tokens(Protocol):
    """What is known of tokens here, by the SHA-256 of each."""

    def token_known(self, digest: bytes) -> bool:
        """Tell from the view at hand. Raises DetectorUnavailable where that view is stale."""

    async def token_lookup(self, digest: bytes) -> bool:
        """Ask the owner of the tokens, who may know one that is not in the view yet."""


class Authenticator:
    """Lets a request pass if its header bears a token that is known.

    The bootstrap token passes too, where one is set; it is nowhere stored.
    """

    def __init__(self, tokens: Tokens, bootstrap_token: str | None) -> None:
        self._tokens = tokens
        self._bootstrap = None if bootstrap_token is None else _digest(bootstrap_token.encode())

    def unknown(self, authorization: bytes | None) -> bytes | None:
        """Give the digest of a token that is not known here; None where the caller may go on.

        Raises RequestRefusal 1100.
        """
        form = None if authorization is None else _BEARER.fullmatch(authorization)
        if form is None:
            raise RequestRefusal(1100, _what_is_wrong(authorization), headers=_CHALLENGE)
        digest = _digest(form[1])
        # The digest of a token among 2^256 gives nothing away by the time that its look-up takes; that of a
        # secret which somebody has chosen might.
        if self._bootstrap is not None and hmac.compare_digest(digest, self._bootstrap):
            return None
        return None if self._tokens.token_known(digest) else digest

    def knows(self, authorization: bytes | None) -> bool:
        """Tell whether the header bears a token that is known here. Neither waits nor raises."""
        try:
            return self.unknown(authorization) is None
        except (RequestRefusal, DetectorUnavailable):
            return False

    async def check(self, authorization: bytes | None) -> None:
        """Return if the caller may go on. Raises RequestRefusal 1100 or 1101."""
        digest = self.unknown(authorization)
        if digest is None or await self._tokens.token_lookup(digest):
            return
        raise _unknown_token()

    def objection(self, authorization: bytes | None) -> Exception | None:
        """Say why a caller who was let in may not go on, None where he may: 1101 or 1501."""
        try:
            return None if self.unknown(authorization) is None else _unknown_token()
        except (RequestRefusal, DetectorUnavailable) as error:
            return error


def _unknown_token() -> RequestRefusal:
    return RequestRefusal(1101, "the token is unknown or revoked", headers=_CHALLENGE)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _what_is_wrong(authorization: bytes | None) -> str:
    if authorization is None:
        return "the header `Authorization: Bearer TOKEN` is missing"
    return "the Authorization header is not of the form `Bearer TOKEN`, with one blank between the two"
