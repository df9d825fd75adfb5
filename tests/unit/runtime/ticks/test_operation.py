"""What a tick does to a detector and its journal, asked by a caller or by the detector's worker."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.evaluation.detector import Detector
from engine.evaluation.wire.events import Done
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import TICK_DUE, Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.persistence.journal_entries import Ticked
from engine.runtime.detector.persistence.replay import Replay
from tests.local_runtime import owners as owners_of
from tests.local_runtime.alarms import SECOND, T, alarm, event, install, tick

DUE = Operation(TICK_DUE, b"")


@pytest.fixture(autouse=True)
def alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


class Owners(owners_of.Owners):
    """At a time of the server. Whatever is replayed fires as it did."""

    def __init__(self, data: Path, **settings: Any) -> None:
        super().__init__(data, now_us=T, **settings)

    def activate(self) -> OperationExecutor:
        actor = super().activate()
        assert self.activated.diverged is None
        return actor

    def ticks(self) -> list[int]:
        """The times of the ticks in the journal, counted from T."""
        return [entry.time_us - T for entry in self.entries() if isinstance(entry, Ticked)]


@pytest.fixture
def owners(tmp_path: Path) -> Owners:
    return Owners(tmp_path)


def test_a_tick_moves_the_clock_and_gives_what_fires_in_order_of_time(owners: Owners) -> None:
    owners.ask(alarm(T + 9 * SECOND, "second"), alarm(T + 5 * SECOND, "first"), event(T))
    [ticked] = owners.ask(tick(T + 10 * SECOND))
    assert [(one["name"], one["time_ms"], one["timed"]) for one in ticked["actions"]] == [
        ("first", (T + 5 * SECOND) // 1_000, True),
        ("second", (T + 9 * SECOND) // 1_000, True),
    ]
    first = ticked["actions"][0]
    assert (first["type"], first["notify"], first["keys"]) == ("match", False, {"host": "first"})
    assert "suppressed" not in first
    assert owners.position == (T + 10 * SECOND, 1)
    assert owners.ticks() == [10 * SECOND]


def test_a_tick_that_is_not_after_the_clock_changes_nothing_and_is_not_journaled(owners: Owners) -> None:
    owners.ask(alarm(T + 5 * SECOND), event(T))
    for time_us in (T - 10**9, T):
        assert owners.ask(tick(time_us), tick(time_us, "key")) == 2 * [{"actions": []}]
    assert owners.position == (T, 1)
    assert owners.ticks() == []


def test_a_tick_that_is_too_far_ahead_is_refused(owners: Owners) -> None:
    ahead_us = RuntimeSettings(data=owners.data).limits.ahead_ms_max * 1_000
    assert owners.ask(tick(T + ahead_us + 1)) == [1402]
    assert owners.position == (None, 0)
    assert owners.ask(tick(T + ahead_us)) == [{"actions": []}]
    assert owners.position == (T + ahead_us, 0)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 1000),
        (b"{}", 1001),
        (b'{"timestamp_ms":"1"}', 1001),
        (b'{"timestamp_ms":1,"fields":{}}', 1001),
        (b'{"timestamp_ms":9e15}', 1001),
        (b'{"timestamp_ms":-9e15}', 1001),
    ],
)
def test_a_body_that_is_no_tick_is_refused(body: bytes, code: int, owners: Owners) -> None:
    assert owners.ask(Operation("tick", body)) == [code]


def test_a_repeated_tick_gets_the_first_answer_also_from_another_owner(owners: Owners) -> None:
    owners.ask(alarm(T + SECOND), event(T))
    asked = tick(T + 2 * SECOND, "key")
    [first] = owners.ask(asked)
    assert len(first["actions"]) == 1
    for _ in range(2):
        assert owners.ask(asked, tick(T + 3 * SECOND, "key")) == [first, 1006]
        owners.activate()
    assert owners.position == (T + 2 * SECOND, 1)


def test_a_replay_repeats_ticks_and_checks_what_fired(
    owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners.ask(alarm(T + SECOND), event(T), tick(T + 2 * SECOND), event(T + 3 * SECOND))
    owners.activate()
    assert owners.position == (T + 3 * SECOND, 2)
    take = Replay._take

    def without_ticks(replay: Replay, entry: Any, at_us: int) -> None:
        if not isinstance(entry, Ticked):
            take(replay, entry, at_us)

    monkeypatch.setattr(Replay, "_take", without_ticks)
    with pytest.raises(AssertionError):
        owners.activate()


def test_a_replay_that_ends_elsewhere_is_refused(owners: Owners, monkeypatch: pytest.MonkeyPatch) -> None:
    owners.ask(event(T), tick(T + 2 * SECOND))
    take = Replay._take
    monkeypatch.setattr(
        Replay,
        "_take",
        lambda replay, entry, at_us: take(
            replay, Ticked(T + SECOND) if isinstance(entry, Ticked) else entry, at_us
        ),
    )
    with pytest.raises(Exception, match="the original led to event 1 at"):
        owners.activate()


def test_actions_that_have_no_room_are_counted(tmp_path: Path) -> None:
    limits = RuntimeSettings(data=tmp_path).limits
    owners = Owners(tmp_path, limits=type(limits)(answer_bytes_max=400))
    owners.ask(*(alarm(T + SECOND, f"alarm {n}") for n in range(9)), event(T))
    [answer] = owners.actor.handle([tick(T + SECOND)]).answers
    assert isinstance(answer, Done)
    assert 0 < len(json.loads(answer.result)["actions"]) < 9
    [message] = json.loads(answer.messages)
    assert message["code"] == 2008


# -- the service ticks by itself ---------------------------------------------------------------------------


def test_the_service_ticks_to_the_present_time_once_something_is_due(owners: Owners) -> None:
    owners.ask(alarm(T + 5 * SECOND), event(T))
    assert owners.actor.due_us == T + 5 * SECOND
    owners.now_us = T + 4 * SECOND
    assert owners.ask(DUE) == [{}]
    assert owners.position == (T, 1)
    owners.now_us = T + 6 * SECOND
    assert owners.ask(DUE) == [{}]
    assert owners.position == (T + 6 * SECOND, 1)
    assert owners.actor.due_us is None
    assert owners.ask(DUE) == [{}]
    assert owners.ticks() == [6 * SECOND]


def test_a_detector_that_is_being_replayed_is_left_alone(owners: Owners) -> None:
    """An event that came an hour late moved its clock; those after it must not be refused for a tick."""
    hour_us = 3_600 * SECOND
    owners.now_us = T + hour_us
    owners.ask(alarm(T + SECOND), event(T))
    assert owners.actor.due_us is None
    assert owners.ask(DUE, event(T + SECOND // 2, b=1)) == [{}, {"actions": []}]
    assert owners.ticks() == []
    # Now it has caught up.
    owners.ask(alarm(T + hour_us + SECOND), event(T + hour_us))
    assert owners.actor.due_us == T + hour_us + SECOND


def test_a_quiet_detector_is_ticked_however_long_ago_its_last_event_was(owners: Owners) -> None:
    owners.ask(alarm(T + 7_200 * SECOND), event(T))
    owners.now_us = T + 7_300 * SECOND
    for ask in (lambda: None, owners.activate):
        ask()
        assert owners.actor.due_us == T + 7_200 * SECOND
    assert owners.ask(DUE) == [{}]
    assert owners.position == (owners.now_us, 1)


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("hour", [0, 1])
def test_whether_it_is_being_replayed_is_known_to_the_next_owner(
    saved: bool, hour: int, owners: Owners
) -> None:
    owners.now_us = T + hour * 3_600 * SECOND
    owners.ask(event(T))
    if saved:
        assert owners.actor.begin_saving()
        owners.actor.finish_saving()
    owners.now_us = T + 2 * 3_600 * SECOND
    owners.activate()
    owners.ask(alarm(T + SECOND))
    assert owners.actor.due_us == (None if hour else T + SECOND)


def test_a_read_only_detector_is_not_ticked_and_what_is_due_stays_due(owners: Owners) -> None:
    owners.ask(alarm(T + SECOND), event(T))
    owners.now_us += 9 * SECOND
    owners.full()
    owners.activate()
    assert owners.actor.due_us is None
    assert owners.ask(DUE, tick(T + 2 * SECOND)) == [1501, 1501]
    owners.files.fails_at = None
    owners.actor.discard()
    owners.activate()
    assert owners.actor.due_us == T + SECOND


def test_ticks_are_lost_with_events_where_no_event_is_journaled(tmp_path: Path) -> None:
    owners = Owners(tmp_path, journal_sync="off")
    owners.ask(alarm(T + SECOND))
    owners.ask(event(T), tick(T + 2 * SECOND))
    owners.activate()
    assert owners.position == (None, 0)


def test_a_replay_finds_out_that_other_timed_rules_fire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    owners = Owners(tmp_path)
    silent = ops.add_rule("silent", "per host (not once within 4s beat == 1)", timed=True)
    owners.ask(silent, event(T, host="a", beat=1))
    owners.now_us += 9 * SECOND
    owners.ask(DUE)
    assert owners.ticks() == [9 * SECOND]
    owners.activate()
    monkeypatch.setattr(Detector, "_fire_by_time", lambda *_: None)
    with pytest.raises(AssertionError):
        owners.activate()
