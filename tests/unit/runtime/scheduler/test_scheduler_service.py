"""The directory's process and the services that share it: who is served, who is last, what is repeated."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.language.diagnostics import Refusal
from engine.runtime.contract.catalogue_changes import Changes, Made
from engine.runtime.contract.errors import ActorDied, DetectorUnavailable
from engine.runtime.contract.figures import ClusterFigures, OtherSetting, Status
from engine.runtime.contract.requests.calls import Address, Route
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.contract.tokens import KnownToken, StoredToken
from engine.runtime.front_end.scheduler_client import SchedulerClient
from engine.runtime.process.log_records import LOGGED, Logged
from engine.runtime.scheduler.scheduler import Scheduler
from engine.runtime.scheduler.scheduler_service import SchedulerService
from engine.runtime.transport.link import Link, Note, responses
from engine.runtime.transport.link_client import LinkClient
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import StorageError
from tests.local_runtime.actors import LocalActors, LocalNodes
from tests.local_runtime.catalogues import LocalCatalogues
from tests.local_runtime.connections import Pipe
from tests.local_runtime.service import until

pytestmark = pytest.mark.skipping_clock

ONE, OTHER = "1" * 32, "2" * 32


class Directories:
    """Directory processes of a folder, one after another; each here in this one."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = RuntimeSettings(
            data=folder, folder_id=begin_folder(folder), **{"spares": 0, "ask_s": 0.001, **settings}
        )
        self.actors = LocalActors(self.settings)
        self.ended: list[int] = []
        self.clients: list[LinkClient] = []
        self.refuse: Exception | None = None
        self.begin()

    def begin(self) -> None:
        self.directories = LocalCatalogues(self.settings)
        self.scheduler = Scheduler(self.settings, self.actors, self.directories.client(), nodes=LocalNodes())
        self.service = SchedulerService(
            self.scheduler,
            shared_settings={"--max-resident": "50", "--spares": "2"},
            folder=str(self.settings.data),
            abandoned_s=self.settings.abandoned_s,
            ended=lambda: self.ended.append(1),
        )

    async def connect(self, node: str = "here") -> LinkClient:
        if self.refuse is not None:
            raise self.refuse
        client = LinkClient(Link(responses))
        Pipe.between(client.link, self.service.link())
        self.clients.append(client)
        assert await client.ask("open", str, node) == str(self.settings.data)
        return client

    def lose(self) -> None:
        """Act as if the process died: the next connection is to a successor."""
        for client in self.clients:
            client.link.abort()
        self.directories.fail()
        self.begin()

    async def end(self) -> None:
        self.ended.append(0)


@asynccontextmanager
async def service_of(directories: Directories, **more: Any) -> AsyncIterator[SchedulerClient]:
    """The scheduler of a service that shares the directory."""
    scheduler = SchedulerClient(directories.settings, directories.connect, end=directories.end, **more)
    await scheduler.start()
    try:
        yield scheduler
    finally:
        await scheduler.close()


async def test_the_last_service_that_leaves_has_everything_saved(tmp_path):
    directories = Directories(tmp_path)
    async with service_of(directories) as one:
        await one.ask("create_detector", int, ONE, "one")
        async with service_of(directories) as other:
            route = await other.ask("route", Route, ONE, 0)
        assert directories.ended == []
        assert await one.ask("route", Route, ONE, 0) == route
        assert directories.scheduler.active_detectors == 1
    assert directories.ended == [0]
    assert directories.scheduler.active_detectors == 0
    assert all(worker.dead for worker in directories.actors.started)


async def test_settings_that_are_not_in_force_are_told_to_their_service_and_shown_while_it_is_there(tmp_path):
    directories = Directories(tmp_path)
    async with service_of(directories) as one:
        other = await directories.connect()
        same, given = {"--max-resident": "50"}, {"--max-resident": "200", "--spares": "2", "--new": "1"}
        assert await other.ask("compare", list[OtherSetting], 7, "host", same) == []
        assert (await one.ask("cluster", ClusterFigures)).other_settings == []
        found = [OtherSetting(7, "host", "--max-resident", "50", "200")]
        assert await other.ask("compare", list[OtherSetting], 7, "host", given) == found
        assert (await one.ask("cluster", ClusterFigures)).other_settings == found
        other.link.abort()
        await until(lambda: directories.service._other_settings == {})
        assert (await one.ask("cluster", ClusterFigures)).other_settings == []


async def test_a_service_that_dies_leaves_nothing_behind_it(tmp_path):
    directories = Directories(tmp_path)
    async with service_of(directories):
        died = await directories.connect()
        died.link.abort()
    assert directories.ended == [0], "the one that lives is the last"


async def test_a_directory_with_a_service_does_not_end_because_a_connection_ended_before_it(tmp_path):
    directories = Directories(tmp_path, abandoned_s=0.2)
    stranger = LinkClient(Link(responses))
    Pipe.between(stranger.link, directories.service.link())
    stranger.link.abort()
    await asyncio.sleep(0.1)
    async with service_of(directories) as one:
        await asyncio.sleep(0.5)
        assert (await one.status()).reasons == []


@pytest.mark.parametrize(("spares", "reasons"), [(0, []), (1, ["no detector worker is running"])])
async def test_a_service_without_workers_is_ready_if_it_keeps_no_spare_ones(tmp_path, spares, reasons):
    directories = Directories(tmp_path, spares=spares)
    directories.actors.start = lambda *_: asyncio.Event().wait()
    async with service_of(directories) as one:
        assert (await one.status()).reasons == reasons


async def test_a_service_that_leaves_while_the_directory_opens_leaves_nothing_half_open(tmp_path):
    for steps in range(1, 100):
        directories = Directories(tmp_path / f"{steps}", abandoned_s=0.2)
        leaving = LinkClient(Link(responses))
        Pipe.between(leaving.link, directories.service.link())
        asked = asyncio.create_task(leaving.ask("open", str, "here"))
        for _ in range(steps):
            await asyncio.sleep(0)
        over = asked.done()
        leaving.link.abort()
        await asyncio.gather(asked, return_exceptions=True)
        async with service_of(directories) as one:
            await one.ask("create_detector", int, ONE, "one")
            assert list(directories.service._services) != []
        assert directories.ended == [0]
        if over:
            break
    assert steps > 5, "it has left at every step"


async def test_a_directory_whose_last_service_leaves_accepts_no_other(tmp_path):
    directories = Directories(tmp_path)
    async with service_of(directories):
        pass
    with pytest.raises(DetectorUnavailable) as refused:
        await directories.connect()
    assert refused.value.code == 1503


@pytest.mark.parametrize("come", [True, False])
async def test_a_directory_without_services_saves_and_ends(tmp_path, come, monkeypatch):
    monkeypatch.setattr("engine.runtime.scheduler.scheduler_service._LINGER_S", 0)
    directories = Directories(tmp_path, abandoned_s=0.2)
    if come:
        client = await directories.connect()
        await client.ask("create_detector", int, ONE, "one")
        await client.ask("route", Route, ONE, 0)
        await asyncio.sleep(0.4)
        assert directories.ended == [], "there is a service"
        client.link.abort()
    await until(lambda: directories.ended)
    assert directories.scheduler.active_detectors == 0


async def test_a_service_that_is_gone_while_it_leaves_does_not_keep_others_from_being_saved(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("engine.runtime.scheduler.scheduler_service._LINGER_S", 0)
    directories = Directories(tmp_path)
    client = await directories.connect()
    await client.ask("create_detector", int, ONE, "one")
    await client.ask("route", Route, ONE, 0)
    gone, save = asyncio.Event(), directories.scheduler.close

    async def save_later():
        await gone.wait()
        return await save()

    monkeypatch.setattr(directories.scheduler, "close", save_later)
    leaving = asyncio.create_task(client.ask("leave", list[str] | None))
    await until(lambda: directories.service._closing)
    client.link.abort()
    with pytest.raises(ActorDied):
        await leaving
    gone.set()
    await until(lambda: directories.ended)
    assert all(worker.dead for worker in directories.actors.started)


async def test_each_service_gets_the_address_for_its_node(tmp_path):
    directories = Directories(tmp_path)
    async with service_of(directories) as scheduler:
        await scheduler.ask("create_detector", int, ONE, "one")
        await scheduler.ask("route", Route, ONE, 0)
        far = Address(("192.0.2.1", 1), b"far")
        for worker in directories.actors.started:
            worker.address = Address("path", b"near", node="here", far=far)
        assert (await scheduler.ask("route", Route, ONE, 0)).address.place == "path"
        elsewhere = await directories.connect("elsewhere")
        assert (await elsewhere.ask("route", Route, ONE, 0)).address == far


async def test_the_first_service_logs(tmp_path):
    directories = Directories(tmp_path)
    told: dict[str, list[Note]] = {"one": [], "other": []}
    async with (
        service_of(directories, noted=told["one"].append),
        service_of(directories, noted=told["other"].append),
    ):
        record = logging.LogRecord("engine.x", logging.ERROR, "f", 1, "it %s", ("broke",), None)
        record.fields = {"detector": ONE}
        record.detail = "why"
        assert directories.service.log(Logged.of(record))
        await until(lambda: told["one"])
        (note,) = told["one"]
        assert note.name == LOGGED
        logged = msgspec.msgpack.decode(note.body, type=Logged)
        assert logged == Logged("engine.x", logging.ERROR, "it broke", {"detector": ONE}, "why")
        assert told["other"] == []


async def test_calls_go_on_with_a_successor_and_what_was_removed_stays_so(tmp_path):
    directories = Directories(tmp_path)
    async with service_of(directories) as scheduler:
        await scheduler.ask("add_token", int, ONE, StoredToken(b"1", "hint"))
        await scheduler.ask("create_detector", int, OTHER, "other")
        directories.lose()
        assert (await scheduler.ask("changes", Changes, 0, 0)).tokens.whole == {b"1": KnownToken(ONE)}
        revoke_token = directories.scheduler.catalogue.revoke_token

        async def lost_after(token_id: str, made: Made | None = None) -> int:
            version = await revoke_token(token_id, made)
            directories.lose()
            return version

        directories.scheduler.catalogue.revoke_token = lost_after  # type: ignore[method-assign]
        directories.clients[-1].link.abort()
        assert await scheduler.ask("revoke_token", int, ONE) == 0, "an earlier attempt has done it"
        assert (await scheduler.ask("changes", Changes, 0, 0)).tokens.whole == {}
        with pytest.raises(Refusal):
            await scheduler.ask("revoke_token", int, ONE)
        directories.lose()
        with pytest.raises(Refusal):
            await scheduler.ask("delete_detector", int, ONE)


async def test_status_and_counts_outlive_a_directory_that_is_away(tmp_path):
    directories = Directories(tmp_path, deadline_s=0.05)
    trouble: list[str] = []
    async with service_of(directories, not_ready=lambda: trouble[0] if trouble else None) as scheduler:
        assert isinstance(known := await scheduler.status(), Status)
        directories.refuse = ActorDied("it is away")
        directories.lose()
        with pytest.raises(DetectorUnavailable):
            await scheduler.add_counts([(("a",), 2.0)])
        status = await scheduler.status()
        assert status.reasons == known.reasons
        assert "it is away" in status.problems[-1]
        trouble.append("ray is silent")
        assert "ray is silent" in (await scheduler.status()).reasons
        trouble.clear()
        scheduler.problem = lambda: "ray is silent, but what is active is served"
        status = await scheduler.status()
        assert status.reasons == known.reasons
        assert "ray is silent, but what is active is served" in status.problems
        directories.refuse = None
        await scheduler.add_counts([(("a",), 1.0)])
        assert (await scheduler.status()).front_end_counts == {("a",): 3.0}


async def test_leaving_a_lost_directory_has_its_successor_save(tmp_path):
    directories = Directories(tmp_path)
    async with service_of(directories) as scheduler:
        await scheduler.ask("create_detector", int, ONE, "one")
        directories.lose()
    assert directories.ended == [0]


async def test_leaving_without_ray_waits_for_nothing(tmp_path):
    directories = Directories(tmp_path)
    async with asyncio.timeout(5), service_of(directories, not_ready=lambda: "ray is gone"):
        directories.refuse = ActorDied("no ray")
        directories.lose()
    assert directories.ended == []


async def test_a_folder_that_cannot_be_saved_is_told_at_the_end(tmp_path):
    directories = Directories(tmp_path)
    scheduler = SchedulerClient(directories.settings, directories.connect, end=directories.end)
    await scheduler.start()
    directories.refuse = StorageError("no such disk")
    directories.lose()
    assert "no such disk" in (await scheduler.close())[0]
    with contextlib.suppress(StorageError):
        await scheduler.start()
