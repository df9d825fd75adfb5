"""Moves a detector to another worker: it is saved in the one, then activated in the other."""

import asyncio

from engine.runtime.contract.errors import STARTING, DetectorUnavailable
from engine.runtime.contract.requests.routes import Route
from engine.runtime.placement.detectors.placed_detector import PlacedDetector
from engine.runtime.placement.detectors.services import Services


async def move(placed: PlacedDetector, services: Services, node: str | None = None) -> Route:
    """Move a detector to another worker on a node, or with None on the emptiest one; return its route.

    It is passivated after its turn, once there is a worker for it. Requests that wait for it follow in order.
    Raises Refusal 1200, and DetectorUnavailable 1501 and 1503.
    """
    retry_s = services.settings.retry_s
    if placed.moving:
        raise DetectorUnavailable(STARTING, "the detector is being moved already", retry_s)
    placed.moving = True
    with placed.needed():
        try:
            async with asyncio.timeout(services.settings.deadline_s):
                if node is not None and node == placed.node:
                    return await placed.route(0)
                alone = placed.detector_id in services.alone
                placed.reserved = await services.workers.take(alone=alone, node=node)
                epoch = placed.epoch
                await placed.vacate()
                return await placed.route(epoch)
        except TimeoutError:
            why = services.workers.no_room or "there is no worker for it, or it cannot be passivated"
            raise DetectorUnavailable(STARTING, f"the detector is not moved: {why}", retry_s) from None
        finally:
            placed.moving = False
            if placed.reserved is not None:
                services.workers.give_back(placed.reserved)
                placed.reserved = None
