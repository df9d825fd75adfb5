"""The directory's persistent state: tokens and the catalogue of detectors; its changes, and its folder."""

import re
import sys
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, assert_never

import msgspec

from engine.runtime.catalogue.change_log import ChangeLog
from engine.runtime.contract.catalogue_changes import LoggedChange, Made
from engine.runtime.contract.tokens import FULL, TOKEN_DETECTORS_MAX, Grant, StoredToken
from snapshots.errors import Damaged, NothingUsable, other_format
from snapshots.files import Files, storage_errors
from snapshots.folders import create_folder, destroy_folder, is_unused
from snapshots.takeover.recovered import Recovered

STATE_VERSION: Final = 3
"""The version of `CatalogueState`. Version 2 has no grants, and is still written while no token has one. A
program without grants must not read a limited token as one that may do everything."""
_STATE_OLDEST: Final = 2

RECORD_VERSION: Final = 2
"""The version of a `Change` in the journal. Version 1 has no grants, and is still written without them."""
_RECORD_OLDEST: Final = 1


class CatalogueState(msgspec.Struct):
    """The directory's persistent state. Dicts are in order of creation."""

    tokens: dict[str, StoredToken] = {}
    detectors: dict[str, str] = {}
    """Names by id."""
    removed: set[str] = msgspec.field(default_factory=set, name="struck")
    """Detectors that were removed and whose files may still exist."""
    tokens_used: dict[str, int] = {}
    """When tokens were last used, in milliseconds, by id. Not journaled: a crash loses what is newer than the
    last snapshot."""
    log: ChangeLog = msgspec.field(default_factory=ChangeLog)


class TokenAdded(msgspec.Struct, frozen=True, array_like=True, tag="token added"):
    """A token was added."""

    id: str
    digest: bytes
    hint: str
    name: str = ""
    created_at_ms: int | None = None
    grant: Grant = FULL
    made: Made | None = None
    """Who made the change. None in changes that a program before the changes log has written."""


class TokenRevoked(msgspec.Struct, frozen=True, array_like=True, tag="token revoked"):
    """A token was revoked."""

    id: str
    made: Made | None = None


class DetectorCreated(msgspec.Struct, frozen=True, array_like=True, tag="detector created"):
    """A detector was created; its folder exists already."""

    id: str
    name: str
    owner: str = ""
    """The id of the token that created it, if that is limited to some detectors: it is granted this one."""
    made: Made | None = None
    source: str = ""
    """The id of the detector that it is a fork of; empty if it is no fork."""


class DetectorRemoved(msgspec.Struct, frozen=True, array_like=True, tag="detector struck"):
    """A detector was removed; its files may still exist."""

    id: str
    made: Made | None = None


class DetectorPurged(msgspec.Struct, frozen=True, array_like=True, tag="detector purged"):
    """The files of a removed detector were deleted."""

    id: str


class Reported(msgspec.Struct, frozen=True, array_like=True, tag="reported"):
    """Changes made elsewhere were reported for the log."""

    id: str
    changes: list[LoggedChange]


Change = TokenAdded | TokenRevoked | DetectorCreated | DetectorRemoved | DetectorPurged | Reported

_ID: Final = re.compile("[0-9a-f]{32}")

encode: Final[Callable[[Change], bytes]] = msgspec.msgpack.Encoder().encode
"""Encodes a change as a payload of `record_version`."""
decode: Final[Callable[[bytes], Change]] = msgspec.msgpack.Decoder(Change).decode
encode_state: Final[Callable[[CatalogueState], bytes]] = msgspec.msgpack.Encoder().encode
"""Encodes a snapshot's body, of `state_version`."""
decode_state: Final = msgspec.msgpack.Decoder(CatalogueState).decode


def record_version(change: Change) -> int:
    """Return the lowest version that can express a change."""
    match change:
        case TokenAdded():
            is_plain = change.grant == FULL
        case DetectorCreated():
            is_plain = not change.owner
        case Reported():
            is_plain = False
        case _:
            is_plain = True
    return _RECORD_OLDEST if is_plain else RECORD_VERSION


def state_version(state: CatalogueState) -> int:
    """Return the lowest version that can express a state."""
    is_plain = not state.log.last and all(token.grant == FULL for token in state.tokens.values())
    return _STATE_OLDEST if is_plain else STATE_VERSION


def apply(change: Change, state: CatalogueState) -> None:
    """Apply a change, in constant time."""
    if not isinstance(change, DetectorPurged | Reported) and change.made is not None:
        state.log.note(_logged(change, change.made, state))
    match change:
        case Reported():
            state.log.report(change.id, change.changes)
        case TokenAdded():
            state.tokens[change.id] = StoredToken(
                change.digest, change.hint, change.name, change.created_at_ms, change.grant
            )
        case TokenRevoked():
            state.tokens.pop(change.id, None)
            state.tokens_used.pop(change.id, None)
        case DetectorCreated():
            state.detectors[change.id] = change.name
            _extend(state, change.owner, change.id)
        case DetectorRemoved():
            state.detectors.pop(change.id, None)
            state.removed.add(change.id)
        case DetectorPurged():
            state.removed.discard(change.id)
        case _:
            assert_never(change)


def _logged(
    change: TokenAdded | TokenRevoked | DetectorCreated | DetectorRemoved, made: Made, state: CatalogueState
) -> LoggedChange:
    """Return the log entry of a change that is about to be applied. Digests are never logged."""
    encode = msgspec.json.encode
    match change:
        case TokenAdded():
            new = encode(_token_members(change.name, change.hint, change.grant))
            return LoggedChange("token", "create", change.id, change.name, new=new, made=made)
        case TokenRevoked():
            was = state.tokens[change.id]
            old = encode(_token_members(was.name, was.hint, was.grant))
            return LoggedChange("token", "delete", change.id, was.name, old=old, made=made)
        case DetectorCreated():
            new = encode({"name": change.name} | ({"copy_of": change.source} if change.source else {}))
            return LoggedChange("detector", "create", change.id, change.name, new=new, made=made)
        case DetectorRemoved():
            name = state.detectors[change.id]
            return LoggedChange("detector", "delete", change.id, name, old=encode({"name": name}), made=made)


def _token_members(name: str, hint: str, grant: Grant) -> dict[str, object]:
    bounds = {
        "scopes": None if grant.scopes is None else sorted(grant.scopes),
        "detectors": None if grant.detectors is None else sorted(grant.detectors),
        "expires_ms": grant.expires_at_ms,
        "events_per_s": grant.events_per_s,
    }
    given = {member: value for member, value in bounds.items() if value is not None}
    return {"name": name, "hint": hint, **given}


def _extend(state: CatalogueState, token_id: str, detector_id: str) -> None:
    """Grant a limited token another detector, and drop its detectors that no longer exist."""
    token = state.tokens.get(token_id)
    if token is None or token.grant.detectors is None:
        return
    left = token.grant.detectors & state.detectors.keys()
    grant = msgspec.structs.replace(token.grant, detectors=left | {detector_id})
    state.tokens[token_id] = msgspec.structs.replace(token, grant=grant)


def room_for_detectors(state: CatalogueState, token_id: str) -> int:
    """Return how many more detectors a token can be granted; a huge number if it is not limited."""
    token = state.tokens.get(token_id)
    if token is None or token.grant.detectors is None:
        return sys.maxsize
    return TOKEN_DETECTORS_MAX - len(token.grant.detectors & state.detectors.keys())


def recovered_state(recovered: Recovered) -> CatalogueState:
    """Return the state in a folder. Raises NewerFormat, and Damaged if no service can have written it."""
    try:
        state = _recovered(recovered)
    except msgspec.DecodeError as error:
        raise Damaged(f"the catalogue of detectors cannot be read: {str(error).lower()}") from None
    for one in (*state.detectors, *state.removed):
        if not _ID.fullmatch(one):
            # The id names a folder. In a stranger's backup it could lead out of the data folder.
            raise Damaged(f"the catalogue has a detector with the id {one!r:.80}, which no service gives")
    return state


def _recovered(recovered: Recovered) -> CatalogueState:
    snapshot = recovered.snapshot
    assert snapshot is not None, "a folder begins with one"
    if not _STATE_OLDEST <= snapshot.version <= STATE_VERSION:
        raise other_format("the directory was saved", snapshot.version, STATE_VERSION)
    state = decode_state(snapshot.body)
    for record in recovered.records:
        record.check_version(RECORD_VERSION)
        apply(decode(record.payload), state)
    return state


UNFINISHED_COPY: Final = "directory.unfinished"
"""The name of the catalogue in an incomplete copy of a data folder."""


def prepare_folder(data: Path, files: Files) -> None:
    """Initialize an unused folder. Raises NothingUsable if detectors exist but the catalogue is lost."""
    folder, detectors = data / "directory", data / "detectors"
    if UNFINISHED_COPY in files.names(data):
        raise NothingUsable(f"{data} holds a copy that was interrupted: remove it, and copy again")
    if not files.names(folder) and files.names(detectors):
        raise NothingUsable(f"{folder} is gone or empty, though there are detectors")
    if is_unused(folder, files):
        _refuse_lost_journal(folder, detectors, files)
        # An earlier initialization may not have finished.
        empty = CatalogueState()
        create_folder(folder, encode_state(empty), version=state_version(empty), files=files)
    # Folders created just before a crash may not be synced yet.
    with storage_errors(f"{data} cannot be synced"):
        files.sync_folder(data)


def delete_leftovers(detectors: Path, known: AbstractSet[str], files: Files) -> Iterator[str]:
    """Delete unused folders without a detector; yield a warning for each other folder without one."""
    for name in files.names(detectors):
        if name not in known:
            folder = detectors / name
            if is_unused(folder, files):
                destroy_folder(folder, files)
            else:
                yield f"{folder}: no detector of the catalogue has this folder; it is left as it is"


def _refuse_lost_journal(folder: Path, detectors: Path, files: Files) -> None:
    """Raise NothingUsable if the catalogue is empty although detectors were used: its journal is lost."""
    for name in files.names(detectors):
        if not is_unused(detectors / name, files):
            raise NothingUsable(
                f"{folder} has lost its journal: it names no detector, and {detectors / name} was used"
            )
