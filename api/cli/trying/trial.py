"""Runs rules over events in this process, and counts the firings."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET

from api.cli.messages import CommandError, counted
from api.cli.printing.explained_rules import lines_of
from api.cli.printing.output import KEYS_MAX, keys_text
from api.cli.recordings.reading import RecordedEvent
from api.cli.recordings.times import iso
from api.cli.rule_files.reading import NamedCondition
from api.cli.rule_files.relations import Tuple
from engine.evaluation.detector import Detector
from engine.evaluation.events.outcomes import BatchRefused
from engine.evaluation.explanation.explaining import explain
from engine.evaluation.explanation.firings import Details, evaluate_explained
from engine.evaluation.explanation.nodes import Explanation, rule_document
from engine.evaluation.facts.look_up import split_name, value_of
from engine.evaluation.relations.stored import StoredRelation
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.timed.timing import FiredByTime
from engine.evaluation.times import milliseconds
from engine.language.condition import walk
from engine.language.diagnostics import Refusal, quoted
from rule_detector_client import ExplainedRule

NEW: Final = "new"
OLD: Final = "old"
BOTH: Final = "both"

_NONE: Final[Mapping[str, StoredRelation]] = {}
_TOO_LATE: Final = 1402
"""The code of events that are too late. Without a clock here, none can be too far ahead."""


@dataclass(frozen=True, slots=True)
class Firing:
    """A firing of a rule at an event, or because time had passed before one."""

    rule: str
    key: Mapping[str, Any]
    """The values of the facts that the rule is keyed by."""
    event: RecordedEvent
    found: Mapping[str, Any] | None = None
    """The values of its counting conditions and terms, if requested."""
    suppressed: int = 0
    """How many actions were suppressed since the previous one; see `every_secs`."""
    version: str = NEW
    """The versions of the rules that fired, if two are compared: NEW, OLD or BOTH."""
    timed: bool = False
    """Whether time alone made it true. `event` then has the keys, that time, and the next event's place."""


@dataclass(slots=True)
class Tally:
    """The firings of one rule."""

    name: str
    fired: dict[str, int] = field(default_factory=lambda: {NEW: 0, OLD: 0, BOTH: 0})
    first: RecordedEvent | None = None
    last: RecordedEvent | None = None
    by_key: dict[str, "Tally"] = field(default_factory=dict)
    """The firings by key, in order of the first firing."""

    def note(self, firing: Firing) -> None:
        """Count a firing."""
        self.fired[firing.version] += 1
        self.first, self.last = self.first or firing.event, firing.event

    @property
    def times(self) -> int:
        """How often the rule fired, in the new version if two are compared."""
        return self.fired[NEW] + self.fired[BOTH]


def stored(relations: Mapping[str, Sequence[Tuple]]) -> Mapping[str, StoredRelation]:
    """Return relations in the form of a detector. Raises CommandError if it would refuse one."""
    detector = Detector()
    for name, tuples in relations.items():
        try:
            detector.put_relation(name, tuples, 0)
        except Refusal as refusal:
            raise CommandError(f"relation {quoted(name)}: {refusal.entries[0].message}") from None
    return detector.stored


class _Rules:
    """One version of the rules, in its own detector."""

    def __init__(
        self,
        conditions: Iterable[NamedCondition],
        relations: Mapping[str, StoredRelation],
        *,
        may_be_timed: bool = False,
    ) -> None:
        self.detector = Detector()
        self.by_time: list[FiredByTime] | None = None
        """The firings by time before the last event; None if no rule is timed."""
        for name, relation in relations.items():
            self.detector.install_relation(name, relation)
        self.keys: dict[str, list[str]] = {}
        for one in conditions:
            every_by = None if one.members.every_by is UNSET else one.members.every_by
            every_secs = one.members.every_secs or None
            timed = may_be_timed and bool(one.members.timed)
            self.detector.add_rule(
                one.name, one.condition, timed=timed, every_secs=every_secs, every_by=every_by
            )
            if timed:
                self.detector.fired_by_time = self.by_time = list[FiredByTime]()
            steps = dict.fromkeys(step for _, path in walk(one.condition) for step in path)
            names = [step if isinstance(step, str) else step.fact for step in steps]
            self.keys[one.name] = list(dict.fromkeys(names))

    def key(self, rule: str, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the facts that a rule is keyed by."""
        return {key: value_of(split_name(key), fields, sent) for key in self.keys[rule]}


class Trial:
    """Runs rules over events, and optionally an older version of the rules too.

    Each firing is passed to `tell`; if two versions are compared, only firings at which they differ. An event
    that the engine refuses is counted in `refused` by its code, and changes nothing.
    """

    def __init__(
        self,
        rules: Sequence[NamedCondition],
        tell: Callable[[Firing], None],
        *,
        against: Sequence[NamedCondition] | None = None,
        relations: Mapping[str, StoredRelation] = _NONE,
        variables: Mapping[str, Any] | None = None,
        detailed: bool = False,
    ) -> None:
        """`relations` are stored with the rules, and `variables` are the `context.vars` of every event.

        With `detailed`, firings have the values found.
        """
        self._detailed = detailed
        self._new = _Rules(rules, relations, may_be_timed=against is None)
        self._old = None if against is None else _Rules(against, relations)
        self._tell = tell
        self._variables = variables
        named = dict.fromkeys(rule.name for rule in [*rules, *(against or ())])
        self.tallies = {name: Tally(name) for name in named}
        self.events = 0
        self.refused = Counter[int]()
        self._examples: dict[int, str] = {}
        """The first refusal of each code, with its place."""
        self.late = 0
        """How many events followed one with a later time, and were evaluated at that time or refused."""
        self.late_us_most = 0
        self._clock_us: int | None = None

    @property
    def late_refused(self) -> int:
        """How many events were refused because they were too late."""
        return self.refused[_TOO_LATE]

    def refusals(self) -> list[str]:
        """Return a line for each kind of refusal but lateness, with its count and first place."""
        return [
            f"{counted(times, 'event')} refused with {code}; first {self._examples[code]}"
            for code, times in sorted(self.refused.items())
            if code != _TOO_LATE
        ]

    def explain(self, event: RecordedEvent) -> Iterator[str]:
        """Yield lines that explain why the rules fire at an event, or not. The event is not evaluated."""
        for rules in (self._new, self._old):
            if rules is None or not rules.keys:
                continue
            try:
                explanation = explain(
                    rules.detector, event.fields, milliseconds(event.time_us), self._variables
                )
            except Refusal as refusal:
                yield refusal.entries[0].message
                return
            if rules is self._old:
                yield "In the older version:"
            else:
                yield f"{iso(explanation.time_us)}  {event.place}"
            yield from _lines(explanation)

    def evaluate(self, batch: Sequence[RecordedEvent]) -> None:
        """Evaluate events in order."""
        if not batch:
            return
        if self._new.by_time is not None and len(batch) > 1:
            for event in batch:
                self.evaluate([event])
            return
        self._note_times(batch)
        if self._detailed:
            for event, fired in zip(batch, self._detailed_fired(batch), strict=True):
                self._note_by_time(event)
                for rule, (_, found) in fired:
                    self._note(self._firing(rule, event, found))
            return
        new = self._fired(self._new, batch)
        if self._old is None:
            self._note_by_time(batch[0])
            for event, rules in zip(batch, new, strict=True):
                for rule in rules:
                    self._note(self._firing(rule, event))
        else:
            for event, rules, before in zip(batch, new, self._fired(self._old, batch), strict=True):
                if rules or before:
                    self._compare(event, {rule.name for rule in rules}, {rule.name for rule in before})

    def tick(self, time_us: int, last: RecordedEvent) -> None:
        """Let time pass after the last event."""
        if self._new.by_time is not None:
            self._new.by_time += self._new.detector.tick(time_us)
            self._note_by_time(last)

    def _note_by_time(self, event: RecordedEvent) -> None:
        """Note the firings by time before an event."""
        for rule, keys, time_us in self._new.by_time or ():
            then = event._replace(fields=keys, time_us=time_us, text=None)
            self._note(Firing(rule.name, keys, then, suppressed=rule.suppressed, timed=True))
        if self._new.by_time:
            self._new.by_time.clear()

    def _firing(self, rule: Rule, event: RecordedEvent, found: Mapping[str, Any] | None = None) -> Firing:
        return Firing(rule.name, self._key(self._new, rule.name, event), event, found, rule.suppressed)

    def _compare(self, event: RecordedEvent, new: set[str], old: set[str]) -> None:
        for name in self.tallies:
            if name in new or name in old:
                version = BOTH if name in new and name in old else NEW if name in new else OLD
                rules = self._old if version is OLD else self._new
                assert rules is not None
                self._note(Firing(name, self._key(rules, name, event), event, version=version))

    def _key(self, rules: _Rules, name: str, event: RecordedEvent) -> dict[str, Any]:
        return rules.key(name, event.fields, self._variables or {})

    def _note(self, firing: Firing) -> None:
        tally = self.tallies[firing.rule]
        tally.note(firing)
        key = keys_text(firing.key)
        if key in tally.by_key or len(tally.by_key) < KEYS_MAX:
            tally.by_key.setdefault(key, Tally(key)).note(firing)
        if self._old is None or firing.version is not BOTH:
            self._tell(firing)

    def _note_times(self, batch: Sequence[RecordedEvent]) -> None:
        clock_us = batch[0].time_us if self._clock_us is None else self._clock_us
        for event in batch:
            if event.time_us < clock_us:
                self.late += 1
                self.late_us_most = max(self.late_us_most, clock_us - event.time_us)
            else:
                clock_us = event.time_us
        self._clock_us = clock_us
        self.events += len(batch)

    def _fired(self, rules: _Rules, batch: Sequence[RecordedEvent]) -> list[Fired]:
        """Return the rules that fire at each event; none if it is refused."""
        results: list[Fired] = []
        sent = self._variables
        while len(results) < len(batch):
            left = batch[len(results) :]
            events = [
                (
                    event.fields,
                    time_us / 1_000 if (time_us := event.time_us) % 1_000 else time_us // 1_000,
                    sent,
                )
                for event in left
            ]
            try:
                results += rules.detector.evaluate_many(events)
            except BatchRefused as refusal:
                results += [*refusal.results, ()]
                if rules is self._new:
                    self._refuse(refusal, batch[len(results) - 1])
        return results

    def _detailed_fired(self, batch: Sequence[RecordedEvent]) -> Iterator[Sequence[tuple[Rule, Details]]]:
        """Yield the rules that fire at each event with their details; none if it is refused."""
        for event in batch:
            given = (event.fields, milliseconds(event.time_us), self._variables)
            try:
                fired = evaluate_explained(self._new.detector, *given, explained=False, detailed=True)
            except Refusal as refusal:
                self._refuse(refusal, event)
                yield ()
            else:
                yield tuple(zip(fired.rules, fired.details, strict=True))

    def _refuse(self, refusal: Refusal, event: RecordedEvent) -> None:
        code, said = refusal.entries[0].code, refusal.entries[0].message
        self.refused[code] += 1
        self._examples.setdefault(code, f"{event.place}: {said}")


def _lines(explanation: Explanation) -> Iterator[str]:
    for explained in explanation.rules:
        # Through JSON, because msgspec converts no integers beyond 64 bits.
        document = json.dumps(rule_document(explained), allow_nan=False)
        yield from lines_of(msgspec.json.decode(document, type=ExplainedRule), explanation.time_us)
