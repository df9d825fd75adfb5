"""Messages about a new or changed rule: unknown relations, doubtful conditions, histories that begin anew."""

from collections.abc import Collection
from typing import Final, Literal

from engine.evaluation.kernel.costs import key_bytes_max
from engine.evaluation.requirements import looks_back
from engine.evaluation.rule_book.changes.keeping import begins_anew
from engine.evaluation.rules import Rule
from engine.language.condition import Condition
from engine.language.diagnostics import Entry, cut, quoted
from engine.language.hints.hints import HINTS_MAX, hints
from engine.language.hints.warnings import condition_warnings

UNKNOWN_RELATION: Final = 2003
BEGINS_ANEW: Final = 2005
NOT_MEANT: Final = 2006

_SHOWN_MAX: Final = 200
"""The maximum length of a part in a message."""


def doubts(condition: Condition, relations: Collection[str] = ()) -> list[str]:
    """Return hints about parts of a condition that are probably not meant, with key sizes; see `hints`."""
    return hints(condition, key_bytes_max, relations)


def condition_messages(condition: Condition, stored: Collection[str] = ()) -> list[Entry]:
    """Return the messages 2003 and 2006 about a condition. `stored` has the names of stored relations."""
    unknown = condition_warnings(condition, relations=stored)
    return [
        *(Entry(UNKNOWN_RELATION, warning.text) for warning in unknown[:HINTS_MAX]),
        *(Entry(NOT_MEANT, hint) for hint in doubts(condition, stored)),
    ]


def equality_messages(equal: Rule | None) -> list[Entry]:
    """Return the message 2006 about a rule whose condition means the same as that of `equal`."""
    if equal is None:
        return []
    both = "both are true at the same events" if equal.enabled else "that rule is disabled"
    said = f"the condition is equal to that of the rule {quoted(equal.name)}, up to the order of its parts"
    return [Entry(NOT_MEANT, f"{said}: {both}; change or enable that rule instead, or remove one of the two")]


def change_messages(
    rule: Rule,
    before: Rule,
    history: Literal["keep"] | None = None,
    *,
    condition_given: bool,
    stored: Collection[str] = (),
    equal: Rule | None = None,
) -> list[Entry]:
    """Return the messages about a changed rule; those about its condition only if the change has one."""
    said = condition_messages(rule.condition, stored) if condition_given else []
    said += equality_messages(equal)
    if not rule.enabled or not looks_back(rule.condition):
        return said
    if rule.condition != before.condition and before.enabled:
        if history is None:
            said.append(
                Entry(BEGINS_ANEW, "the condition is a different one, so the rule's history begins anew")
            )
        elif parts := begins_anew(before.condition, rule.condition):
            more = f", and {len(parts) - HINTS_MAX} more" if len(parts) > HINTS_MAX else ""
            named = ", ".join([f"`{cut(part, _SHOWN_MAX)}`" for part in parts[:HINTS_MAX]])
            said.append(Entry(BEGINS_ANEW, f"the history of the rule is kept, except that of {named}{more}"))
    elif not before.enabled:
        said.append(Entry(BEGINS_ANEW, "the rule was disabled, so its history begins anew"))
    return sorted(said, key=lambda entry: entry.code)
