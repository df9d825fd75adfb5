"""What the directory keeps: tokens and the catalogue of detectors, and every change of them. Pure."""

from typing import Final, TypeVar, assert_never

import msgspec

T = TypeVar("T")

STATE_VERSION: Final = 2
"""Of `Kept`. In version 1 a detector that had never been awake had no folder."""

RECORD_VERSION: Final = 1
"""Of a `Change` in the journal."""


class KeptToken(msgspec.Struct, frozen=True):
    """What is kept of a token."""

    digest: bytes
    hint: str


class Kept(msgspec.Struct, frozen=True):
    """All that the directory keeps. Dicts are in order of creation, and never changed in place."""

    tokens: dict[str, KeptToken] = {}
    detectors: dict[str, str] = {}
    """Names by id."""
    struck: frozenset[str] = frozenset()
    """Detectors that were deleted and whose files may still be there."""


class TokenAdded(msgspec.Struct, frozen=True, array_like=True, tag="token added"):
    """There is a new token."""

    id: str
    digest: bytes
    hint: str


class TokenRevoked(msgspec.Struct, frozen=True, array_like=True, tag="token revoked"):
    """A token is there no more."""

    id: str


class DetectorCreated(msgspec.Struct, frozen=True, array_like=True, tag="detector created"):
    """There is a new detector; its folder is there already."""

    id: str
    name: str


class DetectorStruck(msgspec.Struct, frozen=True, array_like=True, tag="detector struck"):
    """A detector is there no more; its files may be."""

    id: str


class DetectorPurged(msgspec.Struct, frozen=True, array_like=True, tag="detector purged"):
    """The files of a detector that was struck out are there no more."""

    id: str


Change = TokenAdded | TokenRevoked | DetectorCreated | DetectorStruck | DetectorPurged

_decode: Final = msgspec.msgpack.Decoder(Change).decode


def encode(change: Change) -> bytes:
    """Give a record's payload, of RECORD_VERSION."""
    return msgspec.msgpack.encode(change)


def decode(payload: bytes) -> Change:
    """Give back what `encode` took."""
    change: Change = _decode(payload)
    return change


def body(kept: Kept) -> bytes:
    """Give a snapshot's body, of STATE_VERSION."""
    return msgspec.msgpack.encode(kept)


def kept_from(data: bytes) -> Kept:
    """Give back what `body` took."""
    return msgspec.msgpack.decode(data, type=Kept)


def changed(kept: Kept, change: Change) -> Kept:
    """Give what is kept after a change."""
    replace = msgspec.structs.replace
    match change:
        case TokenAdded():
            token = KeptToken(change.digest, change.hint)
            return replace(kept, tokens={**kept.tokens, change.id: token})
        case TokenRevoked():
            return replace(kept, tokens=_without(kept.tokens, change.id))
        case DetectorCreated():
            return replace(kept, detectors={**kept.detectors, change.id: change.name})
        case DetectorStruck():
            detectors = _without(kept.detectors, change.id)
            return replace(kept, detectors=detectors, struck=kept.struck | {change.id})
        case DetectorPurged():
            return replace(kept, struck=kept.struck - {change.id})
        case _:
            assert_never(change)


def _without(entries: dict[str, T], gone: str) -> dict[str, T]:
    return {kept_id: entry for kept_id, entry in entries.items() if kept_id != gone}
