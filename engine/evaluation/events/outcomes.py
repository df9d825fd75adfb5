"""The outcomes of events: rules that fired, messages, refusals."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Final

from engine.evaluation.rules import Fired
from engine.language.diagnostics import Entry, Refusal

_code: Final = attrgetter("code")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one event: the rules that fired, in order of priority, and the messages about it."""

    fired: Fired
    messages: list[Entry]

    @property
    def actions(self) -> list[dict[str, Any]]:
        """The actions of the rules that fired."""
        return [rule.action() for rule in self.fired]


class BatchRefused(Refusal):
    """The event at `index` of `evaluate_many` was refused. `results` are those of the events before it."""

    def __init__(self, *entries: Entry, index: int, results: tuple[Fired, ...]) -> None:
        super().__init__(*entries)
        self.index = index
        self.results = results

    def __reduce__(self) -> tuple[Callable[..., Refusal], tuple[Entry, ...]]:
        """Pickle the place and the results, too."""
        return partial(type(self), index=self.index, results=self.results), self.entries


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of a batch, by the index of the event.

    An object for each event would cost as much as the evaluation of a few rules.
    """

    fired: list[Fired] = field(default_factory=list)
    """The rules that fired at each event, in order of priority; none for a refused event."""
    messages: dict[int, list[Entry]] = field(default_factory=dict)
    """The messages about each event that has any."""
    refused: dict[int, Refusal] = field(default_factory=dict)

    def append(self, entry: Entry) -> None:
        """Add a message about the next event."""
        self.messages.setdefault(len(self.fired), []).append(entry)

    def warn(self, place: int, warnings: list[Entry]) -> None:
        """Add warnings about the event at a place, unless it was refused. Messages are in order of code."""
        if place not in self.refused:
            messages = [*warnings, *self.messages.get(place, ())]
            self.messages[place] = sorted(messages, key=_code)

    def refuse(self, refusal: Refusal) -> None:
        """Record the refusal of the next event."""
        self.refused[len(self.fired)] = refusal
        self.fired.append(())
