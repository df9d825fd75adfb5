"""Slots of active detectors: never more than there are, and each who waits gets one."""

import asyncio
import random

import pytest

from engine.runtime.scheduler.detectors.activation_slots import ActivationSlots

pytestmark = pytest.mark.skipping_clock


class Someone:
    """Leaves when asked and not busy; remembers being asked."""

    def __init__(
        self,
        slots: ActivationSlots,
        *,
        busy: bool = False,
        used_at_s: float = 0.0,
        activates_fast: bool = True,
        large: bool = False,
    ) -> None:
        self.slots = slots
        self.activates_fast = activates_fast
        self.replaceable = True
        self.busy = busy
        self.used_at_s = used_at_s
        self.large = large
        self.asked = 0
        self.unasked = 0

    def make_room(self) -> None:
        self.asked += 1

    def stay(self) -> None:
        self.unasked += 1

    async def acquire(self) -> None:
        await self.slots.acquire(self)

    def release(self) -> None:
        self.slots.release(self)


async def entered(slots: ActivationSlots, **one: object) -> Someone:
    someone = Someone(slots, **one)
    await someone.acquire()
    return someone


def waiting_for(someone: Someone) -> asyncio.Task[None]:
    return asyncio.create_task(someone.acquire())


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_while_there_are_places_nobody_is_asked():
    slots = ActivationSlots(2)
    people = [await entered(slots) for _ in range(2)]
    assert slots.held == 2
    assert [one.asked for one in people] == [0, 0]


async def test_the_least_recently_used_of_the_idle_is_asked_first():
    slots = ActivationSlots(4)
    recent = await entered(slots, used_at_s=9.0)
    longest = await entered(slots, busy=True, used_at_s=0.0)
    oldest = await entered(slots, used_at_s=1.0)
    busy = await entered(slots, busy=True, used_at_s=0.5)
    people = [recent, longest, oldest, busy]
    asked = []
    for _ in range(4):
        waiting_for(Someone(slots))
        await settled()
        asked.append([one.asked for one in people])
    assert asked == [[0, 0, 1, 0], [1, 0, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


async def test_a_place_goes_to_who_waits_longest():
    slots = ActivationSlots(1)
    holder = await entered(slots)
    first, second = Someone(slots), Someone(slots)
    tasks = [waiting_for(first), waiting_for(second)]
    await settled()
    holder.release()
    await settled()
    assert [task.done() for task in tasks] == [True, False]
    assert slots.held == 1
    first.release()
    await tasks[1]


async def test_who_waits_is_counted_once_all_places_are_taken_and_not_while_some_are_to_be_opened():
    slots = ActivationSlots(2)
    slots.open(1)
    assert slots.wanted == 0
    holder = await entered(slots)
    tasks = [waiting_for(Someone(slots)) for _ in range(3)]
    await settled()
    assert slots.wanted == 0
    slots.open(2)
    await settled()
    assert slots.wanted == 2
    holder.release()
    await settled()
    assert slots.wanted == 1
    for task in tasks:
        task.cancel()
    await settled()
    assert slots.wanted == 0


async def test_one_who_no_longer_waits_gets_no_place():
    slots = ActivationSlots(1)
    holder = await entered(slots)
    tasks = [waiting_for(Someone(slots)) for _ in range(2)]
    await settled()
    tasks[0].cancel()
    # Before its task has run, and after that.
    holder.release()
    await asyncio.wait_for(tasks[1], 1)
    third = waiting_for(Someone(slots))
    await settled()
    third.cancel()
    await settled()
    assert not slots._waiting


async def test_a_place_given_to_one_who_was_just_cancelled_is_not_lost():
    slots = ActivationSlots(1)
    holder = await entered(slots)
    tasks = [waiting_for(Someone(slots)) for _ in range(2)]
    await settled()
    # The place is handed out before the first one's task runs again.
    holder.release()
    tasks[0].cancel()
    await asyncio.wait_for(tasks[1], 1)
    assert slots.held == 1


async def test_one_who_cannot_leave_has_another_asked_instead():
    slots = ActivationSlots(2)
    stuck = await entered(slots, used_at_s=0.0)
    other = await entered(slots, used_at_s=5.0)
    task = waiting_for(Someone(slots))
    await settled()
    assert (stuck.asked, other.asked) == (1, 0)
    slots.keep(stuck)
    assert (stuck.asked, other.asked) == (1, 1)
    other.release()
    await task


async def test_those_who_leave_only_when_asked_do_not_keep_others_out():
    slots = ActivationSlots(2)

    people = [Someone(slots) for _ in range(10)]
    tasks = [waiting_for(one) for one in people]
    for _ in range(8):
        await settled()
        one = next(one for one in people if one.asked)
        people.remove(one)
        one.release()
    await asyncio.wait_for(asyncio.gather(*tasks), 1)


@pytest.mark.parametrize("seed", range(5))
async def test_with_many_more_than_places_each_gets_its_turn(seed):
    chance = random.Random(seed)
    slots = ActivationSlots(3)
    most = 0

    async def live(someone: Someone) -> None:
        nonlocal most
        for _ in range(10):
            await someone.acquire()
            most = max(most, slots.held)
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            someone.release()

    await asyncio.wait_for(asyncio.gather(*(live(Someone(slots)) for _ in range(20))), 10)
    assert most == 3
    assert slots.held == 0


async def test_no_more_enter_than_there_are_open_places():
    slots = ActivationSlots(5)
    slots.open(0)
    waiting = [waiting_for(Someone(slots)) for _ in range(4)]
    await settled()
    assert slots.held == 1, "one, who has a process started"
    slots.open(3)
    assert slots.held == 3
    slots.open(2)
    assert slots.held == 3, "nobody is driven out"
    slots.open(9)
    await asyncio.gather(*waiting)
    assert slots.held == 4


async def test_those_within_share_the_open_places_with_those_who_wait():
    slots = ActivationSlots(5)
    slots.open(1)
    first = await entered(slots)
    waiting = waiting_for(Someone(slots))
    await settled()
    assert first.asked == 1
    first.release()
    await asyncio.wait_for(waiting, 1)


async def test_one_that_is_slow_to_activate_keeps_its_slot_until_all_are_open():
    slots = ActivationSlots(2)
    slots.open(1)
    slow = await entered(slots, activates_fast=False)
    waiting = [waiting_for(Someone(slots)) for _ in range(2)]
    await settled()
    assert slow.asked == 0, "a process will have started before it could be activated again"
    slots.open(2)
    await settled()
    assert slow.asked == 1
    slow.release()
    await asyncio.gather(*waiting)


async def test_while_no_slot_is_released_more_and_more_holders_are_asked():
    slots = ActivationSlots(10)
    people = [await entered(slots, busy=True) for _ in range(10)]
    waiting = waiting_for(Someone(slots, busy=True))
    await settled()
    asked = []
    for _ in range(5):
        asked.append([one.asked for one in people].index(0) if not all(one.asked for one in people) else 10)
        await asyncio.sleep(0.1)
    assert asked == [1, 2, 4, 8, 10]
    # The last one is the first to come to the end of its turn.
    people[9].release()
    await waiting
    assert [one.unasked for one in people] == [1] * 9 + [0]
    # The next one that waits begins with one again.
    waiting_for(Someone(slots))
    await settled()
    assert [one.asked for one in people] == [2] + [1] * 9


async def test_holders_that_activate_slowly_are_asked_too_if_no_process_starts_for_a_while():
    slots = ActivationSlots(10)
    slots.open(2)
    slow = [await entered(slots, busy=True, activates_fast=False) for _ in range(2)]
    waiting = waiting_for(Someone(slots))
    await asyncio.sleep(0.25)
    assert [one.asked for one in slow] == [0, 0]
    await asyncio.sleep(0.25)
    assert any(one.asked for one in slow)
    slow[0].release()
    await waiting


async def test_those_with_large_requests_never_have_the_last_open_slot():
    """A large batch may take longer than a second, and cannot be interrupted."""
    slots = ActivationSlots(50)
    slots.open(3)
    large = [await entered(slots, busy=True, large=True) for _ in range(2)]
    more = [waiting_for(Someone(slots, busy=True, large=True)) for _ in range(5)]
    await settled()
    assert not any(task.done() for task in more)
    small = Someone(slots)
    # It is not behind them, each time.
    for _ in range(3):
        await asyncio.wait_for(small.acquire(), 0.01)
        await asyncio.sleep(1)
        small.release()
    assert small.asked == 0, "those with large requests could not have what it releases"
    assert slots.wanted == 0
    # Among themselves, they go in turn.
    large[0].release()
    await settled()
    assert [task.done() for task in more] == [True, False, False, False, False]
    slots.open(50)
    await asyncio.gather(*more)


async def test_when_all_slots_are_open_those_with_large_requests_leave_one_and_are_counted_as_waiting():
    slots = ActivationSlots(8)
    for _ in range(7):
        await entered(slots, large=True)
    waiting_for(Someone(slots, large=True))
    await settled()
    assert (slots.held, slots.wanted) == (7, 1)


@pytest.mark.parametrize(("slots", "opened", "more_to_come"), [(7, 7, True), (50, 7, False), (50, 1, True)])
async def test_of_few_slots_those_with_large_requests_can_have_all(slots, opened, more_to_come):
    slots = ActivationSlots(slots)
    slots.open(opened, more_to_come=more_to_come)
    for _ in range(opened):
        await asyncio.wait_for(entered(slots, large=True), 1)


async def test_a_small_request_first_in_line_for_a_slot_lets_no_large_one_pass():
    slots = ActivationSlots(8)
    slots.open(2)
    holders = [await entered(slots, large=True), await entered(slots)]
    small, large = waiting_for(Someone(slots)), waiting_for(Someone(slots, large=True))
    await settled()
    assert [one.asked for one in holders] == [1, 1]
    holders[0].release()
    await settled()
    assert (small.done(), large.done()) == (True, False)
    holders[1].release()
    await settled()
    assert large.done()


async def test_a_spared_slot_is_told_of_so_that_another_process_starts():
    told = []
    slots = ActivationSlots(8, lambda: told.append(slots.held))
    slots.open(2)
    await entered(slots, large=True)
    assert told == []
    waiting = waiting_for(Someone(slots, large=True))
    await settled()
    assert set(told) == {1}
    slots.open(3)
    await waiting
