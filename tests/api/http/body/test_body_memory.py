"""Bodies that are being read are bounded together, and who stalls holds nothing for long."""

import asyncio
import random
import subprocess
import sys
import tracemalloc
from itertools import pairwise

import pytest

from api.http.app import Application
from api.http.body.memory import PACE_S, SMALL_BYTES_MAX, STALLED_S, BodyMemory, Reservation
from api.http.body.reading import read_body
from api.process import front_end
from api.schema.envelope import RequestRefusal
from api.server.exchange import Message
from api.settings import Settings
from engine.runtime.front_end.memory_budget import READING, MemoryBudget
from tests.api.scripted import ScriptedBackend

MIB = 1024 * 1024
MEMORY_BYTES = 4 * MIB
LARGE_SHARE = 3 * MIB


class World:
    """A memory, its clock, and the reservations that were lost."""

    def __init__(self, bytes_max: int = MEMORY_BYTES) -> None:
        self.now_s = 100.0
        self.budget = MemoryBudget(4 * bytes_max, lambda: self.now_s)
        self.memory = BodyMemory(bytes_max, self.budget, lambda: self.now_s)
        self.lost: list[Reservation] = []

    def reserve(self, announced: int | None = MIB) -> Reservation:
        def lose(refusal: RequestRefusal) -> None:
            assert [entry.code for entry in refusal.entries] == [1401]
            self.lost.append(reservation)

        reservation = self.memory.reserve(announced, lose)
        return reservation

    def holding(self, bytes_: int, announced: int | None = MIB) -> Reservation:
        reservation = self.reserve(announced)
        reservation.hold(bytes_)
        return reservation


@pytest.fixture
def world() -> World:
    return World()


def test_each_body_that_gets_no_memory_or_loses_it_is_counted_once(world: World) -> None:
    world.holding(3 * MIB)
    youngest = world.reserve()
    with pytest.raises(RequestRefusal):
        youngest.hold(MIB)
    with pytest.raises(RequestRefusal):
        youngest.hold(2 * MIB)
    assert world.budget.take_throttled() == {READING: 1}
    world.now_s += STALLED_S
    world.holding(MIB)
    assert len(world.lost) == 1
    assert world.budget.take_throttled() == {READING: 1}


def test_a_stalled_body_loses_its_memory_and_the_longest_stalled_goes_first(world: World) -> None:
    reservations = [world.holding(MIB - 1) for _ in range(3)]
    world.now_s += STALLED_S / 2
    reservations[0].hold(MIB)
    world.now_s += STALLED_S / 2 + 0.01
    new = world.holding(MIB)
    assert world.lost == [reservations[1]]
    assert new.held == MIB
    with pytest.raises(RequestRefusal):
        reservations[1].hold(MIB)
    assert world.memory.held_bytes == 3 * MIB - 1


def test_a_body_that_trickles_loses_its_memory_and_one_that_keeps_pace_does_not(world: World) -> None:
    trickling, steady = world.holding(MIB // 2, 3 * MIB), world.holding(MIB // 2, 2 * MIB)
    for step in range(1, 81):
        world.now_s += PACE_S / 100
        trickling.hold(MIB // 2 + step)
        steady.hold(MIB // 2 + step * MIB * 3 // 200)
    world.holding(MIB)
    assert world.lost == [trickling]


def test_where_all_keep_pace_the_youngest_goes_and_the_oldest_come_to_their_end(world: World) -> None:
    reservations = [world.holding(MIB // 2, 2 * MIB) for _ in range(6)]
    reservations[0].hold(MIB)
    assert world.lost == [reservations[5]]
    reservations[0].hold(2 * MIB)
    assert world.lost == [reservations[5], reservations[4], reservations[3]]
    new = world.reserve()
    with pytest.raises(RequestRefusal) as caught:
        new.hold(MIB)
    assert caught.value.headers == ((b"retry-after", b"1"),)
    assert reservations[0].held == 2 * MIB


def test_large_bodies_take_nothing_from_small_ones(world: World) -> None:
    for _ in range(3):
        world.holding(MIB)
    small = [world.holding(SMALL_BYTES_MAX, announced) for announced in (None, SMALL_BYTES_MAX) * 8]
    assert world.lost == []
    assert world.memory.held_bytes == MEMORY_BYTES
    # What turns out to be large goes on among the large ones.
    with pytest.raises(RequestRefusal):
        small[0].hold(SMALL_BYTES_MAX + 1)
    world.holding(SMALL_BYTES_MAX, None)
    assert world.lost == []


def test_a_body_that_has_come_whole_is_not_lost_but_counts(world: World) -> None:
    whole = [world.holding(MIB) for _ in range(3)]
    for reservation in whole:
        reservation.complete()
    world.now_s += 100
    with pytest.raises(RequestRefusal):
        world.holding(MIB)
    assert world.lost == []
    whole[0].release()
    world.holding(MIB)


def test_who_is_not_to_send_has_not_stalled_but_does_not_hold_on_for_ever(world: World) -> None:
    paused = world.holding(3 * MIB - 10, None)
    paused.is_paused = True
    world.now_s += 2 * STALLED_S
    with pytest.raises(RequestRefusal):
        world.holding(MIB)
    world.now_s += PACE_S
    world.holding(MIB)
    assert world.lost == [paused]


def test_what_is_held_is_the_sum_of_the_claims_and_never_more_than_the_bound() -> None:
    draw = random.Random(1)
    world = World()
    reservations: list[Reservation] = []
    for _ in range(5_000):
        world.now_s += draw.random() / 10
        action = draw.random()
        if action < 0.2:
            reservations.append(world.reserve(draw.choice((None, 100, MIB, LARGE_SHARE))))
        elif reservations:
            reservation = draw.choice(reservations)
            if action < 0.9:
                try:
                    reservation.hold(min(LARGE_SHARE, reservation.held + draw.randrange(200_000)))
                except RequestRefusal:
                    reservations.remove(reservation)
            else:
                (reservation.complete if action < 0.95 else reservation.release)()
                if not reservation.held:
                    reservations.remove(reservation)
                elif draw.random() < 0.5:
                    reservation.release()
                    reservations.remove(reservation)
        reservations = [reservation for reservation in reservations if not reservation.is_lost]
        assert (
            world.memory.held_bytes == sum(reservation.held for reservation in reservations) <= MEMORY_BYTES
        )
        assert all(reservation.held == 0 for reservation in world.lost)
    assert len(world.lost) > 25
    for reservation in reservations:
        reservation.release()
    assert world.memory.held_bytes == 0


def test_the_work_for_each_piece_does_not_grow_with_the_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    is_slow = Reservation.is_slow

    def counted(reservation: Reservation, now_s: float) -> bool:
        nonlocal looked
        looked += 1
        return is_slow(reservation, now_s)

    monkeypatch.setattr(Reservation, "is_slow", counted)
    world = World(256 * MIB)
    reservations = [world.holding(100_000, MIB) for _ in range(1_900)]
    for _ in range(1_000):
        # All the time there is no room.
        world.now_s += 0.0001
        with pytest.raises(RequestRefusal):
            world.holding(MIB * 12)
    assert looked <= 2 * len(reservations)


@pytest.mark.parametrize("front_ends", [1, 2, 8])
def test_all_front_ends_together_keep_to_the_bound(front_ends: int) -> None:
    settings = Settings(front_ends=front_ends)
    memory = Application(settings, ScriptedBackend()).memory
    of_each = memory.small.bytes_max + memory.large.bytes_max + settings.ahead_bytes_max
    assert of_each * front_ends == settings.max_reading_bytes
    assert memory.large.bytes_max >= settings.max_batch_body_bytes


HEAP = """
from api.process.front_end import trim

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

# What imports have freed lies before the bodies, and is filled first. (A constant would be only one object.)
filled = [bytes(1_000) for _ in range(20_000)]
bodies, pins = [], []
for _ in range(1_000):
    bodies.append(b"x" * 65_536)
    pins.append(bytes(1_000))
before = resident()
bodies.clear()
print(before - resident())
trim()
print(before - resident())
"""


@pytest.mark.storm
@pytest.mark.skipif(sys.platform != "linux", reason="it is glibc's heap that is trimmed")
def test_what_is_freed_amid_the_heap_goes_back_to_the_system() -> None:
    ran = subprocess.run([sys.executable, "-c", HEAP], capture_output=True, check=True)
    by_itself, trimmed = map(int, ran.stdout.split())
    assert by_itself < 20_000_000
    assert trimmed > 50_000_000


async def test_the_heap_is_trimmed_after_many_bodies_were_read_and_not_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trims = 0

    def trimmed() -> None:
        nonlocal trims
        trims += 1

    monkeypatch.setattr(front_end, "_TRIM_S", 0.001)
    monkeypatch.setattr(front_end, "trim", trimmed)
    world = World(256 * MIB)
    trimming = asyncio.create_task(front_end._trim_on(world.budget))
    for held, expected in ((10 * MIB, 0), (100 * MIB, 1), (0, 1)):
        reservation = world.holding(held, 200 * MIB)
        await asyncio.sleep(0.02)
        reservation.release()
        await asyncio.sleep(0.02)
        assert trims == expected
    trimming.cancel()


@pytest.mark.slow
async def test_a_body_in_small_pieces_arrives_whole_and_takes_little_more_than_its_bytes(
    world: World,
) -> None:
    draw = random.Random(1)
    expected = draw.randbytes(300_000)
    ends = [0, *sorted(draw.choices(range(300_000), k=50_000)), 300_000]
    messages = (
        {"type": "http.request", "body": expected[begin:end], "more_body": end < 300_000}
        for begin, end in pairwise(ends)
    )

    async def receive() -> Message:
        return next(messages)

    tracemalloc.start()
    try:
        assert await read_body(receive, 300_000, world.reserve()) == expected
        assert tracemalloc.get_traced_memory()[1] < 2 * len(expected)
    finally:
        tracemalloc.stop()
