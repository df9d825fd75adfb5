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


def make_fork(folder: Path, source: DetectorSnapshot, files: Files) -> None:
    """Make the folder of a detector from the state of another one, durably; nothing if it has a snapshot.

    Its rules have new ids. State is named by conditions and births, and dispatch by priorities, so nothing
    else names a rule. Raises StorageError; what is there then is no detector's.
    """
    captured = source.detector
    rules = ((dataclasses.replace(rule, id=secrets.token_hex(16)), birth) for rule, birth in captured.rules)
    renamed = list(paced(rules, time.monotonic, time.sleep))
    fork = DetectorSnapshot(source.limits, dataclasses.replace(captured, rules=renamed))
    body = paced(pieces(fork), time.monotonic, time.sleep)
    create_folder(folder, body, version=SNAPSHOT_VERSION, files=files)
