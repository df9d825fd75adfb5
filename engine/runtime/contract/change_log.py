"""The changes log: who changed what, as it is stored and sent between processes."""

import time
from typing import Literal, Self

import msgspec

from engine.runtime.contract.requests.current_request import current_request

Kind = Literal["token", "detector", "rule", "relation", "node"]
PAGE_MAX = 1_000
"""The most changes in one page."""


class Made(msgspec.Struct, frozen=True, array_like=True):
    """Who made a change, and when."""

    by: str = ""
    """The id of the caller's token, a blank and its name; empty if the service itself made it."""
    request: str = ""
    """The id of the request."""
    time_ms: int = 0

    @classmethod
    def now(cls, by: str = "") -> Self:
        """Return that a caller makes it now, with the current request."""
        return cls(by, current_request().id, time.time_ns() // 1_000_000)


class LoggedChange(msgspec.Struct, frozen=True, array_like=True):
    """A change that has happened. `old` and `new` are JSON objects, empty where there is none."""

    kind: Kind
    action: str
    """What was done: `create`, `change`, `delete`, or another word for what is neither."""
    id: str
    name: str = ""
    detector: str = ""
    """The id of the detector whose rule or relation it is."""
    old: bytes = b""
    new: bytes = b""
    made: Made = Made()
    seq: int = 0
    """Its number in the log, from 1; given by the log."""


class LoggedPage(msgspec.Struct, frozen=True, array_like=True):
    """A page of the log, oldest first, and after which number to go on."""

    changes: list[LoggedChange]
    next: int


encode_changes = msgspec.msgpack.Encoder().encode
"""Encodes the changes of a detector for its answer."""
decode_changes = msgspec.msgpack.Decoder(list[LoggedChange]).decode
