"""The enabled rules of a detector, and the functions that evaluate events for them.

Few rules are all evaluated at every event, by one generated function. Many rules are *indexed*: rules and
memories see only events that meet their triggers. Both ways read and write the same slices, so changing from
one to the other moves nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.costs import estimate_of
from engine.evaluation.kernel.indexing.indexed_stream import IndexedStream
from engine.evaluation.kernel.indexing.members import Members
from engine.evaluation.kernel.indexing.sampling import Samples
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.kernel.stream import Combinations, Functions, Note, rules_of_bits
from engine.evaluation.requirements import Births, Requirements, requirements_of
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.slices.histories import Histories
from engine.evaluation.slices.slices import Remembered
from engine.evaluation.timed.timing import Timing
from engine.language.condition import Condition
from engine.language.limits import Limits

INDEXED_FROM: Final = 1_000
"""With this many nodes, rules are indexed. One function mostly takes 20 to 30 ns for each node, an index some
microseconds for an event."""

FUSED_BELOW: Final = 700
"""Indexed rules stay indexed until they have fewer nodes than this, so that rules that come and go do not
make each change expensive."""

TEXT_TEST_NODES: Final = 4
"""A test such as `startswith` counts as this many nodes."""
COMPUTED_NODES: Final = 2
"""A computed term, such as a sum of two facts, counts as this many nodes in addition, and so does a test for
networks. Their code is long. Compiling the function keeps everything else in the process from running."""
RELATION_NODES: Final = 20
"""A test for a tuple of a relation counts as this many nodes in addition. An index looks each tuple up once
for all rules."""
ELEMENTS: Final = 10
"""The assumed number of elements of an array in `some`."""
PATTERN_NODES: Final = 150
"""A pattern counts as this many nodes. An index tries all patterns of a fact together."""


class EnabledRule(NamedTuple):
    """An enabled rule, and what its evaluation needs."""

    rule: Rule
    births: Births
    memories: tuple[Remembered, ...]
    """The memories of its temporal nodes, in the order of `requirements_of`."""


class RuleSet(Needs):
    """The enabled rules of a detector by priority."""

    def __init__(self, limits: Limits, histories: Histories, stored: Mapping[str, Any]) -> None:
        super().__init__(limits, histories, stored)
        self.note: Note | None = None
        """Called with firing rules that notify or act at most once in some time. Set before there are any
        rules, if at all."""
        self._noted: set[int] = set()
        """The priorities of those rules."""
        self.timing = Timing(histories, self)
        self.enabled: dict[int, EnabledRule] = {}
        self.plans: dict[int, Any] = {}
        """What explanations keep for each rule, by priority."""
        self.uses: Counter[Remembered] = Counter()
        """The number of nodes of rules that read each memory."""
        self.nodes = 0
        """The number of nodes of all conditions. A memory's nodes count once, however many rules share it; a
        `not` does not count."""
        self._extra_nodes = 0
        """The nodes that expensive conditions count as, in addition."""
        self._action_bytes = 0
        """The maximum size of the actions of all rules."""
        self._functions: Functions | None = None
        self._fields_read: frozenset[str] | None = None
        self.samples = Samples()
        self._members: Members | None = None
        """None unless rules are indexed."""
        self._stream: IndexedStream | None = None
        """None after a change of the rules, until it is needed."""

    @property
    def indexed(self) -> bool:
        """Whether rules are indexed."""
        return self._members is not None

    @property
    def answer_bytes_worst(self) -> int:
        """The maximum size of actions and warnings in the result of one event."""
        return self._action_bytes + self.warning_bytes_worst

    # -- rules ----------------------------------------------------------------------------------------------

    def add(self, rule: Rule, births: Births, parts: Requirements) -> None:
        """Add an enabled rule with the births of its histories, and its requirements."""
        memories = []
        for use in parts.memories:
            remembered = self.histories.acquire(use)
            memories.append(remembered)
            if remembered not in self.uses:
                self.nodes += remembered.nodes
                self._extra_nodes += remembered.memory.code_nodes
            self.uses[remembered] += 1
        self.nodes += parts.nodes
        self._extra_nodes += _extra_nodes(parts)
        self.enabled[rule.priority] = EnabledRule(rule, births, tuple(memories))
        self._note_if_wanted(rule)
        self._action_bytes += rule.action_bytes_max
        self.need(parts)
        if self._members is not None:
            self._members.add_rule(rule, births, parts, memories)
        self._rules_changed()

    def remove(self, priority: int) -> None:
        """Remove a rule, and the memories that only it uses."""
        self._unindex(priority)
        self.samples.forget(priority)
        rule, births, memories = self.enabled.pop(priority)
        self.plans.pop(priority, None)
        self._noted.discard(priority)
        parts = requirements_of(rule.condition, births)
        self.nodes -= parts.nodes
        self._extra_nodes -= _extra_nodes(parts)
        self._action_bytes -= rule.action_bytes_max
        for use, remembered in zip(parts.memories, memories, strict=True):
            self.uses[remembered] -= 1
            if not self.uses[remembered]:
                del self.uses[remembered]
                self.nodes -= remembered.nodes
                self._extra_nodes -= remembered.memory.code_nodes
                if self._members is not None:
                    self._members.remove_memory(remembered)
            self.histories.release(use)
        self.need_no_more(parts)
        self._rules_changed()

    def replace(self, rule: Rule, births: Births, parts: Requirements) -> None:
        """Replace a rule by one that keeps some of the same histories; see `add`."""
        old, births_before, _ = self.enabled[rule.priority]
        before = requirements_of(old.condition, births_before).memories
        for use in parts.memories:
            self.histories.acquire_after(use, before)
        self.remove(rule.priority)
        self.add(rule, births, parts)
        for use in parts.memories:
            self.histories.release(use)

    def rename(self, rule: Rule) -> None:
        """Replace a rule by one with the same condition."""
        before = self.enabled[rule.priority]
        self._action_bytes += rule.action_bytes_max - before.rule.action_bytes_max
        self.enabled[rule.priority] = before._replace(rule=rule)
        self._note_if_wanted(rule)
        self._rules_changed()

    def _note_if_wanted(self, rule: Rule) -> None:
        self._noted.discard(rule.priority)
        if self.note is not None and rule.is_noted(feeds=self.limits.firings_max > 0):
            self._noted.add(rule.priority)

    def exchange(self, one: Rule, other: Rule) -> None:
        """Exchange the conditions and histories of two rules, which are passed as they are afterwards."""
        first, second, enabled = one.priority, other.priority, self.enabled
        for priority in (first, second):
            self._unindex(priority)
        enabled[first], enabled[second] = enabled[second], enabled[first]
        for rule in (one, other):
            self.rename(rule)
            self._index(rule.priority)

    def _rules_changed(self) -> None:
        self._functions = self._stream = self._fields_read = None
        if self.timing.watches:
            self.timing.rules_changed()

    def choose(self, *, indexed: bool | None = None) -> None:
        """Index the rules or stop indexing them, by their number of nodes or as given, after a restore."""
        if indexed is None:
            nodes = self.nodes + self._extra_nodes
            indexed = nodes >= (FUSED_BELOW if self.indexed else INDEXED_FROM)
        if indexed and not self.indexed:
            self._members = Members(self, self.samples)
            for priority in self.enabled:
                self._index(priority)
        elif self._members is not None and not indexed:
            self._members.clear()
            self._members = self._stream = None
            self.samples = Samples()

    def _index(self, priority: int) -> None:
        if self._members is not None:
            rule, births, memories = self.enabled[priority]
            self._members.add_rule(rule, births, requirements_of(rule.condition, births), memories)

    def _unindex(self, priority: int) -> None:
        if self._members is not None:
            rule, births, memories = self.enabled[priority]
            self._members.remove_rule(rule, requirements_of(rule.condition, births), memories)

    def relation_changed(self, name: str) -> None:
        """Apply the change of a stored relation, which may be new or deleted."""
        self._unstored = self._may_warn = None
        self.lookups.forget()
        if self._members is not None:
            self._members.index.relation_changed(name)

    # -- what rules cost ------------------------------------------------------------------------------------

    def time_ns(self, priority: int) -> float:
        """Return the time that a rule took at the sampled events, with its share of its memories' time.

        While rules are not indexed, return the estimated time at one event.
        """
        rule, _, memories = self.enabled[priority]
        if self._members is None:
            return estimate_of(rule.condition).event_ns
        took_ns, numbers = self.samples.time_ns, self._members.memories
        shared_ns = sum(took_ns.get(numbers[each], 0.0) / self.uses[each] for each in memories)
        return took_ns.get(priority, 0.0) + shared_ns

    def memory_ns(self) -> dict[Remembered, float]:
        """Return the time that each indexed memory took at the sampled events."""
        if self._members is None:
            return {}
        took_ns, numbers = self.samples.time_ns, self._members.memories
        return {each: took_ns[number] for each, number in numbers.items() if number in took_ns}

    def restore_samples(
        self,
        events: int,
        ran: Mapping[int, int],
        rule_ns: Mapping[int, float],
        memory_ns: Mapping[Remembered, float],
    ) -> None:
        """Continue from earlier samples of the same rules, by priority."""
        numbers = {} if self._members is None else self._members.memories
        of_memories = {numbers[each]: time_ns for each, time_ns in memory_ns.items() if each in numbers}
        self.samples.restore(events, ran, {**rule_ns, **of_memories})

    # -- events ---------------------------------------------------------------------------------------------

    def observe_many(self) -> Any:
        """Return the function that evaluates many events. Any change of the rules invalidates it."""
        return self._few().observe_many if self._members is None else self._many(self._members).observe_many

    def observe_given(self) -> Any:
        """Return the function for events that it checks itself, with an `Intake`.

        None if checking them beforehand takes less time.
        """
        return self._few().observe_given if self._members is None and self._few().takes_given else None

    def fields_read(self) -> frozenset[str]:
        """Return the names of the fields that may contain what the rules read."""
        if self._fields_read is None:
            rules = [(rule.condition, births) for rule, births, _ in self.enabled.values()]
            uses = Uses(rules, besides=self._read_to_act())
            self._fields_read = uses.fields
        return self._fields_read

    def _read_to_act(self) -> Iterator[str]:
        """Yield the facts that decide about actions, apart from conditions."""
        for rule, *_ in self.enabled.values():
            yield from rule.every_by or ()

    def decide(self, fields: Mapping[str, Any], sent: Mapping[str, Any], base: int, tick: int) -> Fired:
        """Return the rules that would fire at an event, given the stamp of its time and its number.

        Nothing is committed.
        """
        if self._members is not None:
            return self._many(self._members).decide(fields, sent, base, tick)
        return self._few().decide(fields, sent, base, tick)  # type: ignore[no-any-return]  # generated

    @property
    def code(self) -> str:
        """The Python source of the function that evaluates many events, while rules are not indexed."""
        return self._few().code

    def decider(self, conditions: Sequence[tuple[Condition, Births]]) -> Any:
        """Return a function that decides conditions at events that are not recorded: a bit for each true one.

        It takes the arguments of `decide`. The conditions, each with the births of its histories, are parts
        of a rule. Any change of the rules invalidates it.
        """
        return Functions(conditions, self, _Bits()).decide

    def _many(self, members: Members) -> IndexedStream:
        if self._stream is None:
            made = Combinations[tuple[int, ...]](
                lambda fired: tuple([self.enabled[each].rule for each in fired])
            )
            note = self.note if self._noted else None
            self._stream = IndexedStream(members, self, self.timing, made, note)
        return self._stream

    def _few(self) -> Functions:
        if self._functions is None:
            priorities = sorted(self.enabled)
            enabled = [self.enabled[priority] for priority in priorities]
            rules = [rule for rule, *_ in enabled]
            made = Combinations[int](lambda bits: rules_of_bits(rules, bits))
            conditions = [(rule.condition, births) for rule, births, _ in enabled]
            noted = sum(1 << place for place, each in enumerate(priorities) if each in self._noted)
            self._functions = Functions(
                *(conditions, self, made),
                timing=self.timing,
                noted=noted,
                note=self.note,
                besides=[*self._read_to_act()],
            )
        return self._functions


class _Bits(dict[int, int]):
    """Maps each number to itself."""

    def __missing__(self, bits: int) -> int:
        return bits


def _extra_nodes(parts: Requirements) -> int:
    """Return the nodes that the expensive conditions of a rule count as, in addition."""
    tests = TEXT_TEST_NODES * len(parts.text_tests)
    computed = COMPUTED_NODES * parts.computed + RELATION_NODES * parts.related
    return PATTERN_NODES * len(parts.patterns) + tests + ELEMENTS * parts.of_elements + computed
