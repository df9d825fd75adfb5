"""Calls that are all ended at once."""

import asyncio

import pytest

from engine.runtime.front_end.scheduler_client import OpenCalls


async def test_calls_are_refused_though_the_time_of_one_is_just_over():
    loop, calls = asyncio.get_running_loop(), OpenCalls(0.001)

    async def wait() -> None:
        async with calls.one():
            (timeout,) = calls._timeouts
            when_s = timeout.when()
            assert when_s is not None
            # In the turn in which the time is over, before the call has noticed.
            loop.call_at(when_s + 1e-12, refuse)
            await asyncio.Event().wait()

    def refuse() -> None:
        try:
            calls.refuse_all()
        except RuntimeError as error:
            raised.append(error)

    raised: list[RuntimeError] = []
    with pytest.raises(TimeoutError):
        await wait()
    assert calls.refused()
    assert raised == []
