"""The enabled rules of a detector, and the function that evaluates events for them."""

from typing import Any

from engine.evaluation.dispatch.combinations import Combinations, rules_of_bits
from engine.evaluation.dispatch.needs import Needs
from engine.evaluation.kernel.site import Site
from engine.evaluation.kernel.stream import stream
from engine.evaluation.plan.requirements import requirements_of
from engine.evaluation.rules import Rule
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.stamps import NEVER, stamp_of
from engine.language.limits import Limits


class RuleSet(Needs):
    """The enabled rules by priority, and what they remember."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.histories = Histories()
        self._enabled: dict[int, tuple[Rule, Site]] = {}
        self._stream: Any = None

    def add(self, rule: Rule, birth: int, tick: int, now_us: int) -> None:
        """Add an enabled rule after event `tick`, whose time was `now_us`. Its history begins then."""
        assert birth == tick, "the history of a new rule begins now"
        parts = requirements_of(rule.condition, birth)
        for node, path in parts.memories:
            self.histories.acquire(node, path, birth)
        self.need(parts)
        born = stamp_of(now_us, tick) if tick else NEVER
        self._enabled[rule.priority] = rule, Site(self.histories, birth, born)
        self._stream = None

    def remove(self, priority: int) -> None:
        """Remove a rule, and the memories that only it uses."""
        rule, site = self._enabled.pop(priority)
        parts = requirements_of(rule.condition, site.birth)
        for node, path in parts.memories:
            self.histories.release(node, path, site.birth)
        self.need_no_more(parts)
        self._stream = None

    def rename(self, rule: Rule) -> None:
        """Replace a rule by one with the same condition."""
        self._enabled[rule.priority] = rule, self._enabled[rule.priority][1]
        self._stream = None

    def stream(self) -> Any:
        """Return the function that evaluates many events. Any change of the rules makes it invalid."""
        if self._stream is None:
            enabled = [self._enabled[priority] for priority in sorted(self._enabled)]
            rules = [rule for rule, _ in enabled]
            self._stream = stream(
                [(rule.condition, site) for rule, site in enabled],
                self.patterns.finder,
                self.lookups.of,
                self.lookups.relations,
                self.patterns.begin if self.patterns.bounded else None,
                Combinations(lambda bits: rules_of_bits(rules, bits)),
            )
        return self._stream
