"""At most once: which of the events at which a rule is true are actions, derived from all of them."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from engine.language import condition as terms
from tests.reference_panes import window_us
from tests.reference_values import equal


class Event(Protocol):
    """An event, as in the reference."""

    @property
    def time_us(self) -> int: ...
    def __getitem__(self, name: str) -> Any: ...


def keys(condition: terms.Condition) -> Iterator[str]:
    """Yield the names of the `per` that are not inside a temporal member."""
    match condition:
        case terms.All(members) | terms.Any(members):
            for member in members:
                yield from keys(member)
        case terms.Not(inner):
            yield from keys(inner)
        case terms.Keyed(inner, key, where):
            yield key
            yield from keys(inner)
            if where is not None:
                yield from keys(where)


def held_back(
    fired: Sequence[Event], condition: terms.Condition, every_secs: float, every_by: Sequence[str] | None
) -> int | None:
    """Return the number of actions suppressed before that of the last event; None if that is suppressed, too.

    `fired` are all events at which the rule was true since it began anew.
    """
    names = [*keys(condition)] if every_by is None else every_by
    now = fired[-1]
    acted_us, held, answer = None, 0, None
    for event in fired:
        if not all(equal(event[name], now[name]) for name in names):
            continue
        if acted_us is None or event.time_us - acted_us >= window_us(every_secs):
            acted_us, held, answer = event.time_us, 0, held
        else:
            held, answer = held + 1, None
    return answer
