"""Adds storage and worker to the answer for a detector's state."""

import os
import platform
from typing import Any

import msgspec

from engine.evaluation.wire.events import Answer, Done
from engine.evaluation.wire.inspecting.states import StateAsked
from engine.runtime.contract.requests.operations import Operation
from snapshots.store import Store


def with_storage(answer: Answer, operation: Operation, store: Store, resident_bytes: int) -> Answer:
    """Return an answer about the state. If the whole state was asked for, add storage and worker."""
    if not isinstance(answer, Done):
        return answer
    if msgspec.json.decode(operation.payload, type=StateAsked).about != "all":
        return answer
    view: dict[str, Any] = {
        "journal": {
            "record": store.sequence,
            "bytes": store.journal_bytes,
            "segments": store.segment_count,
            "synced": not store.unsynced,
        },
        "snapshot": {
            "record": store.snapshot_sequence,
            **({} if (saved_us := store.snapshot_us) is None else {"saved_ms": saved_us // 1_000}),
        },
        "worker": {
            "node": platform.node(),
            "pid": os.getpid(),
            "epoch": store.epoch,
            "resident_bytes": resident_bytes,
        },
    }
    return Done(answer.result[:-1] + b"," + msgspec.json.encode(view)[1:])
