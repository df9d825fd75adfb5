"""Changes of tokens and detectors, as the directory sends them to front ends."""

from typing import Generic, TypeVar

import msgspec

K = TypeVar("K")


class TableUpdate(msgspec.Struct, Generic[K], frozen=True):
    """The changes of a table up to a version: either the whole table or the latest changes in order."""

    version: int
    whole: dict[K, str] | None = None
    changes: list[tuple[K, str | None]] = []
    """Keys with new values, None for removed keys. Each change is one version; `version` is the last."""


class StoredToken(msgspec.Struct, frozen=True):
    """The stored part of a token."""

    digest: bytes
    hint: str
    name: str = ""
    created_at_ms: int | None = None
    """None for a token of an older program."""


def token_label(token_id: str, token: StoredToken) -> str:
    """Return the id of a token and, behind a blank, its name if it has one."""
    return f"{token_id} {token.name}".rstrip()


class TokenEntry(msgspec.Struct, frozen=True):
    """A token as lists show it; what is not known is None."""

    id: str
    hint: str
    name: str
    created_at_ms: int | None
    used_at_ms: int | None
    """When it was last used, to about a minute."""


class Opened(msgspec.Struct, frozen=True):
    """The directory owns the data folder. `damage` names files set aside, or impossible to remove."""

    damage: tuple[str, ...]
    term: int
    """The number of the opening, which grows with each one. Commands to workers carry it."""


class Changes(msgspec.Struct, frozen=True):
    """What a front end has not seen yet."""

    tokens: TableUpdate[bytes]
    """By digest the id, a blank and the name."""
    detectors: TableUpdate[str]
    """Names by id."""
    warnings: tuple[str, ...] = ()
    """What happened to the directory's files since they were opened."""
    waiting_for_slots: int = 0
    """How many detectors wait for an activation slot because all are taken."""
