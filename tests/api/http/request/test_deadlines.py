"""The time that the work on a request may take."""

import asyncio

import pytest

from api.http.request.timeout import RequestTimeout, RequestTimeouts
from api.http.service import Service, request
from api.schema.envelope import DeadlinePassed
from api.server.exchange import CallerGone
from engine.runtime.contract.requests.operations import LONG_S
from tests.api.caller import Caller

DEADLINE_S = 30.0


async def never_gone() -> dict[str, object]:
    await asyncio.Event().wait()
    raise AssertionError("it waits for ever")


@pytest.mark.skipping_clock
@pytest.mark.parametrize(("more_s", "ends_s"), [(0.0, 32), (LONG_S, 632)])
async def test_the_work_on_a_long_operation_may_take_longer(more_s: float, ends_s: int) -> None:
    progress = RequestTimeout(RequestTimeouts(DEADLINE_S), never_gone, None)
    began_s = asyncio.get_running_loop().time()

    async def work() -> None:
        with progress:
            progress.body_read()
            progress.more_s = more_s
            await asyncio.Event().wait()

    with pytest.raises(DeadlinePassed):
        await work()
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(ends_s, abs=1)


async def test_the_first_of_several_reasons_ends_the_work() -> None:
    progress = RequestTimeout(RequestTimeouts(DEADLINE_S), never_gone, None)

    async def work() -> None:
        with progress:
            progress.end(DeadlinePassed())
            progress.end(CallerGone())
            await asyncio.Event().wait()

    with pytest.raises(DeadlinePassed):
        await work()


@pytest.mark.parametrize("service", ["here"], indirect=True)
async def test_a_change_of_many_rules_is_long_and_one_of_a_rule_is_not(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer: list[float] = []
    change = Service.change

    async def noted(self: Service, *arguments: object) -> object:
        longer.append(request.progress.more_s)
        return await change(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Service, "change", noted)
    path = f"/api/detectors/{await caller.detector()}/rules"
    rule = {"name": "r", "condition": "a == 1"}
    assert (await caller("PUT", path, {"rules": [rule]})).status == 200
    assert (await caller("POST", path, rule)).status == 200
    assert longer == [LONG_S, 0.0]
