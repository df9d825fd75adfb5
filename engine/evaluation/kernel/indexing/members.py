"""The members of the index: rules, and the memories that they read, in the buckets of their triggers."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from engine.evaluation.kernel.buckets.buckets import Bucket, SliceTest
from engine.evaluation.kernel.buckets.index import Index
from engine.evaluation.kernel.code.access import committing
from engine.evaluation.kernel.indexing.analysis import Analysis, Holding
from engine.evaluation.kernel.indexing.families import Family, Kin
from engine.evaluation.kernel.indexing.rows import Outcomes, Rows
from engine.evaluation.kernel.indexing.sampling import Samples
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.kernel.selection.selected_rows import Row, SelectedRow, SelectedRows
from engine.evaluation.kernel.selection.triggers import Known, may_meet_several
from engine.evaluation.paths import membership_of
from engine.evaluation.requirements import Births, Use, path_depth, requirements_of, temporal_depth
from engine.evaluation.slices.histories import Histories, Site
from engine.evaluation.slices.slices import Remembered, Slices
from engine.language.condition import Condition

RULE_STAGE: Final = 1 << 30
"""The stage at which rules are evaluated, after all memories."""


class Member(NamedTuple):
    """A rule, a family of rules, or a memory, in the index."""

    stage: int
    """Members of lower stages are evaluated first, because those of higher ones read what they decide."""
    site: Site
    what: "Condition | Family | Remembered"
    triggers: Any
    of_rule: Births
    """Those of the rule that brought it. `site` has those of what is inside a memory."""


class Members:
    """The members of one detector by number: that of a rule is its priority, those of others are below 0."""

    def __init__(self, histories: Histories, needs: Needs, samples: Samples) -> None:
        self._samples = samples
        self.outcomes: Outcomes = {}
        self.rows = Rows(histories, needs, self.outcomes)
        self._members: dict[int, Member] = {}
        self.memories: dict[Remembered, int] = {}
        """The number of each memory."""
        self._made = 0
        self._families: dict[tuple[Condition, Remembered], Family] = {}
        self.selected = SelectedRows(self._selected_row)
        self.index = Index(self._new_bucket, self.selected, needs.patterns.of, needs.lookups, needs.stored)
        self._tests: dict[Slices, SliceTest] = {}

    def add_rule(
        self, priority: int, condition: Condition, site: Site, memories: Iterable[Remembered]
    ) -> None:
        """Add a rule, and its memories unless others have brought them."""
        triggers = Analysis(site, self.index.cost)
        for remembered, use in zip(memories, requirements_of(condition, site.births).memories, strict=True):
            if remembered not in self.memories:
                self._add_memory(remembered, use, triggers)
        what: Condition | Family = condition
        number = priority
        kin = Kin.of(condition, site)
        if kin is not None:
            family = self._families.get(kin.family)
            if family is None:
                family = self._families[kin.family] = Family(condition, site)
            family.add(kin.rank, priority, kin.born)
            if family.number is not None:
                return
            if family.is_large:
                for each in family.priorities():
                    if each != priority:
                        self._remove(each)
                self._made += 1
                what, number, site = family, -self._made, family.site
                family.number = number
                self._samples.share(number, family.priorities)
        self._add(number, Member(RULE_STAGE, site, what, triggers.true(condition, ()), site.births))

    def remove_rule(self, priority: int, condition: Condition, site: Site) -> None:
        """Undo `add_rule`, but for the memories."""
        self._samples.forget(priority)
        number = priority
        kin = Kin.of(condition, site)
        if kin is not None:
            family = self._families[kin.family]
            family.remove(kin.rank, priority)
            if not family.rules:
                del self._families[kin.family]
            if family.number is not None:
                if family.rules:
                    return
                number = family.number
                self._samples.forget(number)
        self._remove(number)

    def remove_memory(self, remembered: Remembered) -> None:
        """Remove a memory that no rule reads any more."""
        if remembered in self.memories:
            number = self.memories.pop(remembered)
            self._samples.forget(number)
            self._remove(number)
            remembered.slices.runs.pop(remembered.place, None)
            self._tests.pop(remembered.slices, None)

    def clear(self) -> None:
        """Have no entry trigger anything."""
        for family in self._families.values():
            if family.number is not None:
                self._samples.forget(family.number)
        for remembered, number in self.memories.items():
            self._samples.forget(number)
            remembered.bucket = remembered.commit = None
            remembered.slices.watched.clear()
            remembered.slices.triggered = None
            remembered.slices.runs.clear()

    def slice_test(self, slices: Slices) -> SliceTest:
        """Return the condition under which an event that has the keys belongs to a slice."""
        if slices not in self._tests:
            site, births = next(
                (one.site, one.of_rule)
                for one in self._members.values()
                if isinstance(one.what, Remembered) and one.what.slices is slices
            )
            site = site._replace(births=births.of_slices(slices.path))
            row = self.rows.rule(membership_of(slices.path), site, None, selected=False)
            self._tests[slices] = SliceTest.of(path_depth(slices.path), slices, row)
        return self._tests[slices]

    def _add_memory(self, remembered: Remembered, use: Use, of_rule: Analysis) -> None:
        self._made += 1
        triggers = of_rule.inside(use.births)
        path = remembered.slices.path
        depth = max(map(temporal_depth, remembered.memory.operands)) if use.nests else 0
        stage = path_depth(path) + 1 + depth
        remembered.commit = committing(remembered)
        if remembered.memory.begins:
            remembered.slices.runs[remembered.place] = remembered
        self.memories[remembered] = -self._made
        changing = remembered.memory.changed_by(triggers, path)
        member = Member(stage, triggers.site, remembered, changing, of_rule.site.births)
        self._add(-self._made, member)

    def _add(self, number: int, member: Member) -> None:
        self._members[number] = member
        several = may_meet_several(member.triggers)
        if several:
            self.selected.add(number)
        self.index.add(number, member.triggers, member.stage, several=several)
        for remembered in _held(member):
            if remembered.bucket is None:
                remembered.bucket = self._new_bucket(None)
                remembered.slices.watched[remembered.place] = remembered
            remembered.bucket.add(number, member.stage, several=several)
        for slices in {remembered.slices for remembered in _held(member)}:
            if slices.triggered is None:
                slices.triggered = self._new_bucket(None)
            slices.triggered.add(number, member.stage, several=several)

    def _remove(self, number: int) -> None:
        member = self._members[number]
        several = may_meet_several(member.triggers)
        self.index.remove(number, member.triggers, member.stage, several=several)
        for remembered in _held(member):
            remembered.bucket.remove(number, member.stage, several=several)
            if not remembered.bucket.size:
                remembered.bucket = None
                del remembered.slices.watched[remembered.place]
        for slices in {remembered.slices for remembered in _held(member)}:
            slices.triggered.remove(number, member.stage, several=several)
        if several:
            self.selected.remove(number)
        del self._members[number]

    def _new_bucket(self, known: Known | None) -> Bucket:
        return Bucket(self._row, self.selected, known)

    def _selected_row(self, number: int, known: Known | None) -> SelectedRow:
        observe, _, constants = self._row(number, known, selected=True)
        return (*constants, number, observe)

    def _row(self, number: int, known: Known | None, *, selected: bool = False) -> Row:
        member = self._members[number]
        if isinstance(member.what, Remembered):
            return self.rows.memory(member.what, member.site, known, selected=selected)
        if isinstance(member.what, Family):
            return self.rows.family(member.what, member.site, known, selected=selected)
        return self.rows.rule(member.what, member.site, known, selected=selected)


def _held(member: Member) -> list[Remembered]:
    return [one.remembered for one in member.triggers or () if isinstance(one, Holding)]
