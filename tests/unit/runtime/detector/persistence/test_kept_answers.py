"""Kept answers in memory: found while they are kept, and small."""

import itertools
import json
import random
from pathlib import Path

import pytest

from engine.evaluation.events.outcomes import LATE_US_MAX, late, without_lateness
from engine.evaluation.inspecting.states import StateAsked
from engine.evaluation.wire.events import Done, encode_entries
from engine.language.diagnostics import Entry
from engine.runtime.contract.requests import operations as ops
from engine.runtime.contract.requests.operations import Operation
from engine.runtime.contract.settings import RuntimeSettings
from engine.runtime.detector.persistence.detector_snapshot import take_snapshot
from engine.runtime.detector.persistence.idempotency import (
    CachedAnswer,
    IdempotencyCache,
    key_digest,
    request_digest,
)
from tests.property.looking.test_forks import opened
from tests.unit.runtime.detector.persistence.journaled import Journaled

KEPT_US = 600_000_000
QUARTER_US = KEPT_US // 4
NOTHING = b'{"actions":[]}'


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
    loaded.load_page(page.body())
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
    other.load_page(page.body())
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
        other.load_page(page.body())
        assert {answer.key for answer in other} == {key_digest(key) for key in keys}
        assert other.begin_page(4) is None, "what a page has is not written again"


def events(journaled: Journaled, *times_ms: int, **fields: object) -> list[int]:
    """Return how many actions were held back before each action at some events."""
    rows = [{"fields": {"a": 1, **fields}, "timestamp_ms": at_ms} for at_ms in times_ms]
    answer = journaled.take(ops.evaluate_batch(json.dumps({"events": rows}).encode()))
    results = json.loads(answer.result)["results"]
    return [action.get("suppressed", 0) for result in results for action in result["actions"]]


@pytest.mark.parametrize("saved", [False, True])
def test_a_replay_repeats_what_acts_and_goes_on(saved: bool) -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "a == 1", every_secs=0.6, every_by=["host"]))
    assert events(journaled, 0, 100, 200, host="a") == [0]
    if saved:
        journaled.save()
    assert events(journaled, 300, 700, 800, host="a") == [3]
    assert events(journaled, 800, 801, host=1) == [0]
    for each in (journaled.restored(), journaled):
        assert events(each, 900, 1_300, host="a") == [2]
        assert events(each, 1_400, host=1.0) == [1]


def test_what_was_held_back_is_counted_in_the_state_and_in_snapshots() -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "a == 1", every_secs=600))
    events(journaled, 0, 1, 2)
    journaled.save()
    for each in (journaled, journaled.restored()):
        asked = StateAsked(about="rules", limit=10)
        [rule] = json.loads(each.take(ops.state(asked)).result)["rules"]
        assert (rule["times_true"], rule["held_back"]) == (1, 2)


def test_a_fork_goes_on_with_it() -> None:
    journaled = Journaled()
    journaled.take(ops.add_rule("r", "a == 1", every_secs=0.6, every_by=["host"]))
    events(journaled, 0, 100, host="a")
    fork = opened(take_snapshot(journaled.detector))
    assert fork.evaluate({"a": 1, "host": "a"}, 200) == []
    [action] = fork.evaluate({"a": 1, "host": "a"}, 600)
    assert action["suppressed"] == 2
