"""The report of `inspect`: its types, its lines for people, and its JSON."""

import json
from collections.abc import Iterator
from typing import Final

import msgspec

from api.cli.messages import counted
from api.cli.recordings.times import iso

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_UNIT: Final = 1024


class Defect(msgspec.Struct, frozen=True, kw_only=True):
    """A defect of a file, with its offset if it has one."""

    path: str
    offset: int | None = None
    reason: str

    def __str__(self) -> str:
        place = "" if self.offset is None else f", offset {self.offset}"
        return f"{self.path}{place}: {self.reason}"


class SnapshotFile(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot. `sequence` is its last record; `epoch` is its owner's, None if unreadable."""

    file: str
    sequence: int
    epoch: int | None
    bytes: int


class SegmentFile(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of a journal: its owner's epoch, and the records before any damage."""

    file: str
    epoch: int
    first: int | None
    last: int | None
    records: int
    bytes: int


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one folder.

    `position` is the last record that a recovery would apply; if it would fail, `refusal` says why.
    """

    folder: str
    position: int | None
    refusal: str | None = None
    snapshots: list[SnapshotFile] = []
    segments: list[SegmentFile] = []
    set_aside: list[str] = []


class KnownToken(msgspec.Struct, frozen=True, kw_only=True):
    """The public part of a token."""

    id: str
    hint: str


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The directory's tokens and number of detectors; None if unreadable."""

    storage: Storage
    tokens: list[KnownToken] | None
    detectors: int | None


class RuleEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rule, its condition as canonical text."""

    id: str
    name: str
    priority: int
    enabled: bool
    notify: bool
    condition: str
    shadow: bool = False


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a detector at its position. `clock_us` is None before the first event."""

    clock_us: int | None
    events_seen: int
    live_keys: int
    temporal_nodes: int
    rule_count: int
    rules_enabled: int
    relations: int = 0
    relation_tuples: int = 0
    """The number of tuples in all relations together."""
    firings: int = 0
    """The number of firings in its feed."""
    newest_firing: int = 0
    version_bytes: int = 0
    """The approximate size of earlier versions of rules."""
    diverged: str | None = None
    """The journal records whose replay fires other rules than originally; None if there are none."""
    rules: list[RuleEntry] | msgspec.UnsetType = msgspec.UNSET
    """Only if requested."""


class DetectorReport(msgspec.Struct, frozen=True, kw_only=True):
    """A detector. `contents` is None if unreadable, `name` if the catalogue does not have it."""

    id: str
    name: str | None
    storage: Storage
    contents: Contents | None


class DataFolderReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything found in a data folder."""

    data: str
    identity: str | None = None
    """The folder's id; None if it has none yet or if it is unreadable."""
    catalogue: Catalogue
    detectors: list[DetectorReport]
    orphans: list[str] = []
    """Folders of detectors that are not in the catalogue."""
    warnings: list[str] = []
    """Notes that are not damage."""
    damage: list[Defect] = []

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage


def to_json(report: DataFolderReport) -> str:
    """Return the report as one JSON object, indented."""
    document = {"whole": report.whole, **msgspec.to_builtins(report)}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def to_lines(report: DataFolderReport) -> Iterator[str]:
    """Yield the report line by line."""
    yield f"{report.data}: {'whole' if report.whole else 'DAMAGED, see the end'}"
    yield f"id {report.identity or 'none'}"
    yield ""
    yield "catalogue"
    yield from _catalogue_lines(report.catalogue)
    for detector in report.detectors:
        yield ""
        yield f"detector {detector.id}" + ("" if detector.name is None else f"  {quoted(detector.name)}")
        yield from _detector_lines(detector)
    for title, lines in (
        ("orphans: folders of detectors that are not in the catalogue", report.orphans),
        ("warnings", report.warnings),
        ("damaged", list(map(str, report.damage))),
    ):
        if lines:
            yield ""
            yield title
            yield from (f"  {line}" for line in lines)


def _catalogue_lines(catalogue: Catalogue) -> Iterator[str]:
    if catalogue.tokens is not None:
        hints = ", ".join(f"…{token.hint}" for token in catalogue.tokens)
        yield _row("tokens", f"{len(catalogue.tokens)}{': ' if hints else ''}{hints}")
    if catalogue.detectors is not None:
        yield _row("detectors", str(catalogue.detectors))
    yield from _storage_lines(catalogue.storage)


def _detector_lines(detector: DetectorReport) -> Iterator[str]:
    held = detector.contents
    if held is None:
        yield from _storage_lines(detector.storage)
        return
    off = held.rule_count - held.rules_enabled
    yield _row("rules", f"{held.rule_count}{f', {off} of them disabled' if off else ''}")
    if held.version_bytes:
        yield _row("versions", f"{size(held.version_bytes)} of earlier ones")
    if held.relations:
        yield _row("relations", f"{held.relations}, with {counted(held.relation_tuples, 'tuple')}")
    if held.newest_firing:
        yield _row("feed", f"{counted(held.firings, 'firing')}, the newest is number {held.newest_firing}")
    last = "" if held.clock_us is None else f", the clock at {iso(held.clock_us)}"
    yield _row("events", f"{held.events_seen} seen{last}")
    keys, nodes = counted(held.live_keys, "live key"), counted(held.temporal_nodes, "temporal node")
    yield _row("memory", f"{keys}, {nodes}")
    yield from _storage_lines(detector.storage)
    if not isinstance(held.rules, msgspec.UnsetType):
        for rule in held.rules:
            flags = {"disabled": not rule.enabled, "shadow": rule.shadow, "notify": rule.notify}
            marks = [mark for mark, is_so in flags.items() if is_so]
            yield f"  rule {rule.priority}  {rule.id}  {quoted(rule.name)}" + (
                f"  ({', '.join(marks)})" if marks else ""
            )
            yield f"    {rule.condition}"


def _storage_lines(storage: Storage) -> Iterator[str]:
    newest = (
        f", the newest of record {max(one.sequence for one in storage.snapshots)}"
        if storage.snapshots
        else ""
    )
    yield _row("snapshots", f"{len(storage.snapshots)}, {_bytes(storage.snapshots)}{newest}")
    records = sum(one.records for one in storage.segments)
    journal = counted(len(storage.segments), "segment")
    yield _row("journal", f"{journal} with {counted(records, 'record')}, {_bytes(storage.segments)}")
    yield _row("position", "none" if storage.position is None else f"record {storage.position}")
    if storage.refusal is not None:
        yield _row("refused", storage.refusal)
    if storage.set_aside:
        yield _row("set aside", ", ".join(storage.set_aside))


def _row(title: str, text: str) -> str:
    return f"  {title:<9}  {text}"


def _bytes(files: list[SnapshotFile] | list[SegmentFile]) -> str:
    return size(sum(one.bytes for one in files))


def size(bytes_: int) -> str:
    """Return a number of bytes in a readable unit."""
    number, power = float(bytes_), 0
    while number >= _UNIT and power < len(_UNITS) - 1:
        number, power = number / _UNIT, power + 1
    if power == 0:
        return counted(bytes_, "byte")
    return f"{number:.1f} {_UNITS[power]}"


def quoted(name: str) -> str:
    """Return a name in quotes, on one line."""
    return json.dumps(name, ensure_ascii=False, allow_nan=False)
