"""Plays scripts whose rules become shadow rules and drafts, on the engine and on the reference."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.evaluation.events.outcomes import Outcome
from engine.evaluation.rule_book.shadows import BOTH, KINDS, ONLY_DRAFT, ONLY_RULE
from tests.differential.comparison import Pair, in_order
from tests.differential.feeding import in_batches, one_by_one, submitted
from tests.reference import as_json
from tests.reference_values import equal
from tests.worlds.scripts import Add, Change, Remove, Step, Submit


def in_bodies(detector: Any, steps: Sequence[Submit]) -> list[Any]:
    """Submit events like the bodies of batches."""
    outcomes = submitted(detector, [(step.fields, step.timestamp_ms, step.vars) for step in steps])
    return [
        list(map(in_order, outcome.actions)) if isinstance(outcome, Outcome) else None for outcome in outcomes
    ]


class ShadowPair(Pair):
    """The reference treats all rules as acting. This class knows what they do as shadows."""

    def __init__(self, drawn: random.Random) -> None:
        super().__init__()
        self.drawn = drawn
        self.shadows: dict[str, str | None] = {}
        """The shadow rules by id, each with the rule that it is a draft of."""
        self.counts: dict[str, Counter[str]] = {}
        """The counts of each rule that has a draft."""
        self.met = Counter[str]()

    def apply(self, step: Step) -> None:
        """Execute a step that is not an event on both."""
        ids = list(self.reference.rules)
        match step:
            case Add(name, condition, notify):
                shadow = self.drawn.random() < 0.5
                free = [each for each in ids if each not in {*self.shadows, *self.counts}]
                draft_of = self.drawn.choice([*free, None]) if shadow else None
                rule_id = self.engine.add_rule(name, condition, notify, shadow=shadow, draft_of=draft_of)
                self.reference.add_rule(rule_id, name, condition, notify=notify)
                if shadow:
                    self.shadows[rule_id] = draft_of
                if draft_of is not None:
                    self.counts[draft_of] = Counter()
            case Change(place, _):
                before = self.history(ids[place])
                super().apply(step)
                if not equal(self.history(ids[place]), before):
                    self.counts_of(ids[place]).clear()
            case Remove(place):
                super().apply(step)
                self.end_pair(ids[place])
                self.shadows.pop(ids[place], None)
            case Submit():
                self.submit([step])

    def submit(self, steps: Sequence[Submit]) -> None:
        """Execute events on both; on the engine in one of the ways of callers."""
        expected: list[Any] = []
        for step in steps:
            fired = self.reference.evaluate(step.fields, step.timestamp_ms, step.vars)
            expected.append(fired and [action for action in fired if action[1] not in self.shadows])
            ids = {action[1] for action in fired or ()}
            self.met["as a shadow"] += len(ids & self.shadows.keys())
            for draft, rule in self.shadows.items():
                if rule is not None and self.enabled(rule) and self.enabled(draft) and ids & {rule, draft}:
                    kind = BOTH if {rule, draft} <= ids else ONLY_RULE if rule in ids else ONLY_DRAFT
                    self.counts[rule][kind] += 1
        feed = self.drawn.choice((one_by_one, in_batches, in_bodies))
        assert feed(self.engine, list(steps)) == expected

    def turn(self) -> None:
        """Make a rule a shadow rule, or a normal one. Its history continues."""
        rule_id = self.drawn.choice(list(self.reference.rules))
        shadow = rule_id not in self.shadows
        self.engine.change_rule(rule_id, shadow=shadow)
        if shadow:
            self.shadows[rule_id] = None
            return
        if self.shadows[rule_id] is not None:
            self.end_pair(rule_id)
        del self.shadows[rule_id]

    def promote(self) -> None:
        """Exchange a rule and its draft, with their histories."""
        pairs = [
            (rule, draft)
            for draft, rule in self.shadows.items()
            if rule is not None and self.enabled(rule) and self.enabled(draft)
        ]
        if not pairs:
            return
        ids = self.drawn.choice(pairs)
        self.engine.promote(ids[0])
        rules = self.reference.rules
        rule, draft = map(rules.get, ids)
        rules[ids[0]] = replace(rule, condition=draft.condition, birth=draft.birth, kept=draft.kept)
        rules[ids[1]] = replace(draft, condition=rule.condition, birth=rule.birth, kept=rule.kept)
        counts = self.counts[ids[0]]
        counts[ONLY_RULE], counts[ONLY_DRAFT] = counts[ONLY_DRAFT], counts[ONLY_RULE]
        self.met["promoted"] += 1

    def compare_counts(self) -> None:
        """Check that the engine has counted what the reference fired."""
        compared = {
            rule: {kind: self.counts[rule][kind] for kind in KINDS}
            for draft, rule in self.shadows.items()
            if rule is not None and self.enabled(rule) and self.enabled(draft)
        }
        comparisons = self.engine.shadows.comparisons
        assert {rule: found.counts for rule, found in comparisons.items()} == compared
        for counts in compared.values():
            self.met.update(counts)

    def history(self, rule_id: str) -> list[Any]:
        """Return what a comparison depends on, as a value that `equal` compares."""
        rule = self.reference.rules[rule_id]
        return [rule.enabled, rule.birth, [*rule.kept.values()], as_json(rule.condition)]

    def enabled(self, rule_id: str) -> bool:
        """Return whether a rule is evaluated."""
        return self.reference.rules[rule_id].enabled

    def counts_of(self, rule_id: str) -> Counter[str]:
        """Return the counts of the pair that a rule belongs to."""
        return self.counts.get(self.shadows.get(rule_id) or rule_id, Counter())

    def end_pair(self, rule_id: str) -> None:
        """End the pair that a rule belongs to. The draft stays a shadow rule."""
        for draft, rule in self.shadows.items():
            if rule is not None and rule_id in (draft, rule):
                del self.counts[rule]
                self.shadows[draft] = None
