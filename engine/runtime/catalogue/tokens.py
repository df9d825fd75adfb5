"""API tokens: 256 random bits, shown once; only their SHA-256 is stored."""

import hashlib
import secrets
import time
from typing import Final

import msgspec

from engine.runtime.contract.catalogue_changes import FULL, Grant, StoredToken

PREFIX: Final = "rd_"
RANDOM_BYTES: Final = 32
HINT_CHARS: Final = 4


class MintedToken(msgspec.Struct, frozen=True):
    """A new token with its secret, which is shown only once."""

    id: str
    token: str
    stored: StoredToken


def mint(name: str = "", grant: Grant = FULL) -> MintedToken:
    """Generate a token; it is not stored yet."""
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    created_at_ms = time.time_ns() // 1_000_000
    stored = StoredToken(digest_of(token), token[-HINT_CHARS:], name, created_at_ms, grant)
    return MintedToken(secrets.token_hex(16), token, stored)


def digest_of(token: str) -> bytes:
    """Return the digest by which a token is stored."""
    return hashlib.sha256(token.encode()).digest()
