"""Authentication: bearer tokens, known by their SHA-256 digests."""

import hashlib
import hmac
import re
from typing import Final

from api.schema.envelope import RequestRefusal
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.front_end.backend import Backend

_BEARER: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] ([!-~]+)", re.DOTALL)
BOOTSTRAP: Final = " bootstrap token"
"""How the bootstrap token is noted, which has no id."""
_CHALLENGE: Final = ((b"www-authenticate", b"Bearer"),)


class Authenticator:
    """Accepts a request whose Authorization header bears a known token, or the bootstrap token if one is set.

    The bootstrap token is never stored.
    """

    def __init__(self, backend: Backend, bootstrap_token: str | None) -> None:
        self._backend = backend
        self._bootstrap = None if bootstrap_token is None else _digest(bootstrap_token.encode())

    def unknown_digest(self, authorization: bytes | None) -> bytes | None:
        """Return None for a known token, else its digest.

        Raises RequestRefusal 1100 for a missing or malformed header, and DetectorUnavailable if this front
        end has not heard from the directory for too long.
        """
        if authorization is None:
            missing = "the header `Authorization: Bearer TOKEN` is missing"
            raise RequestRefusal(1100, missing, headers=_CHALLENGE)
        form = _BEARER.fullmatch(authorization)
        if form is None:
            said = (
                "the Authorization header is not of the form `Bearer TOKEN`, with one space between the two"
            )
            raise RequestRefusal(1100, said, headers=_CHALLENGE)
        digest = _digest(form[1])
        # Tokens are 256 random bits, so the duration of their look-up reveals nothing. The bootstrap token is
        # chosen by a person, and is compared in constant time.
        if self._bootstrap is not None and hmac.compare_digest(digest, self._bootstrap):
            return None
        return None if self._backend.token_known(digest) else digest

    def caller(self, authorization: bytes | None) -> str:
        """Return the id of the token of a request that was accepted, a blank and its name."""
        form = _BEARER.fullmatch(authorization or b"")
        assert form is not None, "the request was accepted"
        digest = _digest(form[1])
        if self._bootstrap is not None and hmac.compare_digest(digest, self._bootstrap):
            return BOOTSTRAP
        return self._backend.token(digest)

    async def check(self, authorization: bytes | None) -> None:
        """Return if this front end or the directory knows the token. Raises RequestRefusal 1100 or 1101."""
        digest = self.unknown_digest(authorization)
        if digest is None or await self._backend.token_lookup(digest):
            return
        raise _unknown_token()

    def objection(self, authorization: bytes | None) -> Exception | None:
        """Return None for a header with a known token, else the error. Neither waits nor raises."""
        try:
            return None if self.unknown_digest(authorization) is None else _unknown_token()
        except (RequestRefusal, DetectorUnavailable) as error:
            return error


def _unknown_token() -> RequestRefusal:
    return RequestRefusal(1101, "the token is unknown or revoked", headers=_CHALLENGE)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
