"""Counts the results of a replay: which rules fired, how often and when first, and what was refused."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from api.cli.counted import counted
from api.cli.recordings.reading import RecordedEvent
from api.cli.recordings.times import iso
from api.client import EventResult, Rule


@dataclass(slots=True)
class Firing:
    """One rule that fired."""

    name: str
    priority: int
    first: RecordedEvent
    count: int = 0


@dataclass(slots=True)
class FiringsReport:
    """The tally of a replay, filled event by event."""

    events: int = 0
    firings: dict[str, Firing] = field(default_factory=dict)
    """The firings of each rule, by its id."""
    refused: Counter[int] = field(default_factory=Counter)
    messages: Counter[int] = field(default_factory=Counter)
    examples: dict[int, str] = field(default_factory=dict)
    """The first message of each code, with its place."""
    on_first: Callable[[Firing], None] | None = None
    """Receives each rule when it first fires."""

    def count(self, event: RecordedEvent, outcome: EventResult) -> None:
        """Count one event and its outcome."""
        self.events += 1
        for action in outcome.actions:
            firing = self.firings.get(action.rule_id)
            if firing is None:
                firing = self.firings[action.rule_id] = Firing(action.name, action.priority, event)
                if self.on_first is not None:
                    self.on_first(firing)
            firing.count += 1
        if outcome.errors:
            self.refused[outcome.errors[0].code] += 1
        self.messages.update(message.code for message in outcome.messages)
        for entry in [*outcome.errors, *outcome.messages]:
            self.examples.setdefault(entry.code, f"{event.place}: {entry.message}")

    def fired(self) -> list[Firing]:
        """Return the rules that fired, in order of priority."""
        return sorted(self.firings.values(), key=lambda firing: firing.priority)

    def rows(self, rules: Iterable[Rule]) -> list[tuple[str, str, str, str]]:
        """Return for each rule its name, its count, and time and place of its first firing.

        Shadow rules never act, so `shadow` stands in place of their count.
        """
        return [
            # The file's name is enough; its folders would fill the line.
            (rule.name, str(firing.count), iso(firing.first.time_us), firing.first.place.rsplit("/", 1)[-1])
            if (firing := self.firings.get(rule.id))
            else (rule.name, "shadow" if rule.shadow else "0", "", "")
            for rule in rules
        ]

    def warnings(self) -> list[str]:
        """Return a line for each kind of message, with how often it came and where first."""
        return [
            f"message {code}, {counted(times, 'time')}; first {self.examples[code]}"
            for code, times in sorted(self.messages.items())
        ]

    def refusals(self) -> list[str]:
        """Return a line for each kind of refusal, with how often it came and where first."""
        return [
            f"{times} of {counted(self.events, 'event')} refused with {code}; first {self.examples[code]}"
            for code, times in sorted(self.refused.items())
        ]
