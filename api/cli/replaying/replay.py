"""One replay: sends recordings to a detector, and counts which rules fired, how often and when first."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click
import msgspec
from rich.console import Console

from api.cli.messages import counted, duration_at_least
from api.cli.printing.output import KEYS_MAX, KEYS_SHOWN, keys_text, print_table
from api.cli.printing.terminal import on_one_line
from api.cli.recordings.reading import ReadingOptions, RecordedEvent
from api.cli.recordings.sorting import Sorter
from api.cli.recordings.times import iso, now_us
from api.cli.replaying.feeding import Feeding
from rule_detector_client import Client, Entry, EventResult, Rule, ServiceError
from rule_detector_client.sending import Event

_AT_THIS_TIME: Final = 1402
"""The code of events that are refused because they are too late, or too far ahead."""
_LATE: Final = 2001
"""The code of messages about events that were evaluated later than they happened."""
HEADER: Final = ("rule", "fired", "first at", "first event")
KEYED_HEADER: Final = ("rule", "key", "fired", "first at", "first event")


@dataclass(slots=True)
class Firing:
    """One rule that fired."""

    name: str
    priority: int
    first: RecordedEvent
    count: int = 0
    held_back: int = 0
    """How many actions were suppressed; see `every_secs`."""
    by_key: dict[str, "Firing"] = field(default_factory=dict)
    """The firings by key, if results have the keys."""

    @property
    def counts(self) -> str:
        """How often it fired, and how many actions were suppressed, as text."""
        return f"{self.count} ({self.held_back} held back)" if self.held_back else str(self.count)


@dataclass(slots=True)
class FiringsReport:
    """The counts of a replay, updated event by event."""

    events: int = 0
    firings: dict[str, Firing] = field(default_factory=dict)
    """The firings of each rule, by its id."""
    refused: Counter[int] = field(default_factory=Counter)
    messages: Counter[int] = field(default_factory=Counter)
    examples: dict[int, str] = field(default_factory=dict)
    """The first message of each code, with its place."""
    is_live: bool = False
    """Whether to report each rule when it first fires, and the first refusal of each code, at once."""
    late_us_most: int = 0
    """The maximum lateness: how much earlier an event was than an accepted one before it."""
    is_ahead: bool = False
    """Whether an event that was refused for its time is in the future."""
    _latest_us: int | None = None

    def count(self, event: RecordedEvent, outcome: EventResult) -> None:
        """Count one event and its outcome."""
        self.events += 1
        for action in outcome.actions:
            firing = self.firings.get(action.rule_id)
            if firing is None:
                firing = self.firings[action.rule_id] = Firing(action.name, action.priority, event)
                if self.is_live:
                    name, place = on_one_line(firing.name), on_one_line(event.place)
                    click.echo(f"`{name}` fires first at {iso(event.time_us)}, {place}", err=True)
            firing.count += 1
            firing.held_back += action.suppressed
            if action.keys is not None:
                key = keys_text(action.keys)
                if key in firing.by_key or len(firing.by_key) < KEYS_MAX:
                    firing.by_key.setdefault(key, Firing(key, action.priority, event)).count += 1
        if self._latest_us is not None:
            self.late_us_most = max(self.late_us_most, self._latest_us - event.time_us)
        if outcome.errors:
            self._count_refusal(event, outcome.errors[0])
        else:
            self._latest_us = max(event.time_us, self._latest_us or event.time_us)
        self.messages.update(message.code for message in outcome.messages)
        for entry in [*outcome.errors, *outcome.messages]:
            self.examples.setdefault(entry.code, f"{event.place}: {entry.message}")

    def _count_refusal(self, event: RecordedEvent, error: Entry) -> None:
        self.refused[error.code] += 1
        if error.code == _AT_THIS_TIME and event.time_us > now_us():
            self.is_ahead = True
        if self.refused[error.code] == 1 and self.is_live:
            said = f"{event.place}: {error.code} {error.message}{self._hint(error.code)}"
            click.echo(f"refused for the first time: {on_one_line(said)}", err=True)

    def _hint(self, code: int) -> str:
        """Return a hint which option would make events of a code accepted, or evaluated in order."""
        if code not in {_AT_THIS_TIME, _LATE}:
            return ""
        hint = ""
        if self.late_us_most:
            most = duration_at_least(self.late_us_most)
            hint = f"; here events come up to {most} late, and `--max-late {most}` sorts them"
        if self.is_ahead:
            hint += "; if the times are those of another zone, name it with --time-zone"
        return hint

    def fired(self) -> list[Firing]:
        """Return the rules that fired, in order of priority."""
        return sorted(self.firings.values(), key=lambda firing: firing.priority)

    def rows(self, rules: Iterable[Rule]) -> list[tuple[str, str, str, str]]:
        """Return for each rule its name, its count, and the time and place of its first firing.

        Shadow rules never act, so `shadow` replaces their count. Suppressed actions are shown beside it.
        """
        return [
            (rule.name, firing.counts, iso(firing.first.time_us), firing.first.short_place)
            if (firing := self.firings.get(rule.id))
            else (rule.name, "shadow" if rule.shadow else "0", "", "")
            for rule in rules
        ]

    def rows_by_key(self, rules: Iterable[Rule]) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield the rows of each rule with a column for its key, most frequent first."""
        listed = list(rules)
        for rule, row in zip(listed, self.rows(listed), strict=True):
            firing = self.firings.get(rule.id)
            keys = sorted(firing.by_key.values(), key=lambda each: -each.count) if firing else []
            for each in keys[:KEYS_SHOWN]:
                yield row[0], each.name, str(each.count), iso(each.first.time_us), each.first.short_place
            left = firing.count - sum(each.count for each in keys[:KEYS_SHOWN]) if firing else 0
            if not keys:
                yield row[0], "", *row[1:]
            elif left:
                yield row[0], "other keys", str(left), "", ""

    def warnings(self) -> list[str]:
        """Return a line for each kind of message, with its count and first place."""
        return [
            f"message {code}, {counted(times, 'time')}; first {self.examples[code]}{self._hint(code)}"
            for code, times in sorted(self.messages.items())
        ]

    def refusals(self) -> list[str]:
        """Return a line for each kind of refusal, with its count and first place."""
        return [
            f"{times} of {counted(self.events, 'event')} refused with {code}; "
            f"first {self.examples[code]}{self._hint(code)}"
            for code, times in sorted(self.refused.items())
        ]


@dataclass(slots=True)
class Replay:
    """Sends recordings through one detector and counts the results in `report`."""

    client: Client
    detector_id: str
    console: Console
    report: FiringsReport = field(default_factory=FiringsReport)
    sorter: Sorter | None = None
    """Sorts the events of all recordings together; None to send them as they come."""
    variables: Mapping[str, Any] | None = None
    """The `context.vars` of every event."""

    keys: bool = False
    """Whether to request the keys of firings, which costs the service more."""

    def run(self, files: Sequence[str], reading: ReadingOptions) -> str | None:
        """Send the recordings one after another; return the error that stopped it, or None."""
        feeding = Feeding(reading, self.console, self.sorter, size_bytes=lambda event: len(event.json))
        try:
            for group in [files] if self.sorter else [[path] for path in files]:
                self.report.is_live = "-" in group
                if failure := feeding.feed(group, self.send):
                    return failure
        except ServiceError as error:
            return str(error)
        return None

    def send(self, batch: list[RecordedEvent]) -> None:
        """Evaluate a batch and count its results. Raises ServiceError."""
        # The time is exact to the microsecond.
        sent = [Event(msgspec.Raw(event.json), event.time_us / 1_000).json() for event in batch]
        results = self.client.evaluate_batch(self.detector_id, sent, self.variables, details=self.keys)
        for event, result in zip(batch, results, strict=True):
            self.report.count(event, result)

    def show(self) -> None:
        """Print which rules fired, and the service's messages. Raises ServiceError."""
        rules = list(self.client.rules(self.detector_id))
        if self.keys:
            print_table(KEYED_HEADER, list(self.report.rows_by_key(rules)), self.console)
        else:
            print_table(HEADER, self.report.rows(rules), self.console)
        for warning in self.report.warnings():
            click.echo(warning)
