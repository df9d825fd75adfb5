"""The directory's persistent state, tokens and the catalogue of detectors, and its changes."""

import re
from typing import Final, assert_never

import msgspec

from engine.runtime.contract.catalogue_changes import StoredToken
from snapshots.errors import Damaged, NewerFormat, OlderFormat
from snapshots.takeover.recovered import Recovered

STATE_VERSION: Final = 2
"""The version of `CatalogueState`."""

RECORD_VERSION: Final = 1
"""The version of a `Change` in the journal."""


class CatalogueState(msgspec.Struct):
    """The directory's persistent state. Dicts are in order of creation."""

    tokens: dict[str, StoredToken] = {}
    detectors: dict[str, str] = {}
    """Names by id."""
    removed: set[str] = msgspec.field(default_factory=set, name="struck")
    """Detectors that were removed and whose files may still exist."""
    tokens_used: dict[str, int] = {}
    """When tokens were last used, in milliseconds, by id. This is not journaled, so it is lost unless a
    snapshot happens to be saved."""


class TokenAdded(msgspec.Struct, frozen=True, array_like=True, tag="token added"):
    """A token was added."""

    id: str
    digest: bytes
    hint: str
    name: str = ""
    created_at_ms: int | None = None


class TokenRevoked(msgspec.Struct, frozen=True, array_like=True, tag="token revoked"):
    """A token was revoked."""

    id: str


class DetectorCreated(msgspec.Struct, frozen=True, array_like=True, tag="detector created"):
    """A detector was created; its folder exists already."""

    id: str
    name: str


class DetectorRemoved(msgspec.Struct, frozen=True, array_like=True, tag="detector struck"):
    """A detector was removed; its files may still exist."""

    id: str


class DetectorPurged(msgspec.Struct, frozen=True, array_like=True, tag="detector purged"):
    """The files of a removed detector were deleted."""

    id: str


Change = TokenAdded | TokenRevoked | DetectorCreated | DetectorRemoved | DetectorPurged

_ID: Final = re.compile("[0-9a-f]{32}")

_decode: Final = msgspec.msgpack.Decoder(Change).decode


def encode(change: Change) -> bytes:
    """Encode a change as a payload of RECORD_VERSION."""
    return msgspec.msgpack.encode(change)


def decode(payload: bytes) -> Change:
    """Decode a change."""
    change: Change = _decode(payload)
    return change


def encode_state(state: CatalogueState) -> bytes:
    """Encode a snapshot's body, of STATE_VERSION."""
    return msgspec.msgpack.encode(state)


def decode_state(data: bytes) -> CatalogueState:
    """Decode a snapshot's body."""
    return msgspec.msgpack.decode(data, type=CatalogueState)


def apply(change: Change, state: CatalogueState) -> None:
    """Apply a change, in constant time."""
    match change:
        case TokenAdded():
            state.tokens[change.id] = StoredToken(
                change.digest, change.hint, change.name, change.created_at_ms
            )
        case TokenRevoked():
            state.tokens.pop(change.id, None)
            state.tokens_used.pop(change.id, None)
        case DetectorCreated():
            state.detectors[change.id] = change.name
        case DetectorRemoved():
            state.detectors.pop(change.id, None)
            state.removed.add(change.id)
        case DetectorPurged():
            state.removed.discard(change.id)
        case _:
            assert_never(change)


def recovered_state(recovered: Recovered) -> CatalogueState:
    """Return the state that a folder holds. Raises NewerFormat; Damaged if no service wrote it so."""
    try:
        state = _recovered(recovered)
    except msgspec.DecodeError as error:
        raise Damaged(f"the catalogue of detectors cannot be read: {str(error).lower()}") from None
    for one in (*state.detectors, *state.removed):
        if not _ID.fullmatch(one):
            # It names a folder, perhaps one outside of the data folder: a backup may be a stranger's.
            raise Damaged(f"the catalogue has a detector with the id {one!r:.80}, which no service gives")
    return state


def _recovered(recovered: Recovered) -> CatalogueState:
    snapshot = recovered.snapshot
    assert snapshot is not None, "a folder begins with one"
    if snapshot.version != STATE_VERSION:
        newer = snapshot.version > STATE_VERSION
        raise (NewerFormat if newer else OlderFormat)(
            f"the directory was saved by a{' newer' if newer else 'n older'} program, "
            f"with version {snapshot.version}; this one knows version {STATE_VERSION}"
        )
    state = decode_state(snapshot.body)
    for record in recovered.records:
        if record.version > RECORD_VERSION:
            raise NewerFormat(
                f"{record.path} at {record.offset}: the record is of a newer program, with version "
                f"{record.version}; this one knows versions up to {RECORD_VERSION}"
            )
        apply(decode(record.payload), state)
    return state
