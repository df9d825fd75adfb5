"""What events come to: rules that fired, messages, refusals."""

from dataclasses import dataclass
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


class Notes:
    """What is said about the events of a stream, each while its place among the results is the next."""

    def __init__(self, results: list[Fired]) -> None:
        self._results = results
        self.of_event: dict[int, list[Entry]] = {}

    def append(self, entry: Entry) -> None:
        """Take a message about the event at hand."""
        self.of_event.setdefault(len(self._results), []).append(entry)
