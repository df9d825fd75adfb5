"""The fleet: what a restart finds, who is active, and what goes on while the directory is gone."""

import asyncio
import contextlib
import dataclasses
import errno
import json
from collections import Counter
from typing import Any

import pytest

from engine.evaluation.wire.events import Refused
from engine.language.diagnostics import Refusal
from engine.runtime.catalogue.tokens import digest_of
from engine.runtime.contract.catalogue_changes import StoredToken
from engine.runtime.contract.errors import DetectorUnavailable
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.actor import DetectorActor
from engine.runtime.detector.measured_actor import MeasuredActor
from snapshots.data_folder.identity import begin_folder
from snapshots.errors import FolderInUse, StorageError
from tests.faulty_files import FaultyFiles
from tests.local_runtime import local_fleet, local_service, until

pytestmark = pytest.mark.skipping_clock


def event(timestamp_ms: float, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


async def fired(fleet: Any, detector_id: str, timestamp_ms: float, **fields: Any) -> list[str]:
    answer = await fleet.call(detector_id, event(timestamp_ms, **fields))
    return [action["name"] for action in json.loads(answer.result)["actions"]]


async def fired_at_last(fleet: Any, detector_id: str, timestamp_ms: float) -> list[str]:
    """The same as `fired`, once the detector is tried again and found sound."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(DetectorUnavailable):
                answer = await fleet.call(detector_id, event(timestamp_ms))
                if not isinstance(answer, Refused):
                    return [action["name"] for action in json.loads(answer.result)["actions"]]
            await asyncio.sleep(0.005)


async def refused(work: Any) -> int:
    with pytest.raises((Refusal, DetectorUnavailable)) as caught:
        await work
    return int(caught.value.code)


async def test_a_restart_finds_tokens_detectors_rules_and_what_they_remember(tmp_path):
    async with local_fleet(tmp_path) as fleet:
        kept, revoked = await fleet.mint_token(), await fleet.mint_token()
        await fleet.revoke_token(revoked.id)
        one, two = await fleet.create_detector("one"), await fleet.create_detector("two")
        gone = await fleet.create_detector("gone")
        await fleet.delete_detector(gone)
        await fleet.call(one, ops.add_rule("recent", "once within 10s a == 1"))
        assert await fired(fleet, one, 1000, a=1) == ["recent"]
    async with local_fleet(tmp_path) as fleet:
        assert fleet.token_known(digest_of(kept.token))
        assert not fleet.token_known(digest_of(revoked.token))
        assert await fleet.detectors() == [(one, "one"), (two, "two")]
        assert await fleet.detector(two) == (two, "two")
        assert await fired(fleet, one, 11_000, a=2) == ["recent"]
        assert await fired(fleet, one, 11_001, a=2) == []
        assert await fired(fleet, two, 1, a=1) == []
        assert await refused(fleet.call(gone, ops.rules())) == 1200


async def test_what_does_not_exist_is_refused_by_its_kind(tmp_path):
    async with local_fleet(tmp_path) as fleet:
        for unknown in ("0" * 32, "", "../../etc"):
            assert await refused(fleet.call(unknown, ops.rules())) == 1200
            assert await refused(fleet.detector(unknown)) == 1200
            assert await refused(fleet.delete_detector(unknown)) == 1200
            assert await refused(fleet.revoke_token(unknown)) == 1202
            assert not fleet.exists(unknown)


async def test_a_token_is_known_at_once_and_unknown_at_once(tmp_path):
    async with local_fleet(tmp_path, poll_s=60) as fleet:
        assert not fleet.any_token
        minted = await fleet.mint_token()
        assert fleet.any_token
        assert fleet.token_known(digest_of(minted.token))
        assert not fleet.token_known(digest_of(minted.token + "x"))
        await fleet.revoke_token(minted.id)
        assert not fleet.token_known(digest_of(minted.token))
        assert not await fleet.token_lookup(digest_of(minted.token))
        assert await refused(fleet.revoke_token(minted.id)) == 1202


async def test_more_detectors_than_places_take_turns_and_forget_nothing(tmp_path):
    async with local_service(tmp_path, max_resident=2, turn_s=0.001, spares=1) as service:
        fleet = service.fleet
        ids = [await fleet.create_detector(f"{number}") for number in range(6)]
        for detector_id in ids:
            await fleet.call(detector_id, ops.add_rule("first", "not once a == 1"))
        most = 0

        async def caller(detector_id: str) -> None:
            nonlocal most
            for step in range(8):
                await fleet.call(detector_id, event(1000 + step))
                most = max(most, fleet.broker.active_detectors)

        await asyncio.gather(*(caller(detector_id) for detector_id in ids for _ in range(2)))
        assert most == 2
        for detector_id in ids:
            assert await fired(fleet, detector_id, 2000, a=0) == ["first"]
            assert await fired(fleet, detector_id, 2001, a=1) == []
        assert {await fired(fleet, detector_id, 2002, a=0) == [] for detector_id in ids} == {True}
        assert sum(not actor.dead for actor in service.actors.started) <= 4


@pytest.mark.parametrize("spares", [1, 2])
async def test_the_first_processes_serve_all_detectors_while_no_others_come_up(tmp_path, spares):
    """After a restart, all get requests at once, and each process takes its time to start."""
    settings = {"spares": spares, "starts_at_once": 2, "turn_s": 0.001}
    async with local_service(tmp_path, **settings) as service:
        fleet, actors = service.fleet, service.actors
        ids = [await fleet.create_detector(f"{number}") for number in range(30)]
        begin = actors.start

        async def start(*_: object) -> Any:
            if len(actors.started) >= 2:
                await asyncio.Event().wait()
            return await begin()

        actors.start = start
        answers = await asyncio.wait_for(asyncio.gather(*(fired(fleet, one, 1) for one in ids)), 30)
        assert answers == [[]] * 30
        # Again, while each still has more to do.
        calls = [fired(fleet, one, step) for one in ids for step in range(2, 12)]
        assert await asyncio.wait_for(asyncio.gather(*calls), 30) == [[]] * 300
        assert len(actors.started) == 2
        assert fleet.broker.active_detectors == 2, "both processes are of use"


async def test_busy_detectors_do_not_starve_the_one_that_waits(tmp_path):
    async with local_fleet(tmp_path, max_resident=1, turn_s=0.001) as fleet:
        busy, patient = await fleet.create_detector("busy"), await fleet.create_detector("patient")
        flood = [asyncio.create_task(_flood(fleet, busy)) for _ in range(5)]
        await asyncio.sleep(0.01)
        await asyncio.wait_for(fleet.call(patient, event(1)), 5)
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)


async def _flood(fleet: Any, detector_id: str) -> None:
    while True:
        await fleet.call(detector_id, event(1))


async def test_an_idle_detector_is_passivated_and_its_queue_is_forgotten(tmp_path):
    async with local_fleet(tmp_path, passivate_after_s=0.01) as fleet:
        detector_id = await fleet.create_detector("one")
        await fleet.call(detector_id, ops.add_rule("r", "once a == 1"))
        await fired(fleet, detector_id, 1, a=1)
        await until(lambda: not fleet.broker._placed)
        assert fleet.broker.active_detectors == 0
        assert await fired(fleet, detector_id, 2) == ["r"]


async def test_many_detectors_are_activated_and_passivated_without_leaving_anything(tmp_path):
    async with local_service(tmp_path, max_resident=5, turn_s=0.0) as service:
        fleet = service.fleet
        ids = [await fleet.create_detector("") for _ in range(60)]
        await asyncio.gather(*(fleet.call(detector_id, event(1)) for detector_id in ids for _ in range(3)))
        await until(lambda: len(fleet.broker._placed) <= 5)
        assert sum(not actor.dead for actor in service.actors.started) <= 7


async def test_a_changed_detector_is_saved_after_the_interval_and_not_again_without_a_change(tmp_path):
    async with local_service(tmp_path, snapshot_interval_s=0.01) as service:
        detector_id = await service.fleet.create_detector("one")
        await service.fleet.call(detector_id, event(1))
        actor = service.actors.with_detector(detector_id)
        assert actor is not None
        await until(lambda: service.broker.counts["snapshots_written"])
        await service.fleet.call(detector_id, ops.rules())
        await asyncio.sleep(0.05)
        assert actor.calls.count(("finish_saving", 0)) == 1
        # What was saved is what a killed actor's successor begins with.
        actor.die()
        await until(lambda: not service.broker.active_detectors)
        late = await service.fleet.call(detector_id, event(0))
        assert b"2001" in late.messages
        assert service.broker.counts["journal_records_read"] == 0
        assert service.broker.counts["detectors_lost"] == 1


async def test_what_was_answered_survives_the_actor_however_fast_it_came(tmp_path):
    async with local_service(tmp_path) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")
        for number in range(10):
            await fleet.call(detector_id, ops.add_rule(f"{number}", "once a == 1"))
        await fired(fleet, detector_id, 1, a=1)
        actor = service.actors.with_detector(detector_id)
        assert actor is not None
        actor.die()
        await until(lambda: not fleet.broker.active_detectors)
        assert len(await fired(fleet, detector_id, 2)) == 10
        assert fleet.broker.counts["journal_records_read"] == 11


async def test_a_long_journal_brings_the_next_snapshot_forward_and_batches_go_on_meanwhile(tmp_path):
    async with local_service(tmp_path, snapshot_journal_bytes=2_000) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")
        await fleet.call(detector_id, event(0))
        actor = service.actors.with_detector(detector_id)
        assert actor is not None
        go_on = asyncio.Event()

        async def wait(call: str) -> None:
            if call == "finish_saving":
                await go_on.wait()

        actor.before = wait
        for number in range(40):
            await fleet.call(detector_id, event(number))
        assert actor.calls.count(("begin_saving", 0)) == 1
        assert ("handle", 1) in actor.calls[actor.calls.index(("finish_saving", 0)) :]
        go_on.set()
        await until(lambda: fleet.broker.counts["snapshots_written"])


async def test_what_an_interval_leaves_is_synced_in_time(tmp_path):
    async with local_service(tmp_path, journal_sync="interval", journal_sync_interval_s=0.01) as service:
        detector_id = await service.fleet.create_detector("one")
        await service.fleet.call(detector_id, event(1))
        actor = service.actors.with_detector(detector_id)
        assert actor is not None
        await until(lambda: ("sync", 0) in actor.calls)
        await asyncio.sleep(0.05)
        assert actor.calls.count(("sync", 0)) == 1


@pytest.mark.parametrize("call", ["handle", "sync", "begin_saving"])
async def test_a_journal_that_fails_is_told_and_the_detector_comes_back(tmp_path, call):
    files = FaultyFiles()
    settings = {"handle": {}, "sync": {"journal_sync": "interval", "journal_sync_interval_s": 0.01}}
    chosen = settings.get(call, {"journal_sync": "interval", "snapshot_interval_s": 0.01})
    async with local_service(tmp_path, files=files, retry_s=0.01, **chosen) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")
        await fleet.call(detector_id, ops.add_rule("r", "once a == 1"))
        files.fail_next("sync_data")
        if call == "handle":
            assert await refused(fleet.call(detector_id, event(1))) == 1502
        else:
            await fleet.call(detector_id, event(1))
        await until(lambda: fleet.broker.counts["journal_failures"] == 1)
        assert await fired(fleet, detector_id, 2, a=1) == ["r"]
        assert await fired(fleet, detector_id, 3) == ["r"]


async def test_a_record_that_cannot_be_written_was_certainly_not_evaluated(tmp_path):
    files = FaultyFiles()
    async with local_service(tmp_path, files=files) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")
        await fleet.call(detector_id, ops.add_rule("r", "once a == 1"))
        files.fail_next("write")
        assert await refused(fleet.call(detector_id, event(1, a=1))) == 1501
        assert await fired(fleet, detector_id, 2) == []


async def test_of_what_was_in_flight_only_what_has_a_key_is_sent_again_and_evaluated_once(tmp_path):
    async with local_service(tmp_path) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")
        await fleet.call(detector_id, ops.add_rule("first", "a == 1 and not once b == 1"))
        actor = service.actors.with_detector(detector_id)
        assert actor is not None
        handle = actor.actor.handle

        def die_after(batch: Any) -> Any:
            reply = handle(batch)
            actor.die()
            return reply

        actor.actor.handle = die_after
        body = event(1, a=1).payload
        once_b = event(2, b=1)
        keyed = asyncio.create_task(fleet.call(detector_id, ops.evaluate(body, "key")))
        bare = asyncio.create_task(refused(fleet.call(detector_id, once_b)))
        assert [action["name"] for action in json.loads((await keyed).result)["actions"]] == ["first"]
        assert await bare == 1502
        again = await fleet.call(detector_id, ops.evaluate(body, "key"))
        assert again == keyed.result()
        assert await fired(fleet, detector_id, 3, a=1) == []


async def test_a_second_service_on_a_folder_is_refused(tmp_path):
    async with local_fleet(tmp_path):
        with pytest.raises(FolderInUse):
            async with local_fleet(tmp_path):
                pass
    async with local_fleet(tmp_path):
        pass


async def test_warm_detectors_go_on_while_the_directory_is_gone(tmp_path):
    async with local_service(tmp_path, poll_s=0.005, ask_s=0.001, deadline_s=1) as service:
        fleet = service.fleet
        warm, cold = await fleet.create_detector("warm"), await fleet.create_detector("cold")
        minted = await fleet.mint_token()
        await fleet.call(warm, event(1))
        service.directories.refuse = True
        service.directories.started[-1].die()
        await asyncio.sleep(0.02)
        await fleet.call(warm, event(2))
        assert fleet.token_known(digest_of(minted.token))
        in_vain = (fleet.call(cold, event(1)), fleet.create_detector("three"), fleet.token_lookup(b"unknown"))
        assert await asyncio.gather(*map(refused, in_vain)) == [1501] * 3
        service.directories.refuse = False
        three = await fleet.create_detector("three")
        await until(lambda: fleet.exists(three))
        assert len(service.directories.started) > 1
        assert [name for _, name in await fleet.detectors()] == ["warm", "cold", "three"]


async def test_a_change_that_the_directory_died_over_is_made_exactly_once(tmp_path):
    async with local_service(tmp_path) as service:
        fleet = service.fleet
        deaths = Counter()

        async def die_once(call: str) -> None:
            deaths[call] += 1
            if deaths[call] == 1 and call not in {"changes", "lease"}:
                service.directories.started[-1].die()

        service.directories.before = die_once
        service.directories.started[-1].before = die_once
        minted = await fleet.mint_token()
        detector_id = await fleet.create_detector("one")
        assert await fleet.detectors() == [(detector_id, "one")]
        await fleet.delete_detector(detector_id)
        await fleet.revoke_token(minted.id)
        assert await fleet.detectors() == []
        assert not fleet.any_token
        assert {call: deaths[call] >= 2 for call in ("add_token", "create_detectors", "delete_detector")}


async def test_a_removal_whose_answer_was_lost_with_the_directory_is_no_error(tmp_path):
    async with local_service(tmp_path) as service:
        fleet = service.fleet
        minted = await fleet.mint_token()
        detector_id = await fleet.create_detector("one")
        for name, work in (
            ("revoke_token", lambda: fleet.revoke_token(minted.id)),
            ("delete_detector", lambda: fleet.delete_detector(detector_id)),
        ):
            handle = service.directories.started[-1]
            done = getattr(handle.directory, name)

            def die_after(*arguments: Any, done: Any = done, handle: Any = handle) -> Any:
                version = done(*arguments)
                handle.die()
                return version

            setattr(handle.directory, name, die_after)
            await work()
        assert await fleet.detectors() == []
        assert not fleet.any_token


async def test_tokens_are_not_trusted_when_the_directory_has_been_silent_too_long(tmp_path):
    async with local_service(tmp_path, poll_s=0.005, directory_answer_age_max_s=0.3, deadline_s=2) as service:
        fleet = service.fleet
        minted = await fleet.mint_token()
        assert (await fleet.status()).reasons == []
        service.directories.refuse = True
        service.directories.started[-1].die()
        await until(lambda: not fleet.answer_is_fresh)
        assert "has not answered recently" in (await fleet.status()).reasons[0]
        with pytest.raises(DetectorUnavailable, match="has not answered") as caught:
            fleet.token_known(digest_of(minted.token))
        assert caught.value.code == 1501
        service.directories.refuse = False
        await until(lambda: fleet.answer_is_fresh)
        assert fleet.token_known(digest_of(minted.token))


async def test_an_unknown_token_is_asked_for_and_a_flood_of_them_costs_few_questions(tmp_path):
    async with local_service(tmp_path, poll_s=60, ask_s=0.05) as service:
        fleet = service.fleet
        handle = service.directories.started[-1]
        # As another front end would.
        handle.directory.add_token("t" * 32, StoredToken(b"digest", "hint"))
        assert not fleet.token_known(b"digest")
        before = handle.calls.count("changes")
        found = await asyncio.gather(*(fleet.token_lookup(b"digest") for _ in range(500)))
        assert found == [True] * 500
        assert not any(await asyncio.gather(*(fleet.token_lookup(b"%d" % number) for number in range(500))))
        assert handle.calls.count("changes") - before == 2
        before = handle.calls.count("changes")
        lookups = []
        for number in range(500):
            lookups.append(asyncio.create_task(fleet.token_lookup(b"%d" % number)))
            await asyncio.sleep(0)
        await asyncio.gather(*lookups)
        assert handle.calls.count("changes") - before < 50


async def test_a_question_that_is_under_way_does_not_answer_for_what_came_after_it(tmp_path):
    async with local_service(tmp_path, poll_s=60, ask_s=0.001) as service:
        handle = service.directories.started[-1]
        changes, go_on, under_way = handle.directory.changes, asyncio.Event(), asyncio.Event()

        async def answered_late(*seen: int) -> Any:
            answer = changes(*seen)
            under_way.set()
            await go_on.wait()
            return answer

        service.broker._directory.changes = answered_late
        early = asyncio.create_task(service.fleet.token_lookup(b"digest"))
        await under_way.wait()
        handle.directory.add_token("t" * 32, StoredToken(b"digest", "hint"))
        late = asyncio.create_task(service.fleet.token_lookup(b"digest"))
        await asyncio.sleep(0.01)
        go_on.set()
        assert await late
        await early


async def test_a_question_under_way_does_not_bring_a_revoked_token_back(tmp_path):
    async with local_service(tmp_path, poll_s=60) as service:
        fleet = service.fleet
        handle = service.directories.started[-1]
        minted = await fleet.mint_token()
        changes = handle.directory.changes
        under_way, go_on = asyncio.Event(), asyncio.Event()

        async def answered_late(*seen: int) -> Any:
            answer = changes(*seen)
            under_way.set()
            await go_on.wait()
            return answer

        service.broker._directory.changes = answered_late
        lookup = asyncio.create_task(fleet.token_lookup(digest_of(minted.token)))
        await under_way.wait()
        await fleet.revoke_token(minted.id)
        go_on.set()
        assert not await lookup
        assert not fleet.token_known(digest_of(minted.token))


async def test_a_detector_that_another_front_end_made_or_deleted_is_noticed(tmp_path):
    async with local_service(tmp_path, poll_s=60) as service:
        fleet = service.fleet
        directory = service.directories.started[-1].directory
        directory.create_detectors({"a" * 32: "theirs"})
        await fleet.call("a" * 32, event(1))
        mine = await fleet.create_detector("mine")
        directory.delete_detector(mine)
        assert await refused(fleet.call(mine, event(1))) == 1200


async def test_damage_is_reported_and_the_detector_goes_on_from_the_snapshot_before_and_the_journal(tmp_path):
    async with local_fleet(tmp_path, snapshot_interval_s=0.01) as fleet:
        detector_id = await fleet.create_detector("one")
        for count, name in enumerate(("first", "second", "third"), start=1):
            await fleet.call(detector_id, ops.add_rule(name, "a == 1"))
            await until(lambda count=count: fleet.broker.counts["snapshots_written"] == count)
    newest = max((tmp_path / "detectors" / detector_id).glob("snapshot-*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    async with local_fleet(tmp_path) as fleet:
        assert await fired(fleet, detector_id, 1, a=1) == ["first", "second", "third"]
        status = await fleet.status()
        assert status.reasons == []
        (reason,) = status.problems
        assert newest.name in reason
        assert detector_id in reason
        assert fleet.broker.counts["files_set_aside"] == 1


async def test_one_detector_that_cannot_be_activated_keeps_no_other_from_serving(tmp_path):
    async with local_fleet(tmp_path) as fleet:
        broken, sound = await fleet.create_detector("broken"), await fleet.create_detector("sound")
        await fleet.call(broken, ops.add_rule("r", "a == 1"))
    for path in (tmp_path / "detectors" / broken).iterdir():
        path.write_bytes(b"")
    async with local_service(tmp_path, max_resident=1, retry_s=0.05) as service:
        fleet = service.fleet
        answers = await asyncio.gather(*(refused(fleet.call(broken, event(1))) for _ in range(20)))
        assert answers == [1501] * 20
        assert await fired(fleet, sound, 1) == []
        assert any(broken in reason for reason in (await fleet.status()).problems)
        assert (await fleet.status()).reasons == []
        tried = sum(call == "activate" for actor in service.actors.started for call, _ in actor.calls)
        began_s = asyncio.get_running_loop().time()
        for _ in range(20):
            assert await refused(fleet.call(broken, event(1))) == 1501
        again = sum(call == "activate" for actor in service.actors.started for call, _ in actor.calls)
        assert again - tried <= 2 + (asyncio.get_running_loop().time() - began_s) / 0.05
        await until(lambda: list(fleet.broker._placed) in ([], [sound]))


async def test_a_full_disk_refuses_what_must_be_kept_until_there_is_room(tmp_path):
    files = FaultyFiles(error=errno.ENOSPC, for_good=True)
    async with local_service(tmp_path, files=files, retry_s=0.01, snapshot_interval_s=0.01) as service:
        fleet = service.fleet
        one, two = await fleet.create_detector("one"), await fleet.create_detector("two")
        await fleet.call(one, ops.add_rule("r", "once a == 1"))
        await fired(fleet, one, 1, a=1)
        files.fail_next("reserve", "create", "make_folder")
        large = event(2, text="x" * 200_000)
        answer = await fleet.call(one, large)
        assert [entry.code for entry in answer.entries] == [1501]
        assert any("has no room" in reason for reason in (await fleet.status()).problems)
        assert fleet.broker.counts["batches_without_room"] == 1
        assert b'"r"' in (await fleet.call(one, ops.rules())).result
        # One that is passive can be read only.
        answer = await fleet.call(two, event(1))
        assert [entry.code for entry in answer.entries] == [1501]
        assert (await fleet.call(two, ops.rules())).result == b'{"rules":[]}'
        with pytest.raises(DetectorUnavailable, match=r"has no room|cannot be made") as caught:
            await fleet.create_detector("three")
        assert caught.value.code == 1501
        await until(lambda: fleet.broker.counts["snapshots_failed"])
        files.fails_at = None
        await fleet.call(one, large)
        assert await fired(fleet, one, 3) == ["r"]
        assert await fired_at_last(fleet, two, 1) == []
        await until(lambda: not fleet.broker._problems.current)


async def test_closing_tells_which_detectors_could_not_be_saved(tmp_path):
    files = FaultyFiles(for_good=True)
    async with local_service(tmp_path, files=files, journal_sync="off") as service:
        fleet = service.fleet
        changed, unchanged = await fleet.create_detector("changed"), await fleet.create_detector("unchanged")
        await fleet.call(changed, event(1))
        await fleet.call(unchanged, ops.rules())
        files.fails_at = len(files.calls)
        (sentence,) = await fleet.close()
        assert changed in sentence
        assert "cannot be written" in sentence


async def test_one_that_cannot_be_saved_does_not_keep_its_place_from_others_that_can(tmp_path):
    class OneFolderFails(FaultyFiles):
        stuck = ""

        def create(self, path: Any) -> Any:
            if path.parent.name == self.stuck and "snapshot" in path.name:
                raise OSError("no room")
            return super().create(path)

    files = OneFolderFails()
    settings = {"max_resident": 2, "turn_s": 0.0, "retry_s": 60, "journal_sync": "off"}
    async with local_service(tmp_path, files=files, **settings) as service:
        fleet = service.fleet
        stuck, sound, third = [await fleet.create_detector("") for _ in range(3)]
        files.stuck = stuck
        await fleet.call(stuck, event(1))
        await fleet.call(sound, event(1))
        await asyncio.wait_for(fleet.call(third, event(1)), 5)
        assert service.actors.with_detector(stuck) is not None
        files.stuck = ""


async def test_a_detector_that_nobody_waits_for_any_more_is_not_activated(tmp_path):
    async with local_service(tmp_path, max_resident=1) as service:
        fleet = service.fleet
        busy, given_up = await fleet.create_detector("busy"), await fleet.create_detector("given up")
        go_on = asyncio.Event()

        async def wait(call: str) -> None:
            if call == "handle":
                await go_on.wait()

        for actor in service.actors.started:
            actor.before = wait
        service.actors.before = wait
        under_way = asyncio.create_task(fleet.call(busy, event(1)))
        await until(lambda: fleet.broker.active_detectors)
        waits = asyncio.create_task(fleet.call(given_up, event(1)))
        await asyncio.sleep(0.01)
        waits.cancel()
        go_on.set()
        await under_way
        await until(lambda: list(fleet.broker._placed) in ([busy], []))
        calls = [call for actor in service.actors.started for call, _ in actor.calls]
        assert calls.count("activate") == 1


async def test_a_detector_that_has_a_later_owner_is_given_up_and_activated_from_what_that_one_did(tmp_path):
    async with local_service(tmp_path) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")
        await fleet.call(detector_id, ops.add_rule("r", "once a == 1"))
        fenced = service.actors.with_detector(detector_id)
        assert fenced is not None
        await fleet.call(detector_id, event(1))
        other = DetectorActor(RuntimeSettings(data=tmp_path))
        other.activate(detector_id, 2**40)
        assert await refused(fleet.call(detector_id, event(5, a=1))) == 1502
        await until(lambda: fenced.dead)
        assert fleet.broker.counts["owners_fenced"] == 1
        # The directory's epochs are earlier than that of the other, which nobody has ended.
        assert await refused(fleet.call(detector_id, event(6))) == 1501
        assert not json.loads(other.handle([event(7)]).answers[0].result)["actions"]


async def test_a_service_whose_directory_cannot_start_says_so(tmp_path):
    (tmp_path / "directory").write_text("no folder")
    with pytest.raises(StorageError, match="directory"):
        async with local_fleet(tmp_path):
            pass


async def test_actors_are_replaced_after_many_activations(tmp_path):
    async with local_service(tmp_path, max_resident=1, turn_s=0.0, activations_max=3, spares=1) as service:
        fleet = service.fleet
        ids = [await fleet.create_detector("") for _ in range(4)]
        for round_ in range(6):
            for detector_id in ids:
                await fleet.call(detector_id, event(round_))
        activations = [sum(call == "activate" for call, _ in actor.calls) for actor in service.actors.started]
        assert sum(activations) == 24
        assert max(activations) == 3


async def test_a_fleet_that_is_shut_down_ends_everything_it_started(tmp_path):
    async with local_service(tmp_path) as service:
        detector_id = await service.fleet.create_detector("one")
        await service.fleet.call(detector_id, event(1))
    assert all(actor.dead for actor in service.actors.started)
    assert all(directory.dead for directory in service.directories.started)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.sleep(0)
    assert not {task for task in others if not task.done()}


def held(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("instead", ["empty", "begun"])
async def test_a_data_folder_that_is_swapped_under_a_service_is_told_of_and_left_alone(tmp_path, instead):
    data, aside, other = tmp_path / "data", tmp_path / "aside", tmp_path / "other"
    async with local_service(data, poll_s=0.01, ask_s=0.001, retry_s=0.01) as service:
        fleet = service.fleet
        warm, cold = await fleet.create_detector("warm"), await fleet.create_detector("cold")
        await fleet.call(warm, ops.add_rule("seen", "once a == 1"))
        assert await fired(fleet, warm, 1, a=1) == ["seen"]
        data.rename(aside)
        data.mkdir()
        if instead == "begun":
            begin_folder(data)
        before = held(data)
        await until(lambda: service.broker._directory.problem)
        (reason,) = (await fleet.status()).reasons
        assert "is not the service's data folder" in reason
        assert await refused(fleet.call(warm, event(2))) in (1501, 1502)
        for work in (
            lambda: fleet.call(warm, event(2)),
            lambda: fleet.call(cold, event(1)),
            lambda: fleet.create_detector("new"),
            fleet.mint_token,
            lambda: fleet.delete_detector(cold),
        ):
            assert await refused(work()) == 1501
        assert held(data) == before
        # As when the right file system is mounted again.
        data.rename(other)
        aside.rename(data)
        await until(lambda: not service.broker._directory.problem)
        assert (await fleet.status()).reasons == []
        assert await fleet.detectors() == [(warm, "warm"), (cold, "cold")]
        assert await fired_at_last(fleet, warm, 3) == ["seen"]


async def test_a_process_with_another_folder_activates_nothing_and_the_next_one_does(tmp_path):
    (tmp_path / "without the mount").mkdir()
    elsewhere = [tmp_path / "without the mount"]
    async with local_service(tmp_path / "data", retry_s=0.01, spares=0) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")

        def make(settings: RuntimeSettings, **options: Any) -> MeasuredActor:
            data = elsewhere.pop() if elsewhere else settings.data
            return MeasuredActor(dataclasses.replace(settings, data=data), **options)

        service.actors.make = make
        assert await refused(fleet.call(detector_id, event(1))) == 1501
        (problem,) = (await fleet.status()).problems
        assert "without the mount" in problem
        assert "has no id" in problem
        assert list((tmp_path / "without the mount").iterdir()) == []
        assert await fired_at_last(fleet, detector_id, 1) == []
        assert (await fleet.status()).problems == []
        assert service.actors.started[0].dead


# -- when there is no more time ------------------------------------------------------------------------------


async def test_at_the_end_of_the_time_what_waits_for_a_process_is_refused_and_what_comes_then(tmp_path):
    async with local_service(tmp_path, shutdown_s=0.1) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")
        service.actors.before = _hang
        for actor in service.actors.started:
            actor.before = _hang
        waiting = [asyncio.create_task(refused(fleet.call(detector_id, event(1)))) for _ in range(3)]
        await until(lambda: ("activate", 0) in [call for one in service.actors.started for call in one.calls])
        fleet.refuse_all()
        assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [1503] * 3
        assert await refused(fleet.call(detector_id, event(1))) == 1503
        assert await refused(fleet.create_detector("two")) == 1503
        assert "the server is shutting down" in (await fleet.status()).reasons


async def test_at_the_end_of_the_time_nobody_waits_for_the_directory(tmp_path):
    async with local_service(tmp_path) as service:
        fleet = service.fleet
        service.directories.refuse = True
        service.directories.started[-1].die()
        creating = asyncio.create_task(refused(fleet.create_detector("one")))
        asking = asyncio.create_task(refused(fleet.tokens()))
        await asyncio.sleep(0.05)
        assert not creating.done()
        assert not asking.done()
        fleet.refuse_all()
        # The first attempt had no answer.
        assert await asyncio.wait_for(creating, 5) == 1502
        assert await asyncio.wait_for(asking, 5) == 1503


async def test_at_the_end_of_the_time_what_is_under_way_is_not_known_and_the_detector_is_saved(tmp_path):
    async with local_service(tmp_path) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")
        await fleet.call(detector_id, ops.add_rule("seen", "once a == 1"))
        actor = service.actors.with_detector(detector_id)
        assert actor is not None
        go_on = asyncio.Event()

        async def late(what: str) -> None:
            if what == "handle":
                await go_on.wait()

        actor.before = late
        under_way = asyncio.create_task(refused(fleet.call(detector_id, event(1, a=1))))
        await until(lambda: actor.in_flight == 1)
        fleet.refuse_all()
        assert await asyncio.wait_for(under_way, 5) == 1502
        go_on.set()
        assert await fleet.close() == []
    async with local_fleet(tmp_path) as fleet:
        assert await fired(fleet, detector_id, 2) == ["seen"], "it had begun, and was carried out"


async def test_a_process_that_is_lost_loses_nothing_that_it_wrote_but_what_was_never_written(tmp_path):
    """An evaluation may be in the journal and not yet on the disk: that outlives the process."""
    for sync, lost in (("interval", 0), ("off", 1)):
        settings = {"journal_sync": sync, "journal_sync_interval_s": 60, "spares": 0}
        async with local_service(tmp_path / sync, **settings) as service:
            fleet = service.fleet
            detector_id = await fleet.create_detector("one")
            await fleet.call(detector_id, event(1))
            actor = service.actors.with_detector(detector_id)
            assert actor is not None

            async def dies(_: str, actor: Any = actor) -> None:
                actor.die()

            actor.before = dies
            assert len(await fleet.close()) == lost


async def _hang(_: str) -> None:
    await asyncio.Event().wait()
