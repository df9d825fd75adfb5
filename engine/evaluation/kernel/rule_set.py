"""The enabled rules of a detector, and the functions that evaluate events for them.

Few rules are all evaluated at every event, by one function that is generated for them. Many are *indexed*:
rules and memories see only the events that meet their triggers. Both read and write the same slices, so
changing from one to the other moves nothing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from engine.evaluation.kernel.code.uses import Uses
from engine.evaluation.kernel.costs import estimate_of
from engine.evaluation.kernel.indexing.indexed_stream import IndexedStream
from engine.evaluation.kernel.indexing.members import Members
from engine.evaluation.kernel.indexing.sampling import Samples
from engine.evaluation.kernel.needs import Needs
from engine.evaluation.kernel.stream import Combinations, Functions, Note, rules_of_bits
from engine.evaluation.requirements import Births, Requirements, requirements_of
from engine.evaluation.rules import Fired, Rule
from engine.evaluation.slices.histories import Histories, Site
from engine.evaluation.slices.slices import Remembered
from engine.language.condition import Condition
from engine.language.limits import Limits

INDEXED_FROM: Final = 1_000
"""With so many nodes, rules are indexed. One function takes 20 to 30 ns for each of them, and an index some
microseconds for an event."""

FUSED_BELOW: Final = 700
"""Indexed rules stay so until they have fewer nodes than this: rules that come and go do not make each change
expensive."""

TEXT_TEST_NODES: Final = 4
"""What a test such as `startswith` counts as."""
ELEMENTS: Final = 10
"""How many elements an array is taken to have, each of which decides what `some` asks."""
PATTERN_NODES: Final = 150
"""A pattern takes the time of this many other nodes; an index tries all patterns of a fact together."""


class EnabledRule(NamedTuple):
    """An enabled rule with what its evaluation needs."""

    rule: Rule
    site: Site
    memories: tuple[Remembered, ...]
    """The memories of its temporal nodes, in the order of `requirements_of`."""


class Recording(Protocol):
    """What records some of the rules that fire."""

    def notes(self, rule: Rule) -> bool:
        """Return whether `note` is to be called where a rule fires."""

    def note(
        self, fired: Fired, fields: Mapping[str, Any], sent: Mapping[str, Any] | None, base: int, tick: int
    ) -> Fired:
        """Take the rules that fire at an event; see `kernel.stream`."""


class RuleSet(Needs):
    """The enabled rules by priority. `recording` is set before there are any, if at all."""

    def __init__(self, limits: Limits, histories: Histories, stored: Mapping[str, Any]) -> None:
        super().__init__(limits, stored)
        self.recording: Recording | None = None
        self._noted: set[int] = set()
        """The priorities of the rules that are noted where they fire."""
        self._histories = histories
        self._enabled: dict[int, EnabledRule] = {}
        self.plans: dict[int, Any] = {}
        """What explanations have worked out for a rule once, by priority."""
        self._rules: dict[int, Rule] = {}
        """The rules by priority, for a faster look-up of those that fire."""
        self.uses: Counter[Remembered] = Counter()
        """How many nodes of rules read each memory."""
        self.nodes = 0
        """The number of nodes in all conditions. Those of a memory count once, however many rules share it; a
        `not` never."""
        self._dear = 0
        """How many nodes more the dear ones count as."""
        self._action_bytes = 0
        """The most bytes of the actions of all rules."""
        self._functions: Functions | None = None
        self._fields_read: frozenset[str] | None = None
        self._may_warn: bool | None = None
        self.samples = Samples()
        self._members: Members | None = None
        """None unless rules are indexed."""
        self._indexed: IndexedStream | None = None
        """The same."""

    @property
    def indexed(self) -> bool:
        """Whether rules are indexed."""
        return self._members is not None

    @property
    def enabled(self) -> Mapping[int, EnabledRule]:
        """The enabled rules by priority."""
        return self._enabled

    @property
    def answer_bytes_worst(self) -> int:
        """The most bytes of actions and warnings in the result of one event."""
        return self._action_bytes + self.warning_bytes_worst

    # -- rules ----------------------------------------------------------------------------------------------

    def add(self, rule: Rule, births: Births, parts: Requirements) -> None:
        """Add an enabled rule, whose histories have these births, and what it requires then."""
        memories = []
        for use in parts.memories:
            remembered = self._histories.acquire(use)
            memories.append(remembered)
            if remembered not in self.uses:
                self.nodes += remembered.nodes
            self.uses[remembered] += 1
        self.need(parts)
        self.nodes += parts.nodes
        self._dear += _dear(parts)
        self._action_bytes += rule.action_bytes_max
        self._enabled[rule.priority] = EnabledRule(rule, Site(self._histories, births), tuple(memories))
        self._put(rule)
        self._index_rule(rule.priority)
        self._rules_changed()

    def remove(self, priority: int) -> None:
        """Remove a rule, and the memories that only it uses."""
        self._unindex_rule(priority)
        self.samples.forget(priority)
        rule, site, memories = self._enabled.pop(priority)
        self.plans.pop(priority, None)
        del self._rules[priority]
        self._noted.discard(priority)
        parts = requirements_of(rule.condition, site.births)
        self.nodes -= parts.nodes
        self._dear -= _dear(parts)
        self._action_bytes -= rule.action_bytes_max
        for use, remembered in zip(parts.memories, memories, strict=True):
            self.uses[remembered] -= 1
            if not self.uses[remembered]:
                del self.uses[remembered]
                self.nodes -= remembered.nodes
                if self._members is not None:
                    self._members.remove_memory(remembered)
            self._histories.release(use)
        self.need_no_more(parts)
        self._rules_changed()

    def replace(self, rule: Rule, births: Births, parts: Requirements) -> None:
        """Replace a rule by one that reads some of the same memories; see `add`."""
        for use in parts.memories:
            self._histories.acquire(use)
        self.remove(rule.priority)
        self.add(rule, births, parts)
        for use in parts.memories:
            self._histories.release(use)

    def rename(self, rule: Rule) -> None:
        """Replace a rule by one with the same condition."""
        before = self._enabled[rule.priority]
        self._action_bytes += rule.action_bytes_max - before.rule.action_bytes_max
        self._enabled[rule.priority] = before._replace(rule=rule)
        self._put(rule)
        self._rules_changed()

    def _put(self, rule: Rule) -> None:
        self._rules[rule.priority] = rule
        self._noted.discard(rule.priority)
        if self.recording is not None and self.recording.notes(rule):
            self._noted.add(rule.priority)

    def exchange(self, one: Rule, other: Rule) -> None:
        """Replace two rules by two that have each other's conditions and histories."""
        first, second, enabled = one.priority, other.priority, self._enabled
        for priority in (first, second):
            self._unindex_rule(priority)
        enabled[first], enabled[second] = enabled[second], enabled[first]
        for rule in (one, other):
            self.rename(rule)
            self._index_rule(rule.priority)

    def _rules_changed(self) -> None:
        self._functions = self._fields_read = self._may_warn = None
        if self._indexed is not None:
            self._indexed.rules_changed()
        if self.timing is not None:
            self.timing.rules_changed()

    def choose(self, *, indexed: bool | None = None) -> None:
        """Index rules, or cease to, by how many nodes they have; or as they were when they were saved."""
        if indexed is None:
            nodes = self.nodes + self._dear
            indexed = nodes >= (FUSED_BELOW if self.indexed else INDEXED_FROM)
        if indexed and not self.indexed:
            self._members = Members(self._histories, self, self.samples)
            self._indexed = IndexedStream(
                *(self._histories, self, self._members, self._rules, self.samples),
                note=lambda: self._note if self._noted else None,
            )
            for priority in self._enabled:
                self._index_rule(priority)
        elif self._members is not None and not indexed:
            self._members.clear()
            self._members = self._indexed = None
            self.samples.restore(0, {}, {})

    def _index_rule(self, priority: int) -> None:
        if self._members is not None:
            rule, site, memories = self._enabled[priority]
            self._members.add_rule(priority, rule.condition, site, memories)

    def _unindex_rule(self, priority: int) -> None:
        if self._members is not None:
            rule, site, _ = self._enabled[priority]
            self._members.remove_rule(priority, rule.condition, site)

    def relation_changed(self, name: str) -> None:
        """Have events see a relation that was stored, changed or deleted."""
        self._unstored = self._may_warn = None
        self.lookups.relations_changed()
        if self._members is not None:
            self._members.index.relation_changed(name)

    # -- what rules cost ------------------------------------------------------------------------------------

    def time_ns(self, priority: int) -> float:
        """Return the time that a rule took at the sampled events, with its part of the memories it shares.

        As long as rules are not indexed, it is the estimated time at one event.
        """
        rule, _, memories = self._enabled[priority]
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
        """Go on from earlier samples of the same rules, which are given by priority."""
        numbers = {} if self._members is None else self._members.memories
        of_memories = {numbers[each]: time_ns for each, time_ns in memory_ns.items() if each in numbers}
        self.samples.restore(events, ran, {**rule_ns, **of_memories})

    # -- events ---------------------------------------------------------------------------------------------

    def observe_many(self) -> Any:
        """Return the function that evaluates many events. Any change of the rules makes it invalid."""
        return self._few().observe_many if self._indexed is None else self._indexed.observe_many

    def observe_given(self) -> Any:
        """Return the same for events that it checks itself, with an `Intake`.

        None if it costs less to check them before.
        """
        return self._few().observe_given if self._indexed is None and self._few().takes_given else None

    @property
    def may_warn(self) -> bool:
        """Whether there may be messages about an event."""
        if self._may_warn is None:
            self._may_warn = self.may_warn_now()
        return self._may_warn

    def fields_read(self) -> frozenset[str]:
        """Return the names of the fields that may hold what the rules read."""
        if self._fields_read is None:
            rules = [(rule.condition, site) for rule, site, _ in self._enabled.values()]
            uses = Uses(rules, besides=self._read_to_act())
            self._fields_read = uses.fields
        return self._fields_read

    def _read_to_act(self) -> Iterator[str]:
        """Yield the facts that rules act by, besides those of their conditions."""
        for rule, *_ in self._enabled.values():
            yield from rule.every_by or ()

    def decide(self, fields: Mapping[str, Any], sent: Mapping[str, Any], base: int, tick: int) -> Fired:
        """Return the rules that would fire at an event, given the stamp of its time and its number.

        Nothing is committed.
        """
        if self._indexed is not None:
            return self._indexed.decide(fields, sent, base, tick)
        return self._few().decide(fields, sent, base, tick)  # type: ignore[no-any-return]  # generated

    @property
    def code(self) -> str:
        """The Python source of the function that evaluates many events, while rules are not indexed."""
        return self._few().code

    def decider(self, conditions: Sequence[tuple[Condition, Births]]) -> Any:
        """Return what decides conditions at events that are not recorded: a bit for each that is true.

        It takes what `decide` takes. The conditions, each with the births of its histories, are parts of a
        rule. Any change of the rules makes it invalid.
        """
        sites = [(one, Site(self._histories, births)) for one, births in conditions]
        return self._functions_for(sites, _Bits()).decide

    @property
    def _note(self) -> Note | None:
        return None if self.recording is None else self.recording.note

    def _few(self) -> Functions:
        if self._functions is None:
            priorities = sorted(self._enabled)
            enabled = [self._enabled[priority] for priority in priorities]
            rules = [rule for rule, *_ in enabled]
            made = Combinations[int](lambda bits: rules_of_bits(rules, bits))
            sites = [(rule.condition, site) for rule, site, _ in enabled]
            noted = sum(1 << place for place, each in enumerate(priorities) if each in self._noted)
            self._functions = self._functions_for(
                *(sites, made),
                timing=self.timing,
                noted=noted,
                note=self._note,
                besides=[*self._read_to_act()],
            )
        return self._functions

    def _functions_for(
        self,
        rules: Sequence[tuple[Condition, Site]],
        combinations: Mapping[int, Any],
        **told: Any,
    ) -> Functions:
        return Functions(
            rules,
            self._histories,
            finder=self.patterns.finder,
            lookup_of=self.lookups.of,
            relations_of=self.lookups.relations,
            begin=self.patterns.begin if self.patterns.bounded else None,
            combinations=combinations,
            **told,
        )


class _Bits(dict[int, int]):
    """Has each number for itself."""

    def __missing__(self, bits: int) -> int:
        return bits


def _dear(parts: Requirements) -> int:
    """Return how many nodes more the dear ones of a rule count as."""
    tests = TEXT_TEST_NODES * len(parts.text_tests)
    return PATTERN_NODES * len(parts.patterns) + tests + ELEMENTS * parts.of_elements
