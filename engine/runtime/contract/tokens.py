"""API tokens: 256 random bits, shown once. Only their SHA-256 is stored, with their grants."""

import hashlib
import secrets
import time
from typing import Final, Literal

import msgspec

PREFIX: Final = "rd_"
RANDOM_BYTES: Final = 32
HINT_CHARS: Final = 4

Scope = Literal["evaluate", "read", "write", "admin"]
"""The scopes of tokens: send events, read, change detectors, manage tokens and the cluster."""


TOKEN_DETECTORS_MAX: Final = 1_000
"""The maximum number of detectors of a token that is limited to some."""


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a token may do. None means no bound."""

    scopes: frozenset[Scope] | None = None
    detectors: frozenset[str] | None = None
    """The ids of the detectors that it may use."""
    expires_at_ms: int | None = None
    events_per_s: float | None = None

    def beyond(self, other: "Grant") -> str | None:
        """Return the first bound of another grant that this one exceeds; None if it exceeds none."""
        for name in ("scopes", "detectors"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if theirs is not None and (mine is None or not mine <= theirs):
                return name
        for name in ("expires_at_ms", "events_per_s"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if theirs is not None and (mine is None or mine > theirs):
                return name
        return None


FULL: Final = Grant()


class StoredToken(msgspec.Struct, frozen=True):
    """The stored part of a token."""

    digest: bytes
    hint: str
    name: str = ""
    created_at_ms: int | None = None
    """None if an older program created the token."""
    grant: Grant = FULL


class KnownToken(msgspec.Struct, frozen=True, array_like=True):
    """A token as front ends know it."""

    id: str
    name: str = ""
    grant: Grant = FULL

    @property
    def label(self) -> str:
        """Its id, followed by a space and its name if it has one."""
        return f"{self.id} {self.name}".rstrip()


def known_token(token_id: str, token: StoredToken) -> KnownToken:
    """Return the part of a token that front ends know."""
    return KnownToken(token_id, token.name, token.grant)


class TokenEntry(msgspec.Struct, frozen=True):
    """A token in a list. Unknown values are None."""

    id: str
    hint: str
    name: str
    created_at_ms: int | None
    used_at_ms: int | None
    """When it was last used, to about a minute."""
    grant: Grant = FULL


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
