"""The first snapshot of a detector that begins with the rules and the state of another one."""

import dataclasses
import secrets
import time
from pathlib import Path

from engine.runtime.detector.persistence.detector_snapshot import (
    SNAPSHOT_VERSION,
    DetectorSnapshot,
    paced,
    pieces,
)
from snapshots.files import Files
from snapshots.folders import create_folder
from snapshots.write.due_marks import mark_folder


def make_fork(folder: Path, source: DetectorSnapshot, files: Files, *, is_due: bool) -> None:
    """Make a detector's folder from the state of another detector, durably. Do nothing if it has a snapshot.

    The rules get new ids, and the feed is empty, since the fork has fired nothing yet. Nothing else has to
    change: the state refers to conditions and births, and rules to each other by priority. `is_due` says
    whether something is due in it. Raises StorageError; what is then in the folder belongs to no detector.
    """
    captured = source.detector
    rules = (
        dataclasses.replace(live, rule=dataclasses.replace(live.rule, id=secrets.token_hex(16)))
        for live in captured.rules
    )
    renamed = list(paced(rules, time.monotonic, time.sleep))
    fork = DetectorSnapshot(source.limits, dataclasses.replace(captured, rules=renamed, feed=(0, [])))
    body = paced(pieces(fork), time.monotonic, time.sleep)
    create_folder(folder, body, version=SNAPSHOT_VERSION, files=files)
    if is_due:
        mark_folder(folder, files)
