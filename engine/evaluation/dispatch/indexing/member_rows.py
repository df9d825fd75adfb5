"""Compiles the members of the index: each becomes a row of the buckets that it is in."""

from collections.abc import Iterable, Mapping

from engine.evaluation.dispatch.compilation.compiler import Compiler, Row
from engine.evaluation.dispatch.indexing.buckets import Bucket, SliceTest
from engine.evaluation.dispatch.members import EnabledRule, Updater
from engine.evaluation.dispatch.selection.selected_rows import SelectedRow, SelectedRows
from engine.evaluation.memory import Regime
from engine.evaluation.paths import membership_of
from engine.evaluation.plan.ir import Memories
from engine.evaluation.plan.known import Known
from engine.evaluation.plan.requirements import path_depth, requirements_of
from engine.evaluation.state.node_names import NodeName
from engine.evaluation.state.slices import State
from engine.evaluation.state.storage.columns import ColumnTable
from engine.evaluation.state.views import Store


class MemberRows:
    """Compiles rules, whose number as a member is their priority, and updaters, whose number is below 0."""

    def __init__(self, state: State, compiler: Compiler, enabled: Mapping[int, EnabledRule]) -> None:
        self._state = state
        self._compiler = compiler
        self._enabled = enabled
        self.updaters: dict[int, Updater] = {}
        """The updaters by number."""
        self.selected = SelectedRows(self._selected_row)
        """The rows of the members with several triggers."""

    def new_bucket(self, known: Known | None) -> Bucket:
        """Return an empty bucket for events of which `known` is known."""
        return Bucket(self._row, self.selected, known)

    def slice_test(self, table: ColumnTable) -> SliceTest:
        """Return the condition under which a table enters an event."""
        test: SliceTest | None = table.slice_test
        if test is None:
            condition, birth = membership_of(table.path)
            names = [NodeName(node, path, birth) for node, path in requirements_of(condition, birth).memories]
            row = self._compiler.row(condition, birth, self._memories(names), None)
            test = table.slice_test = SliceTest.of(path_depth(table.path), table, row)
        return test

    def _selected_row(self, member: int, known: Known | None) -> SelectedRow:
        observe, _, constants = self._row(member, known, selected=True)
        return (*constants, member, observe)

    def _row(self, member: int, known: Known | None, *, selected: bool = False) -> Row:
        if member < 0:
            name = self.updaters[member].name
            nodes = requirements_of(name.condition, name.birth, name.path).memories
            found: Memories = {
                **self._memories([NodeName(node, path, name.birth) for node, path in nodes[1:]]),
                name[:2]: (*self._memory(name), False),
            }
            return self._compiler.updater(name, found, known, selected=selected)
        rule, birth, names, *_ = self._enabled[member]
        return self._compiler.row(rule.condition, birth, self._memories(names), known, selected=selected)

    def _memories(self, names: Iterable[NodeName]) -> Memories:
        """Return memories as rules read them: through a view, if they can be shared."""
        views = self._state.views
        each = ((name, *self._memory(name)) for name in names)
        return {name[:2]: (views.get(name, store), regime, name in views) for name, store, regime in each}

    def _memory(self, name: NodeName) -> tuple[Store, Regime]:
        store = self._state.store_of(name)
        return store, self._state.regime(store)
