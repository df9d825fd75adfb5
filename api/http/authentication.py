"""Authentication: bearer tokens, known by their SHA-256 digests."""

import hashlib
import hmac
import re
from typing import Final

from api.schema.envelope import RequestRefusal
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.tokens import KnownToken
from engine.runtime.front_end.backend import Backend
from engine.runtime.front_end.permits import Permit

_BEARER: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] ([!-~]+)", re.DOTALL)
_BOOTSTRAP: Final = Permit(KnownToken("", "bootstrap token"))
_CHALLENGE: Final = ((b"www-authenticate", b"Bearer"),)


class Authenticator:
    """Accepts a request whose Authorization header bears a known token, or the bootstrap token if one is set.

    The bootstrap token is never stored.
    """

    def __init__(self, backend: Backend, bootstrap_token: str | None) -> None:
        self._backend = backend
        self._bootstrap = None if bootstrap_token is None else _digest(bootstrap_token.encode())

    def permit(self, authorization: bytes | None) -> Permit | None:
        """Return the caller's permit; None for a token that this front end does not know.

        Raises RequestRefusal 1100 for a missing or malformed header, and 1101 for an expired token; and
        DetectorUnavailable if this front end has not heard from the directory for too long.
        """
        digest = _digest_in(authorization)
        # Tokens are 256 random bits, so the duration of a look-up reveals nothing. The bootstrap token, which
        # a person chooses, is compared in constant time.
        if self._bootstrap is not None and hmac.compare_digest(digest, self._bootstrap):
            return _BOOTSTRAP
        permit = self._backend.permit(digest)
        if permit is not None and permit.expires_at_ms is not None:
            _check_end(permit)
        return permit

    async def check(self, authorization: bytes | None) -> Permit:
        """Return the caller's permit, asking the directory about a token unknown here.

        Raises RequestRefusal 1100 or 1101.
        """
        permit = self.permit(authorization)
        if permit is None:
            permit = await self._backend.permit_asked(_digest_in(authorization))
        if permit is None:
            raise _unknown_token()
        _check_end(permit)
        return permit

    def objection(self, authorization: bytes | None) -> Exception | None:
        """Return the error of an Authorization header, None for a valid token. Neither waits nor raises."""
        try:
            return _unknown_token() if self.permit(authorization) is None else None
        except (RequestRefusal, DetectorUnavailable) as error:
            return error


def _digest_in(authorization: bytes | None) -> bytes:
    """Return the digest of the token in the header. Raises RequestRefusal 1100."""
    if authorization is None:
        missing = "the header `Authorization: Bearer TOKEN` is missing"
        raise RequestRefusal(1100, missing, headers=_CHALLENGE)
    form = _BEARER.fullmatch(authorization)
    if form is None:
        message = "the Authorization header is not of the form `Bearer TOKEN`, with one space between the two"
        raise RequestRefusal(1100, message, headers=_CHALLENGE)
    return _digest(form[1])


def _check_end(permit: Permit) -> None:
    """Raise RequestRefusal 1101 if a permit has expired."""
    if permit.is_expired:
        raise RequestRefusal(1101, "the token has expired", headers=_CHALLENGE)


def _unknown_token() -> RequestRefusal:
    return RequestRefusal(1101, "the token is unknown or revoked", headers=_CHALLENGE)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
