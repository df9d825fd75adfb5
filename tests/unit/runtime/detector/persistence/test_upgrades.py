"""What one version of the program leaves behind for another: nothing, if it can, and else what is noticed."""

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.persistence.columns import stored_condition
from engine.language.text.parser import parse
from engine.runtime.contract.requests import operations as ops
from engine.runtime.detector import apply as apply_module
from engine.runtime.detector.persistence import journal_entries as history
from snapshots.inspection import read_only
from tests.local_runtime.owners import Owners, event
from tests.local_runtime.service import local_service, until

pytestmark = pytest.mark.skipping_clock


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    """Return a detector that has a rule and three events in its journal."""
    made = Owners(tmp_path)
    made(ops.add_rule("r", "a == 1"))
    for at_ms, a in ((1000, 1), (2000, 2), (3000, 1)):
        made.event(at_ms, a=a)
    return made


@pytest.fixture
def later_version(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the program from here on be a later version, which means something else by `a == 1`."""

    def stored(document: bytes) -> Any:
        condition = stored_condition(document)
        return parse("a == 2") if condition == parse("a == 1") else condition

    monkeypatch.setattr(history, "stored_condition", stored)
    monkeypatch.setattr(history, "program_version", lambda: "9.0.0")


def test_a_stop_leaves_nothing_in_the_journal_to_be_evaluated_again(tmp_path: Path) -> None:
    async def stopped() -> list[str]:
        async with local_service(tmp_path) as service:
            ids = [await service.backend.create_detector(name) for name in "ab"]
            for detector_id in ids:
                await service.backend.call(detector_id, ops.add_rule("r", "a == 1"))
                await service.backend.call(detector_id, event(1000, a=1))
        return ids

    check_emptied(tmp_path, asyncio.run(stopped()))


def check_emptied(data: Path, ids: list[str]) -> None:
    for detector_id in ids:
        folder = read_only(data / "detectors" / detector_id)
        assert list(folder.records) == []
        assert folder.snapshot is not None
        assert folder.snapshot.sequence == 2


def test_a_stop_empties_the_journals_of_passive_detectors_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def stopped(within_s: float) -> list[str]:
        async with local_service(tmp_path, max_resident=1, turn_s=0.0, save_passive_s=within_s) as service:
            ids = [await service.backend.create_detector(name) for name in "abcdef"]
            for detector_id in ids:
                await service.backend.call(detector_id, ops.add_rule("r", "a == 1"))
                await service.backend.call(detector_id, event(1000, a=1))
            passive = [one for one in ids if service.actors.with_detector(one) is None]
            assert len(passive) == 5
            left = [one for one in passive if list(read_only(tmp_path / "detectors" / one).records)]
            assert left == passive
        return ids

    late = asyncio.run(stopped(0.0))
    assert "passive detectors keep events in their journals" in caplog.text
    assert any(list(read_only(tmp_path / "detectors" / one).records) for one in late)
    caplog.clear()
    check_emptied(tmp_path, asyncio.run(stopped(20.0)))
    assert caplog.text == ""


def test_where_the_same_rules_fire_again_nothing_is_told(owners: Owners) -> None:
    owners.crash()
    assert owners.activated.diverged is None


@pytest.mark.usefixtures("later_version")
def test_where_other_rules_fire_than_did_it_is_told_until_there_is_a_snapshot_and_the_detector_goes_on(
    owners: Owners,
) -> None:
    for _ in range(2):
        owners.crash()
        diverged = owners.activated.diverged
        assert diverged is not None
        assert "at the events of record 2, other rules fire in version 9.0.0" in diverged
        assert f"when version {version('rule-detector')} evaluated them" in diverged
        assert diverged.endswith("the same holds for 3 records in all")
    # What it is now goes by what the program means now, and passivation saves it.
    owners.rest()
    assert owners.activated.diverged is None
    assert [len(owners.event(4000, a=a)) for a in (1, 2)] == [0, 1]


def test_the_same_version_that_comes_to_something_else_is_told_too(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "stored_condition", lambda _: parse("a == 1 or a == 2"))
    owners.crash()
    diverged = owners.activated.diverged
    assert diverged is not None
    assert "at the events of record 3, " in diverged
    assert "in all" not in diverged


@pytest.mark.usefixtures("later_version")
async def test_the_service_says_what_diverged_in_readyz_and_in_a_count(tmp_path: Path) -> None:
    async with local_service(tmp_path / "service") as service:
        detector_id = await service.backend.create_detector("d")
        await service.backend.call(detector_id, ops.add_rule("r", "a == 1"))
        await service.backend.call(detector_id, event(1000, a=1))
        worker = service.actors.with_detector(detector_id)
        assert worker is not None
        worker.die()
        await until(lambda: service.scheduler.active_detectors == 0)
        await service.backend.call(detector_id, ops.rules())
        status = await service.backend.status()
        (problem,) = status.problems
        assert problem.startswith(f"detector {detector_id}: ")
        assert "other rules fire" in problem
        assert status.counts["detectors_diverged"] == 1


def test_what_fired_before_an_operation_that_broke_the_engine_is_what_fires_again(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = apply_module.evaluate_body

    def breaks(detector: Any, body: bytes) -> Any:
        answer = evaluate(detector, body)
        if b"broken" in body:
            raise RuntimeError("it breaks after its rules have fired")
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(apply_module, "evaluate_body", breaks)
        reply = owners.actor.handle([event(4000, a=1), event(5000, a=1, b="broken")])
    assert reply.crash is not None
    assert len(reply.answers) == 1
    owners.activate()
    assert owners.activated.diverged is None
    assert len(owners.event(4500, a=1)) == 1
