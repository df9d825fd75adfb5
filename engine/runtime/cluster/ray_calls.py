"""Calls to Ray actors, off the event loop and with Ray's exceptions translated."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import ray
from ray._private import worker as ray_worker
from ray.exceptions import RayActorError, RayError, RayTaskError

from engine.runtime.concurrency.background import mark_retrieved
from engine.runtime.concurrency.threads import off_loop
from engine.runtime.contract.errors import ActorDied

WATCH: Final = "watch"
"""The concurrency group of `watch`, which never returns."""

_END_S: Final = 2.0
"""The timeout of the control store's answer, without which no actor is ended."""
_ANY_KEY: Final = b"rule-detector"

OPTIONS: Final[dict[str, Any]] = {
    # The pool replaces dead workers, and services a dead directory; only idempotent calls are repeated.
    "max_restarts": 0,
    "max_task_retries": 0,
    # An idle actor must not reserve a CPU.
    "num_cpus": 0,
    "concurrency_groups": {WATCH: 1},
    # Without a resource demand, Ray asks a random node, perhaps one that has just died.
    "memory": 1,
    "scheduling_strategy": "SPREAD",
    # Actors outlive the process that started them; its successor finds them by name.
    "lifetime": "detached",
}


class RayActor:
    """A Ray actor whose exceptions are translated."""

    def __init__(self, actor: Any, name: str) -> None:
        self.actor = actor
        self.name = name

    async def end(self) -> None:
        """End the actor's process. Nothing is saved."""
        await self.try_to_end()

    async def try_to_end(self, may_end: Callable[[], Awaitable[object]] | None = None) -> bool:
        """End the actor's process once `may_end` returns; return whether the request was made.

        No request is made while Ray's control store is out of reach: Ray would carry it out later, when a
        successor of this process may need the actor.
        """
        with suppress(RayError, TimeoutError):
            async with asyncio.timeout(2 * _END_S):
                if not await off_loop(control_store_answers, "ray"):
                    return False
                if may_end is not None:
                    await may_end()
                await off_loop(partial(ray.kill, self.actor), "ray kill")
                return True
        return False

    async def ask(self, method: str, *arguments: object, group: str | None = None) -> Any:
        """Call a method. Raises what the method raises, and ActorDied if the actor cannot be reached."""
        call = getattr(self.actor, method)
        if group is not None:
            call = call.options(concurrency_group=group)
        try:
            return await call.remote(*arguments)
        except RayTaskError as error:
            # The method raised; the cause has the traceback of the actor's process.
            if isinstance(error.cause, Exception):
                raise error.cause from error
            raise
        except RayActorError as error:
            raise ActorDied(first_line(error)) from None
        except RayError as error:
            # Unreachable or out of memory: whether the call was executed is unknown, as after a death.
            raise ActorDied(f"{type(error).__name__}: {first_line(error)}") from error


async def create_actor(create: Callable[[], Any]) -> Any:
    """Create an actor. If the caller is cancelled meanwhile, end it."""
    creating = off_loop(create, "ray actor")
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        creating.add_done_callback(_end_unwanted)
        raise


def _end_unwanted(creating: asyncio.Future[Any]) -> None:
    if not creating.cancelled() and creating.exception() is None:
        off_loop(partial(ray.kill, creating.result()), "ray kill").add_done_callback(mark_retrieved)


def control_store() -> Any:
    """Return Ray's client of its control store."""
    ours: Any = ray_worker.global_worker
    return ours.gcs_client


def ask_control_store(within_s: float) -> None:
    """Send a small query to Ray's control store. Blocks until it answers; raises what Ray raises."""
    control_store().internal_kv_exists(_ANY_KEY, None, timeout=within_s)


def control_store_answers() -> bool:
    """Whether Ray's control store answers now. Blocks for a moment."""
    try:
        ask_control_store(_END_S)
    except Exception:  # noqa: BLE001 -- Ray raises a dozen kinds
        return False
    return True


def first_line(error: Exception) -> str:
    """Return the first line of an exception's text."""
    return str(error).strip().split("\n", 1)[0]
