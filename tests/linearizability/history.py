"""A history: what concurrent clients asked one detector, when, and the answers.

Rules are known by their names, which no history gives twice: nobody knows the id of a rule whose creation
had no answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from engine.language.condition import Condition

REFUSED = "refused"
"""The answer to an event whose timestamp is too late, and to a request for a rule that is not there."""


@dataclass(frozen=True)
class Sent:
    """An event as it was sent. The number is its own: a retry sends the same event."""

    number: int
    fields: Mapping[str, Any]
    timestamp_ms: int


@dataclass(frozen=True)
class Evaluate:
    """One event, or several as one batch; with an idempotency key if it has one."""

    events: tuple[Sent, ...]
    batch: bool = False
    key: str = ""


@dataclass(frozen=True)
class AddRule:
    """A new rule."""

    name: str
    condition: Condition
    notify: bool = False


@dataclass(frozen=True)
class ChangeRule:
    """Other values for some members of a rule."""

    name: str
    changes: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class RemoveRule:
    """The rule of this name is deleted."""

    name: str


@dataclass(frozen=True)
class ListRules:
    """All rules are asked for."""


@dataclass(frozen=True)
class Position:
    """The clock and the number of events are asked for."""


Asked: TypeAlias = Evaluate | AddRule | ChangeRule | RemoveRule | ListRules | Position
READS = (ListRules, Position)


class Fired(NamedTuple):
    """The answer to one event: its actions without ids, and how late it was."""

    actions: tuple[tuple[str, str, int, bool], ...]
    late_us: int


class Listed(NamedTuple):
    """One rule, as in an answer."""

    name: str
    notify: bool
    enabled: bool
    priority: int


class At(NamedTuple):
    """The answer to Position."""

    clock_ms: float | None
    events: int


Answer: TypeAlias = tuple[Fired | str, ...] | tuple[Listed, ...] | At | str
"""The answer to an evaluation, one part for each event; to a question about rules, the rules; otherwise a
word."""


class Unexpected(NamedTuple):
    """An answer that no order explains, such as an internal error."""

    said: str


@dataclass(frozen=True, eq=False)
class Call:
    """One request. Without an answer it was executed perhaps, at any time after it was called.

    A request that was certainly not executed is in no history.
    """

    client: str
    asked: Asked
    called_ns: int
    returned_ns: int | None = None
    answer: Answer | Unexpected | None = None

    @property
    def answered(self) -> bool:
        """Whether it was certainly executed, between call and return."""
        return self.answer is not None
