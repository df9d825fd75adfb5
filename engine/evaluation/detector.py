"""A detector: rules with their histories, and the evaluation of events in order."""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol, Self, cast

from engine.evaluation import frames
from engine.evaluation.dispatch.compiler import Event, Fired
from engine.evaluation.dispatch.rule_set import RuleSet
from engine.evaluation.intake import Intake
from engine.evaluation.lateness import late, too_far_ahead, too_late
from engine.evaluation.memory import FOREVER
from engine.evaluation.outcomes import BatchRefused, Outcome, Outcomes
from engine.evaluation.persistence import saved
from engine.evaluation.plan.requirements import TRAITS
from engine.evaluation.preparation import Preparation
from engine.evaluation.rules import LiveRule, Rule, check_name, read_condition, source_of
from engine.evaluation.state.slices import State
from engine.evaluation.verdicts import Verdicts
from engine.evaluation.warnings import warnings_on, warnings_on_many
from engine.language.condition import Condition
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import DEFAULT_LIMITS, Limits

_NOTHING: Final[Mapping[str, Any]] = {}


class Observer(Protocol):
    """Looks at each event of `submit` and its kin before it is evaluated, and changes nothing."""

    def observe(self, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any]) -> None:
        """Take an event, which may then be refused."""


class Detector:
    """Rules that are evaluated on a stream of events.

    `now_us` gives the current time in microseconds since 1970; without it, events may be any time ahead.
    `new_id` gives a new id at each call: 32 lower-case hexadecimal characters.
    """

    def __init__(
        self,
        *,
        limits: Limits = DEFAULT_LIMITS,
        now_us: Callable[[], int] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.limits = limits
        self.state = State(limits.keys_max, limits.state_bytes_max, TRAITS)
        self.clock_us: int | None = None
        """The time of the last event; None before the first."""
        self.events_seen = 0
        self.keys_evicted = 0
        """Live keys that were evicted since the detector was made or restored."""
        self.priority_highest = 0
        self.live: dict[str, LiveRule] = {}
        """The rules by id, in order of priority."""
        self.verdicts = Verdicts()
        """The checksum of the events of `submit` and `submit_clean`."""
        self.observer: Observer | None = None
        self._now_us = now_us
        self._new_id = new_id or (lambda: secrets.token_hex(16))
        self.rule_set = RuleSet(self.state, limits)
        self._preparation: Preparation | None = None
        """None until a rule is added or changed: evaluation does not need it."""
        self._messages: list[Entry] | Outcomes | None = None
        """Collects the messages about the current event."""

    # -- rules ----------------------------------------------------------------------------------------------

    def add_rule(
        self,
        name: str,
        condition: str | Mapping[str, Any] | Condition,
        notify: bool = False,
        *,
        rule_id: str | None = None,
    ) -> str:
        """Add a rule and give its id. Its history begins with the next event.

        Raises ConditionError, Refusal 1001 for the name, and 1400 if the detector is full.
        """
        check_name(name)
        read = read_condition(condition, self.limits)
        if len(self.live) >= self.limits.rules_max:
            raise Refusal(Entry(1400, f"the detector has {self.limits.rules_max} rules, which is the limit"))
        self._prepared().check(read)
        rule_id = rule_id or self._new_id()
        rule = Rule(id=rule_id, name=name, condition=read, notify=notify, priority=self.priority_highest + 1)
        self.put_rule(replace(rule, source=source_of(condition, read)))
        return rule_id

    def change_rule(
        self,
        rule_id: str,
        *,
        name: str | None = None,
        condition: str | Mapping[str, Any] | Condition | None = None,
        enabled: bool | None = None,
        notify: bool | None = None,
    ) -> Rule:
        """Change the given parts of a rule, those that are not None, and give the rule.

        A different condition and enabling the rule start a new history. Raises as `add_rule` does, and
        Refusal 1201 for an unknown rule.
        """
        before = self._named(rule_id).rule
        if name is not None:
            check_name(name)
        read = before.condition if condition is None else read_condition(condition, self.limits)
        if condition is not None:
            self._prepared().check(read, before.condition)
        after = replace(
            before,
            name=before.name if name is None else name,
            condition=read,
            enabled=before.enabled if enabled is None else enabled,
            notify=before.notify if notify is None else notify,
            source=before.source if condition is None else source_of(condition, read),
        )
        self.put_rule(after)
        return after

    def put_rule(self, rule: Rule) -> None:
        """Add or replace a rule that was validated before, as `add_rule` and `change_rule` do."""
        live = self.live.get(rule.id)
        unchanged = (
            live is not None and live.rule.enabled and rule.enabled and live.rule.condition == rule.condition
        )
        self.priority_highest = max(self.priority_highest, rule.priority)
        self.install(rule, live.birth if live is not None and unchanged else self.events_seen)
        self._settle_rules()

    def remove_rule(self, rule_id: str) -> None:
        """Remove a rule and the memories that only it uses. Raises Refusal 1201."""
        live = self._named(rule_id)
        del self.live[rule_id]
        self.verdicts.forget(live.rule.priority)
        if self._preparation is not None:
            self._preparation.remove(live.rule.condition)
        if live.rule.enabled:
            self.rule_set.remove(live.rule.priority, self.clock_us or 0)
            self._settle_rules()

    def rule(self, rule_id: str) -> Rule:
        """Return one rule. Raises Refusal 1201."""
        return self._named(rule_id).rule

    def rules(self) -> list[Rule]:
        """Return all rules in order of priority."""
        return [live.rule for live in self.live.values()]

    # -- events ---------------------------------------------------------------------------------------------

    def evaluate(
        self,
        fields: Mapping[str, Any],
        timestamp_ms: float | datetime,
        vars: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> list[dict[str, Any]]:
        """Evaluate one event and give the actions of the rules that fire, in order of priority.

        Raises Refusal 1001 with the name of a field that JSON cannot express, and 1402 if the event is too
        late or too far ahead. A refused event changes nothing.
        """
        event = Intake(self.limits).event(fields, timestamp_ms, vars)
        try:
            fired = self._evaluate(*event)
        finally:
            self.forget_lookups()
        return [rule.action() for rule in fired]

    def evaluate_many(self, events: Iterable[Event]) -> list[Fired]:
        """Evaluate events in order and give the rules that fire at each, in order of priority.

        Raises BatchRefused at the first refused event. The events before it stay evaluated.
        """
        results: list[Fired] = []
        given = Intake(self.limits).events(events, self.forget_lookups)
        try:
            self.rule_set.stream()(given, self, results)
        except Refusal as refusal:
            raise BatchRefused(*refusal.entries, index=len(results), results=tuple(results)) from None
        finally:
            self.forget_lookups()
        return results

    def evaluate_frame(self, frame: Any, time: str) -> Any:
        """Evaluate the rows of a DataFrame; raises what `frames.events_of` and `evaluate_many` raise."""
        return frames.verdicts(frame, self.rules(), self.evaluate_many(frames.events_of(frame, time)))

    def submit(
        self,
        fields: Mapping[str, Any],
        timestamp_ms: float | datetime,
        vars: Mapping[str, Any] | None = None,  # noqa: A002
    ) -> Outcome:
        """Evaluate one event as `evaluate` does, and give the messages, too."""
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
        if self.observer is None and set(map(type, events)) <= {tuple}:
            self._stream(cast("Sequence[Event]", events), outcomes)
        else:
            for event in events:
                if isinstance(event, Refusal):
                    outcomes.refuse(event)
                else:
                    self._observe(*event)
                    self._stream((event,), outcomes)
        return outcomes

    def forget_lookups(self) -> None:
        """Drop what was cached of events, which may change from now on."""
        self.rule_set.lookups.forget()

    @property
    def answer_bytes_worst(self) -> int:
        """The most bytes of actions and warnings in the result of one event."""
        return self.rule_set.answer_bytes_worst

    def _stream(self, events: Sequence[Event], outcomes: Outcomes) -> None:
        """Evaluate events, and add their outcomes to those before them."""
        fired = outcomes.fired
        start = len(fired)
        end = start + len(events)
        # A refused event has been consumed; the loop goes on with those after it.
        left = iter(events)
        while len(fired) < end:
            first, seen_before = len(fired), self.events_seen
            self._messages = outcomes
            try:
                self.rule_set.stream()(left, self, fired)
            except Refusal as refusal:
                outcomes.refuse(refusal)
            finally:
                self._messages = None
            for number, rules in enumerate(fired[first:], seen_before + 1):
                if rules:
                    self.verdicts.note(number, rules)
            self.verdicts.count_some()
        if self.rule_set.relations or self.rule_set.texts:
            for place, warnings in warnings_on_many(events, self.rule_set, self.limits):
                outcomes.warn(start + place, warnings)

    def submit_clean_one(
        self, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any] | None
    ) -> Outcome:
        """Submit one event that consists of JSON values; see `submit_clean`."""
        sent = sent or _NOTHING
        self._observe(fields, timestamp_ms, sent)
        messages: list[Entry] = []
        self._messages = messages
        if self.rule_set.relations or self.rule_set.texts:
            messages += warnings_on(fields, sent, self.rule_set, self.limits)
        try:
            fired = self._evaluate(fields, timestamp_ms, sent)
        finally:
            self._messages = None
        messages.sort(key=lambda entry: entry.code)
        if fired:
            self.verdicts.note(self.events_seen, fired)
            self.verdicts.count_some()
        return Outcome(fired, messages)

    def _observe(
        self, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any] | None
    ) -> None:
        if self.observer is not None:
            self.observer.observe(fields, timestamp_ms, sent or _NOTHING)

    def _evaluate(self, fields: Mapping[str, Any], timestamp_ms: float, sent: Mapping[str, Any]) -> Fired:
        results: list[Fired] = []
        self.rule_set.stream()(((fields, timestamp_ms, sent),), self, results)
        return results[0]

    # The interface for the compiled function over many events: `compiler.Stream`.

    @property
    def latest_us(self) -> int:
        """The latest timestamp that is accepted."""
        return FOREVER if self._now_us is None else self._now_us() + self.limits.ahead_ms_max * 1_000

    def settle(self) -> None:
        """Expire memories, and evict keys beyond the limits."""
        assert self.clock_us is not None, "an event has been observed"
        evicted = self.state.settle(self.clock_us, self.events_seen)
        self.keys_evicted += evicted.by_number + evicted.by_bytes
        if self._messages is None:
            return
        if evicted.by_number:
            said = f"{evicted.by_number} keys were forgotten: the detector keeps {self.limits.keys_max}"
            self._messages.append(Entry(2002, said))
        if evicted.by_bytes:
            most = f"the detector's keys may take {self.limits.state_bytes_max} bytes"
            self._messages.append(Entry(2002, f"{evicted.by_bytes} keys were forgotten: {most}"))

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
        """Restore a detector from the bytes of `dump`. It gives the same results for all further events.

        Older versions are migrated. The caller must refuse newer ones.
        """
        assert 1 <= version <= cls.STATE_VERSION, f"state of version {version}, which is unknown"
        detector = cls(limits=limits, now_us=now_us, new_id=new_id)
        saved.load(detector, saved.unpack(data), version)
        detector._settle_rules(loaded=True)
        return detector

    def fork(self, events: Sequence[Event]) -> Self:
        """Return a detector that evaluates these events as this one would, and shares nothing with it.

        The events consist of JSON values. Other keys are missing in it, so they cannot be evicted there.
        """
        copied = saved.dump(self, events)
        return self.load(copied, self.STATE_VERSION, limits=self.limits, now_us=self._now_us)

    def live_at(self, now_us: Callable[[], int]) -> None:
        """From now on compare timestamps with the current time, as with `now_us` of the constructor."""
        self._now_us = now_us

    # -- inside ---------------------------------------------------------------------------------------------

    def install(self, rule: Rule, birth: int) -> None:
        """Add or replace a rule whose history began at `birth`. Memories since then are kept."""
        before = self.live.get(rule.id)
        self.live[rule.id] = LiveRule(rule, birth)
        if self._preparation is not None and (before is None or before.rule.condition != rule.condition):
            self._preparation.add(rule.condition)
            if before is not None:
                self._preparation.remove(before.rule.condition)
        if before is not None and before.rule.enabled:
            if rule.enabled and before.birth == birth and before.rule.condition == rule.condition:
                self.rule_set.rename(rule)
                return
            self.rule_set.remove(rule.priority, self.clock_us or 0)
        if rule.enabled:
            self.rule_set.add(rule, birth, self.events_seen, self.clock_us or 0)

    def _settle_rules(self, *, loaded: bool = False) -> None:
        """Choose how the rules are evaluated, and compile what they search for, after they have changed."""
        self.rule_set.choose(self.events_seen, self.clock_us or 0, loaded=loaded)
        self.rule_set.compile_new()

    def _prepared(self) -> Preparation:
        if self._preparation is None:
            self._preparation = Preparation((live.rule.condition for live in self.live.values()), self.limits)
        return self._preparation

    def _named(self, rule_id: str) -> LiveRule:
        try:
            return self.live[rule_id]
        except KeyError:
            raise Refusal(Entry(1201, f"there is no rule `{rule_id}` in this detector")) from None
