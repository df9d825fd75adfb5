"""Events alone and in batches: what is told about each, who sees it, and which time counts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

import pytest

from engine import Detector, Limits, Refusal
from engine.evaluation.events import frames
from engine.evaluation.events.outcomes import Outcome
from engine.evaluation.explanation.explaining import explain
from engine.evaluation.rule_book.verdicts import VerdictChecksum
from engine.evaluation.times import FOREVER
from engine.language.diagnostics import Entry
from tests.differential.modes import in_mode

RULE = "1" * 32


@pytest.fixture(autouse=True, params=["fused", "indexed"])
def _mode(request: pytest.FixtureRequest) -> Iterator[None]:
    with in_mode(request.param):
        yield


def codes(messages: Iterable[Entry]) -> list[int]:
    return [entry.code for entry in messages]


class Noted:
    """Notes what an observer is shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def observe(self, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any]) -> None:
        self.seen.append((fields, timestamp_ms, sent))


def made(**given: Any) -> Detector:
    """Return a detector with a rule: one without any is never indexed."""
    detector = Detector(**given)
    detector.add_rule("rule", "a == 100")
    return detector


EVENTS = [({"a": number}, number, {"s": 1} if number % 2 else None) for number in range(10)]
SHOWN = [(fields, time_ms, sent or {}) for fields, time_ms, sent in EVENTS]


def with_draft() -> Detector:
    detector = Detector()
    detector.add_rule("rule", "a == 1", rule_id=RULE)
    detector.add_rule("draft", "a == 2", shadow=True, draft_of=RULE)
    return detector


def test_an_observer_sees_every_event_with_what_was_sent_and_may_remove_itself() -> None:
    for alone in (False, True):
        detector, noted, once = made(), Noted(), Noted()
        detector.observers += [noted, once]
        once.observe = lambda *_: detector.observers.remove(once)  # type: ignore[method-assign]
        if alone:
            for event in EVENTS:
                detector.submit(*event)
        else:
            assert len(detector.submit_clean(EVENTS).fired) == len(EVENTS)
        assert noted.seen == SHOWN
        assert detector.observers == [noted]


class Broken:
    """A look that fails."""

    def observe(self, *_: object) -> None:
        raise ValueError("broken")

    differed = observe


def test_a_look_that_fails_breaks_no_evaluation() -> None:
    detector, broken, noted = with_draft(), Broken(), Noted()
    detector.observers += [broken, noted]
    detector.sampler = detector.comparison(RULE).watcher = broken
    for number in range(2):
        assert len(detector.submit({"a": 1}, number).fired) == 1
    assert (detector.observers, detector.sampler, len(noted.seen)) == ([noted], None, 2)
    assert detector.comparison(RULE).counts["only_rule"] == 2


def test_the_sampler_sees_the_first_eight_events_of_a_batch_while_there_are_drafts() -> None:
    detector, noted = with_draft(), Noted()
    detector.sampler = noted
    detector.submit_clean(EVENTS)
    assert noted.seen == SHOWN[:8]
    detector.submit({"a": 1}, 20, {"s": 2})
    assert noted.seen[8:] == [({"a": 1}, 20, {"s": 2})]
    detector.change_rule(RULE, enabled=False)
    detector.submit_clean(EVENTS)
    detector.submit({"a": 1}, 20)
    assert len(noted.seen) == 9


@pytest.mark.parametrize("observed", [False, True])
def test_an_event_that_is_a_refusal_already_stays_one(observed: bool) -> None:
    detector = Detector()
    detector.add_rule("rule", "a == 1")
    if observed:
        detector.observers.append(Noted())
    refusal = Refusal(Entry(1001, "no event"))
    outcomes = detector.submit_clean([refusal, ({"a": 1}, 1, None), refusal, ({"a": 1}, 0, None)])
    assert [len(fired) for fired in outcomes.fired] == [0, 1, 0, 1]
    assert outcomes.refused == {0: refusal, 2: refusal}
    assert {place: codes(messages) for place, messages in outcomes.messages.items()} == {3: [2001]}
    assert detector.events_seen == 2


@pytest.mark.parametrize("shadows", [False, True])
def test_the_checksum_is_that_of_the_rules_and_the_numbers_of_events_alone_or_in_a_batch(
    shadows: bool,
) -> None:
    alone, batch, expected = Detector(), Detector(), VerdictChecksum()
    for detector in (alone, batch):
        for number in range(3):
            detector.add_rule("rule", f"a > {number}", shadow=shadows and number == 1)
        detector.evaluate({}, 0)
    fired = []
    for fields, time_ms, sent in EVENTS:
        fired.append(tuple(rule for rule in alone.rules() if fields["a"] > rule.priority - 1))
        alone.submit(fields, time_ms, sent)
    expected.note(2, fired)
    batch.submit_clean(EVENTS[:4])
    batch.submit_clean(EVENTS[4:])
    assert alone.verdicts.take() == batch.verdicts.take() == expected.take() != 0


def test_messages_are_about_the_events_that_were_submitted_and_no_later_ones() -> None:
    detector = made()
    detector.evaluate({}, 10)
    one = detector.submit({}, 9)
    assert detector.evaluate({}, 5) == []
    batch = detector.submit_clean([({}, 10, None), ({}, 8, None)])
    assert detector.evaluate_many([({}, 5, None)]) == [()]
    assert codes(one.messages) == [2001]
    assert {place: codes(messages) for place, messages in batch.messages.items()} == {1: [2001]}


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(keys_max=2), "evicted 1 keys: limit of 2 live keys"),
        (Limits(state_bytes_max=700), "evicted 1 keys: limit of 700 bytes of keyed state"),
    ],
)
def test_keys_that_are_forgotten_are_counted_and_told(limits: Limits, said: str) -> None:
    detector = Detector(limits=limits)
    detector.add_rule("rule", "per k once a == 1")
    assert detector.keys_evicted == 0
    told = [detector.submit({"k": key, "a": 1}, key).messages for key in range(4)]
    assert told == [[], [], *[[Entry(2002, said)]] * 2]
    assert detector.keys_evicted == 4 - detector.histories.live == 2
    outcomes = detector.submit_clean([({"k": key, "a": 1}, key, None) for key in range(4, 9)])
    assert outcomes.messages == {place: [Entry(2002, said)] for place in range(5)}
    detector.evaluate({"k": 9, "a": 1}, 9)
    assert detector.keys_evicted == 10 - detector.histories.live


def test_an_event_may_come_late_while_there_is_a_clock() -> None:
    detector = made(limits=Limits(late_ms_max=1_000, ahead_ms_max=1_000), now_us=lambda: 5_000_000)
    detector.evaluate({}, 5_500)
    assert codes(detector.submit({}, 5_000).messages) == [2001]
    assert (detector.clock_us, detector.latest_us) == (5_500_000, 6_000_000)
    assert Detector().latest_us == FOREVER


NOW_US = 1_709_542_800_000_000
IN_1980_MS, IN_2101_MS = 315_532_800_000, 4_133_980_800_000


@pytest.mark.parametrize(
    ("timestamp_ms", "when"),
    [
        (NOW_US // 10**6, "before 1980"),
        (IN_1980_MS - 0.5, "before 1980"),
        (-1, "before 1980"),
        (IN_1980_MS, None),
        (NOW_US // 10**3, None),
        (IN_2101_MS - 0.5, None),
        (IN_2101_MS, "after 2100"),
        (NOW_US, "after 2100"),
    ],
)
def test_a_first_time_that_is_not_in_milliseconds_is_told(timestamp_ms: float, when: str | None) -> None:
    def told(messages: Sequence[Entry]) -> bool:
        assert codes(messages) == [2007] * len(messages)
        return (
            bool(messages)
            and f"first event is {when}: timestamp_ms counts milliseconds" in messages[0].message
        )

    limits = Limits(ahead_ms_max=10**16, late_ms_max=10**16)
    event = ({}, timestamp_ms, {})
    alone, together, foretold, library = (
        made(limits=limits, now_us=now_us) for now_us in (*[lambda: NOW_US] * 3, None)
    )
    assert told(alone.submit({}, timestamp_ms).messages) == (when is not None)
    assert told(explain(foretold, {}, timestamp_ms).messages) == (when is not None)
    outcomes = together.submit_clean([Refusal(Entry(1001, "x")), event, event])
    assert {place: told(said) for place, said in outcomes.messages.items()} == ({1: True} if when else {})
    for detector in (alone, together):
        assert detector.submit({}, timestamp_ms).messages == []
    # Whoever gives no current time may count from anywhere.
    assert library.submit({}, timestamp_ms).messages == []


def test_only_the_first_event_that_is_accepted_is_told_that_its_time_is_doubtful() -> None:
    detector = made(limits=Limits(ahead_ms_max=1_000), now_us=lambda: 5_000_000)
    outcomes = detector.submit_clean([({}, 6_001, {}), ({}, 5_000, {}), ({}, 5_001, {})])
    assert ([*outcomes.refused], [*outcomes.messages]) == ([0], [1])
    refused = made(limits=Limits(ahead_ms_max=1_000), now_us=lambda: 5_000_000).submit_clean(
        [({}, 6_001, {})]
    )
    assert ([*refused.refused], [*refused.messages]) == ([0], [])


def test_how_far_ahead_an_event_may_be_counts_from_the_moment_of_its_evaluation() -> None:
    detector = made(limits=Limits(ahead_ms_max=1_000))

    def submitted(*nows_us: int) -> Outcome:
        """Submit an event while the clock shows these times, from the beginning of the batch on."""
        clock_us = iter(nows_us)
        detector.live_at(lambda: next(clock_us))
        return detector.submit({}, 6_000.5)

    assert codes(submitted(5_000_000, 5_000_500).messages) == [2007]
    # From now on the event is at the detector's time: not late, and looked at for being too far ahead.
    assert submitted(4_999_000, 5_001_000).messages == []
    assert submitted(4_999_000, 5_000_500).messages == []
    with pytest.raises(Refusal) as refused:
        submitted(4_999_000, 5_000_499)
    assert refused.value.entries == (
        Entry(
            1402,
            "the time is 1000.001 ms ahead of the server's; at most 1000 ms are accepted",
        ),
    )


TIMES_MS = (1_000, 1_000.0, 1_000.5, 0, 123_456_789_012_345, -5, -1.0015, 0.0005, 0.5015, 2.0005)
LARGE_TIMES_MS = (
    1_781_911_567_267.3154,
    4_407_906_778_168.103,
    95_394_642_174_046.83,
    -95_394_642_174_046.83,
)
"""A thousand times each of these, as a double, rounds to another integer than the exact product does."""


@pytest.mark.parametrize("time_ms", [*TIMES_MS, *LARGE_TIMES_MS])
def test_a_time_is_the_exact_number_of_microseconds_rounded_half_to_even(time_ms: float) -> None:
    exact = Decimal(repr(time_ms)) * 1_000
    detector = made()
    assert detector.evaluate({}, time_ms) == []
    assert detector.clock_us == exact.to_integral_value(rounding=ROUND_HALF_EVEN)


def test_a_window_ends_with_the_microsecond() -> None:
    detector = Detector()
    detector.add_rule("rule", "once within 1s a == 1")
    detector.evaluate({"a": 1}, 1_000.5)
    assert len(detector.evaluate({}, 2_000.5)) == 1
    assert detector.evaluate({}, 2_000.501) == []


SLOW = "matches '[ab].{8}c|1'"


@pytest.mark.parametrize("rule", ["$s == 1", "s()", "per $s p == 1", f"$s {SLOW}", f"p {SLOW}"])
def test_an_event_may_come_without_anything_sent(rule: str) -> None:
    detector = Detector(limits=Limits(pattern_event_work_max=200))
    detector.add_rule("rule", rule)
    sent = {"s": "1" if "matches" in rule else [[]] if "()" in rule else 1}
    fields = {"p": "1" if "matches" in rule else 1}
    events = [(fields, 0, None), (fields, 0, sent), (fields, 0, {}), (fields, 0, None)]
    expected = [rule.startswith("p matches"), True, *[rule.startswith("p matches")] * 2]
    assert [bool(detector.evaluate(*event)) for event in events] == expected
    assert list(map(bool, detector.submit_clean(events).fired)) == expected


def test_no_event_sets_no_clock() -> None:
    detector = made()
    assert detector.evaluate_many([]) == []
    assert detector.clock_us is None


def test_a_detector_can_come_to_compare_timestamps_with_the_current_time() -> None:
    detector = made(limits=Limits(ahead_ms_max=1_000))
    detector.evaluate({}, 10_000)
    detector.live_at(lambda: 9_500_000)
    detector.evaluate({}, 10_500)
    with pytest.raises(Refusal):
        detector.evaluate({}, 10_500.001)


def test_a_frame_has_the_verdicts_of_the_rules_that_act(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "events_of", lambda frame, time: [({"a": a}, time, None) for a in frame])
    monkeypatch.setattr(frames, "verdicts", lambda *given: given)
    detector = with_draft()
    acts = detector.rule(RULE)
    assert detector.evaluate_frame([0, 1, 2], 5) == ([0, 1, 2], [acts], [(), (acts,), ()])  # type: ignore[arg-type]
