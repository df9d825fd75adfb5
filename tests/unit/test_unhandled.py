"""What callbacks and tasks raise unseen would fail the test that ran."""

import asyncio
import gc
from typing import Any


async def test_what_a_callback_raises_is_noted(unhandled: list[dict[str, Any]]) -> None:
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)
    assert isinstance(unhandled.pop()["exception"], ZeroDivisionError)


async def test_what_a_task_raises_is_noted_unless_someone_sees_it(unhandled: list[dict[str, Any]]) -> None:
    async def fail() -> None:
        raise LookupError

    seen, unseen = asyncio.create_task(fail()), asyncio.create_task(fail())
    await asyncio.wait({seen, unseen})
    assert isinstance(seen.exception(), LookupError)
    del seen, unseen
    gc.collect(1)
    assert isinstance(unhandled.pop()["exception"], LookupError)
    assert unhandled == []
