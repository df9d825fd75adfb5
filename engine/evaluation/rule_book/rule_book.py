"""The rules of a detector, and how they are added, changed, exchanged and removed."""

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from engine.evaluation.firings.at_most_once import AtMostOnce
from engine.evaluation.kernel.rule_set import RuleSet
from engine.evaluation.relations.relation_book import RelationBook
from engine.evaluation.requirements import Births, Requirements, requirements_of
from engine.evaluation.rule_book.budgets import Budgets
from engine.evaluation.rule_book.changes.keeping import keeping
from engine.evaluation.rule_book.changes.many_rules import RulesChange, WantedRule, rules_change
from engine.evaluation.rule_book.changes.versions import Change, Versions
from engine.evaluation.rule_book.meanings import Meanings
from engine.evaluation.rule_book.shadows import Comparison, Shadows
from engine.evaluation.rule_book.verdicts import VerdictChecksum
from engine.evaluation.rules import (
    Labels,
    LiveRule,
    Rule,
    read_condition,
    read_members,
)
from engine.evaluation.slices.histories import Histories
from engine.evaluation.stamps import NUMBER_BITS, UNSET
from engine.language.condition import Condition
from engine.language.diagnostics import Entry, Refusal
from engine.language.limits import Limits


class RuleBook(RelationBook):
    """The rules of a detector, and everything that depends on them. `new_id` returns new ids."""

    def __init__(self, limits: Limits, new_id: Callable[[], str] | None) -> None:
        self.limits = limits
        self.histories = Histories(limits.keys_max, limits.state_bytes_max)
        self.clock_us: int | None = None
        """The time of the last event; None before the first."""
        self.events_seen = 0
        self.priority_highest = 0
        self.live: dict[str, LiveRule] = {}
        """The rules by id, in order of priority."""
        self.shadows = Shadows(self.live)
        self.at_most_once = AtMostOnce(self.histories, self.shadows.comparisons)
        """What rules with `every_secs` store about their actions."""
        self.versions = Versions(limits.rules_bytes_max)
        self.change = Change()
        """The time and the author with which changes are recorded."""
        self.verdicts = VerdictChecksum()
        """The firings of rules, and their checksum for the events of `submit` and `submit_clean`."""
        self.stored = {}
        self.rule_set: RuleSet = RuleSet(limits, self.histories, self.stored)
        self.timing = self.rule_set.timing
        self.budgets = Budgets(limits, self.live)
        self.new_id = new_id or (lambda: secrets.token_hex(16))
        self._meanings: Meanings | None = None
        """None until needed."""

    def add_rule(
        self,
        name: str,
        condition: str | Mapping[str, Any] | Condition,
        notify: bool = False,
        *,
        rule_id: str | None = None,
        shadow: bool = False,
        draft_of: str | None = None,
        description: str = "",
        labels: Labels | None = None,
        timed: bool = False,
        every_secs: float | None = None,
        every_by: Sequence[str] | None = None,
    ) -> str:
        """Add a rule and return its id. Its history begins with the next event.

        A shadow rule causes no actions. With `draft_of`, it is compared with the rule of that id from now on.
        Labels are repeated in the rule's actions. Unless `every_secs` is 0, the rule acts at most once in
        that time for the same values of `every_by`, by default its keys. Raises ConditionError, Refusal 1001
        for other members, 1201 if there is no rule `draft_of`, and 1400 if the detector is full.
        """
        every_secs, every_by = read_members(name, description, labels or {}, every_secs, every_by)
        if draft_of is not None:
            self.shadows.check_draft(draft_of, shadow=shadow)
        read, source = read_condition(condition, self.limits)
        if len(self.live) >= self.limits.rules_max:
            most = self.limits.rules_max
            raise Refusal(Entry(1400, f"the detector has {most} rules; limit {most}"))
        if draft_of is not None:
            self.shadows.check_room(draft_of)
        rule = Rule(
            id=rule_id or self.new_id(),
            name=name,
            condition=read,
            notify=notify,
            priority=self.priority_highest + 1,
            source=source,
            shadow=shadow,
            draft_of=draft_of,
            description=description,
            labels=labels or {},
            timed=timed,
            every_secs=every_secs,
            every_by=every_by,
        )
        self._put_within_budgets(rule, self._now)
        return rule.id

    def change_rule(
        self,
        rule_id: str,
        *,
        name: str | None = None,
        condition: str | Mapping[str, Any] | Condition | None = None,
        enabled: bool | None = None,
        notify: bool | None = None,
        shadow: bool | None = None,
        description: str | None = None,
        labels: Labels | None = None,
        timed: bool | None = None,
        every_secs: float | None = None,
        every_by: Sequence[str] | None = None,
        history: Literal["keep"] | None = None,
    ) -> Rule:
        """Change the members of a rule that are not None, and return the rule.

        A different condition starts a new history, and so does enabling the rule. With `history` "keep", the
        parts that a different condition has in common with the old one keep their histories. With `shadow`
        false, a draft ceases to be one. Labels replace all others. With `every_secs` 0, the rule acts
        whenever its condition is true, and has no `every_by`. Raises the errors of `add_rule`, and Refusal
        1201 for an unknown rule.
        """
        live = self._named(rule_id)
        before = live.rule
        every_secs = before.every_secs if every_secs is None else every_secs
        if every_by is None and every_secs:
            every_by = before.every_by
        every_secs, every_by = read_members(name, description or "", labels or {}, every_secs, every_by)
        read, source = before.condition, before.source
        if condition is not None:
            read, source = read_condition(condition, self.limits)
        after = replace(
            before,
            name=before.name if name is None else name,
            condition=read,
            enabled=before.enabled if enabled is None else enabled,
            notify=before.notify if notify is None else notify,
            source=source,
            shadow=before.shadow if shadow is None else shadow,
            draft_of=None if shadow is False else before.draft_of,
            description=before.description if description is None else description,
            labels=before.labels if labels is None else labels,
            timed=before.timed if timed is None else timed,
            every_secs=every_secs,
            every_by=every_by,
        )
        self._put_within_budgets(after, self.births_of(after, history), [live])
        return after

    def rules_change(
        self, wanted: Sequence[WantedRule], *, prune: bool = False, between: Callable[[], None] = lambda: None
    ) -> RulesChange:
        """Return the change that makes the named rules as wanted; see `many_rules`. Nothing is changed."""
        return rules_change(self, wanted, prune=prune, between=between)

    def change_rules(
        self,
        put: Iterable[tuple[Rule, Literal["keep"] | None]],
        removed: Iterable[str],
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """Add, replace and remove rules as one change, validated before; see `change_rule`."""
        for rule_id in removed:
            self._remove(rule_id)
            between()
        for rule, history in put:
            self._put(rule, self.births_of(rule, history))
            between()
        self.settle_rules()

    def put_rule(self, rule: Rule, history: Literal["keep"] | None = None) -> None:
        """Add or replace a rule that was validated before, like `add_rule` and `change_rule`."""
        self._put(rule, self.births_of(rule, history))
        self.settle_rules()

    def _put_within_budgets(self, rule: Rule, births: Births, going: Sequence[LiveRule] = ()) -> None:
        """Add or replace a rule. Raises Refusal 1400 if a limit would be exceeded."""
        parts = requirements_of(rule.condition, births)
        for entry in self.budgets.exceeded([(rule, parts)], going):
            raise Refusal(entry)
        self._put(rule, births, parts)
        self.settle_rules()

    def _put(self, rule: Rule, births: Births, parts: Requirements | None = None) -> None:
        live = self.live.get(rule.id)
        self.priority_highest = max(self.priority_highest, rule.priority)
        self.install(rule, births, parts)
        self.versions.put(None if live is None else live.rule, rule, self.change)

    def births_of(self, rule: Rule, history: Literal["keep"] | None) -> Births:
        """Return the births of a rule's histories if it replaces the one with its id now."""
        live = self.live.get(rule.id)
        if live is None or not (live.rule.enabled and rule.enabled):
            return self._now
        if live.rule.condition == rule.condition:
            return live.births
        if history is None:
            return self._now
        return keeping(live.rule.condition, live.births, rule.condition, self._now)

    def remove_rule(self, rule_id: str) -> None:
        """Remove a rule and the memories that only it uses. Raises Refusal 1201."""
        self._remove(rule_id)
        self.settle_rules()

    def _remove(self, rule_id: str) -> None:
        live = self._named(rule_id)
        draft = self.shadows.draft_of(rule_id)
        if draft is not None:
            # It stays as a shadow rule without a comparison.
            self.install(replace(draft.rule, draft_of=None), draft.births)
        del self.live[rule_id]
        self.budgets.remove(live)
        if self._meanings is not None:
            self._meanings.remove(live.rule)
        self.versions.forget(live.rule.priority)
        self.at_most_once.remove(live.rule.priority)
        self.shadows.remove(live.rule)
        self.verdicts.forget(live.rule.priority)
        self.timing.remove(live.rule.priority)
        if live.rule.enabled:
            self.rule_set.remove(live.rule.priority)

    def take_apart(self, between: Callable[[], None]) -> None:
        """Forget all slices, rules and relations, some at a time; the detector is of no use after that.

        Rules and what is compiled for them refer to each other. The collector frees them all in one step,
        during which no other thread runs.
        """
        for keyed in (*self.histories.slices.values(), *self.histories.besides):
            for shard in keyed.shards:
                shard.clear()
                between()
        self.change_rules((), [*self.live], between)
        while self.stored:
            pieces = self.stored.popitem()[1].pieces()
            while pieces:
                pieces.pop()
                between()

    def rule(self, rule_id: str) -> Rule:
        """Return one rule. Raises Refusal 1201."""
        return self._named(rule_id).rule

    def rules(self) -> list[Rule]:
        """Return all rules in order of priority."""
        return [live.rule for live in self.live.values()]

    def equal_rule(self, rule: Rule, besides: Collection[str] = ()) -> Rule | None:
        """Return another rule whose condition means the same, except for those `besides`; see `Meanings`."""
        if self._meanings is None:
            self._meanings = Meanings(self.live)
        return self._meanings.equal_to(rule, besides)

    def comparison(self, rule_id: str) -> Comparison:
        """Return the comparison of a rule with its draft. Raises Refusal 1201 if there is no draft."""
        self._named(rule_id)
        return self.shadows.comparison(rule_id)

    def promote(self, rule_id: str) -> Rule:
        """Exchange the conditions of a rule and its draft, and return the rule. Each keeps its history.

        The draft has the old condition from now on. Raises Refusal 1201 like `comparison`.
        """
        comparison = self.comparison(rule_id)
        live, draft = self.live[rule_id], self.live[comparison.draft_id]
        rule = replace(live.rule, condition=draft.rule.condition, source=draft.rule.source)
        other = replace(draft.rule, condition=live.rule.condition, source=live.rule.source)
        promoted, demoted = replace(draft, rule=rule), replace(live, rule=other)
        for old, new in ((live, promoted), (draft, demoted)):
            self.budgets.put(old, new, requirements_of(new.rule.condition, new.births))
        if self._meanings is not None:
            # The draft is a shadow rule, before and after.
            self._meanings.remove(live.rule)
            self._meanings.add(rule)
        for before, after in ((live.rule, rule), (draft.rule, other)):
            self.versions.put(before, after, self.change)
            self.at_most_once.put(before, after)
        self.at_most_once.settle()
        self.rule_set.exchange(rule, other)
        self.live[rule.id], self.live[other.id] = promoted, demoted
        self.timing.exchange(promoted, demoted, self.clock_us)
        self.shadows.exchange(comparison)
        return rule

    # -- inside ---------------------------------------------------------------------------------------------

    @property
    def _now(self) -> Births:
        """The births of histories that begin with the next event."""
        born = UNSET if self.clock_us is None else (self.clock_us << NUMBER_BITS) + self.events_seen
        return Births(self.events_seen, born)

    def install(self, rule: Rule, births: Births, parts: Requirements | None = None) -> None:
        """Add or replace a rule with the births of its histories, and its requirements.

        Memories since these births are kept.
        """
        before = self.live.get(rule.id)
        self.live[rule.id] = after = LiveRule(rule, births)
        parts = parts or requirements_of(rule.condition, births)
        self.budgets.put(before, after, parts)
        if self._meanings is not None:
            if before is not None:
                self._meanings.remove(before.rule)
            self._meanings.add(rule)
        if before is not None or rule.acts_at_most_once:
            self.at_most_once.put(None if before is None else before.rule, rule)
        if before is not None or rule.shadow or self.shadows.ids:
            self.shadows.put(before, after, self.events_seen, self.clock_us)
        self._enable(before, after, parts)
        if before is not None or rule.timed:
            is_older = births.birth < self.events_seen or bool(births.kept)
            self.timing.put(after, self.clock_us, is_older=is_older)

    def _enable(self, before: LiveRule | None, after: LiveRule, parts: Requirements) -> None:
        """Start to evaluate a rule if it is enabled, in place of its previous form."""
        rule, births = after.rule, after.births
        if before is not None and before.rule.enabled:
            if rule.enabled and before.births == births and before.rule.condition == rule.condition:
                self.rule_set.rename(rule)
                return
            if rule.enabled and births.kept:
                self.rule_set.replace(rule, births, parts)
                return
            self.rule_set.remove(rule.priority)
        if rule.enabled:
            self.rule_set.add(rule, births, parts)

    def settle_rules(self, *, indexed: bool | None = None) -> None:
        """Choose how the rules are evaluated, and compile their patterns and literals, after a change.

        Rules that were just loaded are `indexed` as they were when saved.
        """
        if self.at_most_once.changed:
            self.at_most_once.settle()
        self.rule_set.choose(indexed=indexed)
        self.rule_set.compile_new()

    def _named(self, rule_id: str) -> LiveRule:
        try:
            return self.live[rule_id]
        except KeyError:
            said = f"there is no rule `{rule_id}` in this detector"
            found = next((one.rule.id for one in self.live.values() if one.rule.name == rule_id), None)
            hint = f"; the rule of that name has the id `{found}`" if found else ""
            raise Refusal(Entry(1201, said + hint)) from None
