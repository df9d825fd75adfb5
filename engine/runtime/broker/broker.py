"""The broker's interface, as front ends use it: tokens, catalogue, and where detectors are."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from engine.runtime.contract.catalogue_changes import Changes, StoredToken, TokenEntry
from engine.runtime.contract.measurements.figures import ClusterFigures, FrontEndFigures, NodeFigures
from engine.runtime.contract.requests.routes import Route

Counts = Mapping[tuple[str, ...], float]
"""Increments of front-end metrics, by name and labels."""


class Status(msgspec.Struct, frozen=True):
    """The state of the broker and its detectors."""

    reasons: list[str]
    """Why requests cannot be served now."""
    problems: list[str]
    """Problems that do not prevent serving."""
    active_detectors: int
    """The number of active detectors."""
    detectors_with_problems: int
    """The number of detectors that cannot be activated or saved."""
    counts: dict[str, int]
    """Counts since the start, for each name of `counters.COUNTERS`."""
    front_end_counts: dict[tuple[str, ...], float]
    """The metrics of all front ends since the start."""


class Broker(Protocol):
    """Knows tokens, catalogue and routes of detectors. Every coroutine may raise DetectorUnavailable."""

    async def start(self) -> None:
        """Open the data folder. Raises StorageError, including FolderInUse."""

    async def close(self) -> list[str]:
        """Save all detectors and stop; return a sentence for each one that could not be saved."""

    def refuse_all(self) -> None:
        """Refuse all waiting, running and future requests: the time to serve them is over."""

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Return the changes since those versions."""

    async def add_token(self, token_id: str, token: StoredToken) -> int:
        """Store a token; return the version of the tokens that includes it."""

    async def revoke_token(self, token_id: str) -> int:
        """Remove a token; return the version without it. Raises Refusal 1202."""

    async def tokens(self) -> list[TokenEntry]:
        """Return all tokens, in order of creation."""

    async def tokens_used(self, token_ids: list[str], at_ms: int) -> None:
        """Note that tokens were used."""

    async def create_detector(self, detector_id: str, name: str) -> int:
        """Add a detector; return the catalogue's version that includes it. Raises Refusal 1400."""

    async def fork_detector(self, source_id: str, detector_id: str, name: str) -> int:
        """Add a detector with the rules and the state of another one; return the catalogue's version.

        Raises Refusal 1200 and 1400.
        """

    async def delete_detector(self, detector_id: str) -> int:
        """Remove a detector; return the version without it. Raises Refusal 1200.

        Its waiting requests are refused with 1200 too.
        """

    async def route(self, detector_id: str, left_epoch: int, large: bool = False) -> Route:
        """Return a detector's route, once it is active.

        `left_epoch` is the epoch of an activation that the caller found over or out of reach; 0 for none.
        `large` says whether large requests wait for the detector.
        Raises Refusal 1200.
        """

    async def move(self, detector_id: str, node: str) -> Route:
        """Move a detector to a node, or with an empty one to any but its own; return its route.

        Raises Refusal 1200 and 1204.
        """

    async def drain(self, node: str, draining: bool) -> NodeFigures:
        """Start draining a node, which moves its detectors elsewhere, or stop. Raises Refusal 1204."""

    async def add_counts(self, counted: Counts) -> None:
        """Add to the counts of all front ends."""

    async def status(self) -> Status:
        """Return the current state."""

    async def report_figures(self, figures: FrontEndFigures) -> None:
        """Record the figures of a front end."""

    async def cluster(self) -> ClusterFigures:
        """Return what runs where."""
