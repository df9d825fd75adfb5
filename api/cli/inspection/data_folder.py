"""Reads a data folder, or one detector in it, without taking its lock or changing anything."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from api.cli.inspection.report import (
    Catalogue,
    Contents,
    DataFolderReport,
    Defect,
    DetectorReport,
    KnownToken,
    RuleEntry,
    SegmentFile,
    SnapshotFile,
    Storage,
)
from api.cli.messages import CommandError
from engine.evaluation.detector import Detector
from engine.language.limits import DEFAULT_LIMITS
from engine.language.text.printer import format as canonical
from engine.runtime.catalogue.catalogue_state import CatalogueState, recovered_state
from engine.runtime.detector.persistence.idempotency import IdempotencyCache
from engine.runtime.detector.persistence.replay import restore
from engine.runtime.detector.persistence.replay_attempts import LEFT_ALONE_S, Deaths, last_deaths
from snapshots.data_folder.identity import IDENTITY_NAME, read_identity
from snapshots.errors import StorageError
from snapshots.files import RealFiles, wall_clock_us
from snapshots.folders import is_unused
from snapshots.format.file_names import listing
from snapshots.inspection import FolderReport, inspect_folder, read_only
from snapshots.takeover.recovered import Recovered

_PLACE: Final = re.compile(r"at offset ([0-9]+), (.*)", re.DOTALL)
T = TypeVar("T")
_LOOKS: Final = 3
"""How often a folder that looks damaged is read: a file may look damaged while a service writes it, but
hardly each time."""
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The findings of one reading of a folder. `recovered` is None if a recovery would fail."""

    storage: Storage
    recovered: Recovered | None = None
    damage: tuple[Defect, ...] = ()
    warnings: tuple[str, ...] = ()


def look_at(folder: Path) -> Look:
    """Read the files of a folder without changing anything. Raises StorageError."""
    found = inspect_folder(folder)
    damage, warnings = _findings(found)
    return Look(
        storage=Storage(
            folder=str(folder),
            position=None if found.refusal else found.sequence,
            refusal=found.refusal,
            snapshots=[
                SnapshotFile(file=one.name, sequence=one.sequence, epoch=one.epoch, bytes=one.file_bytes)
                for one in found.snapshots
            ],
            segments=[
                SegmentFile(
                    file=one.name,
                    epoch=one.epoch,
                    first=one.first if one.records else None,
                    last=one.last,
                    records=one.records,
                    bytes=one.file_bytes,
                )
                for one in found.segments
                # An empty segment was only created to claim the folder, or is about to be written.
                if one.file_bytes
            ],
            set_aside=list(found.set_aside),
        ),
        recovered=None if found.refusal else read_only(folder),
        damage=damage,
        warnings=warnings,
    )


def _findings(found: FolderReport) -> tuple[tuple[Defect, ...], tuple[str, ...]]:
    """Separate damage from warnings, which are unfinished writes and defects that no recovery reads."""
    folder = found.folder
    damage = [_defect(folder / one.name, one.reason) for one in found.snapshots if one.reason is not None]
    warnings = []
    for segment in found.segments:
        if segment.reason is None:
            continue
        path = folder / segment.name
        defect = _defect(path, segment.reason)
        if str(path) in (found.refusal or ""):
            damage.append(defect)
        elif segment.torn:
            warnings.append(f"{defect}: a write that was never finished, or is under way")
        elif found.refusal is not None:
            damage.append(defect)
        else:
            warnings.append(f"{defect}; no recovery needs that")
    if found.refusal is not None and not damage:
        damage.append(Defect(path=str(folder), reason=found.refusal))
    unreadable = {one.name for one in found.snapshots if one.reason is not None}
    unreadable |= {one.name for one in found.segments if one.reason is not None}
    for one in found.damage:
        if listing([one.path.name]).pages:
            damage.append(_defect(one.path, one.reason))
        elif one.path.name not in unreadable:
            warnings.append(str(one))
    return tuple(damage), tuple(warnings)


def _defect(path: Path, reason: str) -> Defect:
    placed = _PLACE.fullmatch(reason)
    if placed is None:
        return Defect(path=str(path), reason=reason)
    return Defect(path=str(path), offset=int(placed[1]), reason=placed[2])


class NoDataFolder(CommandError):
    """There is no data folder, or it lacks the requested object; the message says which."""


def ids_of(names: Mapping[str, str | None], wanted: str) -> list[str]:
    """Return `wanted` if it is an id, else the ids with that name. `names` are by id."""
    return [wanted] if wanted in names else [each for each, name in names.items() if name == wanted]


def read_data_folder(data: Path, *, only: str | None = None, with_rules: bool = False) -> DataFolderReport:
    """Report the contents of a data folder; with `only`, the detector with that id, else those of that name.

    Raises NoDataFolder.
    """
    try:
        return _Reader(data, with_rules=with_rules).read(only)
    except OSError as error:
        raise NoDataFolder(f"{data} cannot be read: {(error.strerror or str(error)).lower()}") from None


class _Reader:
    """Reads one data folder once, and collects damage and warnings."""

    def __init__(self, data: Path, *, with_rules: bool) -> None:
        self._data = data
        self._detectors_folder = data / "detectors"
        self._with_rules = with_rules
        self._damage: list[Defect] = []
        self._warnings: list[str] = []

    def read(self, only: str | None) -> DataFolderReport:
        directory = self._data / "directory"
        if not directory.is_dir():
            raise NoDataFolder(f"{self._data} is no data folder: it has no folder `directory`")
        identity = self._identity()
        # Listed before the catalogue is read: a service creates a detector's folder before its entry there.
        folders = self._folders()
        catalogue, state = self._catalogue(directory, any_detector=bool(folders))
        named: dict[str, str | None] = dict.fromkeys(folders) if state is None else dict(state.detectors)
        removed = frozenset[str]() if state is None else state.removed
        others = [name for name in folders if name not in named]
        if only is not None:
            all_named = dict.fromkeys(folders) | named
            named = {detector_id: all_named[detector_id] for detector_id in ids_of(all_named, only)}
            others = []
            if not named:
                raise NoDataFolder(f"{self._data} holds no detector `{only}`")
        entries = [self._detector(detector_id, name) for detector_id, name in named.items()]
        self._warnings += [
            f"{self._detectors_folder / name}: its detector was deleted; the files go at the next start"
            for name in others
            if name in removed
        ]
        orphans = [self._detectors_folder / name for name in others if name not in removed]
        return DataFolderReport(
            data=str(self._data),
            identity=identity,
            catalogue=catalogue,
            detectors=[entry for entry in entries if entry is not None],
            # Folders that have vanished meanwhile were being removed.
            orphans=[str(folder) for folder in orphans if folder.exists()],
            warnings=self._warnings,
            damage=self._damage,
        )

    def _identity(self) -> str | None:
        try:
            identity = read_identity(self._data, RealFiles())
        except (StorageError, OSError) as error:
            self._damage.append(Defect(path=str(self._data / IDENTITY_NAME), reason=str(error)))
            return None
        if identity is None:
            self._warnings.append(
                f"{self._data}: it has no id yet; the next start of the service gives it one"
            )
        return identity

    def _folders(self) -> list[str]:
        if not self._detectors_folder.is_dir():
            return []
        return sorted(entry.name for entry in self._detectors_folder.iterdir())

    def _catalogue(self, folder: Path, *, any_detector: bool) -> tuple[Catalogue, CatalogueState | None]:
        look, state = looked_at(folder, recovered_state)
        if state is None and not (look.storage.snapshots or any_detector) and is_unused(folder):
            look = replace(look, damage=(), warnings=(f"{folder}: it was created and never used",))
            state = CatalogueState()
        self._note(look)
        if state is None:
            return Catalogue(storage=look.storage, tokens=None, detectors=None), None
        tokens = [KnownToken(id=token_id, hint=token.hint) for token_id, token in state.tokens.items()]
        return Catalogue(storage=look.storage, tokens=tokens, detectors=len(state.detectors)), state

    def _detector(self, detector_id: str, name: str | None) -> DetectorReport | None:
        """Report one detector; None if it was deleted meanwhile."""
        folder = self._detectors_folder / detector_id
        look, contents = looked_at(folder, self._contents_of)
        if contents is None and not folder.exists() and self._is_deleted(detector_id):
            return None
        mark = folder / "replaying"
        deaths = self._deaths(mark)
        if deaths.too_many and not deaths.expired(wall_clock_us()):
            self._warnings.append(
                f"{mark}: {deaths}, which is left alone for {LEFT_ALONE_S} s; "
                "`rule-detector retry` allows it at once"
            )
        elif deaths.sequence:
            self._warnings.append(
                f"{mark}: record {deaths.sequence} of the journal or a later one is being replayed, "
                "or ended a process"
            )
        self._note(look)
        if contents is not None and contents.diverged is not None:
            self._warnings.append(contents.diverged)
        return DetectorReport(id=detector_id, name=name, storage=look.storage, contents=contents)

    def _deaths(self, mark: Path) -> Deaths:
        try:
            return last_deaths(mark, RealFiles()) if mark.parent.is_dir() else Deaths()
        except OSError as error:
            reason = f"it cannot be read: {(error.strerror or str(error)).lower()}"
            self._damage.append(Defect(path=str(mark), reason=reason))
            return Deaths()

    def _is_deleted(self, detector_id: str) -> bool:
        _, state = looked_at(self._data / "directory", recovered_state)
        return state is not None and detector_id not in state.detectors

    def _contents_of(self, recovered: Recovered) -> Contents:
        restored = restore(recovered, IdempotencyCache(0, 0), DEFAULT_LIMITS)
        detector, rules = restored.detector, restored.detector.rules()
        return Contents(
            clock_us=detector.clock_us,
            events_seen=detector.events_seen,
            live_keys=detector.histories.live,
            temporal_nodes=len(detector.histories.memories),
            rule_count=len(rules),
            rules_enabled=sum(rule.enabled for rule in rules),
            relations=len(detector.stored),
            relation_tuples=sum(map(len, detector.stored.values())),
            firings=len(detector.feed),
            newest_firing=detector.feed.last,
            version_bytes=detector.versions.bytes,
            diverged=restored.diverged,
            rules=[
                RuleEntry(
                    id=rule.id,
                    name=rule.name,
                    priority=rule.priority,
                    enabled=rule.enabled,
                    shadow=rule.shadow,
                    notify=rule.notify,
                    condition=canonical(rule.condition),
                )
                for rule in rules
            ]
            if self._with_rules
            else msgspec.UNSET,
        )

    def _note(self, look: Look) -> None:
        self._damage += look.damage
        self._warnings += look.warnings


def looked_at(folder: Path, read: Callable[[Recovered], T]) -> tuple[Look, T | None]:
    """Return the findings about a folder, and the result of `read` for its contents, None if that fails.

    A folder that looks damaged is read again.
    """
    look, result = _once(folder, read)
    for _ in range(1, _LOOKS):
        if not look.damage:
            break
        time.sleep(_PAUSE_S)
        look, result = _once(folder, read)
    return look, result


def _once(folder: Path, read: Callable[[Recovered], T]) -> tuple[Look, T | None]:
    look = Look(storage=Storage(folder=str(folder), position=None))
    try:
        look = look_at(folder)
        return look, None if look.recovered is None else read(look.recovered)
    except (StorageError, OSError) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 -- the other folders must be reported in any case
        reason = f"what it holds cannot be read: {type(error).__name__}: {error}"
    defect = Defect(path=str(folder), reason=reason)
    return replace(look, damage=(*look.damage, defect)), None


def detector_folders(data: Path) -> list[Path]:
    """Return the folders of detectors: existing ones, and those in the catalogue."""
    _, state = looked_at(data / "directory", recovered_state)
    folder = data / "detectors"
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    # A mounted file system has this folder.
    names.discard("lost+found")
    if state is not None:
        names |= state.detectors.keys()
    return [folder / name for name in sorted(names)]


def stored_detector(data: Path, wanted: str) -> Detector:
    """Return the detector with that id, else the only one of that name, in its state after the next start.

    Raises NoDataFolder.
    """
    _, state = looked_at(data / "directory", recovered_state)
    names: dict[str, str | None] = {} if state is None else dict(state.detectors)
    folder = data / "detectors" / _only_id(names, wanted, "detector", f"{data}: ")
    look, restored = looked_at(folder, lambda it: restore(it, IdempotencyCache(0, 0), DEFAULT_LIMITS))
    if restored is None:
        reasons = "; ".join(defect.reason for defect in look.damage) or "nothing can be read there"
        raise NoDataFolder(f"{folder}: {reasons}")
    return restored.detector


def stored_rule_id(detector: Detector, wanted: str) -> str:
    """Return the id of the rule with that id, else of the only one of that name. Raises NoDataFolder."""
    return _only_id({rule.id: rule.name for rule in detector.rules()}, wanted, "rule")


def _only_id(names: Mapping[str, str | None], wanted: str, kind: str, where: str = "") -> str:
    found = ids_of(names, wanted)
    if len(found) != 1:
        said = f"{len(found)} {kind}s have" if found else f"no {kind} has"
        raise NoDataFolder(f"{where}{said} the id or name `{wanted}`")
    return found[0]
