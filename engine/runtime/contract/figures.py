"""Figures that processes and the scheduler report: what runs where, and how much of it.

Times end in `_ms` and count from 1970; durations end in `_s`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from engine.runtime.contract.measures import Measured


def _doc(description: str) -> Meta:
    """Describe a member in the OpenAPI document."""
    return Meta(description=description)


class DetectorFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """An active detector."""

    id: str
    epoch: Annotated[int, _doc("The number of the activation; a later owner has a higher one.")]
    since_ms: Annotated[int, _doc("When it became active.")] = 0
    name: str = ""
    waiting: Annotated[
        int, _doc("Operations that the worker has received and not answered, including those in flight.")
    ] = 0
    waiting_s: Annotated[float, _doc("How long the oldest of them has waited.")] = 0.0
    overdue_s: Annotated[float, _doc("How long a tick has been overdue; 0 if none is.")] = 0.0
    rules: int = 0
    keys: Annotated[int, _doc("Live keys.")] = 0
    state_bytes: Annotated[int, _doc("The estimated memory of keys and histories.")] = 0
    relations_bytes: Annotated[int, _doc("The estimated memory of stored relations.")] = 0
    journal_bytes: Annotated[int, _doc("The journal that the newest snapshot does not include.")] = 0
    events: Annotated[int, _doc("The events that it has evaluated since it was created.")] = 0
    newest_firing: Annotated[int, _doc("The number of the newest firing of its feed.")] = 0
    events_per_s: Annotated[float, _doc("Events a second, in the last five to ten seconds.")] = 0.0
    cpu: Annotated[float, _doc("The processors that it uses then: 1 is one whole processor.")] = 0.0

    @property
    def held_bytes(self) -> int:
        """The estimated memory of keys, histories and relations."""
        return self.state_bytes + self.relations_bytes


class ProcessFigures(msgspec.Struct, frozen=True):
    """A process of the service."""

    pid: int
    host: Annotated[str, _doc("The name of its machine.")]
    started_ms: int
    resident_bytes: Annotated[int, _doc("Its resident memory.")]
    cpu_s: Annotated[float, _doc("The CPU time that it has used.")]


class WorkerFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """A detector worker, according to its latest answer."""

    name: str
    answers: Annotated[bool, _doc("Whether it has just answered; if not, its figures are outdated.")]
    node: Annotated[str, _doc("Ray's id of its node; absent before its first answer.")] = ""
    address: Annotated[str, _doc("The node's address.")] = ""
    process: ProcessFigures | None = None
    connections: Annotated[
        dict[str, int],
        _doc("Connections of front ends and the scheduler, by transport: `unix`, `tcp` or `tls`."),
    ] = {}
    detectors: Annotated[list[DetectorFigures], _doc("The detectors that are active in it.")] = []
    loop_lag_s: Annotated[float, _doc("The longest delay of its event loop in the last seconds.")] = 0.0


class WorkerAnswer(msgspec.Struct, frozen=True):
    """A worker's figures as it reports them; it does not know its own name."""

    figures: WorkerFigures
    measured: Measured


class MemoryFigures(msgspec.Struct, frozen=True):
    """The memory that a front end holds for its callers, within `--max-memory-mb`."""

    bodies: Annotated[int, _doc("Bytes of request bodies that are being read.")] = 0
    requests: Annotated[
        int, _doc("Bytes of requests for detectors, each twice because sending copies it.")
    ] = 0
    answers: Annotated[int, _doc("Bytes of answers that callers have not read yet.")] = 0


class FrontEndFigures(msgspec.Struct, frozen=True):
    """A front end."""

    process: ProcessFigures
    waiting: Annotated[int, _doc("Requests for detectors that are not answered yet.")]
    waiting_s: Annotated[float, _doc("How long the oldest request not yet sent to a worker has waited.")]
    directory_answer_age_s: Annotated[
        float, _doc("Seconds since the directory's last answer about tokens and detectors.")
    ]
    loop_lag_s: Annotated[float, _doc("The longest delay of its event loop in the last seconds.")]
    memory_bytes: MemoryFigures = MemoryFigures()
    certificate_stale: Annotated[
        bool,
        _doc("Whether the files of its certificate cannot be used, so that an earlier one stays in use."),
    ] = False


class NodeFigures(msgspec.Struct, frozen=True):
    """A machine of the cluster, as Ray knows it."""

    id: str
    address: str
    host: str
    alive: bool
    cpus: float
    memory_bytes: int
    cpus_free: Annotated[float, _doc("CPUs that Ray has not allocated.")] = 0.0
    memory_free_bytes: Annotated[int, _doc("Memory that Ray has not allocated.")] = 0
    draining: Annotated[
        Literal["", "operator", "ray"],
        _doc("Who drains it. While drained, it gets no workers, and its detectors are moved away."),
    ] = ""


class OtherSetting(msgspec.Struct, frozen=True, omit_defaults=True):
    """A setting of a service that is not in force, because another service was started first."""

    pid: int
    host: Annotated[str, _doc("The name of the service's machine.")]
    setting: Annotated[str, _doc("The option of `serve`.")]
    in_force: str
    given: str


class FolderFigures(msgspec.Struct, frozen=True):
    """The file system of the data folder."""

    free_bytes: int
    total_bytes: int
    free_inodes: Annotated[int, _doc("2**53 - 1 where the number of files has no limit, as on Btrfs.")]


class ClusterFigures(msgspec.Struct, frozen=True):
    """The figures of the whole cluster."""

    nodes: list[NodeFigures]
    directory: ProcessFigures
    front_ends: list[FrontEndFigures]
    workers: list[WorkerFigures]
    activating: list[str]
    """The ids of detectors that are being activated."""
    folder: FolderFigures | None
    """None if the file system does not answer."""
    measured: dict[str, Measured]
    """The measurements of each node, by its address."""
    other_settings: list[OtherSetting] = []
    """The settings of services that are not in force."""
    scheduler_loop_lag_s: float = 0.0
    no_room: str = ""
    """The message that no node has room for a needed worker; empty if one has."""
    overdue_s: float = 0.0
    """How long the most overdue tick of a passive detector has been due."""
    waiting_for_slots: int = 0
    """How many detectors wait for an activation slot because all are taken."""
    directory_answers: bool = True
    """Whether the directory has answered; if not, only the figures of one front end are known."""


Counts = Mapping[tuple[str, ...], float]
"""Increments of front-end metrics, by name and labels."""


class Status(msgspec.Struct, frozen=True):
    """The state of the scheduler and its detectors."""

    reasons: list[str]
    """Why requests cannot be served now."""
    problems: list[str]
    """Problems that do not prevent serving."""
    active_detectors: int
    """The number of active detectors."""
    detectors_with_problems: int
    """The number of detectors that cannot be activated or saved."""
    counts: dict[str, int]
    """Counts since the start, for each name in `COUNTERS`."""
    front_end_counts: dict[tuple[str, ...], float]
    """The metrics of all front ends since the start."""
