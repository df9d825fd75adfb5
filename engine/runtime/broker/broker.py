"""Who keeps the detectors, as every front end of a service needs it: an interface of few methods."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from engine.evaluation.wire.events import Answer
from engine.runtime.contract.catalogue_changes import Changes
from engine.runtime.contract.operations import Operation

Tallies = Mapping[tuple[str, ...], float]
"""What front ends count, by name and labels, since they last said it."""


class Status(msgspec.Struct, frozen=True):
    """How it stands with the detectors."""

    reasons: list[str]
    """Why requests cannot be served now."""
    amiss: list[str]
    """What is to be known although they can."""
    awake: int
    """How many detectors an actor hosts."""
    troubles: int
    """How many detectors have something in their way."""
    counts: dict[str, int]
    """What happened to detectors, how often since the start: for each name of `counters.COUNTERS`."""
    tallies: dict[tuple[str, ...], float]
    """What all front ends have counted since the start."""


class Broker(Protocol):
    """Has operations carried out by detectors. Every method that waits may raise DetectorUnavailable."""

    async def start(self) -> None:
        """Take hold of the detectors. Raises StorageError, FolderInUse among them."""

    async def close(self) -> list[str]:
        """Let go of everything; a sentence for each detector that could not be saved."""

    def refuse_all(self) -> None:
        """Refuse all that waits or is under way, now and from now on: there is no more time for it."""

    async def changes(self, tokens_seen: int, detectors_seen: int) -> Changes:
        """Give what is new since then."""

    async def add_token(self, token_id: str, digest: bytes, hint: str) -> int:
        """Keep a token; the version of the tokens that has it."""

    async def revoke_token(self, token_id: str) -> int:
        """Forget a token; the version that has it no more. Raises Refusal 1202."""

    async def create_detector(self, detector_id: str, name: str) -> int:
        """Enter a detector; the version of the catalogue that has it. Raises Refusal 1400."""

    async def delete_detector(self, detector_id: str) -> int:
        """Remove a detector; the version that has it no more. Raises Refusal 1200.

        What waits for it is answered with 1200 too.
        """

    async def call(self, detector_id: str, operation: Operation) -> Answer:
        """Have a detector carry out an operation, in the order of asking.

        Raises Refusal 1200. A caller that is cancelled leaves nothing behind; what was in flight for it may
        still be carried out.
        """

    async def tally(self, counted: Tallies) -> None:
        """Add to what front ends have counted."""

    async def status(self) -> Status:
        """Say how it stands."""
