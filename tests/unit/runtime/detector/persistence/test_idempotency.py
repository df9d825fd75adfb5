"""Kept answers: found while they are kept, small in memory, and on the disk beside the snapshots."""

import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.evaluation.events.lateness import LATE_US_MAX, late, without_lateness
from engine.evaluation.wire.events import Done, Refused
from engine.evaluation.wire.results import encode_entries
from engine.language.diagnostics import Entry
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.actor import DetectorActor
from engine.runtime.detector.persistence.idempotency import (
    PAGE_VERSION,
    CachedAnswer,
    IdempotencyCache,
    key_digest,
    request_digest,
)
from snapshots.errors import StorageError
from snapshots.format.file_names import listing
from tests.faulty_files import FaultyFiles
from tests.local_runtime.directories import newborn

ONE = "1" * 32
KEPT_US = 600_000_000
QUARTER_US = KEPT_US // 4
NOTHING = b'{"actions":[]}'
GOLDEN = Path(__file__).parent / "golden" / "folder_3"


# -- in memory -----------------------------------------------------------------------------------------------


def answer_of(key: str, result: bytes = NOTHING, messages: bytes = b"[]") -> CachedAnswer:
    operation = asked(key)
    request = request_digest(operation.kind, operation.payload)
    return CachedAnswer(key_digest(key), request, result, messages)


def late_by(late_us: int) -> bytes:
    return encode_entries([late(late_us)])


def asked(key: str) -> Operation:
    return ops.evaluate(b"the body of " + key.encode(), key)


def found(answers: IdempotencyCache, key: str, now_us: int) -> bytes | None:
    done = answers.find(key_digest(key), asked(key), now_us)
    return None if done is None else done.result


@pytest.mark.parametrize("seed", range(5))
def test_an_answer_is_found_while_it_is_kept_and_is_forgotten_a_quarter_of_that_later(seed: int) -> None:
    drawn = random.Random(seed)
    answers, given, now_us = IdempotencyCache(KEPT_US, 1 << 30), {}, 0
    for number in range(2_000):
        now_us += drawn.choice((0, 1, 1_000_000, 3_000_000))
        key = f"key {number}"
        given[key] = now_us, b"result %d" % drawn.randrange(5)
        answers.keep(answer_of(key, given[key][1]), now_us)
        for other in (key, f"key {drawn.randrange(number + 1)}"):
            at_us, result = given[other]
            if now_us - at_us <= KEPT_US:
                assert found(answers, other, now_us) == result
            elif now_us - at_us > KEPT_US + QUARTER_US:
                assert found(answers, other, now_us) is None
    assert now_us > 3 * KEPT_US


def test_a_key_is_not_found_where_it_stands_across_two_rows() -> None:
    answers = IdempotencyCache(KEPT_US, 1 << 30)
    # All in one bucket: they begin alike.
    first, second = bytes((0, 0, *range(1, 15))), bytes((0, 0, *range(101, 115)))
    for key in (first, second):
        answers.keep(CachedAnswer(key, bytes(8), NOTHING, b"[]"), 0)
    # The request and the place of the first row, and the beginning of the second.
    across = bytes(8) + bytes(4) + second[:4]
    assert answers.find(across, asked("x"), 0) is None
    operation = asked("x")
    request = request_digest(operation.kind, operation.payload)
    answers.keep(CachedAnswer(across, request, b"late", b"[]"), 0)
    assert answers.find(across, operation, 0) == Done(b"late")


def test_each_distinct_result_counts_with_its_bytes_and_those_of_its_messages() -> None:
    answers = IdempotencyCache(10**9, 10**9)
    sizes = [answers.size_bytes]
    unusual = encode_entries([Entry(2003, "m" * 5_000)])
    for number, (result, messages) in enumerate(
        ((b"r" * 9_000, b"[]"), (b"r" * 9_000, b"[]"), (b"", unusual))
    ):
        answers.keep(answer_of(str(number), result, messages), 0)
        sizes.append(answers.size_bytes)
    first, second, third = (after - before for before, after in itertools.pairwise(sizes))
    assert first >= 9_000
    assert second < 1_000
    assert third >= 5_000


def kept_at(retention_us: int, *times_us: int) -> IdempotencyCache:
    """Answers that were given at these times."""
    answers = IdempotencyCache(retention_us, 10**9)
    for number, at_us in enumerate(times_us):
        answers.keep(answer_of(str(number), NOTHING, b"[]"), at_us)
    return answers


def test_each_answer_of_a_page_expires_when_it_would_have_without_the_page() -> None:
    page = kept_at(1_000, 0, 500, 510).begin_page(510)
    assert page is not None
    assert page.expires_us == 1_510
    loaded = IdempotencyCache(1_000, 10**9)
    loaded.load_page(page.body(), PAGE_VERSION)
    for now_us, left in ((1_000, 3), (1_001, 2), (1_510, 2), (1_511, 0)):
        loaded.expire(now_us)
        assert len(loaded) == left


def test_when_the_clock_is_set_back_answers_count_as_given_now() -> None:
    ahead = kept_at(1_000, 2_000).begin_page(100)
    assert ahead is not None
    assert ahead.expires_us == 1_100
    answers = kept_at(1_000, 0, 1_000)
    answers.expire(500)
    answers.expire(1_500)
    assert len(answers) == 1
    answers.expire(1_501)
    assert len(answers) == 0
    answers = kept_at(1_000, 1_000)
    answers.expire(0)
    answers.keep(answer_of("later", NOTHING, b"[]"), 300)
    answers.expire(1_001)
    assert len(answers) == 1, "what is given later is in another generation"


def test_answers_count_with_their_rows_and_buckets() -> None:
    answers = IdempotencyCache(10**9, 10**9)
    for number in range(2_000):
        answers.keep(answer_of(str(number), NOTHING, b"[]"), 0)
    unpaged = answers.size_bytes
    page = answers.begin_page(0)
    assert page is not None
    answers.page_written(page)
    assert unpaged >= answers.size_bytes + 2_000 * 30
    [generation] = answers._generations
    assert len(answers) == 2_000
    assert answers.size_bytes >= 2_000 * 35 + 160 * len(generation._buckets)


def test_answers_of_two_thousand_evaluations_a_second_fit_for_ten_minutes() -> None:
    """A hundredth of them, in a hundredth of the room, besides what does not depend on their number."""
    count, share = 12_000, 100
    settings = RuntimeSettings(data=Path())
    answers = IdempotencyCache(round(settings.answers_kept_s * 1e6), settings.answers_kept_bytes_max)
    results = [b'{"actions":[{"ruleId":"%032d"}]}' % number for number in range(20)]
    drawn = random.Random(1)
    for number in range(2 * count):
        at_us = number * share * 1_000_000 // 2_000
        answers.expire(at_us)
        # Most evaluations fire nothing, and the others one of a few rules.
        result = drawn.choice(results) if drawn.random() < 0.2 else NOTHING
        # Hardly two events are late by the same time.
        messages = late_by(number * 137) if number % 2 else b"[]"
        answers.keep(answer_of(str(number), result, messages), at_us)
        if number % (count // 10) == 0:
            page = answers.begin_page(at_us)
            assert page is not None
            answers.page_written(page)
    buckets = sum(len(generation._buckets) for generation in answers._generations)
    results_bytes = sum(part.results.size_bytes for part in (*answers._generations, *answers._stretches))
    rows_bytes = answers.size_bytes - 160 * buckets - results_bytes
    assert len(answers) >= count
    assert results_bytes < 150_000
    assert rows_bytes * share + 160 * 8192 * 5 + results_bytes < settings.answers_kept_bytes_max


@pytest.mark.parametrize(
    "messages",
    [
        b"[]",
        late_by(1),
        late_by(1_000),
        late_by(12_345_678),
        late_by(LATE_US_MAX),
        late_by(LATE_US_MAX + 1),
        late_by(10**15),
        encode_entries([late(1_500), Entry(2003, 'no "the event came 1.5 ms late" is stored')]),
        encode_entries([Entry(2003, "the event came 007 ms late"), late(2_000)]),
        encode_entries([Entry(2003, "the event came 1.50 ms late\0"), late(2_000)]),
        encode_entries([Entry(2003, "the event came 1.5.2 ms late")]),
    ],
)
def test_messages_come_back_to_the_byte(messages: bytes) -> None:
    answers, other = IdempotencyCache(KEPT_US, 1 << 30), IdempotencyCache(KEPT_US, 1 << 30)
    answers.keep(answer_of("a", b"one", messages), 1)
    page = answers.begin_page(1)
    assert page is not None
    other.load_page(page.body(), PAGE_VERSION)
    for kept in (answers, other):
        assert kept.find(key_digest("a"), asked("a"), 1) == Done(b"one", messages)
        assert [answer.messages for answer in kept] == [messages]


def test_lateness_is_taken_out_of_messages_as_far_as_four_bytes_hold_it() -> None:
    common = late_by(1).replace(b"0.001", b"\0")
    assert [without_lateness(late_by(late_us)) for late_us in (1, 1_500, 2**32 - 1)] == [
        (common, 1),
        (common, 1_500),
        (common, 2**32 - 1),
    ]
    assert without_lateness(late_by(2**32)) == (late_by(2**32), 0)


def test_a_page_of_the_version_before_is_read_and_kept_compactly() -> None:
    pairs = [(b"one", late_by(late_us)) for late_us in range(1, 301)]
    rows = b"".join(
        answer.key + answer.request + place.to_bytes(4, "little")
        for place, answer in enumerate(answer_of(str(place), *pair) for place, pair in enumerate(pairs))
    )
    answers = IdempotencyCache(KEPT_US, 1 << 30)
    answers.load_page(msgspec.msgpack.encode([[pairs, [(1, 1, rows)]]]), 1)
    assert all(
        answers.find(key_digest(str(place)), asked(str(place)), 1) == Done(*pair)
        for place, pair in enumerate(pairs)
    )
    assert answers.size_bytes < 300 * 250


def test_a_page_has_what_was_answered_since_the_last_one_that_was_written() -> None:
    answers = IdempotencyCache(KEPT_US, 1 << 30)
    answers.keep(answer_of("a", b"one"), 1)
    first = answers.begin_page(1)
    answers.keep(answer_of("b", b"two"), 2)
    # The first could not be written: the next one has its answers too.
    second = answers.begin_page(2)
    answers.keep(answer_of("c", b"three"), 3)
    assert first is not None
    assert second is not None
    answers.page_written(second)
    third = answers.begin_page(3)
    assert third is not None
    answers.page_written(third)
    assert answers.begin_page(4) is None
    assert third.expires_us == 3 + KEPT_US
    for page, keys in ((first, "a"), (second, "ab"), (third, "c")):
        other = IdempotencyCache(KEPT_US, 1 << 30)
        other.load_page(page.body(), PAGE_VERSION)
        assert {answer.key for answer in other} == {key_digest(key) for key in keys}
        assert other.begin_page(4) is None, "what a page has is not written again"


# -- on the disk ---------------------------------------------------------------------------------------------


class World:
    """A data folder with one detector, its clock, and the answers that were given in it."""

    def __init__(self, data: Path, files: FaultyFiles | None = None) -> None:
        self.data = data
        self.files = files
        self.clock_us = 10**15
        self.epoch = 0
        self.given: dict[str, tuple[int, Any]] = {}

    @property
    def folder(self) -> Path:
        return self.data / "detectors" / ONE

    def activate(self) -> DetectorActor:
        """Give an actor with the detector, as a process does that knows nothing of those before it."""
        self.epoch += 1
        actor = DetectorActor(RuntimeSettings(data=self.data), files=self.files, now_us=lambda: self.clock_us)
        self.activated = actor.activate(ONE, self.epoch)
        return actor

    def ask(self, actor: DetectorActor, keys: list[str]) -> None:
        batch = [evaluation(key, self.clock_us) for key in keys]
        for key, answer in zip(keys, actor.handle(batch).answers, strict=True):
            assert isinstance(answer, Done)
            self.given[key] = self.clock_us, answer

    def check(self, actor: DetectorActor) -> int:
        """Repeat all evaluations that must be known; gives how many there were."""
        assert actor._active is not None
        seen = actor._active.detector.events_seen
        known = {key: one for key, (at_us, one) in self.given.items() if self.clock_us - at_us <= KEPT_US}
        repeats = [evaluation(key, self.given[key][0]) for key in known]
        assert actor.handle(repeats).answers == list(known.values())
        assert actor._active.detector.events_seen == seen
        return len(known)


def evaluation(key: str, at_us: int) -> Operation:
    event = {"fields": {"key": key, "a": len(key) % 2}, "timestamp_ms": at_us // 1000}
    return ops.evaluate(json.dumps({"event": event}).encode(), key)


def save(actor: DetectorActor) -> None:
    assert actor.begin_saving()
    actor.finish_saving()


@pytest.mark.parametrize("seed", range(6))
def test_every_answer_of_the_last_ten_minutes_is_found_after_a_kill_whatever_snapshots_there_were(
    tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    newborn(tmp_path, ONE)
    world = World(tmp_path)
    actor, known, kills = world.activate(), 0, 0
    world.ask(actor, ["the first"])
    actor.handle([ops.add_rule("r", "once a == 1")])
    for number in range(60):
        world.clock_us += drawn.choice((1_000_000, 20_000_000, 60_000_000))
        world.ask(
            actor, [f"{number} {place}" * drawn.randrange(1, 3) for place in range(drawn.randrange(1, 5))]
        )
        if drawn.random() < 0.4:
            save(actor)
        if drawn.random() < 0.3:
            # Killed: nothing of it is closed in order, and another one takes over what is there.
            actor, kills = world.activate(), kills + 1
            known = max(known, world.check(actor))
    assert kills > 5
    assert known > 15
    pages = listing(path.name for path in world.folder.iterdir()).pages
    assert 0 < len(pages) < 40


def test_a_snapshot_does_not_grow_with_the_answers_that_are_kept(tmp_path: Path) -> None:
    newborn(tmp_path, ONE)
    world = World(tmp_path)
    actor = world.activate()
    sizes, pages = [], []
    for number in range(3):
        world.ask(actor, [f"{number} {place}" for place in range(500)])
        world.clock_us += 1_000_000
        save(actor)
        names = listing(path.name for path in world.folder.iterdir())
        sizes.append((world.folder / names.snapshots[max(names.snapshots)]).stat().st_size)
        pages.append((world.folder / names.pages[max(names.pages)]).stat().st_size)
    assert max(sizes) - min(sizes) < 100
    # No page repeats what an earlier one has: 32 bytes for each answer and little besides.
    assert max(pages) < 500 * 32 + 500


def test_a_page_goes_when_nobody_may_ask_for_its_answers_any_more(tmp_path: Path) -> None:
    newborn(tmp_path, ONE)
    world = World(tmp_path)
    actor = world.activate()
    world.ask(actor, ["old"])
    save(actor)
    (old,) = world.folder.glob("page-*")
    world.clock_us += KEPT_US
    world.ask(actor, ["new"])
    save(actor)
    assert old.exists(), "it can still be asked for"
    world.clock_us += 1
    world.ask(actor, ["newer"])
    save(actor)
    assert not old.exists()
    assert world.check(world.activate()) == 2


def test_a_page_that_has_expired_while_the_detector_rested_is_not_read(tmp_path: Path) -> None:
    newborn(tmp_path, ONE)
    world = World(tmp_path, FaultyFiles())
    actor = world.activate()
    world.ask(actor, ["old"])
    save(actor)
    (old,) = world.folder.glob("page-*")
    old.write_bytes(old.read_bytes()[:-1])
    world.clock_us += KEPT_US + 1
    actor = world.activate()
    assert world.activated.damage == ()
    world.ask(actor, ["new"])
    save(actor)
    assert not old.exists()


def test_a_damaged_page_is_set_aside_and_told_and_the_others_are_used(tmp_path: Path) -> None:
    newborn(tmp_path, ONE)
    world = World(tmp_path)
    actor = world.activate()
    for key in ("one", "two"):
        world.ask(actor, [key])
        save(actor)
    damaged, _ = sorted(world.folder.glob("page-*"))
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    actor = world.activate()
    (told,) = world.activated.damage
    assert f"{damaged.name}.damaged" in told
    assert "its body does not fit its checksum" in told
    assert damaged.with_name(f"{damaged.name}.damaged").read_bytes() == data
    world.given.pop("one")
    assert world.check(actor) == 1
    world.ask(actor, ["three"])
    save(actor)
    assert not damaged.exists()
    world.activate()
    assert world.activated.damage == ()


@pytest.mark.parametrize("failing", ["create", "write", "sync", "rename", "sync_folder"])
def test_where_a_page_cannot_be_written_there_is_no_snapshot_and_the_next_page_has_its_answers(
    tmp_path: Path, failing: str
) -> None:
    newborn(tmp_path / "data", ONE)
    world = World(tmp_path / "data", files := FaultyFiles())
    actor = world.activate()
    world.ask(actor, ["before"])
    assert actor.begin_saving()
    files.fail_next(failing)
    with pytest.raises(StorageError):
        actor.finish_saving()
    assert len(list(world.folder.glob("snapshot-*"))) == 1
    # Killed there, nothing is lost; and where it goes on, nothing either.
    shutil.copytree(tmp_path / "data", tmp_path / "killed")
    killed = World(tmp_path / "killed")
    killed.epoch, killed.given, killed.clock_us = world.epoch, dict(world.given), world.clock_us
    assert killed.check(killed.activate()) == 1
    world.ask(actor, ["after"])
    save(actor)
    assert len(list(world.folder.glob("snapshot-*"))) == 2
    assert world.check(world.activate()) == 2


def test_a_folder_with_answers_in_its_snapshot_and_their_keys_in_its_journal_opens_with_nothing_lost(
    tmp_path: Path,
) -> None:
    """Written before there were pages: a snapshot of version 3, and a journal with records of version 2."""
    one = "d" * 32
    folder = tmp_path / "detectors" / one
    shutil.copytree(GOLDEN, folder)
    clock_us = [1_700_000_000_000_000 + KEPT_US]

    def activate(epoch: int) -> DetectorActor:
        actor = DetectorActor(RuntimeSettings(data=tmp_path), now_us=lambda: clock_us[0])
        assert actor.activate(one, epoch).diverged is None
        return actor

    def event(key: str, at_ms: int, a: int) -> Operation:
        document = {"event": {"fields": {"a": a}, "timestamp_ms": at_ms}}
        return ops.evaluate(json.dumps(document).encode(), key)

    two = [{"fields": {}, "timestamp_ms": 1002}, {"fields": {}, "timestamp_ms": 1e15}]
    repeats = [
        event("first", 1000, 1),
        event("second", 1001, 2),
        ops.evaluate_batch(json.dumps({"events": two}).encode(), "third"),
        event("fourth", 2000, 3),
        ops.evaluate_batch(
            b"\x81\xa6events\x91\x82\xa6fields\x80\xactimestamp_ms\xcd\x07\xd1", "fifth", "msgpack"
        ),
    ]
    actor = activate(2)
    given = actor.handle(repeats).answers
    assert [len(one.result) for one in given if isinstance(one, Done)] == [113, 113, 277, 113, 127]
    assert b"ahead of the server's time" in given[2].result  # type: ignore[union-attr] -- it is Done
    assert actor.handle([event("sixth", 2002, 1)]).answers == [given[3]]
    assert actor._active is not None
    assert actor._active.detector.events_seen == 7
    changed = actor.handle([event("first", 1000, 2)]).answers[0]
    assert isinstance(changed, Refused)
    assert [entry.code for entry in changed.entries] == [1006]
    save(actor)
    assert activate(3).handle(repeats).answers == given
    # They are as old as they were when they were given.
    clock_us[0] += 2 * KEPT_US
    assert given[0] not in activate(4).handle([repeats[0]]).answers
