"""The enabled rules of a detector, and the function that evaluates events for them."""

from typing import Any

from engine.evaluation.dispatch.combinations import Combinations, rules_of_bits
from engine.evaluation.dispatch.needs import Needs
from engine.evaluation.kernel.indexing.indexed_stream import IndexedStream
from engine.evaluation.kernel.indexing.members import Members
from engine.evaluation.kernel.site import Site
from engine.evaluation.kernel.stream import stream
from engine.evaluation.plan.requirements import requirements_of
from engine.evaluation.rules import Rule
from engine.evaluation.slices.histories import Histories
from engine.evaluation.stamps import NEVER, stamp_of
from engine.language.limits import Limits


class RuleSet(Needs):
    """The enabled rules by priority, and what they remember."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.histories = Histories(limits.keys_max, limits.state_bytes_max)
        self._enabled: dict[int, tuple[Rule, Site]] = {}
        self._stream: Any = None
        self.members: Members | None = None
        """None unless the rules are indexed."""
        self._rules: dict[int, Rule] = {}

    def index(self) -> None:
        """Have rules indexed. What they remember stays as it is."""
        self.members = Members(self.histories, self)
        self._indexed = IndexedStream(self.histories, self, self.members, self._rules)
        for priority in self._enabled:
            self._index_rule(priority)

    def fuse(self) -> None:
        """Undo `index`."""
        assert self.members is not None, "rules are indexed"
        self.members.clear()
        self.members = None

    def _index_rule(self, priority: int) -> None:
        assert self.members is not None
        rule, site = self._enabled[priority]
        parts = requirements_of(rule.condition, site.birth)
        memories = [self.histories.of(node, path, site.birth) for node, path in parts.memories]
        self.members.add_rule(priority, rule.condition, site, memories)

    def add(self, rule: Rule, birth: int, tick: int, now_us: int) -> None:
        """Add an enabled rule after event `tick`, whose time was `now_us`. Its history begins then."""
        assert birth == tick, "the history of a new rule begins now"
        parts = requirements_of(rule.condition, birth)
        born = stamp_of(now_us, tick) if tick else NEVER
        for node, path in parts.memories:
            self.histories.acquire(node, path, birth, born)
        self.need(parts)
        self._enabled[rule.priority] = rule, Site(self.histories, birth, born)
        self._rules[rule.priority] = rule
        self._stream = None
        if self.members is not None:
            self._index_rule(rule.priority)
            self._indexed.rules_changed()

    def remove(self, priority: int) -> None:
        """Remove a rule, and the memories that only it uses."""
        if self.members is not None:
            self.members.remove_rule(priority)
            self._indexed.rules_changed()
        rule, site = self._enabled.pop(priority)
        del self._rules[priority]
        parts = requirements_of(rule.condition, site.birth)
        for node, path in parts.memories:
            dropped = self.histories.release(node, path, site.birth, site.born)
            if dropped is not None and self.members is not None:
                self.members.remove_memory(dropped)
        self.need_no_more(parts)
        self._stream = None

    def rename(self, rule: Rule) -> None:
        """Replace a rule by one with the same condition."""
        self._enabled[rule.priority] = rule, self._enabled[rule.priority][1]
        self._rules[rule.priority] = rule
        if self.members is not None:
            self._indexed.rules_changed()
        self._stream = None

    def stream(self) -> Any:
        """Return the function that evaluates many events. Any change of the rules makes it invalid."""
        if self.members is not None:
            return self._indexed.observe_many
        if self._stream is None:
            enabled = [self._enabled[priority] for priority in sorted(self._enabled)]
            rules = [rule for rule, _ in enabled]
            self._stream = stream(
                [(rule.condition, site) for rule, site in enabled],
                self.histories,
                finder=self.patterns.finder,
                lookup_of=self.lookups.of,
                relations_of=self.lookups.relations,
                begin=self.patterns.begin if self.patterns.bounded else None,
                combinations=Combinations(lambda bits: rules_of_bits(rules, bits)),
            )
        return self._stream
