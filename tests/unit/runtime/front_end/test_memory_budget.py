"""The budget of a front end: who gets room, who waits for it, and who loses it."""

import pytest

from engine.runtime.front_end.memory_budget import SMALL_BYTES_MAX, UNREAD_S, AnswerRoom, MemoryBudget

MIB = 1024 * 1024
BUDGET = 16 * MIB


class Caller:
    """A connection of which so much is unsent."""

    def __init__(self, unsent: int, queued: int = 0) -> None:
        self.unsent = unsent
        self.queued = queued
        """What the system has taken, and the caller has not."""
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.budget = MemoryBudget(BUDGET, lambda: self.now_s)
        self.came: list[str] = []

    def sending(self, unsent: int, *, queued: int = 0, is_public: bool = False) -> Caller:
        caller = Caller(unsent, queued)
        self.budget.sending(caller, is_public=is_public, unread_bytes=lambda: caller.unsent + caller.queued)
        return caller


@pytest.fixture
async def world() -> World:
    return World()


async def test_new_work_has_three_quarters_and_small_requests_have_the_rest_too(world: World) -> None:
    budget = world.budget
    budget.change_requests(10 * MIB)
    assert budget.find_room(2 * MIB, is_small=False)
    budget.change_bodies(2 * MIB)
    assert not budget.find_room(1, is_small=False)
    for _ in range(4 * MIB // SMALL_BYTES_MAX):
        assert budget.find_room(SMALL_BYTES_MAX, is_small=True)
        budget.change_requests(SMALL_BYTES_MAX)
    assert not budget.find_room(1, is_small=True)
    assert budget.take_counts() == {"no_room": 2}
    assert budget.take_counts() == {}


async def test_answers_come_in_order_as_far_as_there_is_room_and_keep_new_work_out(world: World) -> None:
    budget = world.budget
    rooms = [budget.answer(6 * MIB, lambda name=name: world.came.append(name)) for name in "abcd"]
    assert world.came == ["a", "b"]
    assert not budget.find_room(1, is_small=False)
    assert budget.find_room(1, is_small=True)
    # One that waits no more lets the next one by.
    rooms[2].release()
    rooms[0].release()
    assert world.came == ["a", "b", "d"]
    for room in rooms:
        room.release()
    assert budget.held == 0
    assert budget.has_room(12 * MIB)


async def test_an_answer_of_any_size_comes_if_it_is_the_only_one(world: World) -> None:
    first = world.budget.answer(5 * BUDGET, lambda: world.came.append("large"))
    world.budget.answer(1, lambda: world.came.append("small"))
    assert world.came == ["large"]
    # It does not keep small requests out.
    assert world.budget.find_room(SMALL_BYTES_MAX, is_small=True)
    first.release()
    assert world.came == ["large", "small"]


async def test_who_reads_nothing_is_closed_where_room_is_needed_and_who_reads_is_not(world: World) -> None:
    deaf, slow, late = world.sending(4 * MIB), world.sending(4 * MIB), world.sending(4 * MIB)
    assert not world.budget.find_room(MIB, is_small=False)
    world.now_s += UNREAD_S + 0.01
    slow.unsent -= 1
    assert world.budget.find_room(MIB, is_small=False)
    assert [one.aborted for one in (deaf, slow, late)] == [True, False, False]
    # What a slow one has not read counts to its end, since all of it is kept.
    assert world.budget.answers == 8 * MIB
    world.now_s += UNREAD_S + 0.01
    assert world.budget.find_room(8 * MIB, is_small=False)
    assert [one.aborted for one in (deaf, slow, late)] == [True, False, True]
    assert world.budget.take_counts() == {"no_room": 1, "unread": 2}


async def test_who_reads_what_the_system_has_taken_already_reads_too(world: World) -> None:
    slow, deaf = world.sending(4 * MIB, queued=MIB), world.sending(8 * MIB, queued=MIB)
    for _ in range(3):
        slow.queued -= 64 * 1024
        world.budget.find_room(MIB, is_small=False)
        world.now_s += UNREAD_S - 0.01
    assert [one.aborted for one in (slow, deaf)] == [False, True]
    assert world.budget.answers == 4 * MIB


async def test_an_answer_that_waits_gets_room_however_much_small_work_asks_meanwhile(world: World) -> None:
    callers = [world.sending(4 * MIB) for _ in range(3)]
    world.budget.answer(8 * MIB, lambda: world.came.append("it"))
    assert world.came == []
    world.now_s += UNREAD_S + 0.01
    assert world.budget.find_room(0, is_small=True)
    assert world.came == ["it"]
    assert any(caller.aborted for caller in callers)


async def test_answers_to_callers_without_a_token_take_nothing_from_others(world: World) -> None:
    callers = [world.sending(100_000, is_public=True) for _ in range(20)]
    assert world.budget.held == 0
    assert 900_000 < world.budget.public <= BUDGET // 16
    assert [caller.aborted for caller in callers] == [True] * 10 + [False] * 10


async def test_an_answer_that_is_made_piece_by_piece_has_room_or_not(world: World) -> None:
    room = AnswerRoom(world.budget)
    assert room.grow(12 * MIB)
    assert not room.grow(1)
    room.release()
    assert world.budget.held == 0
    assert world.budget.take_fallen() == 12 * MIB
    assert world.budget.take_fallen() == 0
