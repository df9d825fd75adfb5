"""The difference that a change makes to a rule, and whether it keeps the history."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec

from engine.evaluation.rule_book.changes.keeping import begins_anew
from engine.evaluation.rules import Rule
from engine.language.text.printer import format as canonical

TEXTS_CHARS_MAX: Final = 16 * 1024 * 1024
"""The maximum length of all conditions shown in the differences of one change."""

_MEMBERS: Final = {
    **{name: name for name in ("notify", "enabled", "shadow")},
    "draft_of": "draftOf",
    **{name: name for name in ("description", "labels", "timed", "every_secs", "every_by")},
}
"""The attributes of rules besides the condition, and their names in the API."""


class RuleDifference(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a rule differs from what it was."""

    name: str
    members: list[str]
    """The members that differ; `text` if the same condition is only written differently."""
    history: Literal["kept", "partly kept", "begins anew"]
    before: str = ""
    """The old condition as canonical text, if it is different."""
    after: str = ""
    begins_anew: list[str] = []
    """The parts of the condition that begin anew, as text, if the history is partly kept."""


def differences(changed: Iterable[tuple[Rule, Rule]], keeping: frozenset[str]) -> Iterator[RuleDifference]:
    """Yield the difference of each changed rule. `keeping` has the ids of rules that keep histories.

    Beyond TEXTS_CHARS_MAX, conditions are left out.
    """
    left = TEXTS_CHARS_MAX
    for before, after in changed:
        found = _difference(before, after, keeps=after.id in keeping, shows=left > 0)
        left -= len(found.before) + len(found.after) + sum(map(len, found.begins_anew))
        yield found


def _difference(before: Rule, after: Rule, *, keeps: bool, shows: bool) -> RuleDifference:
    members = [name for member, name in _MEMBERS.items() if _value(before, member) != _value(after, member)]
    if before.condition == after.condition:
        if before.source != after.source:
            members.append("text")
        is_enabled_again = after.enabled and not before.enabled
        return RuleDifference(after.name, members, "begins anew" if is_enabled_again else "kept")
    members.insert(0, "condition")
    is_kept = keeps and before.enabled and after.enabled
    history: Literal["partly kept", "begins anew"] = "partly kept" if is_kept else "begins anew"
    if not shows:
        return RuleDifference(after.name, members, history)
    return RuleDifference(
        after.name,
        members,
        history,
        canonical(before.condition),
        canonical(after.condition),
        begins_anew(before.condition, after.condition) if is_kept else [],
    )


def _value(rule: Rule, member: str) -> Any:
    value = getattr(rule, member)
    # In Python, a label of 1 equals one of true.
    return repr(dict(value)) if member == "labels" else value
