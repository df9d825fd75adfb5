"""The members of the index: the rules, and an updater for each memory that they read.

A member is in the bucket of each of its triggers: in the index, or at the memory that is its trigger.
"""

from collections.abc import Mapping

from engine.evaluation.dispatch.indexing.buckets import Bucket
from engine.evaluation.dispatch.indexing.index import Index
from engine.evaluation.dispatch.indexing.member_rows import MemberRows
from engine.evaluation.dispatch.indexing.sampling import Samples
from engine.evaluation.dispatch.members import EnabledRule, Updater
from engine.evaluation.plan.requirements import RULE_STAGE, update_stage
from engine.evaluation.plan.triggers import Analysis, Holding, Triggers, Unstarted, may_meet_several
from engine.evaluation.state.joining import Joins
from engine.evaluation.state.node_names import NodeName
from engine.evaluation.state.slices import State
from engine.evaluation.state.views import Store


class IndexMembers:
    """Keeps the members in their buckets while rules and memories come, go and join."""

    def __init__(self, state: State, index: Index, rows: MemberRows, joins: Joins, samples: Samples) -> None:
        self._state = state
        self._index = index
        self._rows, self._selected, self._updaters = rows, rows.selected, rows.updaters
        self._updater_of: dict[NodeName, int] = {}
        self._updaters_made = 0
        self._joins = joins
        self._samples = samples

    def add_rule(self, priority: int, enabled: EnabledRule) -> EnabledRule:
        """Index a rule, and the memories that it reads, each by its own triggers.

        Return the rule with its triggers.
        """
        analysis = Analysis(enabled.birth, self._index.cost)
        for name in enabled.memories:
            updated = self._state.memory_of(name)
            for each in (updated, *map(self._state.memory_of, self._state.inner.get(updated, ()))):
                if each not in self._updater_of:
                    self._add_updater(each, analysis)
        triggers = analysis.of_rule(enabled.rule.condition)
        self._add(priority, RULE_STAGE, enabled.birth, triggers)
        return enabled._replace(triggers=triggers)

    def remove_rule(self, priority: int, enabled: EnabledRule) -> None:
        """Undo `add_rule`, except for the memories."""
        self._remove(priority, RULE_STAGE, enabled.birth, enabled.triggers)

    def remove_updater(self, name: NodeName) -> None:
        """Remove the updater of a memory, if it is indexed."""
        if name in self._updater_of:
            updater = self._updaters.pop(self._updater_of.pop(name))
            self._remove(updater.number, updater.stage, name.birth, updater.triggers)

    def remove_updaters(self) -> None:
        """Remove all updaters."""
        for name in list(self._updater_of):
            self.remove_updater(name)

    def updater_of(self, name: NodeName) -> int:
        """Return the number of a memory's updater."""
        return self._updater_of[name]

    @property
    def updaters(self) -> Mapping[NodeName, int]:
        """The numbers of the updaters of all indexed memories."""
        return self._updater_of

    def join_due(self, now_us: int, tick: int) -> None:
        """Have some memories join older ones, which read the same from the event after `tick` on."""
        self._joins.meet(now_us)
        for due in self._joins.due(now_us, tick):
            self._join(due.name, due.since_us, now_us)

    def _join(self, name: NodeName, since_us: int, now_us: int) -> None:
        state = self._state
        store, oldest = state.stores[name], state.oldest(name)
        self.remove_updater(name)
        bucket = state.globals.buckets.get(store) if isinstance(store, int) else store.bucket
        if bucket is not None:
            self._bucket_of(state.stores[oldest], unstarted=False).take_over(bucket)
            self._unwatch(store)
        state.join(name, since_us, now_us)

    def _add_updater(self, name: NodeName, analysis: Analysis) -> None:
        """Index a memory.

        The analysis is that of a rule that reads it. The memory may be that of an older rule. It has the same
        triggers for both, since nodes with slices that differ between births are not shared.
        """
        self._updaters_made += 1
        triggers = analysis.of_memory(name.condition, name.path)
        updater = Updater(-self._updaters_made, name, update_stage(name.condition, name.path), triggers)
        self._updaters[updater.number] = updater
        self._updater_of[name] = updater.number
        self._add(updater.number, updater.stage, name.birth, triggers)

    def _add(self, member: int, stage: int, birth: int, triggers: Triggers | None) -> None:
        several = may_meet_several(triggers)
        if several:
            self._selected.add(member)
        self._index.add(member, triggers, stage, several=several)
        for store, unstarted in self._memories_among(birth, triggers):
            self._bucket_of(store, unstarted=unstarted).add(member, stage, several=several)

    def _remove(self, member: int, stage: int, birth: int, triggers: Triggers | None) -> None:
        self._samples.forget(member)
        several = may_meet_several(triggers)
        self._index.remove(member, triggers, stage, several=several)
        for store, unstarted in self._memories_among(birth, triggers):
            bucket = self._bucket_of(store, unstarted=unstarted)
            bucket.remove(member, stage, several=several)
            if not bucket.size:
                self._unwatch(store)
        if several:
            self._selected.remove(member)

    def _memories_among(self, birth: int, triggers: Triggers | None) -> list[tuple[Store, bool]]:
        """Return the memories among the triggers, each with whether it triggers while it is empty."""
        memories = [trigger for trigger in triggers or () if isinstance(trigger, Holding | Unstarted)]
        store_of = self._state.store_of
        return [
            (store_of(NodeName(trigger.node, trigger.path, birth)), isinstance(trigger, Unstarted))
            for trigger in memories
        ]

    def _bucket_of(self, store: Store, *, unstarted: bool) -> Bucket:
        """Return the bucket of the members that a memory triggers."""
        globals_ = self._state.globals
        bucket = globals_.buckets.get(store) if isinstance(store, int) else store.bucket
        if bucket is None:
            bucket = self._rows.new_bucket(None)
            if isinstance(store, int):
                globals_.watch(store, bucket, unstarted=unstarted)
            else:
                store.watch(bucket)
        return bucket

    def _unwatch(self, store: Store) -> None:
        if isinstance(store, int):
            self._state.globals.unwatch(store)
        else:
            store.unwatch()
