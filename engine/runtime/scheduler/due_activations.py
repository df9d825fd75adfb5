"""Activates passive detectors whose ticks are due, a few at once; their workers then tick them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from engine.language.diagnostics import Refusal
from engine.runtime.concurrency.background import Background
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.measures import DUE_ACTIVATIONS
from engine.runtime.scheduler.detectors.placed_detector import PlacedDetector
from engine.runtime.scheduler.detectors.services import Services

_log = logging.getLogger(__name__)

_SHARE: Final = 4
"""At most one in so many activation slots is used by detectors that are activated for a tick."""
_LOOKED_AT_ONCE: Final = 100
"""The maximum number of folders that the directory reads in one call."""
_AGAIN_S_MAX: Final = 600.0
"""The longest interval before a detector that was activated in vain is activated again."""


@dataclass(eq=False)
class DueActivations:
    """Activates passive detectors whose ticks are due. `look` is called every `tick_s`.

    While callers wait for slots, it activates one detector at a time. If a detector's tick is still due after
    that, it is activated again later, each time after twice as long.
    """

    _services: Services
    _place: Callable[[str], PlacedDetector]
    _now_us: Callable[[], int]
    _in_vain: dict[str, int] = field(default_factory=dict)
    """How often each detector was activated in vain in a row."""
    _trying: dict[str, int] = field(default_factory=dict)
    """The detectors that are being activated, each with the time since which its tick has been due."""
    under_way: Background = field(default_factory=Background)
    _known: bool = False
    """Whether the list of detectors is known."""

    def __post_init__(self) -> None:
        self._settings, self._dues = self._services.settings, self._services.dues
        self._at_once = max(1, min(self._settings.starts_at_once, self._settings.max_resident // _SHARE))

    @property
    def overdue_s(self) -> float:
        """How long the most overdue tick of a passive detector has been due."""
        now_us = self._now_us()
        return max(self._dues.overdue_us(now_us), now_us - min(self._trying.values(), default=now_us)) / 1e6

    async def look(self) -> None:
        """Read unknown due times, and activate detectors whose ticks are due."""
        if not self._known:
            changes = await self._services.catalogue.changes(0, 0)
            self._dues.unknown.update(dict.fromkeys(changes.detectors.whole or ()))
            self._known = True
        self._begin()
        while detector_ids := self._dues.look_at(_LOOKED_AT_ONCE):
            try:
                found = await self._services.catalogue.dues(detector_ids)
            except BaseException:
                for detector_id in detector_ids:
                    self._dues.note(detector_id, 0)
                raise
            now_us = self._now_us()
            for detector_id in detector_ids:
                self._dues.found(detector_id, found.get(detector_id), now_us)
            self._begin()

    @property
    def _room(self) -> int:
        """How many more detectors may be activated for a tick now."""
        return (1 if self._services.slots.wanted else self._at_once) - len(self.under_way)

    def _begin(self) -> None:
        """Begin to activate as many detectors as there is room for."""
        while self._room > 0 and (due := self._dues.take(self._now_us())) is not None:
            self.under_way.begin(self._activate_from(due))

    async def _activate_from(self, due: tuple[int, str] | None) -> None:
        """Activate one detector after another while ticks are due and there is room."""
        while due is not None:
            since_us, detector_id = due
            self._trying[detector_id] = since_us
            try:
                await self._activate(detector_id, since_us)
            finally:
                self._trying.pop(detector_id, None)
            due = self._dues.take(self._now_us()) if self._room >= 0 else None

    async def _activate(self, detector_id: str, since_us: int) -> None:
        placed = self._place(detector_id)
        if placed.worker_name is not None or placed.activating is not None:
            # It is active already, and its worker ticks it.
            return
        self._services.counts[DUE_ACTIVATIONS] += 1
        began_us, in_vain = self._now_us(), True
        try:
            await placed.activate_for_tick()
        except Refusal:
            # It was deleted.
            in_vain = False
        except DetectorUnavailable as error:
            _log.debug("the detector %s cannot be ticked: %s", detector_id, error.message)
        else:
            due_us = self._dues.since_us(detector_id)
            in_vain = detector_id in self._dues.unknown or (due_us is not None and due_us <= began_us)
        if not in_vain:
            self._in_vain.pop(detector_id, None)
            return
        times = self._in_vain[detector_id] = self._in_vain.get(detector_id, 0) + 1
        wait_s = min(self._settings.retry_s * 2 ** min(times, 10), _AGAIN_S_MAX)
        self._dues.note(detector_id, self._now_us() + round(wait_s * 1e6), since_us)
