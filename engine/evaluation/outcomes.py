"""What events come to: rules that fired, messages, refusals."""

from dataclasses import dataclass, field
from typing import Any

from engine.evaluation.compiler import Fired
from engine.language.diagnostics import Entry, Refusal


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one event came to: the rules that fired, in order of priority, and what is said about it."""

    fired: Fired
    messages: list[Entry]

    @property
    def actions(self) -> list[dict[str, Any]]:
        """The actions of the rules that fired."""
        return [rule.action() for rule in self.fired]


class BatchRefused(Refusal):
    """An event of `evaluate_many` was refused: `index` is its place, `results` what came before it."""

    def __init__(self, *entries: Entry, index: int = 0, results: tuple[Fired, ...] = ()) -> None:
        super().__init__(*entries)
        self.index = index
        self.results = results


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the events of a batch came to, by place.

    An object for each event would cost as much as a few of its rules.
    """

    fired: list[Fired] = field(default_factory=list)
    """For each event the rules that fired, in order of priority; none for one that was refused."""
    messages: dict[int, list[Entry]] = field(default_factory=dict)
    """What is said about events, for those about which anything is."""
    refused: dict[int, Refusal] = field(default_factory=dict)

    def each(self) -> list[Outcome | Refusal]:
        """Give them one by one."""
        return [
            self.refused.get(place) or Outcome(fired, self.messages.get(place, []))
            for place, fired in enumerate(self.fired)
        ]

    def append(self, entry: Entry) -> None:
        """Take a message about the event whose place is the next."""
        self.messages.setdefault(len(self.fired), []).append(entry)

    def refuse(self, refusal: Refusal) -> None:
        """Take the refusal of the event whose place is the next. Nothing else is said of it."""
        place = len(self.fired)
        self.messages.pop(place, None)
        self.refused[place] = refusal
        self.fired.append(())
