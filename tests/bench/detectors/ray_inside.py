"""A Ray of its own for what is measured on Ray."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path


def on_ray(work: Callable[[Path], Awaitable[dict[str, float]]]) -> dict[str, float]:
    """Give what the work comes to, over an empty folder, in a Ray of its own and in the loop that serves."""
    import uvloop  # noqa: PLC0415 -- the other cases need neither this nor Ray

    from engine.runtime.cluster.session import ray_session as cluster  # noqa: PLC0415

    started = cluster.start()
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as run,
        ):
            return run.run(work(Path(folder) / "data"))
    finally:
        cluster.stop(started)
