"""The page of /metrics, made once for all who ask for it within a second."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from api.observability.metrics import CONTENT_TYPE, metrics_text
from api.schema.envelope import Response
from engine.runtime.concurrency.background import Kept
from engine.runtime.concurrency.threads import off_loop
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.figures import ClusterFigures, Status
from engine.runtime.front_end.backend import Backend

KEPT_S: Final = 1.0


async def look_at(backend: Backend) -> tuple[Status, ClusterFigures]:
    """Return what the page shows; without the scheduler, this process and the last known counts."""
    try:
        cluster = await backend.scheduler.ask("cluster", ClusterFigures)
    except DetectorUnavailable:
        cluster = backend.own_figures()
    return await backend.status(), cluster


class MetricsPage:
    """Makes the page in a thread, since that takes longer the more processes and operations there are.

    Anyone may ask for it. All who do within a second get the same bytes.
    """

    def __init__(self, look: Callable[[], Awaitable[tuple[Status, ClusterFigures]]]) -> None:
        """`look` returns what the page shows. What it raises is raised by all who wait for the page."""
        self._look = look
        self._kept = Kept(self._make, KEPT_S)

    async def answer(self) -> Response:
        """Return the page."""
        return await self._kept.get()

    @property
    def last(self) -> Response | None:
        """The last page, however old it is; None if there is none yet. Callable from any thread."""
        return self._kept.last

    async def _make(self) -> Response:
        status, cluster = await self._look()
        text = await off_loop(partial(metrics_text, status, cluster), "metrics")
        return Response(200, text, content_type=CONTENT_TYPE)
