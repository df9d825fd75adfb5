"""What a detector's journal says was done, in order: of folders whose owners keep all segments.

The first snapshot is that of an empty detector, so nothing is removed while `--snapshots-kept` is larger than
the number of snapshots.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from engine.evaluation.persistence.columns import stored_condition
from engine.runtime.detector.persistence import journal_entries as journal
from snapshots.errors import Damaged
from snapshots.format.file_names import listing
from snapshots.format.segment_reader import SegmentReader
from snapshots.format.segments import SEGMENT_FILE, SegmentHeader, decode_header
from tests.linearizability.history import AddRule, Asked, ChangeRule, Evaluate, RemoveRule, Sent

KEEP_ALL: Final = 1_000_000
"""The number of snapshots to keep."""


class Done(NamedTuple):
    """An executed request, with its events in order of arrival, and the indexes of the refused ones."""

    asked: Asked
    refused: frozenset[int] = frozenset()


def done(folder: Path) -> Iterator[Done]:
    """Yield the executed requests of the detector in a folder, in order."""
    names = dict[str, str]()
    numbers = itertools.count()

    def sent(event: Mapping[str, Any]) -> Sent:
        return Sent(next(numbers), event["fields"], event["timestamp_ms"])

    for payload in records(folder):
        for entry in journal.decode(payload).entries:
            match entry:
                case journal.RulePut(id=rule_id) if rule_id in names:
                    changed = {
                        "condition": stored_condition(entry.condition),
                        "notify": entry.notify,
                        "enabled": entry.enabled,
                    }
                    yield Done(ChangeRule(names[rule_id], tuple(changed.items())))
                case journal.RulePut():
                    names[entry.id] = entry.name
                    yield Done(AddRule(entry.name, stored_condition(entry.condition), entry.notify))
                case journal.RuleRemoved():
                    yield Done(RemoveRule(names[entry.id]))
                case journal.Evaluated():
                    yield Done(Evaluate((sent(json.loads(entry.body)["event"]),)))
                case journal.EvaluatedBatch():
                    events = tuple(map(sent, json.loads(entry.body)["events"]))
                    yield Done(Evaluate(events, batch=True), frozenset(entry.refused))
                case journal.LimitsSet():
                    continue
                case _:
                    raise AssertionError(entry)


def records(folder: Path) -> list[bytes]:
    """Return the payloads of the records that count, in order.

    Each owner's first header says whose records its own continue, and from which number on. What an earlier
    owner wrote from there on does not count.
    """
    owners = defaultdict[int, list[tuple[SegmentHeader, bytes, Path]]](list)
    for (epoch, _), name in listing(path.name for path in folder.iterdir()).segments.items():
        data = (folder / name).read_bytes()
        try:
            owners[epoch].append((decode_header(data), SEGMENT_FILE.checked(data), folder / name))
        except Damaged:
            # Its owner reserved space for it, and never wrote.
            continue
    found = dict[int, bytes]()
    epoch, end = max((epoch for epoch, segments in owners.items() if segments), default=0), None
    while segments := owners.get(epoch):
        for header, data, path in segments:
            for record in SegmentReader(data, path, header.first, end):
                assert record.sequence not in found, f"{path} has a second record {record.sequence}"
                found[record.sequence] = record.payload
        first, _, _ = segments[0]
        end = first.first if end is None else min(end, first.first)
        epoch = first.after
    assert sorted(found) == list(range(1, len(found) + 1)), f"records of {folder} are missing"
    return [found[sequence] for sequence in sorted(found)]
