"""What the directory says of tokens and detectors, as front ends take it."""

from typing import Generic, TypeVar

import msgspec

K = TypeVar("K")


class TableUpdate(msgspec.Struct, Generic[K], frozen=True):
    """What has changed in a table up to a version: all of it in order, or the latest changes."""

    version: int
    whole: dict[K, str] | None = None
    changes: list[tuple[K, str | None]] = []
    """A key's new value, or None where it is gone. Each makes a version; `version` is that of the last."""


class Opened(msgspec.Struct, frozen=True):
    """The data folder is ours. `damage` names what had to be set aside, or could not be removed."""

    damage: tuple[str, ...]


class Changes(msgspec.Struct, frozen=True):
    """What a front end has not seen yet."""

    tokens: TableUpdate[bytes]
    """Ids by digest."""
    detectors: TableUpdate[str]
    """Names by id."""
    remarks: tuple[str, ...] = ()
    """What somebody has done to the directory's files since it was opened."""
