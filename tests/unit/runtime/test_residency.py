"""Places among those that are awake: never more than there are, and each who waits gets one."""

import asyncio
import random

import pytest

from engine.runtime.activation.activation_slots import Residency


class Someone:
    """Leaves when asked and not busy; remembers being asked."""

    def __init__(
        self,
        residency: Residency,
        *,
        busy: bool = False,
        used_at_s: float = 0.0,
        wakes_fast: bool = True,
    ) -> None:
        self.residency = residency
        self.wakes_fast = wakes_fast
        self.busy = busy
        self.used_at_s = used_at_s
        self.asked = 0

    def make_room(self) -> None:
        self.asked += 1

    async def enter(self) -> None:
        await self.residency.enter(self)

    def leave(self) -> None:
        self.residency.leave(self)


async def entered(residency: Residency, **one: object) -> Someone:
    someone = Someone(residency, **one)
    await someone.enter()
    return someone


def waiting_for(someone: Someone) -> asyncio.Task[None]:
    return asyncio.create_task(someone.enter())


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_while_there_are_places_nobody_is_asked():
    residency = Residency(2)
    people = [await entered(residency) for _ in range(2)]
    assert residency.within == 2
    assert [one.asked for one in people] == [0, 0]


async def test_the_least_recently_used_of_the_idle_is_asked_first():
    residency = Residency(4)
    recent = await entered(residency, used_at_s=9.0)
    longest = await entered(residency, busy=True, used_at_s=0.0)
    oldest = await entered(residency, used_at_s=1.0)
    busy = await entered(residency, busy=True, used_at_s=0.5)
    people = [recent, longest, oldest, busy]
    asked = []
    for _ in range(4):
        waiting_for(Someone(residency))
        await settled()
        asked.append([one.asked for one in people])
    assert asked == [[0, 0, 1, 0], [1, 0, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


async def test_a_place_goes_to_who_waits_longest():
    residency = Residency(1)
    holder = await entered(residency)
    first, second = Someone(residency), Someone(residency)
    tasks = [waiting_for(first), waiting_for(second)]
    await settled()
    holder.leave()
    await settled()
    assert [task.done() for task in tasks] == [True, False]
    assert residency.within == 1
    first.leave()
    await tasks[1]


async def test_one_who_no_longer_waits_gets_no_place():
    residency = Residency(1)
    holder = await entered(residency)
    tasks = [waiting_for(Someone(residency)) for _ in range(2)]
    await settled()
    tasks[0].cancel()
    # Before its task has run, and after that.
    holder.leave()
    await asyncio.wait_for(tasks[1], 1)
    third = waiting_for(Someone(residency))
    await settled()
    third.cancel()
    await settled()
    assert not residency._waiting


async def test_a_place_given_to_one_who_was_just_cancelled_is_not_lost():
    residency = Residency(1)
    holder = await entered(residency)
    tasks = [waiting_for(Someone(residency)) for _ in range(2)]
    await settled()
    # The place is handed out before the first one's task runs again.
    holder.leave()
    tasks[0].cancel()
    await asyncio.wait_for(tasks[1], 1)
    assert residency.within == 1


async def test_one_who_cannot_leave_has_another_asked_instead():
    residency = Residency(2)
    stuck = await entered(residency, used_at_s=0.0)
    other = await entered(residency, used_at_s=5.0)
    task = waiting_for(Someone(residency))
    await settled()
    assert (stuck.asked, other.asked) == (1, 0)
    residency.stay(stuck)
    assert (stuck.asked, other.asked) == (1, 1)
    other.leave()
    await task


async def test_those_who_leave_only_when_asked_do_not_keep_others_out():
    residency = Residency(2)

    people = [Someone(residency) for _ in range(10)]
    tasks = [waiting_for(one) for one in people]
    for _ in range(8):
        await settled()
        one = next(one for one in people if one.asked)
        people.remove(one)
        one.leave()
    await asyncio.wait_for(asyncio.gather(*tasks), 1)


@pytest.mark.parametrize("seed", range(5))
async def test_with_many_more_than_places_each_gets_its_turn(seed):
    chance = random.Random(seed)
    residency = Residency(3)
    most = 0

    async def live(someone: Someone) -> None:
        nonlocal most
        for _ in range(10):
            await someone.enter()
            most = max(most, residency.within)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            someone.leave()

    await asyncio.wait_for(asyncio.gather(*(live(Someone(residency)) for _ in range(20))), 10)
    assert most == 3
    assert residency.within == 0


async def test_no_more_enter_than_there_are_open_places():
    residency = Residency(5)
    residency.open(0)
    waiting = [waiting_for(Someone(residency)) for _ in range(4)]
    await settled()
    assert residency.within == 1, "one, who has a process started"
    residency.open(3)
    assert residency.within == 3
    residency.open(2)
    assert residency.within == 3, "nobody is driven out"
    residency.open(9)
    await asyncio.gather(*waiting)
    assert residency.within == 4


async def test_those_within_share_the_open_places_with_those_who_wait():
    residency = Residency(5)
    residency.open(1)
    first = await entered(residency)
    waiting = waiting_for(Someone(residency))
    await settled()
    assert first.asked == 1
    first.leave()
    await asyncio.wait_for(waiting, 1)


async def test_one_that_wakes_slowly_keeps_its_place_until_all_are_open():
    residency = Residency(2)
    residency.open(1)
    slow = await entered(residency, wakes_fast=False)
    waiting = [waiting_for(Someone(residency)) for _ in range(2)]
    await settled()
    assert slow.asked == 0, "a process will have started before it could be woken again"
    residency.open(2)
    await settled()
    assert slow.asked == 1
    slow.leave()
    await asyncio.gather(*waiting)
