"""The settings of the runtime and their defaults. Names end in their unit."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.language.limits import DEFAULT_LIMITS, Limits

JournalSync = Literal["always", "interval", "off"]
Transport = Literal["auto", "unix", "tcp"]


# Without slots, it is pickled by field names. So during an upgrade, an older process ignores settings that it
# does not know, and a newer process uses the defaults of missing ones.
@dataclass(frozen=True, kw_only=True)
class RuntimeSettings:
    """The settings of storage, activation and queues. `data` is the folder of all persistent data."""

    data: Path
    folder_id: str | None = None
    """The id that the data folder must have; None accepts any."""
    limits: Limits = DEFAULT_LIMITS
    deadline_s: float = 30.0
    """The longest time from a request's arrival to its answer."""

    detectors_max: int = 100_000
    tokens_max: int = 10_000
    changes_kept_days: int = 90
    max_resident: int = 50
    """Detectors that are active at once."""
    detectors_per_worker: int = 1
    """Detectors that are active in one worker at once."""
    passivate_after_s: float = 600.0
    turn_s: float = 0.25
    """How long a busy detector stays active, at least, while others wait for its slot."""

    tick_s: float = 1.0
    """The interval at which workers tick the detectors in which something is due; 0 for never."""

    journal_sync: JournalSync = "always"
    """What an acknowledged evaluation survives. `always`: power loss. `interval`: a process crash; a machine
    crash may lose the last second. `off`: nothing until the next snapshot. Changes of rules are always synced
    before they are acknowledged."""
    journal_sync_interval_s: float = 1.0
    snapshot_interval_s: float = 60.0
    snapshot_journal_bytes: int = 64 * 1024 * 1024
    """A journal of this size triggers a snapshot."""
    snapshots_kept: int = 3
    answers_kept_s: float = 600.0
    """How long the answer to an evaluation with an idempotency key is stored."""
    answers_kept_bytes_max: int = 64 * 1024 * 1024
    """The size of one detector's stored answers; beyond it, evaluations with new keys are refused."""
    retry_s: float = 1.0
    """The delay before a failed operation is tried again."""

    waiting_max: int = 10_000
    """Requests that wait for one detector."""
    waiting_bytes_max: int = 64 * 1024 * 1024
    memory_bytes_max: int = 1024 * 1024 * 1024
    """The memory that a front end may hold for its callers: bodies, requests and answers together."""
    batch_operations_max: int = 1_000
    batch_bytes_max: int = 4 * 1024 * 1024
    """The maximum size of operations sent together; a single operation may be larger."""

    transport: Transport = "auto"
    """How processes reach workers and the directory. `auto`: by a Unix socket on the same node, by TCP from
    another. `unix`, `tcp`: always so."""

    worker_cpus: float = 0.0
    """CPUs that each worker requests from the cluster."""
    worker_memory_bytes: int = 0
    nodes_s: float = 1.0
    """The interval at which the scheduler polls the nodes."""
    room_wait_s: float = 10.0
    """How long a detector waits for a worker when no node has room for another one."""

    spares: int = 2
    """Idle workers that are started ahead."""
    starts_at_once: int = os.cpu_count() or 1
    """Workers that start at the same time."""
    unused_s: float = 10.0
    """How long unused workers beyond twice the spares are kept."""
    activations_max: int = 10_000
    """After this many activations of each of its detectors, a worker is replaced."""
    actor_bytes_max: int = 1024 * 1024 * 1024
    """A worker whose process holds more memory after a passivation takes no more detectors and ends with its
    last one."""
    load_s: float = 5.0
    """The interval at which a worker measures the load of its detectors, and checks whether one starves the
    others."""
    node_timeout_s: float = 3.0
    """A worker or directory whose process has not answered for this long counts as dead: it is stopped, or
    its node is stopped, cut off or gone. Even a busy process answers."""
    hung_s: float = 60.0
    """A worker without any progress for this long is ended: its disk hangs."""

    activation_hung_s: float = 600.0
    """The same during an activation, a tick or a change of many rules: 100 000 rules take half a minute."""

    poll_s: float = 0.5
    """The interval at which front ends ask the directory for changes."""
    ask_s: float = 0.05
    """The minimum interval between queries that unknown tokens or detectors cause."""
    directory_hung_s: float = 10.0
    """A directory whose disk has not answered for this long counts as dead, and is restarted."""
    abandoned_s: float = 60.0
    """A directory without any service for this long saves all detectors and ends. A worker without any
    connection does the same after twice that time."""
    directory_answer_age_max_s: float = 15.0
    """Tokens are not trusted if the directory's last answer is older."""
    lock_wait_s: float = 5.0
    """How long to wait until an ending process releases the data folder."""
    shutdown_s: float = 5.0
    """How long waiting requests are still answered during a shutdown."""
    save_passive_s: float = 20.0
    """How long a shutdown may take to empty the journals of passive detectors."""
