"""What the directory keeps, tokens and the catalogue of detectors, and how a change changes it."""

from typing import Final, assert_never

import msgspec

STATE_VERSION: Final = 2
"""Of `Kept`. In version 1 a detector that had never been awake had no folder."""

RECORD_VERSION: Final = 1
"""Of a `Change` in the journal."""


class StoredToken(msgspec.Struct, frozen=True):
    """What is kept of a token."""

    digest: bytes
    hint: str


class CatalogueState(msgspec.Struct):
    """All that the directory keeps. Dicts are in order of creation."""

    tokens: dict[str, StoredToken] = {}
    detectors: dict[str, str] = {}
    """Names by id."""
    struck: set[str] = set()
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


def encode_state(state: CatalogueState) -> bytes:
    """Give a snapshot's body, of STATE_VERSION."""
    return msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> CatalogueState:
    """Give back what `encode_state` took."""
    return msgspec.msgpack.decode(data, type=CatalogueState)


def apply(change: Change, state: CatalogueState) -> None:
    """Make a change, in time that does not depend on how much is stored."""
    match change:
        case TokenAdded():
            state.tokens[change.id] = StoredToken(change.digest, change.hint)
        case TokenRevoked():
            state.tokens.pop(change.id, None)
        case DetectorCreated():
            state.detectors[change.id] = change.name
        case DetectorStruck():
            state.detectors.pop(change.id, None)
            state.struck.add(change.id)
        case DetectorPurged():
            state.struck.discard(change.id)
        case _:
            assert_never(change)
