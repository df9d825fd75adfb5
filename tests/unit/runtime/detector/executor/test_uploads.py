"""Relations that are uploaded in parts: nobody sees them, and no file has them, before the last one."""

import pytest

from engine.language.limits import Limits
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.requests.tuples import TuplesPart
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.executor import OperationExecutor
from engine.runtime.detector.persistence.uploads import FORGOTTEN_US
from tests.local_runtime.catalogues import newborn
from tests.local_runtime.owners import ONE, codes
from tests.unit.runtime.detector.executor.requests import add, answer, fired


def stage(number: int, *values: str, upload: str = "u") -> Operation:
    return ops.stage_tuples(
        upload, number, TuplesPart("ndjson", b"".join(b'"%b"\n' % v.encode() for v in values))
    )


def put(parts: int, upload: str = "u", name: str = "known") -> Operation:
    return ops.put_relation(name, upload, parts)


def stored(actor: OperationExecutor, name: str = "known") -> list[str]:
    return [value for [value] in answer(actor, ops.relation(name, limit=100))["tuples"]]


def test_an_upload_is_seen_once_it_is_put_and_survives(make, actor):
    rule = add(actor, "known(user)")
    actor.handle([stage(0, "ada"), stage(1, "bob")])
    assert answer(actor, ops.relations()) == {"relations": []}
    assert fired(actor, user="bob") == []
    told = answer(actor, put(2))
    assert told == {"name": "known", "tuples": 2, "arity": 1, "changed_ms": 10_000_000}
    assert fired(actor, 2000, user="bob") == [rule]
    other = make()
    other.activate(ONE, 2)
    assert answer(other, ops.relations()) == {"relations": [told]}
    assert fired(other, 3000, user="bob") == [rule]


def test_staging_writes_nothing_and_an_upload_is_synced_once(actor, files):
    before = len(files.calls)
    actor.handle([stage(0, "ada")])
    actor.handle([stage(1, "bob")])
    assert not {"write", "sync_data"} & set(files.calls[before:])
    actor.handle([put(2)])
    calls = files.calls[before:]
    assert (calls.count("write"), calls.count("sync_data")) == (3, 1)
    assert calls.index("write") < calls.index("sync_data") < len(calls) - calls[::-1].index("is_named")


def test_uploads_do_not_disturb_each_other_and_the_last_one_put_counts(actor):
    actor.handle([stage(0, "a"), stage(0, "b", upload="v"), stage(1, "c"), stage(1, "d", upload="v")])
    actor.handle([put(2, "v"), put(2)])
    assert stored(actor) == ["a", "c"]


def test_an_upload_without_parts_is_a_relation_without_tuples(actor):
    assert answer(actor, put(0))["tuples"] == 0
    assert stored(actor) == []


@pytest.mark.parametrize(
    "operations",
    [
        [put(1)],
        [stage(0, "a"), put(2)],
        [stage(1, "a")],
        [stage(0, "a"), stage(2, "b")],
        [stage(0, "a"), stage(0, "b"), stage(1, "c"), put(3)],
        [stage(0, "a"), ops.drop_tuples("u"), put(1)],
        [stage(0, "a"), put(1), put(1)],
    ],
    ids=str,
)
def test_an_upload_of_which_a_part_is_missing_is_1501_and_changes_nothing(actor, operations):
    before = answer(actor, ops.relations())
    *_, last = actor.handle(operations).answers
    assert codes(last) == [1501]
    if put(1) not in operations[:-1]:
        assert answer(actor, ops.relations()) == before


def test_a_part_that_is_refused_ends_its_upload(actor):
    actor.handle([stage(0, "a")])
    bad = ops.stage_tuples("u", 1, TuplesPart("ndjson", b"[1,2]\n", first=1))
    assert codes(actor.handle([bad]).answers[0]) == [1001]
    assert codes(actor.handle([stage(1, "b")]).answers[0]) == [1501]


def test_a_name_that_is_none_is_refused_with_its_upload(actor):
    [_, refused] = actor.handle([stage(0, "a"), put(1, name="")]).answers
    assert codes(refused) == [1001]
    assert codes(actor.handle([put(1)]).answers[0]) == [1501]


def test_what_is_staged_is_gone_with_the_activation(make, actor):
    actor.handle([stage(0, "a")])
    actor.passivate()
    other = make()
    other.activate(ONE, 2)
    assert codes(other.handle([stage(1, "b")]).answers[0]) == [1501]


def test_an_upload_whose_caller_is_silent_is_forgotten(tmp_path):
    newborn(tmp_path, ONE)
    now_us = [10**10]
    actor = OperationExecutor(RuntimeSettings(data=tmp_path), now_us=lambda: now_us[0])
    actor.activate(ONE, 1)
    actor.handle([stage(0, "a"), stage(0, "b", upload="v")])
    now_us[0] += FORGOTTEN_US
    actor.handle([stage(1, "c")])
    now_us[0] += 1
    actor.handle([stage(2, "d")])
    assert codes(actor.handle([put(1, "v")]).answers[0]) == [1501]
    assert answer(actor, put(3))["tuples"] == 3


def test_uploads_that_take_too_much_together_are_1401(make):
    actor = make(limits=Limits(relation_body_bytes_max=100))
    actor.activate(ONE, 1)
    actor.handle([stage(0, *("a" * 50,) * 2)])
    assert codes(actor.handle([stage(0, *("b" * 50,) * 2, upload="v")]).answers[0]) == [1401]
    assert answer(actor, put(1))["tuples"] == 1


@pytest.mark.slow
def test_without_room_on_the_disk_nothing_is_put(actor, files):
    values = [f"{number:09}" for number in range(20_000)]
    for number in range(8):
        actor.handle([stage(number, *values)])
    files.fail_next("reserve", "reserve")
    assert codes(actor.handle([put(8)]).answers[0]) == [1501]
    assert answer(actor, ops.relations()) == {"relations": []}
    assert answer(actor, put(8))["tuples"] == 20_000


def test_a_fork_and_a_snapshot_have_relations_and_no_uploads(make, actor):
    actor.handle([stage(0, "a"), put(1), stage(0, "b")])
    assert actor.begin_saving()
    actor.finish_saving()
    assert stored(actor) == ["a"]
    assert answer(actor, put(1))["tuples"] == 1
    actor.begin_fork("f" * 32)()
    other = make()
    other.activate("f" * 32, 2)
    assert stored(other) == ["b"]
    again = make()
    again.activate(ONE, 2)
    assert stored(again) == ["b"]
