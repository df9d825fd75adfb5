"""Slots of active detectors, compared with lists of who has one, who waits, and who is asked to leave."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from engine.runtime.scheduler.detectors.activation_slots import ActivationSlots

pytestmark = pytest.mark.skipping_clock

MORE_S = 0.1
"""After this time without a released slot, twice as many are asked."""


@dataclass(eq=False)
class Someone:
    """A detector that wants a slot; it remembers what it was told."""

    large: bool = False
    busy: bool = False
    used_at_s: float = 0.0
    activates_fast: bool = True
    replaceable: bool = True
    told: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    """What it should have been told."""
    task: asyncio.Task[None] | None = None

    def make_room(self) -> None:
        self.told.append("make room")

    def stay(self) -> None:
        self.told.append("stay")


class World:
    """Slots, and beside them the lists of those that hold one and those that wait, in order."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.loop = asyncio.get_running_loop()
        self.total = self.open_ = chance.choice((1, 2, 3, 7, 8, 12))
        self.more_to_come = False
        self.arrivals, self.large_ones = chance.choice(((1, 0), (2, 0), (2, 1), (4, 1)))
        """How often others arrive: seldom, some slots are free; often, everybody is asked to leave."""
        self.spared = self.spared_before = 0
        self.slots = ActivationSlots(self.total, self.note_spared)
        self.holders: list[Someone] = []
        self.waiting: list[Someone] = []
        self.asked: list[Someone] = []
        self.doublings = 0
        self.more_at_s: float | None = None
        self.happened = Counter[str]()

    def note_spared(self) -> None:
        self.spared += 1

    async def step(self) -> None:
        steps = [
            *[self.arrive] * self.arrivals,
            *[self.many_large] * self.large_ones,
            *[self.leave] * 2,
            self.give_up,
            self.leave_as_another_gives_up,
            self.give_up_as_another_leaves,
            self.keep,
            self.open,
            self.adopt,
            self.work,
            *[self.wait] * 2,
        ]
        step = self.chance.choice(steps)
        self.happened[step.__name__] += 1
        self.spared = 0
        if (under_way := step()) is not None:
            await under_way
        for _ in range(4):
            await asyncio.sleep(0)
        assert self.slots.held == len(self.holders)
        everyone = [*self.holders, *self.waiting]
        assert [one.task.done() for one in everyone if one.task] == [
            one in self.holders for one in everyone if one.task
        ]
        assert [one.told for one in everyone] == [one.expected for one in everyone]
        all_taken = max(len(self.holders), self.open_) >= self.total
        assert self.slots.wanted == (len(self.waiting) if all_taken else 0)
        if step in (self.arrive, self.open):
            # A slot is free, and those that wait cannot have it.
            assert bool(self.spared) is (bool(self.waiting) and len(self.holders) < self.open_)
            self.happened["spared"] += self.spared

    # -- what is done ----------------------------------------------------------------------------------------

    def someone(self, large: float = 0.5) -> Someone:
        chance = self.chance
        return Someone(
            large=chance.random() < large,
            busy=chance.random() < 0.5,
            used_at_s=chance.randrange(5),
            activates_fast=chance.random() < 0.7,
            replaceable=chance.random() < 0.8,
        )

    async def many_large(self) -> None:
        """Let so many with large requests arrive that all slots are wanted."""
        for _ in range(self.total - len(self.holders) - len(self.waiting)):
            await self.arrive(large=1)

    async def arrive(self, large: float = 0.5) -> None:
        one = self.someone(large)
        one.task = asyncio.create_task(self.slots.acquire(one))
        await asyncio.sleep(0)
        self.waiting.append(one)
        self.hand_out()

    def leave(self) -> None:
        if self.holders:
            one = self.chance.choice(self.asked or self.holders)
            self.slots.release(one)
            self.released(one)

    def give_up(self) -> None:
        if self.waiting:
            self.gives_up(self.chance.choice(self.waiting))

    def leave_as_another_gives_up(self) -> None:
        """A slot that was given to somebody who gives up in the same moment is not lost."""
        before = list(self.waiting)
        self.leave()
        if before and self.chance.random() < 0.7:
            self.happened["given in vain"] += before[0] in self.holders
            self.gives_up(before[0])

    def give_up_as_another_leaves(self) -> None:
        """A slot is not given to somebody who has just given up."""
        if not self.waiting or self.waiting[0].large or not 0 < len(self.holders) <= self.open_:
            return
        one = self.waiting.pop(0)
        assert one.task is not None
        one.task.cancel()
        self.leave()
        self.released(one)

    def gives_up(self, one: Someone) -> None:
        assert one.task is not None
        one.task.cancel()
        self.released(one)

    def keep(self) -> None:
        """One that was asked cannot leave."""
        if self.asked:
            one = self.chance.choice(self.asked)
            self.slots.keep(one)
            self.asked.remove(one)
            self.ask(but=one)

    def open(self) -> None:
        slots, more = self.chance.randrange(self.total + 3), self.chance.random() < 0.7
        # More are to come unless it is said otherwise.
        self.slots.open(slots, **({} if more else {"more_to_come": False}))
        self.open_ = min(max(slots, 1), self.total)
        self.more_to_come = more and self.open_ < self.total
        self.hand_out()

    def adopt(self) -> None:
        one = self.someone()
        self.slots.adopt(one)
        self.holders.append(one)

    def work(self) -> None:
        for one in self.holders:
            one.busy, one.used_at_s = self.chance.random() < 0.5, self.chance.randrange(9)

    async def wait(self) -> None:
        """Let time pass, and end between two moments at which more are asked."""
        now_s, times = self.loop.time(), self.chance.choice((0, 1, 2, 3, 6))
        from_s = now_s if self.more_at_s is None else self.more_at_s
        await asyncio.sleep(from_s - now_s + MORE_S * (times - 0.5))
        for _ in range(times):
            if self.more_at_s is not None:
                self.doublings += 1
                self.more_at_s += MORE_S
                self.ask()

    # -- who gets a slot, and who is asked -------------------------------------------------------------------

    def released(self, one: Someone) -> None:
        for among in (self.holders, self.waiting, self.asked):
            with suppress(ValueError):
                among.remove(one)
        self.hand_out()

    def hand_out(self) -> None:
        while len(self.holders) < self.open_:
            others = [one for one in self.waiting if not one.large]
            # In order, but one behind a large one that is not to have the slot.
            first = (
                others if self.waiting and self.waiting[0].large and self.is_full_of_large else self.waiting
            )
            if not first:
                break
            self.waiting.remove(one := first[0])
            self.holders.append(one)
            self.doublings = 0
        self.ask()

    @property
    def is_full_of_large(self) -> bool:
        """Whether the last open slot is kept for others than those with large requests."""
        is_few = self.open_ < 8 and not self.more_to_come
        return self.open_ > 1 and not is_few and sum(one.large for one in self.holders) >= self.open_ - 1

    def ask(self, but: Someone | None = None) -> None:
        if not self.waiting:
            self.more_at_s = None
        elif self.more_at_s is None:
            self.more_at_s = self.loop.time() + MORE_S
        wanted = len(self.waiting) * 2**self.doublings
        for one in self.asked[wanted:]:
            one.expected.append("stay")
        del self.asked[wanted:]
        in_vain = all(one.large for one in self.waiting) and self.is_full_of_large
        patient = self.more_to_come and self.doublings < 3
        asked = sorted(
            (
                one
                for one in self.holders
                if one not in self.asked and one is not but and one.replaceable
                if (one.large or not in_vain) and (one.activates_fast or not patient)
            ),
            key=lambda one: (1, 0) if one.busy else (0, one.used_at_s),
        )
        for one in asked[: wanted - len(self.asked)]:
            one.expected.append("make room")
            self.asked.append(one)


async def test_slots_are_given_and_asked_back_as_a_plain_account_says(examples: Any) -> None:
    happened = Counter[str]()
    rare = {"spared", "given in vain"}
    for chance in examples(1_000, until=lambda: rare <= happened.keys()):
        world = World(chance)
        for _ in range(60):
            await world.step()
        happened += world.happened
        for one in world.waiting:
            assert one.task is not None
            one.task.cancel()
        await asyncio.sleep(0)
