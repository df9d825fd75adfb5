"""A detector: rules with their histories, and the evaluation of events in order."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol, Self, cast

from engine.evaluation.events import frames
from engine.evaluation.events.intake import Intake
from engine.evaluation.events.outcomes import (
    BatchRefused,
    Outcome,
    Outcomes,
    late,
    not_milliseconds,
    too_far_ahead,
    too_late,
    warnings_on,
    warnings_on_many,
)
from engine.evaluation.facts.values import Event
from engine.evaluation.firings.feed import Feed
from engine.evaluation.firings.recorder import Recorder
from engine.evaluation.persistence import saved
from engine.evaluation.rule_book.rule_book import RuleBook
from engine.evaluation.rules import Fired, LiveRule
from engine.evaluation.stamps import stamp_of
from engine.evaluation.timed.timing import FiredByTime
from engine.evaluation.times import FOREVER
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import DEFAULT_LIMITS, Limits

_log = logging.getLogger(__name__)

_NOTHING: Final[Mapping[str, Any]] = {}

_SAMPLED_MAX: Final = 8
"""The maximum number of events of a batch that the sampler sees; these are evaluated one by one."""


class Observer(Protocol):
    """Sees each submitted event before its evaluation. It must not change anything."""

    def observe(self, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any]) -> None:
        """Take the event that is evaluated next. The evaluation may still refuse it."""


class Detector(RuleBook):
    """Rules that are evaluated on a stream of events.

    `now_us` returns the current time in microseconds since 1970. Without it, events may be any time ahead,
    and no time is implausible. `new_id` returns a new id at each call: 32 lower-case hexadecimal digits.
    """

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT_LIMITS,
        now_us: Callable[[], int] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(limits, new_id)
        self.feed = Feed(limits)
        """The firings of rules that notify."""
        self.recorder = Recorder(
            self.feed, self.rule_set, self.versions.number_of, limits.firings_max, self.at_most_once
        )
        self.rule_set.note = self.recorder.note
        self.keys_evicted = 0
        """The number of live keys evicted since the detector was created or restored."""
        self.actions = 0
        """The number of actions since then."""
        self.refused: Counter[int] = Counter()
        """The number of refused events of batches, by code, until its reader clears it."""
        self.ticks = self.firings_by_time = 0
        """The numbers of ticks that moved the clock since then, and of firings by time."""
        self.behind_us: int | None = None
        """How far the clock was behind the server's at the last event or tick; None if unknown. The owner of
        the detector sets it, and it is saved with the figures."""
        self.observers: list[Observer] = []
        self.sampler: Observer | None = None
        """Sees the first events of each batch while rules have drafts."""
        self._now_us = now_us
        self.fired_by_time: list[FiredByTime] | None = None
        """Collects the firings by time while they are requested."""
        self.timing.fired = self._fire_by_time
        self._messages: list[Entry] | Outcomes | None = None
        """Collects the messages about the current event."""

    # -- events ---------------------------------------------------------------------------------------------

    def evaluate(
        self,
        fields: Mapping[str, Any],
        timestamp_ms: float | datetime,
        vars: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> list[dict[str, Any]]:
        """Evaluate one event and return the actions of the rules that fire, in order of priority.

        Raises Refusal 1001 with the name of a field that JSON cannot express, and 1402 if the event is too
        late or too far ahead. A refused event changes nothing.
        """
        event = Intake(self.limits).event(fields, timestamp_ms, vars)
        try:
            fired = self._acting(self._evaluate(event), event)
        finally:
            self.forget_lookups()
        return [rule.action() for rule in fired]

    def evaluate_many(self, events: Iterable[Event]) -> list[Fired]:
        """Evaluate events in order and return the rules that fire at each, in order of priority.

        Shadow rules are left out. Raises BatchRefused at the first refused event. The events before it stay
        evaluated. Fields that no rule reads are not refused, unless there are shadow rules.
        """
        results: list[Fired] = []
        append = results.append
        intake = Intake(self.limits)
        given = intake.in_turn(events, self.forget_lookups)
        try:
            if self.shadows.ids:
                # One at a time: the next event may consist of the same objects, changed.
                for event in intake.events(given):
                    append(self._acting(self._evaluate(event), event))
            elif (observe_given := self.rule_set.observe_given()) is not None:
                observe_given(given, self, results, intake)
            else:
                read = intake.read_events(given, self.rule_set.fields_read)
                self.rule_set.observe_many()(read, self, results)
        except Refusal as refusal:
            raise BatchRefused(*refusal.entries, index=len(results), results=tuple(results)) from None
        finally:
            self.forget_lookups()
        return results

    def evaluate_frame(self, frame: Any, time: str) -> Any:
        """Evaluate the rows of a DataFrame. Raises the errors of `frames.events_of` and `evaluate_many`."""
        acting = [rule for rule in self.rules() if not rule.shadow]
        return frames.verdicts(frame, acting, self.evaluate_many(frames.events_of(frame, time)))

    def submit(
        self,
        fields: Mapping[str, Any],
        timestamp_ms: float | datetime,
        vars: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> Outcome:
        """Evaluate one event like `evaluate`, and return the messages, too."""
        event = Intake(self.limits).event(fields, timestamp_ms, vars)
        try:
            return self.submit_clean_one(*event)
        finally:
            self.forget_lookups()

    def submit_clean(self, events: Sequence[Event | Refusal]) -> Outcomes:
        """Submit events that consist of JSON values. An event that is already a Refusal stays one.

        The caller must not change the events until `forget_lookups`.
        """
        outcomes = Outcomes()
        alone = len(events)
        if not self.observers and set(map(type, events)) <= {tuple}:
            alone = _SAMPLED_MAX if self.sampler is not None and self.shadows.comparisons else 0
        for event in events[:alone]:
            if isinstance(event, Refusal):
                outcomes.refuse(event)
            else:
                self._observe(*event)
                self._stream((event,), outcomes)
        if alone < len(events):
            self._stream(cast("Sequence[Event]", events[alone:] if alone else events), outcomes)
        return outcomes

    def tick(self, time_us: int, between: Callable[[], None] = lambda: None) -> list[FiredByTime]:
        """Move the clock to a time in microseconds, without an event; return the firings by time until then.

        `between` is called from time to time between these firings. A time behind the clock changes nothing.
        Raises Refusal 1402 if the time is too far ahead.
        """
        if self.clock_us is not None and time_us <= self.clock_us:
            return []
        self.time_of(time_us, time_us)
        before, self.fired_by_time = self.fired_by_time, list[FiredByTime]()
        self.timing.between = between
        self.timing.pass_time(stamp_of(time_us, 0), self.events_seen)
        self.clock_us = time_us
        fired, self.fired_by_time = self.fired_by_time, before
        return fired

    @property
    def next_due_us(self) -> int | None:
        """When a rule may fire by time next, in microseconds; None if none will unless an event comes."""
        return self.timing.next_due_us if self.timing.watches else None

    def _fire_by_time(self, fired: FiredByTime, tick: int) -> None:
        acting = self.recorder.by_time(*fired, tick)
        if acting is not None:
            self.firings_by_time += 1
            self.verdicts.note_by_time(fired.time_us, acting.priority)
            if self.fired_by_time is not None and not acting.shadow:
                self.fired_by_time.append(FiredByTime(acting, fired.keys, fired.time_us))

    def forget_lookups(self) -> None:
        """Drop the cached look-ups of events, so that their owner may change the events."""
        lookups = self.rule_set.lookups
        if lookups.used or lookups.read is not None:
            lookups.forget()
        self.rule_set.patterns.forget_elements()

    def code(self) -> str:
        """Return the Python source of the function that evaluates the rules while they are few."""
        return self.rule_set.code

    @property
    def awaits_first(self) -> bool:
        """Whether an implausible time can be recognized: there is a current time, but no event so far."""
        return self.clock_us is None and self._now_us is not None

    def _stream(self, events: Sequence[Event], outcomes: Outcomes) -> None:
        """Evaluate events, and add their outcomes to those before them."""
        fired = outcomes.fired
        start = len(fired)
        is_new = self.awaits_first
        end = start + len(events)
        # The stream has consumed a refused event, so the loop continues with the next event.
        left = iter(events)
        while len(fired) < end:
            first, seen_before = len(fired), self.events_seen
            self._messages = outcomes
            try:
                self.rule_set.observe_many()(left, self, fired)
            except Refusal as refusal:
                outcomes.refuse(refusal)
            finally:
                self._messages = None
            self.actions += self.verdicts.note(seen_before + 1, fired[first:])
            if self.shadows.ids:
                for place, number in enumerate(range(seen_before + 1, self.events_seen + 1), first):
                    firings = len(fired[place])
                    fired[place] = self._acting(fired[place], events[place - start], number)
                    self.actions -= firings - len(fired[place])
        if self.rule_set.may_warn:
            for place, warnings in warnings_on_many(events, self.rule_set, self.limits):
                outcomes.warn(start + place, warnings)
        if is_new and self.clock_us is not None:
            # The first event that was not refused has set the clock.
            first = next(place for place in range(start, end) if place not in outcomes.refused)
            if doubts := not_milliseconds(events[first - start][1]):
                outcomes.warn(first, doubts)

    def submit_clean_one(
        self, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any] | None
    ) -> Outcome:
        """Submit one event that consists of JSON values; see `submit_clean`."""
        sent = sent or _NOTHING
        self._observe(fields, timestamp_ms, sent)
        messages: list[Entry] = []
        is_new = self.awaits_first
        self._messages = messages
        if self.rule_set.may_warn:
            messages += warnings_on(fields, sent, self.rule_set, self.limits)
        try:
            fired = self._evaluate((fields, timestamp_ms, sent))
        finally:
            self._messages = None
        if is_new:
            messages += not_milliseconds(timestamp_ms)
        messages.sort(key=lambda entry: entry.code)
        if fired:
            self.verdicts.note(self.events_seen, (fired,))
        fired = self._acting(fired, (fields, timestamp_ms, sent))
        self.actions += len(fired)
        return Outcome(fired, messages)

    def _observe(
        self, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any] | None
    ) -> None:
        # A copy, because an observer may remove itself.
        for observer in tuple(self.observers):
            try:
                observer.observe(fields, timestamp_ms, sent or _NOTHING)
            except Exception:  # noqa: BLE001 -- an observer must not break an evaluation
                _log.exception("an observer of the detector failed, and is removed")
                if observer in self.observers:
                    self.observers.remove(observer)
        if self.sampler is not None and self.shadows.comparisons:
            try:
                self.sampler.observe(fields, timestamp_ms, sent or _NOTHING)
            except Exception:  # noqa: BLE001 -- a sampler must not break an evaluation
                _log.exception("explaining a difference failed; no more are explained")
                self.sampler = None

    def _acting(self, fired: Fired, event: Event, number: int | None = None) -> Fired:
        """Return those rules that act of the ones that fired at an event: by default, the last event."""
        number = self.events_seen if number is None else number
        held_back = self.at_most_once.held_at.pop(number, ())
        if self.shadows.ids and (fired or held_back):
            return self.shadows.acting(fired, number, event, held_back)
        return fired

    def _evaluate(self, event: Event) -> Fired:
        results: list[Fired] = []
        self.rule_set.observe_many()((event,), self, results)
        return results[0]

    # The interface for the generated function over many events: `kernel.stream`.

    @property
    def latest_us(self) -> int:
        """The latest accepted timestamp."""
        return FOREVER if self._now_us is None else self._now_us() + self.limits.ahead_ms_max * 1_000

    def settle(self, now_us: int, tick: int) -> None:
        """Expire memories after event `tick`, and evict keys beyond the limits."""
        evicted = self.histories.settle(now_us, tick)
        self.keys_evicted += evicted.by_number + evicted.by_bytes
        if self._messages is None:
            return
        if evicted.by_number:
            said = f"evicted {evicted.by_number} keys: limit of {self.limits.keys_max} live keys"
            self._messages.append(Entry(2002, said))
        if evicted.by_bytes:
            most = f"limit of {self.limits.state_bytes_max} bytes of keyed state"
            self._messages.append(Entry(2002, f"evicted {evicted.by_bytes} keys: {most}"))

    def time_of(self, stamped_us: int, clock_us: int) -> int:
        """Return the time at which an event is evaluated, never before the clock. The clock starts at NEVER.

        Raises Refusal 1402 if the event is too late or too far ahead.
        """
        if self._now_us is not None:
            ahead_us = stamped_us - self._now_us()
            if ahead_us > self.limits.ahead_ms_max * 1_000:
                raise too_far_ahead(ahead_us, self.limits)
        if stamped_us >= clock_us:
            return stamped_us
        late_us = clock_us - stamped_us
        if late_us > self.limits.late_ms_max * 1_000:
            raise too_late(late_us, self.limits)
        if self._messages is not None:
            self._messages.append(late(late_us))
        return clock_us

    # -- persistence ----------------------------------------------------------------------------------------

    STATE_VERSION: ClassVar[int] = saved.STATE_VERSION

    def dump(self) -> bytes:
        """Return the rules and the temporal state as bytes, in the format of STATE_VERSION."""
        return saved.dump(self)

    @classmethod
    def load(
        cls,
        data: bytes,
        version: int,
        *,
        limits: Limits = DEFAULT_LIMITS,
        now_us: Callable[[], int] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> Self:
        """Restore a detector from the bytes of `dump`. It returns the same results for all further events.

        Versions from `saved.OLDEST_VERSION` on are migrated. The caller must refuse others.
        """
        assert saved.OLDEST_VERSION <= version <= cls.STATE_VERSION, (
            f"state of version {version}, which is unknown"
        )
        detector = cls(limits=limits, now_us=now_us, new_id=new_id)
        saved.load(detector, saved.unpack(data), version)
        return detector

    def fork(self, events: Sequence[Event], among: Iterable[LiveRule] | None = None) -> Self:
        """Return a detector that evaluates these events like this one, and shares no state with it.

        The events consist of JSON values. The copy has all rules, or those in `among`, and the state of only
        the events' keys, so it cannot evict others. It stores no firings.
        """
        copied = type(self)(limits=replace(self.limits, firings_max=0), now_us=self._now_us)
        copied.stored.update(self.stored)
        copied.clock_us, copied.events_seen = self.clock_us, self.events_seen
        for live in self.live.values() if among is None else among:
            copied.install(live.rule, live.births)
        copied.settle_rules(indexed=self.rule_set.indexed)
        copied.histories.copy_from(self.histories, events)
        of_keys = copied.timing.copy_from(self.timing, events)
        copied.at_most_once.copy_from(self.at_most_once, [*events, *of_keys])
        return copied

    def live_at(self, now_us: Callable[[], int]) -> None:
        """From now on, compare timestamps with the current time, as with `now_us` of the constructor."""
        self._now_us = now_us
