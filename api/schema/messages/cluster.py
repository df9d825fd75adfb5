"""The messages about what runs where and how it is: the cluster, detectors that move, and health."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from api.schema.messages.catalogue import PageSize
from engine.runtime.contract.measurements.figures import (
    FolderFigures,
    FrontEndFigures,
    NodeFigures,
    OtherSetting,
    ProcessFigures,
    WorkerFigures,
)


class ClusterQuery(Struct):
    """The page of the workers. Without either parameter, all of them are shown."""

    limit: PageSize | UnsetType = UNSET
    """The maximum number of workers; 1000 if only `after` is given."""
    after: (
        Annotated[str, Meta(min_length=1, max_length=200, extra={"expected": "the name of a worker"})]
        | UnsetType
    ) = UNSET
    """Only workers whose names come after this one, the last of the previous page."""


class Move(Struct):
    """Where a detector is to move."""

    node: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    """The id of a node. Without it, the detector moves to the other node with the most room."""


class Moved(Struct):
    """Where a detector is active now."""

    node: str
    worker: str
    """The name of its worker."""


class Cluster(Struct):
    """What runs where. A worker that did not answer within a second has its last known figures."""

    nodes: list[NodeFigures]
    """The machines, as Ray knows them."""
    directory: ProcessFigures
    """The process of the directory, which decides which detector is active where."""
    front_ends: list[FrontEndFigures]
    workers: list[WorkerFigures]
    activating: list[str]
    """Ids of detectors that are being activated."""
    folder: FolderFigures | None
    """The data folder's file system; `null` if it does not answer."""
    other_settings: list[OtherSetting]
    """Settings that another service on this folder was given and that are not in force, because the service
    that came first decides.
    """
    no_room: str = ""
    """Says that no node has room for a worker that is needed; otherwise empty."""


class Alive(Struct):
    """The process is alive."""

    alive: Literal[True]


class Ready(Struct):
    """Requests are served. `problems`, shown only with a token, lists problems that do not prevent this."""

    ready: Literal[True]
    # Its sentences name detectors and files, so they are not shown to everyone.
    problems: list[str] | UnsetType = UNSET
