"""A detector by its name, where an id stands: in every operation, on the fast path and on Quart's."""

from typing import Any
from urllib.parse import quote

import pytest

from api.http.pipeline import FastPath
from engine.runtime.contract.catalogue_changes import TableUpdate
from engine.runtime.front_end.catalogue_cache import TableCopy
from rule_detector_client import calls
from tests.api.caller import Caller, Said

EVENT = {"event": {"fields": {"a": 1}, "timestamp_ms": 0}}
NAMES = ("logins", "a b", "a/b", "a%2Fb", "é", "name:x", "x?y#z", "0" * 32, "%", "a:b")


async def evaluate(caller: Caller, named: str) -> Said:
    return await caller("POST", f"/api/detectors/{named}/evaluate", EVENT)


async def test_any_name_leads_to_its_detector_on_both_paths(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        await caller.rule(await caller.detector(name), "a == 1", name=name)
    slow = 0

    async def on_the_slow_path(*_: Any) -> None:
        nonlocal slow
        slow += 1

    for _ in ("the fast path", "the slow path"):
        for name in NAMES:
            for named in (f"name:{quote(name, safe='')}", f"name%3A{quote(name, safe='')}"):
                assert [one["name"] for one in (await evaluate(caller, named)).result["actions"]] == [name]
                said = await caller("POST", f"/api/detectors/{named}/ingest?time=t", [{"a": 1, "t": 0}])
                assert said.result["fired"] == 1
                said = await caller("GET", f"/api/detectors/{named}")
                assert said.result["name"] == name
            call = calls.get_detector(f"name:{name}")
            assert (await caller(call.method, call.path)).result["name"] == name
        monkeypatch.setattr(FastPath, "answer", on_the_slow_path)
    assert slow


async def test_a_name_of_none_and_of_several_is_refused(caller: Caller) -> None:
    for named in ("name:logins", "name:", "name:%FF", "name:" + "x" * 5_000, "NAME:logins"):
        said = await evaluate(caller, named)
        assert (said.status, said.codes) == (404, [1200])
    first = await caller.detector("logins")
    said = await evaluate(caller, "logins")
    assert said.texts == ["there is no detector `logins`; in place of an id, a name stands as `name:NAME`"]
    assert (await evaluate(caller, "name:logins")).status == 200
    second = await caller.detector("logins")
    said = await evaluate(caller, "name:logins")
    assert (said.codes, said.texts) == ([1200], ["2 detectors are named `logins`; give the id of one"])
    assert (await caller("DELETE", f"/api/detectors/{second}")).status == 200
    assert (await evaluate(caller, "name:logins")).status == 200
    assert (await caller("DELETE", "/api/detectors/name:logins")).result == {"id": first}
    said = await evaluate(caller, "name:logins")
    assert said.texts == ["no detector is named `logins`"]


async def test_a_token_is_needed_before_a_name_is_looked_up(caller: Caller) -> None:
    await caller.detector("logins")
    caller.token = None
    assert (await evaluate(caller, "name:logins")).codes == [1100]
    caller.token = "unknown"
    assert (await evaluate(caller, "name:none")).codes == [1101]


@pytest.mark.parametrize("asked_first", [True, False])
def test_the_keys_of_a_value_are_those_of_the_table_after_every_change(asked_first: bool) -> None:
    copy = TableCopy[str, str]()
    if asked_first:
        assert copy.keys_of("a") == set()
    copy.note_added("1", "a", 1)
    copy.note_added("2", "b", 2)
    steps = [
        lambda: copy.take(TableUpdate(2, changes=[("1", "a"), ("2", "b")])),
        lambda: copy.note_added("3", "a", 3),
        lambda: copy.take(TableUpdate(4, changes=[("3", "a"), ("4", "a")])),
        lambda: copy.note_removed("1", 5),
        lambda: copy.take(TableUpdate(6, changes=[("1", None), ("2", None)])),
        lambda: copy.take(TableUpdate(9, whole={"4": "a", "7": "b", "8": "a"})),
        lambda: copy.note_removed("8", 0),
    ]
    for step in steps:
        step()
        for value in ("a", "b", "c"):
            assert copy.keys_of(value) == {key for key, one in copy.entries() if one == value}
    assert copy.keys_of("a") == {"4"}
