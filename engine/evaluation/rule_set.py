"""The enabled rules of a detector: when each may sleep, and which of them an event wakes."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

from engine.evaluation.buckets import Bucket
from engine.evaluation.compiler import Compiler, Fire, Fired, ObserveMany, Row
from engine.evaluation.index import Index
from engine.evaluation.ir import Known
from engine.evaluation.lookups import Lookups
from engine.evaluation.names import Names
from engine.evaluation.pattern_work import PatternWork
from engine.evaluation.requirements import requirements_of
from engine.evaluation.rules import Rule
from engine.evaluation.state.columns import Column
from engine.evaluation.state.slices import NodeName, State, Store
from engine.evaluation.state.tables import KeyTable
from engine.evaluation.triggers import Holding, Triggers, Unstarted, triggers_of
from engine.evaluation.values import Relations, split_name
from engine.language.limits import Limits
from engine.patterns.compiled_pattern import compile_pattern

_Counted = TypeVar("_Counted")

EAGER_RULES_MAX: Final = 32
"""Up to this many rules, none sleeps: looking up which may would cost more. That is true for somewhat more
rules, too, but to compile them into one function takes milliseconds at each change of a rule."""

EAGER_NODES_MAX: Final = 400
"""The same bound for the nodes of all rules together."""

RELATIONS_NAMED_MAX: Final = 16
"""The messages about an event name this many missing relations."""

NAME_CHARS_SHOWN: Final = 255
"""Messages shorten longer names of facts and relations."""

WARNING_BYTES_MAX: Final = 256 + 6 * NAME_CHARS_SHOWN
"""The most bytes of a warning about a relation or a text as JSON."""

TURNED_ALL_MAX: Final = 8
"""Up to this many key tables, each event visits all of them instead of looking up those that it concerns."""


class Program(NamedTuple):
    """An enabled rule with what its evaluation needs."""

    rule: Rule
    birth: int
    stores: tuple[Store, ...]
    """The memories of its temporal nodes, in the order of `requirements_of`."""
    triggers: Triggers | None


class RuleSet:
    """The enabled rules by priority."""

    def __init__(self, state: State, limits: Limits) -> None:
        self._state = state
        self._limits = limits
        self.patterns = PatternWork(limits)
        self.lookups = Lookups()
        self._compiler = Compiler(state, self.patterns, self.lookups)
        self._index = Index(self._new_bucket, self.patterns.of, self.lookups)
        self._by_priority: dict[int, Program] = {}
        self._rules: dict[int, Rule] = {}
        """Only the rules, for a faster look-up of those that fire."""
        self._nodes = 0
        """The number of nodes of all conditions."""
        self._stream: ObserveMany | None = None
        self._action_bytes = 0
        """The most bytes of the actions of all rules."""
        self.relations: Counter[str] = Counter()
        """The relations, each with the number of rules that use it."""
        self._bounds: Counter[tuple[str, int]] = Counter()
        self._texts: Texts | None = None
        self._turning: Turning | None = None
        self._relation_names: list[str] | None = None

    @property
    def texts(self) -> "Texts":
        """The facts whose texts patterns are matched against."""
        if self._texts is None:
            self._texts = Texts(self._bounds)
        return self._texts

    @property
    def relation_names(self) -> list[str]:
        """The names of all relations in rules, sorted."""
        if self._relation_names is None:
            self._relation_names = sorted(self.relations)
        return self._relation_names

    @property
    def answer_bytes_worst(self) -> int:
        """The most bytes of actions and warnings in the result of one event."""
        warnings = min(len(self.relations), RELATIONS_NAMED_MAX + 1) + len(self.texts)
        return self._action_bytes + warnings * WARNING_BYTES_MAX

    # -- rules ----------------------------------------------------------------------------------------------

    def add(self, rule: Rule, birth: int, tick: int) -> None:
        """Add an enabled rule after event `tick`."""
        parts = requirements_of(rule.condition)
        stores = tuple(
            self._state.acquire(NodeName(node, path, birth), expires_after_us, tick)
            for node, path, expires_after_us in parts.memories
        )
        self.relations.update(parts.relations)
        self.lookups.add(parts.literals)
        for fact, pattern in parts.patterns:
            self.patterns.add(fact, pattern)
            self._bounds[fact, compile_pattern(pattern, self._limits).text_bytes_max] += 1
        self._nodes += parts.size
        self._action_bytes += rule.action_bytes_max
        self._by_priority[rule.priority] = Program(rule, birth, stores, None)
        self._rules[rule.priority] = rule
        self._stream = self._texts = self._relation_names = self._turning = None
        if self._state.indexed:
            self._let_sleep(rule.priority)
        elif len(self._by_priority) > EAGER_RULES_MAX or self._nodes > EAGER_NODES_MAX:
            self._state.begin_to_sleep(tick)
            for priority in self._by_priority:
                self._let_sleep(priority)

    def remove(self, priority: int, now_us: int) -> None:
        """Remove a rule, and the memories that only it uses."""
        if self._state.indexed:
            self._wake_up(priority)
        rule, birth, _, _ = self._by_priority.pop(priority)
        del self._rules[priority]
        parts = requirements_of(rule.condition)
        self._nodes -= parts.size
        self._action_bytes -= rule.action_bytes_max
        for node, path, _ in parts.memories:
            self._state.release(NodeName(node, path, birth), now_us)
        self.lookups.remove(parts.literals)
        for relation in parts.relations:
            _uncount(self.relations, relation)
        for fact, pattern in parts.patterns:
            self.patterns.remove(fact, pattern)
            _uncount(self._bounds, (fact, compile_pattern(pattern, self._limits).text_bytes_max))
        self._stream = self._texts = self._relation_names = self._turning = None
        self.compile_new()

    def compile_new(self) -> None:
        """Compile the texts that added rules search for, so that no event has to."""
        self.patterns.compile_new()
        self.lookups.compile_new()

    def rename(self, rule: Rule) -> None:
        """Replace a rule by one with the same condition."""
        before = self._by_priority[rule.priority]
        self._action_bytes += rule.action_bytes_max - before.rule.action_bytes_max
        self._by_priority[rule.priority] = before._replace(rule=rule)
        self._rules[rule.priority] = rule
        self._stream = None

    def _let_sleep(self, priority: int) -> None:
        """Index a rule, so that it sees only the events that meet its triggers."""
        program = self._by_priority[priority]
        triggers = triggers_of(program.rule.condition, self._index.cost)
        self._by_priority[priority] = program._replace(triggers=triggers)
        self._index.add(priority, triggers)
        for store, blank in self._waking(program.birth, triggers):
            self._wakers(store, blank=blank).add(priority)

    def _wake_up(self, priority: int) -> None:
        """Undo `_let_sleep`."""
        program = self._by_priority[priority]
        self._index.remove(priority, program.triggers)
        for store, blank in self._waking(program.birth, program.triggers):
            bucket = self._wakers(store, blank=blank)
            bucket.remove(priority)
            if not bucket.size:
                self._unwatch(store)

    def _waking(self, birth: int, triggers: Triggers | None) -> list[tuple[Store, bool]]:
        """Give the memories among the triggers, and for each whether it wakes the rule while it is empty."""
        waking = [trigger for trigger in triggers or () if isinstance(trigger, Holding | Unstarted)]
        stores = self._state.stores
        return [
            (stores[NodeName(trigger.node, trigger.path, birth)], isinstance(trigger, Unstarted))
            for trigger in waking
        ]

    def _wakers(self, store: Store, *, blank: bool) -> Bucket:
        """Give the bucket of the rules that a memory wakes."""
        whole = self._state.whole
        bucket = store.bucket if isinstance(store, Column) else whole.buckets.get(store)
        if bucket is None:
            bucket = self._new_bucket(None)
            if isinstance(store, Column):
                store.watch(bucket)
            else:
                whole.watch(store, bucket, blank=blank)
        return bucket

    def _unwatch(self, store: Store) -> None:
        if isinstance(store, Column):
            store.unwatch()
        else:
            self._state.whole.unwatch(store)

    # -- events ---------------------------------------------------------------------------------------------

    def stream(self) -> ObserveMany:
        """Give the function that evaluates many events for every rule. No rule may sleep."""
        assert not self._state.indexed, "what sleeps is run by `run`"
        if self._stream is None:
            programs = [self._by_priority[priority] for priority in sorted(self._by_priority)]
            self._stream = self._compiler.stream([(program.rule, program.stores) for program in programs])
        return self._stream

    def run(  # noqa: PLR0917 -- as they are handed on
        self,
        fields: Mapping[str, Any],
        sent: Mapping[str, Any],
        now_us: int,
        tick: int,
        relations: Relations | None,
        fire: Fire,
    ) -> None:
        """Evaluate an event for the rules that must see it."""
        if self.patterns.bounded:
            self.patterns.begin(fields, sent)
        state = self._state
        met = self._index.met_by(fields, sent)
        for table in self._tables_with_keys(fields, sent):
            table.turn_to(fields, sent, now_us, tick)
            if table.watched or table.awake or table.begun:
                met += table.woken()
        if state.whole.awake:
            met += state.whole.awake.values()
        for bucket in met:
            bucket.run(fields, sent, now_us, tick, relations, fire)
        state.whole.previous_us = now_us

    def _tables_with_keys(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> Collection[KeyTable]:
        """Give the tables whose last key the event has. Others have no slot for it."""
        tables = self._state.tables
        if len(tables) <= TURNED_ALL_MAX:
            return tables.values()
        if self._turning is None:
            self._turning = Turning(tables.values())
        return self._turning.tables_at(fields, sent)

    def rules(self, fired: list[int]) -> Fired:
        """Give the rules that fired, each once, in order of priority."""
        rules = self._rules
        if len(fired) == 1:
            return (rules[fired[0]],)
        return tuple([rules[priority] for priority in sorted(set(fired))])

    def _new_bucket(self, known: Known | None) -> Bucket:
        return Bucket(self._row, known)

    def _row(self, priority: int, known: Known | None) -> Row:
        program = self._by_priority[priority]
        return self._compiler.row(program.rule.condition, program.stores, known)


class Turning:
    """Many key tables, a few of which have keys in an event."""

    def __init__(self, tables: Iterable[KeyTable]) -> None:
        self._of_fields: Names[list[KeyTable]] = Names()
        self._of_vars: Names[list[KeyTable]] = Names()
        self._turned: list[KeyTable] = []
        by_key: dict[str, list[KeyTable]] = {}
        for table in tables:
            by_key.setdefault(table.path[-1], []).append(table)
            table.leave()
        for said, of_key in by_key.items():
            name = split_name(said)
            (self._of_vars if name.of_vars else self._of_fields).add(name, of_key)

    def tables_at(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[KeyTable]:
        """Give the tables whose last key has a value. All others leave the previous event."""
        for table in self._turned:
            table.leave()
        found = chain(self._of_fields.found_in(fields), self._of_vars.found_in(sent))
        self._turned = [table for tables, _ in found for table in tables]
        return self._turned


class Texts:
    """The facts whose texts patterns are matched against, each with the bound that fits all its patterns."""

    def __init__(self, bounds: Iterable[tuple[str, int]]) -> None:
        self._of_fields: Names[tuple[str, int]] = Names()
        self._of_vars: Names[tuple[str, int]] = Names()
        # The smallest of several bounds of a fact comes last and remains.
        smallest = dict(sorted(bounds, reverse=True))
        for said, bytes_max in smallest.items():
            name = split_name(said)
            (self._of_vars if name.of_vars else self._of_fields).add(name, (said, bytes_max))

        self._count = len(smallest)

    def __len__(self) -> int:
        return self._count

    def found_in(self, fields: Mapping[str, Any], sent: Mapping[str, Any]) -> list[tuple[str, int, str]]:
        """Give the facts that are texts, sorted, each with its bound and the text."""
        found = chain(self._of_fields.found_in(fields), self._of_vars.found_in(sent))
        return sorted((said, bytes_max, text) for (said, bytes_max), text in found if type(text) is str)


def _uncount(counts: Counter[_Counted], item: _Counted) -> None:
    counts[item] -= 1
    if not counts[item]:
        del counts[item]
