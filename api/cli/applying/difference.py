"""The difference between a detector and rules files, as text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from api.cli.messages import counted
from api.cli.printing.terminal import on_one_line
from api.cli.rule_files.relations import Scalar, Tuple, identity
from rule_detector_client import RuleDifference

_HISTORY: Final = {
    "kept": "its history is kept",
    "partly kept": "what both conditions remember is kept",
    "begins anew": "its history begins anew",
}
"""The fate of a history, as text."""


class ChangedRelation(msgspec.Struct, frozen=True):
    """A changed relation, with the numbers of added and removed tuples."""

    name: str
    added: int
    removed: int
    is_new: bool = False
    is_removed: bool = False


class Difference(msgspec.Struct, frozen=True):
    """The changes of one detector."""

    detector: str
    is_new: bool = False
    created: list[str] = []
    changed: list[RuleDifference] = []
    removed: list[str] = []
    unchanged: int = 0
    left: int = 0
    """The number of rules in no file that stay."""
    relations: list[ChangedRelation] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.is_new or self.has_rules or self.relations)

    @property
    def has_rules(self) -> bool:
        """Whether rules change."""
        return bool(self.created or self.changed or self.removed)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the difference."""
        yield f"detector `{on_one_line(self.detector)}`{', which is created' if self.is_new else ''}"
        for relation in self.relations:
            sign = "+" if relation.is_new else "-" if relation.is_removed else "~"
            change = f"{counted(relation.added, 'tuple')} added, {relation.removed} removed"
            yield f"  {sign} relation {on_one_line(relation.name)}: {change}"
        for name in self.created:
            yield f"  + {on_one_line(name)}"
        for rule in self.changed:
            yield f"  ~ {on_one_line(rule.name)}: {', '.join(rule.members)}; {_HISTORY[rule.history]}"
            if rule.before:
                yield f"      - {on_one_line(rule.before)}"
                yield f"      + {on_one_line(rule.after)}"
            yield from (f"      begins anew: {on_one_line(part)}" for part in rule.begins_anew)
        for name in self.removed:
            yield f"  - {on_one_line(name)}"
        if self.unchanged:
            yield f"  {counted(self.unchanged, 'rule')} unchanged"
        if self.left:
            yield f"  {counted(self.left, 'rule')} in no file; --prune removes them"

    def summary(self) -> str:
        """Return the extent of the changes, in one line."""
        counts: dict[str, Sequence[object]] = {
            "added": self.created,
            "changed": self.changed,
            "removed": self.removed,
        }
        said = [f"{counted(len(names), 'rule')} {what}" for what, names in counts.items() if names]
        if self.relations:
            said.append(f"{counted(len(self.relations), 'relation')} changed")
        return f"`{on_one_line(self.detector)}`: {', '.join(said) or 'created'}"


def changed_relations(
    wanted: Mapping[str, Iterable[Tuple]],
    stored: Mapping[str, Iterable[Sequence[Scalar]] | int],
    *,
    prune: bool,
) -> list[ChangedRelation]:
    """Return the relations that differ; those in no file are removed if `prune`.

    For a stored relation in no file, the number of tuples is enough.
    """
    found = []
    for name, tuples in wanted.items():
        before = stored.get(name, ())
        assert not isinstance(before, int), "its tuples are there to compare"
        new = {identity(each) for each in tuples}
        old = {identity(each) for each in before}
        if new != old or name not in stored:
            found.append(ChangedRelation(name, len(new - old), len(old - new), is_new=name not in stored))
    for name, number in stored.items() if prune else ():
        if isinstance(number, int):
            found.append(ChangedRelation(name, 0, number, is_removed=True))
    return found
