"""Calls that are executed in batches."""

import asyncio
from collections.abc import Sequence

import pytest

from engine.runtime.catalogue.catalogue_client import Batches


class Squares:
    """Executes batches when it may, and remembers them."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go_on = asyncio.Event()

    async def execute(self, wanted: Sequence[int]) -> list[int]:
        self.batches.append(list(wanted))
        await self.go_on.wait()
        if 13 in wanted:
            raise ValueError(wanted)
        return [one * one for one in wanted]


async def test_what_comes_while_a_batch_is_under_way_is_the_next():
    squares = Squares()
    batches = Batches(squares.execute, 3)
    calls = [asyncio.create_task(batches.call(1))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calls += [asyncio.create_task(batches.call(number)) for number in range(2, 7)]
    await asyncio.sleep(0)
    assert squares.batches == [[1]]
    squares.go_on.set()
    assert await asyncio.gather(*calls) == [1, 4, 9, 16, 25, 36]
    assert squares.batches == [[1], [2, 3, 4], [5, 6]]
    assert await batches.call(7) == 49, "it goes on after a rest"


async def test_an_error_is_that_of_all_calls_of_its_batch_alone():
    squares = Squares()
    squares.go_on.set()
    batches = Batches(squares.execute, 2)
    outcomes = await asyncio.gather(*map(batches.call, (12, 13, 14)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError, ValueError, int]
    with pytest.raises(ValueError, match="13"):
        await batches.call(13)
    assert await batches.call(2) == 4


async def test_a_caller_that_is_gone_changes_nothing_for_the_others():
    squares = Squares()
    batches = Batches(squares.execute, 2)
    calls = [asyncio.create_task(batches.call(number)) for number in (1, 2, 3)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[2].cancel()
    await asyncio.sleep(0)
    squares.go_on.set()
    assert await calls[1] == 4
    assert await batches.call(4) == 16
    assert squares.batches == [[1, 2], [3], [4]]
