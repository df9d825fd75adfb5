"""Changes of tokens and detectors, as the directory sends them to front ends."""

from typing import Final, Generic, Literal, TypeVar

import msgspec

K = TypeVar("K")
V = TypeVar("V")

Scope = Literal["evaluate", "read", "write", "admin"]
"""What a token may do: send events, look, change detectors, manage tokens and the cluster."""
TOKEN_DETECTORS_MAX: Final = 1_000
"""The most detectors of a token that is for some only."""


class TableUpdate(msgspec.Struct, Generic[K, V], frozen=True):
    """The changes of a table up to a version: either the whole table or the latest changes in order."""

    version: int
    whole: dict[K, V] | None = None
    changes: list[tuple[K, V | None]] = []
    """Keys with new values, None for removed keys. Each change is one version; `version` is the last."""


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a token may do. What is None has no bound."""

    scopes: frozenset[Scope] | None = None
    detectors: frozenset[str] | None = None
    """The ids of the detectors that it is for."""
    expires_at_ms: int | None = None
    events_per_s: float | None = None

    def beyond(self, other: "Grant") -> str | None:
        """Return the first bound of the other grant that this one exceeds, None if it may do no more."""
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
    """None for a token of an older program."""
    grant: Grant = FULL


class KnownToken(msgspec.Struct, frozen=True, array_like=True):
    """A token as front ends know it."""

    id: str
    name: str = ""
    grant: Grant = FULL

    @property
    def label(self) -> str:
        """Its id and, behind a blank, its name if it has one."""
        return f"{self.id} {self.name}".rstrip()


def known_token(token_id: str, token: StoredToken) -> KnownToken:
    """Return what front ends know of a token."""
    return KnownToken(token_id, token.name, token.grant)


class TokenEntry(msgspec.Struct, frozen=True):
    """A token as lists show it; what is not known is None."""

    id: str
    hint: str
    name: str
    created_at_ms: int | None
    used_at_ms: int | None
    """When it was last used, to about a minute."""
    grant: Grant = FULL


class Opened(msgspec.Struct, frozen=True):
    """The directory owns the data folder. `damage` names files set aside, or impossible to remove."""

    damage: tuple[str, ...]
    term: int
    """The number of the opening, which grows with each one. Commands to workers carry it."""


class Changes(msgspec.Struct, frozen=True):
    """What a front end has not seen yet."""

    tokens: TableUpdate[bytes, KnownToken]
    """Tokens by their digests."""
    detectors: TableUpdate[str, str]
    """Names by id."""
    warnings: tuple[str, ...] = ()
    """What happened to the directory's files since they were opened."""
    waiting_for_slots: int = 0
    """How many detectors wait for an activation slot because all are taken."""
