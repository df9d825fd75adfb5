"""API tokens: 256 random bits, shown once; what is kept is their SHA-256."""

import hashlib
import secrets
from typing import Final

import msgspec

PREFIX: Final = "rd_"
RANDOM_BYTES: Final = 32
HINT_CHARS: Final = 4


class MintedToken(msgspec.Struct, frozen=True):
    """A new token, with its secret; the only time that anyone sees it."""

    id: str
    token: str
    hint: str


def mint() -> MintedToken:
    """Give a new token, not yet known to anyone."""
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    return MintedToken(id=secrets.token_hex(16), token=token, hint=token[-HINT_CHARS:])


def digest_of(token: str) -> bytes:
    """Give what a token is known by."""
    return hashlib.sha256(token.encode()).digest()
