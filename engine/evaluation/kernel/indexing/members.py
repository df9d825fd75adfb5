"""The members of the index, rules and the memories they read, in the buckets of their triggers."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from engine.evaluation.kernel.buckets.buckets import Row
from engine.evaluation.kernel.buckets.index import Index
from engine.evaluation.kernel.buckets.running import SliceTest
from engine.evaluation.kernel.buckets.triggers import Analysis, Known
from engine.evaluation.kernel.code.access import committing
from engine.evaluation.kernel.indexing.families import Families, Family
from engine.evaluation.kernel.indexing.rows import Outcomes, Rows
from engine.evaluation.kernel.indexing.sampling import Samples
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.paths import membership_of
from engine.evaluation.requirements import Births, Requirements, Use, path_depth
from engine.evaluation.rules import Rule
from engine.evaluation.slices.slices import Remembered, Slices
from engine.language.condition import Condition

RULE_STAGE: Final = 1 << 30
"""The stage of rules, after all memories."""


class Member(NamedTuple):
    """A rule, a family of rules, or a memory, as a member of the index."""

    stage: int
    """Lower stages are evaluated first, because higher ones read their outcomes."""
    births: Births
    """The births of a rule, or of the inside of a memory."""
    what: Condition | Family | Remembered
    triggers: Any
    of_rule: Births
    """The births of the rule that added it."""


class Members:
    """The members of one detector by number: a rule's priority, or a negative number for others."""

    def __init__(self, needs: Needs, samples: Samples) -> None:
        self.samples, self._histories = samples, needs.histories
        self.outcomes: Outcomes = {}
        self.rows = Rows(needs, self.outcomes)
        self._members: dict[int, Member] = {}
        self.memories: dict[Remembered, int] = {}
        """The number of each memory."""
        self._made = 0
        self.families = Families()
        self.index = Index(self._row, needs)
        self._tests: dict[Slices, SliceTest] = {}

    def add_rule(
        self, rule: Rule, births: Births, parts: Requirements, memories: Sequence[Remembered]
    ) -> None:
        """Add a rule, and those of its memories that are not members yet."""
        analysis = Analysis(self._histories, births, self.index.selectivity.cheapest)
        for remembered, use in zip(memories, parts.memories, strict=True):
            if remembered not in self.memories:
                self._add_memory(remembered, use, analysis)
        number = rule.priority
        what: Condition | Family = rule.condition
        family = self.families.join(rule, births, parts, memories)
        if family is not None:
            if family.number is not None:
                return
            for each in family.priorities():
                if each != rule.priority:
                    self._remove(each)
            number, what, births = self._next_number(), family, family.births
            family.number = number
            self.samples.share(number, family.priorities)
        self._add(number, Member(RULE_STAGE, births, what, analysis.true(rule.condition, ()), births))

    def remove_rule(self, rule: Rule, parts: Requirements, memories: Sequence[Remembered]) -> None:
        """Undo `add_rule`, but keep the memories."""
        number = rule.priority
        self.samples.forget(number)
        family = self.families.leave(rule, parts, memories)
        if family is not None:
            if family.rules:
                return
            assert family.number is not None, "it stands for its rules"
            number = family.number
            self.samples.forget(number)
        self._remove(number)

    def remove_memory(self, remembered: Remembered) -> None:
        """Remove a memory without readers."""
        number = self.memories.pop(remembered)
        self.samples.forget(number)
        self._remove(number)
        remembered.slices.runs.pop(remembered.place, None)
        self._tests.pop(remembered.slices, None)

    def clear(self) -> None:
        """Remove all triggers from memories and slices."""
        for remembered in self.memories:
            remembered.bucket = remembered.commit = None
            remembered.slices.watched.clear()
            remembered.slices.triggered = None
            remembered.slices.runs.clear()

    def slice_test(self, slices: Slices) -> SliceTest:
        """Return the test whether an event that has the keys belongs to a slice."""
        if slices not in self._tests:
            births = next(
                one.of_rule
                for one in self._members.values()
                if isinstance(one.what, Remembered) and one.what.slices is slices
            )
            condition = membership_of(slices.path)
            row = self.rows.rule(condition, births.of_slices(slices.path), None, selected=False)
            self._tests[slices] = SliceTest.of(path_depth(slices.path), slices, row)
        return self._tests[slices]

    def _add_memory(self, remembered: Remembered, use: Use, of_rule: Analysis) -> None:
        number = self.memories[remembered] = self._next_number()
        memory, path = remembered.memory, use.path
        if memory.begins:
            # Any event may write it, even before its row is compiled.
            remembered.commit = committing(remembered)
            remembered.slices.runs[remembered.place] = remembered
        changing = memory.changed_by(of_rule.inside(use.births), path)
        self._add(number, Member(use.stage, use.births, remembered, changing, of_rule.births))

    def _next_number(self) -> int:
        self._made += 1
        return -self._made

    def _add(self, number: int, member: Member) -> None:
        self._members[number] = member
        self.index.add(number, member.triggers, member.stage)

    def _remove(self, number: int) -> None:
        member = self._members[number]
        self.index.remove(number, member.triggers, member.stage)
        del self._members[number]

    def _row(self, number: int, known: Known | None, *, selected: bool) -> Row:
        _, births, what, *_ = self._members[number]
        if isinstance(what, Remembered):
            what.commit = what.commit or committing(what)
            return self.rows.memory(what, births, known, selected=selected)
        if isinstance(what, Family):
            return self.rows.family(what, known, selected=selected)
        return self.rows.rule(what, births, known, selected=selected)
