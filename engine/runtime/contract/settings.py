"""The settings of the runtime, with their defaults. Units stand in the names."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.language.limits import DEFAULT_LIMITS, Limits

JournalSync = Literal["always", "interval", "off"]
BatchTransport = Literal["auto", "ray", "tcp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """How detectors are kept, woken and queued for. `data` is the folder of everything that lasts."""

    data: Path
    folder_id: str | None = None
    """Every process refuses a data folder that has another id; with None, any will do."""
    limits: Limits = DEFAULT_LIMITS
    deadline_s: float = 30.0
    """From a request's arrival to its answer, whatever the answer is."""

    detectors_max: int = 100_000
    max_resident: int = 50
    """Detectors awake at once."""
    idle_rest_s: float = 600.0
    turn_s: float = 0.25
    """How long a busy detector stays awake, at least, while others wait for its place."""

    journal_sync: JournalSync = "always"
    """What an evaluation that was answered outlives: `always`, the loss of the machine; `interval`, the death
    of processes, and but for the last second the loss of the machine; `off`, nothing until the next
    snapshot. Changes of rules are always on the disk before they are answered."""
    journal_sync_interval_s: float = 1.0
    snapshot_interval_s: float = 60.0
    snapshot_journal_bytes: int = 64 * 1024 * 1024
    """So much in the journal brings the next snapshot forward."""
    snapshots_kept: int = 3
    answers_kept_s: float = 600.0
    """How long the answer to an evaluation with an idempotency key is kept."""
    answers_kept_bytes_max: int = 64 * 1024 * 1024
    """Of those answers for one detector; beyond, evaluations with new keys are refused."""
    retry_s: float = 1.0
    """Before what failed for the world's reasons is tried again."""

    waiting_max: int = 10_000
    """Requests that wait for one detector."""
    waiting_bytes_max: int = 64 * 1024 * 1024
    batch_operations_max: int = 1_000
    batch_bytes_max: int = 4 * 1024 * 1024
    """Of several operations sent together; one alone may be larger."""

    batch_transport: BatchTransport = "auto"
    """How batches travel to an actor: `auto`, by a Unix socket on the same machine and by TCP to another;
    `ray`, as all else does; `tcp`, on the same machine too. Where nothing connects, Ray carries them."""

    spares: int = 2
    """Started actors that wait for a detector."""
    starts_at_once: int = os.cpu_count() or 1
    """Actors that are being started at the same time."""
    activations_max: int = 1_000
    """After so many detectors, an actor is replaced."""
    actor_bytes_max: int = 1024 * 1024 * 1024
    """An actor whose process holds more once its detector rests is replaced."""
    hung_s: float = 60.0
    """An actor that has not answered for so long is taken for dead, and ended."""

    waking_hung_s: float = 600.0
    """The same for one that wakes a detector: a hundred thousand rules take half a minute."""

    poll_s: float = 0.5
    """Between two questions to the directory for what is new."""
    ask_s: float = 0.05
    """Between two questions at least, where an unknown token or detector calls for one."""
    directory_hung_s: float = 10.0
    """A directory that has not answered for so long is taken for dead, and started anew."""
    word_age_max_s: float = 15.0
    """Tokens are not trusted when the directory's last word is older."""
    lock_wait_s: float = 5.0
    """For a process that is just ending to let go of the data folder."""
    drain_s: float = 5.0
    """For waiting requests to be answered while the service shuts down."""
