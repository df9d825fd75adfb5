"""Detectors that can only be read: a full disk keeps nobody from reading rules, and nothing is made up."""

import errno
import json
import os
from pathlib import Path

import pytest

from engine.evaluation.wire.events import Done
from engine.runtime.contract.errors import STARTING
from engine.runtime.contract.requests import operations as ops
from engine.runtime.detector.persistence.replay_attempts import KILLS_MAX, Poisoned, ReplayAttempt
from snapshots.errors import StorageError
from snapshots.inspection import read_only
from tests.local_runtime.owners import Owners, codes, event


class Killed(Owners):
    """A detector with two rules, whose owner was killed, with records in its journal."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.rules = [self(ops.add_rule(name, "a == 1"))["id"] for name in "ab"]
        self.event(1000, a=1)

    @property
    def listed(self) -> list[str]:
        return [rule["id"] for rule in self(ops.rules())["rules"]]

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


@pytest.fixture
def killed(tmp_path: Path) -> Killed:
    return Killed(tmp_path)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("only", [("create", "write", "reserve", "rename"), ("reserve",), ("write",)])
def test_a_passive_detector_can_be_read_though_nothing_can_be_written(
    killed: Killed, error: int, only: tuple[str, ...]
) -> None:
    killed.full(error)
    killed.files.failing = frozenset(only)
    actor = killed.activate()
    reason = killed.activated.read_only
    assert reason is not None
    assert os.strerror(error) in reason
    one, other = killed.rules
    reply = actor.handle([ops.rules(), event(2000, a=1), ops.rule(other), ops.remove_rule(one)])
    _, evaluated, shown, removed = reply.answers
    assert isinstance(shown, Done)
    assert json.loads(shown.result)["id"] == other
    for refused in (evaluated, removed):
        assert codes(refused) == [STARTING]
        said = "nothing was done, because the detector is read-only: "
        assert refused.entries[0].message.startswith(said)
    assert reply.no_room == reason
    assert actor.handle([event(2000, a=1)]).no_room == reason
    assert actor.handle([ops.rules()]).no_room is None
    assert (reply.unsaved, reply.unsynced, reply.journal_bytes) == (False, False, 0)
    assert killed.listed == killed.rules
    # Whatever else is asked of an actor.
    assert not actor.begin_saving()
    actor.passivate()
    killed.files.fails_at = None
    killed.activate()
    assert killed.activated.read_only is None
    assert killed.listed == killed.rules
    assert len(killed.event(2000, a=1)) == 2


def test_events_are_explained_though_they_cannot_be_evaluated(killed: Killed) -> None:
    killed.full()
    killed.activate()
    explained = killed(ops.explain(event(2000, a=1).payload))["rules"]
    assert [(one["ruleId"], one["verdict"]) for one in explained] == [(rule, True) for rule in killed.rules]


def test_reading_changes_nothing(killed: Killed) -> None:
    before = killed.contents()
    killed.full()
    killed.activate()
    assert killed.listed == killed.rules
    killed.actor.discard()
    assert killed.contents() == before


def test_other_errors_are_no_reason_to_read_only(killed: Killed) -> None:
    killed.full(errno.EIO)
    with pytest.raises(StorageError, match="Input/output error"):
        killed.activate()


def test_what_another_owner_writes_meanwhile_ends_the_reading(killed: Killed) -> None:
    killed.full()
    reading = killed.activate()
    killed.files.fails_at = None
    killed.activate()
    killed(ops.remove_rule(killed.rules[0]))
    with pytest.raises(StorageError, match="has changed"):
        reading.handle([ops.rules()])


def test_a_record_that_ended_others_is_not_replayed_to_be_read(killed: Killed) -> None:
    last = list(read_only(killed.folder).records)[-1]
    for _ in range(KILLS_MAX):
        attempt = ReplayAttempt(killed.folder, killed.files)
        attempt.begin()
        attempt.reached(last)
    killed.full()
    with pytest.raises(Poisoned):
        killed.activate()
