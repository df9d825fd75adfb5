"""The enabled rules of a detector: which rules an event is evaluated for, and which memories it updates.

Few rules are all evaluated at every event, by one function that is compiled for them. Where it costs less, as
`index_choice.py` estimates, the rule set is *indexed*: rules and memories see only the events that meet their
triggers. `stream` gives the function for either.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakValueDictionary

from engine.evaluation.dispatch.compilation.compiler import Compiler, ObserveMany
from engine.evaluation.dispatch.index_choice import FUSED_NODES_MAX, STAYS_SHARE, index_pays
from engine.evaluation.dispatch.indexing.index import Index
from engine.evaluation.dispatch.indexing.index_members import IndexMembers
from engine.evaluation.dispatch.indexing.indexed_stream import IndexedStream
from engine.evaluation.dispatch.indexing.member_rows import MemberRows
from engine.evaluation.dispatch.indexing.sampling import Samples
from engine.evaluation.dispatch.members import EnabledRule
from engine.evaluation.dispatch.needs import Needs, uncount
from engine.evaluation.dispatch.weighing import Weight, weight_of
from engine.evaluation.plan.requirements import requirements_of, size_of
from engine.evaluation.rules import Rule
from engine.evaluation.state.fusing import entries_to_write, fuse
from engine.evaluation.state.joining import Joins
from engine.evaluation.state.node_names import NodeName
from engine.evaluation.state.slices import State
from engine.language.limits import Limits

WRITTEN_MAX: Final = 20_000
"""The most entries of memories that are written when rules cease to be indexed, which takes some 20 ms."""


class RuleSet(Needs):
    """The enabled rules by priority."""

    def __init__(self, state: State, limits: Limits) -> None:
        super().__init__(limits)
        self._state = state
        self._compiler = Compiler(state, self.patterns, self.lookups)
        self._enabled: dict[int, EnabledRule] = {}
        self.joins = Joins(state)
        self._rules: dict[int, Rule] = {}
        """The rules by priority, for a faster look-up of those that fire."""
        self._nodes: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        """The nodes that have memories. Equal nodes are one object, so comparing them walks no trees."""
        self.uses: Counter[NodeName] = Counter()
        """The number of rules that have each memory, by its name."""
        self.nodes = 0
        """The number of nodes in all conditions. Those of a memory that rules share count once."""
        self._stream: ObserveMany | None = None
        self._action_bytes = 0
        """The most bytes of the actions of all rules."""
        rows = MemberRows(state, self._compiler, self._enabled)
        index = Index(rows.new_bucket, rows.selected, self.patterns.of, self.lookups)
        self.samples = Samples()
        self._members = IndexMembers(state, index, rows, self.joins, self.samples)
        """Empty until the rule set is indexed."""
        self._indexed_stream = IndexedStream(
            state,
            index,
            self.joins,
            self._members.join_due,
            rows.slice_test,
            self.patterns,
            self.lookups,
            self.relations,
            self._rules,
            self.samples,
        )

    @property
    def answer_bytes_worst(self) -> int:
        """The most bytes of actions and warnings in the result of one event."""
        return self._action_bytes + self.warning_bytes_worst

    # -- rules ----------------------------------------------------------------------------------------------

    def add(self, rule: Rule, birth: int, tick: int, now_us: int) -> None:
        """Add an enabled rule after event `tick`, whose time was `now_us`."""
        parts = requirements_of(rule.condition, birth)
        names = [NodeName(self._nodes.setdefault(node, node), path, birth) for node, path in parts.memories]
        for name in names:
            self._state.acquire(name, tick)
            self.uses[name] += 1
            if self.uses[name] > 1:
                self.nodes -= size_of(name.condition)
        self.need(parts)
        self.nodes += parts.size
        self._action_bytes += rule.action_bytes_max
        self._enabled[rule.priority] = EnabledRule(rule, birth, tuple(names), None)
        self._rules[rule.priority] = rule
        self._stream = None
        self._indexed_stream.rules_changed()
        if self._state.indexed:
            self._index_rule(rule.priority)
            if birth == tick:
                self.joins.born(names, now_us)

    def remove(self, priority: int, now_us: int) -> None:
        """Remove a rule, and the memories that only it uses."""
        if self._state.indexed:
            self._unindex_rule(priority)
        rule, _, names, *_ = self._enabled.pop(priority)
        del self._rules[priority]
        parts = requirements_of(rule.condition)
        self.nodes -= parts.size
        self._action_bytes -= rule.action_bytes_max
        for name in names:
            if self.uses[name] > 1:
                self.nodes += size_of(name.condition)
            uncount(self.uses, name)
            self._release(name, now_us)
        self.need_no_more(parts)
        self._stream = None
        self._indexed_stream.rules_changed()

    def choose(self, tick: int, now_us: int, *, loaded: bool) -> None:
        """Index the rules after event `tick` at `now_us`, or cease to, whichever is estimated to cost less.

        Rules that were just `loaded` stay indexed if they were saved so.
        """
        pays = self._index_pays()
        if pays and not self._state.indexed:
            self._state.become_indexed(tick)
            for priority in self._enabled:
                self._index_rule(priority)
            self.joins.await_all(tick, now_us)
        elif self._state.indexed and not (pays or loaded or entries_to_write(self._state) > WRITTEN_MAX):
            for priority in self._enabled:
                self._unindex_rule(priority)
            self._members.remove_updaters()
            self.joins.clear()
            fuse(self._state, tick, now_us)

    def _index_pays(self) -> bool:
        indexed = self._state.indexed
        if self.nodes > (STAYS_SHARE * FUSED_NODES_MAX if indexed else FUSED_NODES_MAX):
            return True
        for priority, enabled in self._enabled.items():
            if enabled.weight is None:
                self._enabled[priority] = enabled._replace(weight=_weight_of(enabled))
        weights = [enabled.weight for enabled in self._enabled.values() if enabled.weight is not None]
        return index_pays(weights, indexed=indexed)

    def _release(self, name: NodeName, now_us: int) -> None:
        users, updated = self._state.users, self._state.memory_of(name)
        if users[name] == users[updated] == 1:
            self._members.remove_updater(updated)
        if users[name] == 1:
            self.joins.newborn.pop(name, None)
        for inner in self._state.release(name, now_us):
            self._release(inner, now_us)

    def rename(self, rule: Rule) -> None:
        """Replace a rule by one with the same condition."""
        before = self._enabled[rule.priority]
        self._action_bytes += rule.action_bytes_max - before.rule.action_bytes_max
        self._enabled[rule.priority] = before._replace(rule=rule)
        self._rules[rule.priority] = rule
        self._stream = None
        self._indexed_stream.rules_changed()

    def exchange(self, one: Rule, other: Rule) -> None:
        """Replace two rules by two that have each other's conditions and histories."""
        first, second, enabled = one.priority, other.priority, self._enabled
        for priority in (first, second) if self._state.indexed else ():
            self._unindex_rule(priority)
        enabled[first], enabled[second] = enabled[second], enabled[first]
        for rule in (one, other):
            self.rename(rule)
            if self._state.indexed:
                self._index_rule(rule.priority)

    def _index_rule(self, priority: int) -> None:
        self._enabled[priority] = self._members.add_rule(priority, self._enabled[priority])

    def _unindex_rule(self, priority: int) -> None:
        self._members.remove_rule(priority, self._enabled[priority])

    # -- what rules cost ------------------------------------------------------------------------------------

    @property
    def enabled(self) -> Mapping[int, EnabledRule]:
        """The enabled rules by priority."""
        return self._enabled

    def time_ns(self, priority: int) -> float:
        """Return the time that a rule took at the sampled events, with its part of the memories it shares.

        As long as rules are not indexed, it is the estimated time at one event.
        """
        enabled = self._enabled[priority]
        if not self._state.indexed:
            return (enabled.weight or _weight_of(enabled)).fused_ns
        took_ns, users = self.samples.time_ns, self._state.users
        found = took_ns.get(priority, 0.0)
        for name in map(self._state.memory_of, enabled.memories):
            found += took_ns.get(self._members.updater_of(name), 0.0) / users[name]
        return found

    def memory_ns(self) -> dict[NodeName, float]:
        """Return the time that the updates of each indexed memory took at the sampled events."""
        took_ns = self.samples.time_ns
        return {name: took_ns[number] for name, number in self._members.updaters.items() if number in took_ns}

    def restore_samples(
        self,
        events: int,
        ran: Mapping[int, int],
        rule_ns: Mapping[int, float],
        memory_ns: Mapping[NodeName, float],
    ) -> None:
        """Go on from earlier samples of the same rules, which are given by priority."""
        updaters = self._members.updaters
        of_memories = {updaters[name]: time_ns for name, time_ns in memory_ns.items() if name in updaters}
        self.samples.restore(events, ran, {**rule_ns, **of_memories})

    # -- events ---------------------------------------------------------------------------------------------

    def candidates(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[EnabledRule]:
        """Return all rules that may fire at the next event, and perhaps others, by priority."""
        if not self._state.indexed:
            return [self._enabled[priority] for priority in sorted(self._enabled)]
        return [self._enabled[priority] for priority in sorted(self._indexed_stream.candidates(fields, sent))]

    def stream(self) -> ObserveMany:
        """Return the function that evaluates many events. Any change of the rules makes it invalid."""
        if self._state.indexed:
            return self._indexed_stream.observe_many
        if self._stream is None:
            enabled = [self._enabled[priority] for priority in sorted(self._enabled)]
            self._stream = self._compiler.stream(enabled, self.nodes)
        return self._stream


def _weight_of(enabled: EnabledRule) -> Weight:
    memories = [(name.condition, name.path) for name in enabled.memories]
    return weight_of(enabled.rule.condition, enabled.birth, memories)
