"""Serves the services of a data folder, on any number of machines. Runs in the directory's process."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from engine.runtime.contract.catalogue_changes import LoggedChange, Made
from engine.runtime.contract.errors import shutting_down
from engine.runtime.contract.figures import ClusterFigures, OtherSetting
from engine.runtime.contract.requests.calls import Route
from engine.runtime.contract.tokens import StoredToken
from engine.runtime.front_end.scheduler_client import ABANDONABLE
from engine.runtime.process.log_records import LOGGED, Logged
from engine.runtime.scheduler.scheduler import Scheduler
from engine.runtime.transport.link import Link
from engine.runtime.transport.server_connection import Methods, ServerConnection

_LINGER_S: Final = 2.0

_OF_CATALOGUE: Final = ("tokens", "tokens_used", "logged_changes")
_OF_SCHEDULER: Final = (
    *("changes", "move", "drain"),
    *("status", "add_counts", "report_figures", "newest_firings", "events_spent"),
)


def _typed(method: Callable[..., Awaitable[Any]], types: Mapping[int, Any]) -> Callable[..., Awaitable[Any]]:
    """Return a method that converts the plain data of some arguments, by position, to their types."""

    async def called(*given: object) -> Any:
        arguments = [
            msgspec.convert(one, types[place]) if place in types else one for place, one in enumerate(given)
        ]
        return await method(*arguments)

    return called


@dataclass(eq=False)
class SchedulerService:
    """Serves the connections of services. When the last service leaves, everything is saved."""

    _scheduler: Scheduler
    folder: str
    shared_settings: Mapping[str, str]
    """The settings, as text, that are in force for all services of the folder."""
    abandoned_s: float
    ended: Callable[[], object]
    """Called some time after everything is saved."""
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    _opened: bool = False
    _closing: asyncio.Task[list[str]] | None = None
    _services: dict[ServerConnection, None] = field(default_factory=dict)
    """The connections of services, in order of arrival."""
    _other_settings: dict[ServerConnection, list[OtherSetting]] = field(default_factory=dict)
    """The settings of each service that are not in force."""
    _abandoned: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self._await_services()

    def link(self) -> Link:
        """Make the link of a new connection."""
        server = ServerConnection({}, abandonable=ABANDONABLE, lost=lambda: self._lost(server))
        server.methods = {"open": partial(self._open, server)}
        return server.link()

    def log(self, logged: Logged) -> bool:
        """Send a record to the first service, for its log; return False if there is no service."""
        for server in self._services:
            server.note(LOGGED, msgspec.msgpack.encode(logged))
            return True
        return False

    async def _open(self, server: ServerConnection, node: str) -> str:
        """Begin to serve a service on a node; return the path of the data folder.

        Raises StorageError, and DetectorUnavailable 1503 if the last service is leaving.
        """
        async with self._opening:
            if self._closing is not None:
                raise shutting_down()
            if not self._opened:
                await self._scheduler.start()
                self._opened = True
        if not server.connected:
            # The service has left meanwhile, and cannot receive the answer.
            return self.folder
        self._services[server] = None
        self._stop_awaiting()
        server.methods = {
            **server.methods,
            **self._methods(),
            "route": partial(self._route, node),
            "cluster": self._cluster,
            "compare": partial(self._compare, server),
            "leave": partial(self._leave, server),
        }
        return self.folder

    def _methods(self) -> Methods:
        """Return the methods of the scheduler and its catalogue that services call directly."""
        scheduler, catalogue = self._scheduler, self._scheduler.catalogue
        return {
            **{name: getattr(catalogue, name) for name in _OF_CATALOGUE},
            **{name: getattr(scheduler, name) for name in _OF_SCHEDULER},
            "add_token": _typed(catalogue.add_token, {1: StoredToken, 2: Made}),
            "report_changes": _typed(catalogue.report_changes, {1: list[LoggedChange]}),
            "revoke_token": _typed(catalogue.revoke_token, {1: Made}),
            "create_detector": _typed(catalogue.create_detector, {3: Made}),
            "fork_detector": _typed(scheduler.fork_detector, {4: Made}),
            "delete_detector": _typed(scheduler.delete_detector, {1: Made}),
        }

    async def _compare(self, server: ServerConnection, pid: int, host: str, given: dict[str, str]) -> object:
        """Return which settings of a service are not in force."""
        in_force = self.shared_settings
        found = self._other_settings[server] = [
            OtherSetting(pid, host, name, in_force[name], value)
            for name, value in given.items()
            if in_force.get(name, value) != value
        ]
        return found

    async def _cluster(self) -> ClusterFigures:
        found = list(itertools.chain.from_iterable(self._other_settings.values()))
        return msgspec.structs.replace(await self._scheduler.cluster(), other_settings=found)

    async def _route(self, node: str, detector_id: str, left_epoch: int, large: bool = False) -> Route:
        route = await self._scheduler.route(detector_id, left_epoch, large)
        return msgspec.structs.replace(route, address=route.address.seen_from(node))

    async def _leave(self, server: ServerConnection) -> list[str] | None:
        """Note that a service leaves. If it is the last one, save everything.

        Returns a sentence for each detector that could not be saved; None if there are other services.
        """
        self._forget(server)
        if self._services:
            return None
        return await asyncio.shield(self._close())

    def _close(self) -> asyncio.Task[list[str]]:
        if self._closing is None:
            self._closing = asyncio.create_task(self._save())
        return self._closing

    async def _save(self) -> list[str]:
        try:
            return await self._scheduler.close() if self._opened else []
        finally:
            # Normally, the last service ends the process earlier.
            asyncio.get_running_loop().call_later(_LINGER_S, self.ended)

    def _lost(self, server: ServerConnection) -> None:
        self._forget(server)
        if not self._services and self._closing is None:
            self._await_services()

    def _forget(self, server: ServerConnection) -> None:
        self._services.pop(server, None)
        self._other_settings.pop(server, None)

    def _await_services(self) -> None:
        self._stop_awaiting()
        self._abandoned = asyncio.get_running_loop().call_later(self.abandoned_s, self._close)

    def _stop_awaiting(self) -> None:
        if self._abandoned is not None:
            self._abandoned.cancel()
            self._abandoned = None
