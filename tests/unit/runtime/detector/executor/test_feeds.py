"""Firings are read once no crash can take them back, and a feed goes on where it was."""

from dataclasses import replace
from typing import Any

import pytest

from engine.language.limits import DEFAULT_LIMITS
from engine.runtime.contract.requests import operations as ops
from engine.runtime.detector.executor import OperationExecutor
from tests.local_runtime.owners import ONE, codes, event
from tests.unit.runtime.detector.executor.requests import answer


def notifying(actor: OperationExecutor) -> None:
    answer(actor, ops.add_rule("r", "per user exists user", notify=True))


def read(actor: OperationExecutor, after: int | None = 0) -> list[tuple[int, str]]:
    return [(one["seq"], one["keys"]["user"]) for one in answer(actor, ops.firings(after))["firings"]]


def newest(actor: OperationExecutor) -> int:
    return actor.handle([ops.rules()]).newest_firing


def test_a_firing_is_read_once_its_batch_is_synced(actor: OperationExecutor) -> None:
    notifying(actor)
    reply = actor.handle([event(user="ann"), ops.firings(0)])
    assert b'"firings":[]' in reply.answers[1].result
    assert reply.newest_firing == 1
    assert read(actor) == [(1, "ann")]


def test_with_interval_it_is_read_once_the_journal_is_synced(make: Any) -> None:
    actor = make(journal_sync="interval")
    actor.activate(ONE, 1)
    notifying(actor)
    actor.handle([event(user="ann")])
    assert (read(actor), newest(actor)) == ([], 0)
    assert codes(actor.handle([ops.firings(1)]).answers[0]) == [1006]
    actor.sync()
    assert (read(actor), newest(actor)) == ([(1, "ann")], 1)
    actor.handle([event(user="bob")])
    assert actor.begin_saving()
    actor.finish_saving()
    assert read(actor) == [(1, "ann"), (2, "bob")]
    assert actor.measures.firings == 2
    actor.passivate()
    other = make(journal_sync="interval")
    other.activate(ONE, 2)
    other.handle([event(user="cid")])
    assert read(other) == [(1, "ann"), (2, "bob")]


def test_with_off_it_is_read_once_it_is_saved(make: Any) -> None:
    actor = make(journal_sync="off")
    actor.activate(ONE, 1)
    notifying(actor)
    actor.handle([event(user="ann")])
    actor.handle([ops.add_rule("another", "a == 1")])
    assert read(actor) == []
    assert actor.begin_saving()
    actor.handle([event(user="bob")])
    actor.finish_saving()
    assert (read(actor), newest(actor)) == ([(1, "ann")], 1)
    # What was never read may be lost, and its number given again.
    actor.discard()
    other = make(journal_sync="off")
    other.activate(ONE, 2)
    assert read(other) == [(1, "ann")]
    other.handle([event(user="cid")])
    other.passivate()
    third = make(journal_sync="off")
    third.activate(ONE, 3)
    assert read(third, after=1) == [(2, "cid")]


@pytest.mark.parametrize("saved", [False, True])
def test_a_feed_goes_on_after_a_crash_with_what_was_answered(make: Any, saved: bool) -> None:
    actor = make()
    actor.activate(ONE, 1)
    notifying(actor)
    for user in ("ann", "bob"):
        actor.handle([event(user=user)])
    if saved:
        assert actor.begin_saving()
        actor.finish_saving()
    actor.handle([event(user="cid")])
    before = answer(actor, ops.firings(0))
    actor.discard()
    other = make()
    other.activate(ONE, 2)
    assert answer(other, ops.firings(0)) == before
    assert read(other, after=2) == [(3, "cid")]
    other.handle([event(user="dan")])
    assert read(other, after=3) == [(4, "dan")]


def test_less_is_kept_once_the_setting_is_smaller(make: Any) -> None:
    actor = make()
    actor.activate(ONE, 1)
    notifying(actor)
    for user in "abc":
        actor.handle([event(user=user)])
    actor.passivate()
    other = make(limits=replace(DEFAULT_LIMITS, firings_max=1))
    other.activate(ONE, 2)
    assert answer(other, ops.firings(0))["firings"][0] == {"gap": {"from": 1, "to": 2}}
    assert read(other, after=2) == [(3, "c")]


def test_a_fork_begins_with_an_empty_feed(make: Any, actor: OperationExecutor) -> None:
    notifying(actor)
    actor.handle([event(user="ann")])
    fork_id = "f" * 32
    actor.begin_fork(fork_id)()
    fork = make()
    fork.activate(fork_id, 1)
    assert answer(fork, ops.firings(None)) == {"firings": [], "next": 0}
    fork.handle([event(user="bob")])
    assert read(fork) == [(1, "bob")]
    assert read(actor) == [(1, "ann")]
