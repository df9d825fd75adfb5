"""Changes of tokens and detectors, as the directory sends them to front ends, and as it logs them."""

import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final, Generic, Literal, Self, TypeVar

import msgspec

from engine.runtime.contract.requests.operations import current_request
from engine.runtime.contract.tokens import KnownToken

K = TypeVar("K")
V = TypeVar("V")


class TableUpdate(msgspec.Struct, Generic[K, V], frozen=True):
    """The changes of a table up to a version: either the whole table or the latest changes in order."""

    version: int
    whole: dict[K, V] | None = None
    changes: list[tuple[K, V | None]] = []
    """Keys with their new values, None for removed keys. Each change is one version, the last `version`."""


class Opened(msgspec.Struct, frozen=True):
    """The result of opening a data folder. `damage` names files that were set aside or cannot be removed."""

    damage: tuple[str, ...]
    term: int
    """The number of the opening, higher each time. Commands to workers carry it as their term."""


class Changes(msgspec.Struct, frozen=True):
    """The changes that a front end has not seen yet."""

    tokens: TableUpdate[bytes, KnownToken]
    """Tokens by their digests."""
    detectors: TableUpdate[str, str]
    """Names by id."""
    warnings: tuple[str, ...] = ()
    """Warnings about the directory's files since they were opened."""
    waiting_for_slots: int = 0
    """How many detectors wait for an activation slot because all are taken."""


Kind = Literal["token", "detector", "rule", "relation", "node"]
PAGE_MAX = 1_000
"""The most changes in one page."""


class Made(msgspec.Struct, frozen=True, array_like=True):
    """Who made a change, and when."""

    by: str = ""
    """The id of the caller's token, a space and its name; empty if the service itself made the change."""
    request: str = ""
    """The id of the request."""
    time_ms: int = 0

    @classmethod
    def now(cls, by: str = "") -> Self:
        """Return that a caller makes the change now, in the current request."""
        return cls(by, current_request().id, time.time_ns() // 1_000_000)


class LoggedChange(msgspec.Struct, frozen=True, array_like=True):
    """A completed change. `old` and `new` are JSON objects, or empty."""

    kind: Kind
    action: str
    """The action: `create`, `change`, `delete`, or another verb for anything else."""
    id: str
    name: str = ""
    detector: str = ""
    """The id of the detector that has the rule or relation."""
    old: bytes = b""
    new: bytes = b""
    made: Made = Made()
    seq: int = 0
    """Its number in the log, from 1; assigned by the log."""


class LoggedPage(msgspec.Struct, frozen=True, array_like=True):
    """A page of the log, oldest first, and the number after which the next page begins."""

    changes: list[LoggedChange]
    next: int


encode_changes = msgspec.msgpack.Encoder().encode
"""Encodes the changes of a detector for an answer."""
decode_changes = msgspec.msgpack.Decoder(list[LoggedChange]).decode


UPDATES_MAX: Final = 4096
"""The number of latest changes stored; a reader that has missed more receives the whole table."""


class TableVersions(Generic[K, V]):
    """The version and the latest changes of a table, for its owner, who has the table itself."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._latest: deque[tuple[K, V | None]] = deque(maxlen=UPDATES_MAX)

    def note(self, key: K, value: V | None) -> int:
        """Note a change, and return its version."""
        self._latest.append((key, value))
        self.version += 1
        return self.version

    def since(self, seen: int, table: Callable[[], dict[K, V]]) -> TableUpdate[K, V]:
        """Return the update for a reader that has seen a version, which may be outdated or 0.

        `table` returns a copy of the whole table.
        """
        missed = self.version - seen
        if not 0 <= missed <= len(self._latest):
            return TableUpdate(self.version, whole=table())
        return TableUpdate(self.version, changes=list(islice(self._latest, len(self._latest) - missed, None)))
