"""The fleet: what a restart finds, who is awake, and what goes on while the directory is gone."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from engine.language.diagnostics import Refusal
from engine.runtime import operations as ops
from engine.runtime.errors import DetectorUnavailable
from engine.runtime.operations import Operation
from engine.runtime.tokens import digest_of
from snapshots.errors import FolderInUse, StorageError
from snapshots.store import SnapshotStore
from tests.faults import FaultyFiles, local_fleet, local_service, until


def event(timestamp_ms: float, **fields: Any) -> Operation:
    return ops.evaluate(json.dumps({"event": {"fields": fields, "timestamp_ms": timestamp_ms}}).encode())


async def fired(fleet: Any, detector_id: str, timestamp_ms: float, **fields: Any) -> list[str]:
    answer = await fleet.call(detector_id, event(timestamp_ms, **fields))
    return [action["name"] for action in json.loads(answer.result)["actions"]]


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
            for step in range(20):
                await fleet.call(detector_id, event(1000 + step))
                most = max(most, fleet.awake)

        await asyncio.gather(*(caller(detector_id) for detector_id in ids for _ in range(2)))
        assert most == 2
        for detector_id in ids:
            assert await fired(fleet, detector_id, 2000, a=0) == ["first"]
            assert await fired(fleet, detector_id, 2001, a=1) == []
        assert {await fired(fleet, detector_id, 2002, a=0) == [] for detector_id in ids} == {True}
        assert sum(not actor.dead for actor in service.actors.started) <= 4


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


async def test_an_idle_detector_rests_and_its_lane_is_forgotten(tmp_path):
    async with local_fleet(tmp_path, idle_rest_s=0.01) as fleet:
        detector_id = await fleet.create_detector("one")
        await fleet.call(detector_id, ops.add_rule("r", "once a == 1"))
        await fired(fleet, detector_id, 1, a=1)
        await until(lambda: not fleet._lanes)
        assert fleet.awake == 0
        assert await fired(fleet, detector_id, 2) == ["r"]


async def test_many_detectors_wake_and_rest_without_leaving_anything(tmp_path):
    async with local_service(tmp_path, max_resident=5, turn_s=0.0) as service:
        fleet = service.fleet
        ids = [await fleet.create_detector("") for _ in range(60)]
        await asyncio.gather(*(fleet.call(detector_id, event(1)) for detector_id in ids for _ in range(3)))
        await until(lambda: len(fleet._lanes) <= 5)
        assert sum(not actor.dead for actor in service.actors.started) <= 7


async def test_a_changed_detector_is_saved_after_the_interval_and_not_again_without_a_change(tmp_path):
    async with local_service(tmp_path, snapshot_interval_s=0.01) as service:
        detector_id = await service.fleet.create_detector("one")
        await service.fleet.call(detector_id, event(1))
        actor = service.actors.hosting(detector_id)
        assert actor is not None
        await until(lambda: ("save", 0) in actor.calls)
        await service.fleet.call(detector_id, ops.rules())
        await asyncio.sleep(0.05)
        assert actor.calls.count(("save", 0)) == 1
        # What was saved is what a killed actor's successor begins with.
        actor.die()
        await until(lambda: not service.fleet.awake)
        late = await service.fleet.call(detector_id, event(0))
        assert b"2001" in late.messages


async def test_of_a_flood_of_rules_the_last_is_saved_soon_after(tmp_path):
    async with local_service(tmp_path, rules_saved_within_s=0.01, snapshot_interval_s=60) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")
        for number in range(10):
            await fleet.call(detector_id, ops.add_rule(f"{number}", "a == 1"))
        actor = service.actors.hosting(detector_id)
        assert actor is not None
        await until(lambda: not actor.actor._hosted.changed)
        actor.die()
        await until(lambda: not fleet.awake)
        assert len(await fired(fleet, detector_id, 1, a=1)) == 10


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
        assert [entry.name for entry in await fleet.detectors()] == ["warm", "cold", "three"]


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
        assert {call: deaths[call] >= 2 for call in ("add_token", "create_detector", "delete_detector")}


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
    async with local_service(tmp_path, poll_s=0.005, word_age_max_s=0.3, deadline_s=2) as service:
        fleet = service.fleet
        minted = await fleet.mint_token()
        assert fleet.readiness().ready
        service.directories.refuse = True
        service.directories.started[-1].die()
        await until(lambda: not fleet.readiness().ready)
        with pytest.raises(DetectorUnavailable, match="no word") as caught:
            fleet.token_known(digest_of(minted.token))
        assert caught.value.code == 1501
        service.directories.refuse = False
        await until(lambda: fleet.readiness().ready)
        assert fleet.token_known(digest_of(minted.token))


async def test_an_unknown_token_is_asked_for_and_a_flood_of_them_costs_few_questions(tmp_path):
    async with local_service(tmp_path, poll_s=60, ask_s=0.05) as service:
        fleet = service.fleet
        handle = service.directories.started[-1]
        # As another front end would.
        handle.directory.add_token("t" * 32, b"digest", "hint")
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

        handle.changes = answered_late
        early = asyncio.create_task(service.fleet.token_lookup(b"digest"))
        await under_way.wait()
        handle.directory.add_token("t" * 32, b"digest", "hint")
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

        handle.changes = answered_late
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
        directory.create_detector("a" * 32, "theirs")
        await fleet.call("a" * 32, event(1))
        mine = await fleet.create_detector("mine")
        directory.delete_detector(mine)
        assert await refused(fleet.call(mine, event(1))) == 1200


async def test_damage_is_reported_and_the_detector_goes_on_from_the_snapshot_before(tmp_path):
    async with local_fleet(tmp_path) as fleet:
        detector_id = await fleet.create_detector("one")
        for name in ("first", "second"):
            await fleet.call(detector_id, ops.add_rule(name, "a == 1"))
    newest = max((tmp_path / "detectors" / detector_id).iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    async with local_fleet(tmp_path) as fleet:
        assert await fired(fleet, detector_id, 1, a=1) == ["first"]
        readiness = fleet.readiness()
        assert readiness.ready
        (reason,) = readiness.reasons
        assert newest.name in reason
        assert detector_id in reason


async def test_one_detector_that_cannot_be_woken_keeps_no_other_from_serving(tmp_path):
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
        assert any(broken in reason for reason in fleet.readiness().reasons)
        assert fleet.readiness().ready
        tried = sum(call == "activate" for actor in service.actors.started for call, _ in actor.calls)
        for _ in range(20):
            assert await refused(fleet.call(broken, event(1))) == 1501
        again = sum(call == "activate" for actor in service.actors.started for call, _ in actor.calls)
        assert again - tried <= 2
        await asyncio.sleep(0.06)
        assert list(fleet._lanes) in ([], [sound])


async def test_a_full_disk_keeps_detectors_awake_until_there_is_room(tmp_path):
    files = FaultyFiles(for_good=True)
    async with local_service(
        tmp_path, files=files, max_resident=1, turn_s=0.0, retry_s=0.01, idle_rest_s=0.01, deadline_s=5
    ) as service:
        fleet = service.fleet
        one, two = await fleet.create_detector("one"), await fleet.create_detector("two")
        await fleet.call(one, ops.add_rule("r", "once a == 1"))
        await fleet.call(one, event(1, a=1))
        files.fails_at = len(files.calls)
        waits = asyncio.create_task(fleet.call(two, event(1)))
        await until(lambda: any(one in reason for reason in fleet.readiness().reasons))
        assert await fired(fleet, one, 2) == ["r"]
        assert not waits.done()
        with pytest.raises(DetectorUnavailable, match="cannot be written") as caught:
            await fleet.create_detector("three")
        assert caught.value.code == 1501
        files.fails_at = None
        await asyncio.wait_for(waits, 5)
        assert await fired(fleet, one, 3) == ["r"]
        await until(lambda: not fleet.readiness().reasons)


async def test_closing_tells_which_detectors_could_not_be_saved(tmp_path):
    files = FaultyFiles(for_good=True)
    async with local_service(tmp_path, files=files) as service:
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
        failing = ""

        def make_folder(self, folder: Any) -> None:
            if folder.name == self.failing:
                raise OSError("no room")
            super().make_folder(folder)

    files = OneFolderFails()
    async with local_service(tmp_path, files=files, max_resident=2, turn_s=0.0, retry_s=60) as service:
        fleet = service.fleet
        stuck, sound, third = [await fleet.create_detector("") for _ in range(3)]
        files.failing = stuck
        await fleet.call(stuck, event(1))
        await fleet.call(sound, event(1))
        await asyncio.wait_for(fleet.call(third, event(1)), 5)
        assert service.actors.hosting(stuck) is not None
        files.failing = ""


async def test_a_detector_that_nobody_waits_for_any_more_is_not_woken(tmp_path):
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
        await until(lambda: fleet.awake)
        waits = asyncio.create_task(fleet.call(given_up, event(1)))
        await asyncio.sleep(0.01)
        waits.cancel()
        go_on.set()
        await under_way
        await until(lambda: list(fleet._lanes) in ([busy], []))
        calls = [call for actor in service.actors.started for call, _ in actor.calls]
        assert calls.count("activate") == 1


async def test_a_detector_that_has_a_later_owner_is_given_up_and_woken_from_what_that_one_saved(tmp_path):
    async with local_service(tmp_path, snapshot_interval_s=0.01) as service:
        fleet = service.fleet
        detector_id = await fleet.create_detector("one")
        await fleet.call(detector_id, ops.add_rule("r", "a == 1"))
        fenced = service.actors.hosting(detector_id)
        assert fenced is not None
        store = SnapshotStore(tmp_path / "detectors" / detector_id)
        loaded = store.load()
        assert loaded.snapshot is not None
        store.save(loaded.snapshot.body, version=loaded.snapshot.version)
        await fleet.call(detector_id, event(5_000_000))
        await until(lambda: fenced.dead)
        assert await fired(fleet, detector_id, 1, a=1) == ["r"], "at the time of the saved state"


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
