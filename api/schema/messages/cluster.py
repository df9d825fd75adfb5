"""The messages about the cluster, moves of detectors, and health."""

from collections.abc import Callable, Iterable
from heapq import nlargest
from operator import attrgetter
from typing import Annotated, Final, Literal, Self

from msgspec import UNSET, Meta, Struct, UnsetType, field

from api.schema.messages.catalogue import PageSize
from engine.runtime.contract.figures import (
    FolderFigures,
    FrontEndFigures,
    NodeFigures,
    OtherSetting,
    ProcessFigures,
    WorkerFigures,
)


class ClusterQuery(Struct):
    """The page of the workers. Without either parameter, all workers are shown."""

    limit: PageSize | UnsetType = UNSET
    """The maximum number of workers; 1000 if only `after` is given."""
    after: (
        Annotated[str, Meta(min_length=1, max_length=200, extra={"expected": "the name of a worker"})]
        | UnsetType
    ) = UNSET
    """Only workers whose names come after this one, the last of the previous page."""


class Move(Struct, forbid_unknown_fields=True):
    """The target of a move."""

    node: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    """The id of a node. Without it, the detector moves to the other node with the most room."""


class Moved(Struct):
    """Where a detector is active now."""

    node: str
    worker: str
    """The name of its worker."""


class BusyDetector(Struct):
    """An active detector, its place, and its load."""

    id: str
    name: str
    worker: str
    """The name of its worker."""
    address: str
    """The address of its node."""
    events_per_s: float
    """Events a second, in the last five to ten seconds."""
    cpu: float
    """The processors that it uses then: 1 is one whole processor."""


BUSIEST_MAX: Final = 10


class Busiest(Struct):
    """The busiest detectors of the whole service, at most ten of each kind, busiest first."""

    by_events: list[BusyDetector] = []
    by_cpu: list[BusyDetector] = []

    @classmethod
    def of(cls, workers: Iterable[WorkerFigures], most: int = BUSIEST_MAX) -> Self:
        """Return the busiest detectors of workers, without idle ones."""
        found = [
            BusyDetector(one.id, one.name, worker.name, worker.address, one.events_per_s, one.cpu)
            for worker in workers
            for one in worker.detectors
        ]
        by_events, by_cpu = (
            nlargest(most, (one for one in found if busy(one) > 0), busy) for busy in (_EVENTS_PER_S, _CPU)
        )
        return cls(by_events, by_cpu)


_EVENTS_PER_S: Final[Callable[[BusyDetector], float]] = attrgetter("events_per_s")
_CPU: Final[Callable[[BusyDetector], float]] = attrgetter("cpu")


class Cluster(Struct):
    """The cluster's figures. A worker that did not answer within a second has its last known figures."""

    nodes: list[NodeFigures]
    """The machines, as Ray knows them."""
    directory: ProcessFigures
    """The process of the directory, which places the detectors."""
    front_ends: list[FrontEndFigures]
    workers: list[WorkerFigures]
    activating: list[str]
    """Ids of detectors that are being activated."""
    folder: FolderFigures | None
    """The data folder's file system; `null` if it does not answer."""
    other_settings: list[OtherSetting]
    """Settings of other services on this folder that are not in force, because the service that was started
    first decides.
    """
    busiest: Busiest = field(default_factory=Busiest)
    """The busiest detectors, also of workers that are not on this page."""
    no_room: str = ""
    """The message that no node has room for a needed worker; otherwise empty."""


class Alive(Struct):
    """The process is alive."""

    alive: Literal[True]


class Ready(Struct):
    """Requests are served. `problems`, shown only with a token, lists problems that do not prevent this."""

    ready: Literal[True]
    # Problems name detectors and files, so they are not shown to everyone.
    problems: list[str] | UnsetType = UNSET
