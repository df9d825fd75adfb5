"""The rooms of the product whose code is mutated, and the tests that judge the mutants of each."""

import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests"


class Room(NamedTuple):
    """A folder of the product, or one file."""

    name: str
    folder: str
    tests: tuple[str, ...]
    """Patterns of paths below tests/. Each must match."""
    importing: str = ""
    """The package from which a test must import to judge. Without one, all of the tests judge."""
    files: tuple[str, ...] = ("**/*.py",)
    """Patterns of paths below the folder. Each must match."""
    marks: str = "not ray and not storm and not long"
    """Which tests of these files judge."""
    templates: tuple[str, ...] = ()
    """The files whose strings are code, and are mutated too."""
    replayed: bool = False
    """Whether mutants also answer a recording of the executable specification."""
    decided: bool = False
    """Whether every mutant that survives is listed in survivors.toml, with the reason."""

    @property
    def package(self) -> str:
        return self.folder.partition("/")[0]

    def sources(self, root: Path) -> list[str]:
        """Give the paths of its files below its folder, in a copy of the product."""
        return _matching(root / self.folder, self.files)

    def test_files(self) -> list[Path]:
        found = [TESTS / path for path in _matching(TESTS, self.tests)]
        return [path for path in found if self.importing in path.read_text("utf-8")]

    def listed(self, name: str) -> list[dict[str, Any]]:
        """Give the entries of this name in the room's tables: `mutant`, `survivor` or `cost`."""
        tables = (TESTS / "mutation" / self.name).glob("*.toml")
        documents = (tomllib.loads(table.read_text("utf-8")) for table in sorted(tables))
        return [entry for document in documents for entry in document.get(name, ())]


def _matching(folder: Path, patterns: tuple[str, ...]) -> list[str]:
    found: dict[str, None] = {}
    for pattern in patterns:
        paths = sorted(folder.glob(pattern))
        assert paths, f"nothing matches {folder / pattern}"
        found |= {str(path.relative_to(folder)): None for path in paths}
    return list(found)


ROOMS: Final = {
    room.name: room
    for room in (
        Room(
            "evaluation",
            "engine/evaluation",
            tests=(
                "unit/evaluation/test_detector.py",
                "unit/evaluation/test_preparation.py",
                "unit/evaluation/test_shadows.py",
                "unit/evaluation/test_differences.py",
                "unit/evaluation/test_slices.py",
                "unit/evaluation/test_eviction.py",
                "unit/evaluation/test_shared_memories.py",
                "unit/evaluation/test_nested_histories.py",
                "unit/evaluation/test_records.py",
                "unit/evaluation/test_record_rows.py",
                "unit/evaluation/test_intervals.py",
                "unit/evaluation/test_choice_of_dispatch.py",
                "unit/evaluation/test_unions.py",
                "unit/evaluation/test_entries.py",
                "unit/evaluation/test_selection.py",
            ),
            files=(
                "plan/triggers.py",
                "plan/requirements.py",
                "dispatch/indexing/buckets.py",
                "persistence/capturing.py",
                "state/storage/triggering.py",
                "state/storage/columns.py",
                "state/storage/pages.py",
                "dispatch/compilation/compiler.py",
                "dispatch/compilation/fused_stream.py",
                "detector.py",
                "rule_book/rule_book.py",
                "rule_book/shadows.py",
                "state/removal/eviction.py",
                "state/removal/expiry.py",
                "facts/values.py",
                "dispatch/indexing/index.py",
                "dispatch/indexing/indexed_stream.py",
                "dispatch/selection/selected_rows.py",
                "dispatch/selection/ranges.py",
                "dispatch/selection/intervals.py",
                "state/removal/minima.py",
                "persistence/packing.py",
                "dispatch/rule_set.py",
                "persistence/saved.py",
                "plan/ir.py",
                "plan/known.py",
                "state/joining.py",
                "paths.py",
                "plan/shapes.py",
                "state/aggregates/panes.py",
                "state/storage/records.py",
                "state/aggregates/interned.py",
                "state/aggregates/entries.py",
                "state/aggregates/times.py",
                "state/aggregates/values.py",
                "state/unkeyed.py",
                "state/slices.py",
                "state/storage/shards.py",
                "state/storage/tables.py",
                "state/removal/incremental_expiry.py",
                "state/views.py",
                "state/fusing.py",
                "plan/temporal.py",
                "plan/codegen.py",
                "dispatch/compilation/memory_access.py",
            ),
            marks="not ray and not long",
            templates=(
                "dispatch/compilation/compiler.py",
                "dispatch/compilation/fused_stream.py",
                "plan/ir.py",
                "plan/codegen.py",
                "dispatch/compilation/memory_access.py",
            ),
            replayed=True,
            decided=True,
        ),
        Room(
            "explanation",
            "engine/evaluation/explanation",
            tests=(
                "unit/evaluation/test_explanations.py",
                "unit/evaluation/test_tallies.py",
                "unit/evaluation/test_explanation_costs.py",
                "unit/evaluation/test_timelines.py",
                "property/test_explanations.py",
            ),
        ),
        Room(
            "estimates",
            "engine/evaluation/dispatch",
            tests=(
                "unit/evaluation/test_choice_of_dispatch.py",
                "unit/evaluation/test_weighing.py",
                "unit/evaluation/test_intervals.py",
                "unit/evaluation/test_selectivity.py",
            ),
            files=("weighing.py", "selection/selectivity.py"),
        ),
        Room("language", "engine/language", tests=("unit/language/test_*.py", "property/test_language*.py")),
        Room(
            "patterns",
            "engine/patterns",
            tests=("unit/patterns/test_*.py", "unit/evaluation/test_pattern_*.py"),
        ),
        Room("snapshots", "snapshots", tests=("unit/snapshots/test_*.py", "crash/store/test_*.py")),
        Room(
            "detector",
            "engine/runtime/detector",
            tests=("unit/runtime/**/test_*.py",),
            importing="engine.runtime.detector",
        ),
        Room(
            "settings",
            "api",
            tests=("api/test_settings*.py", "unit/test_pages.py"),
            files=("settings.py", "settings_sources.py"),
        ),
    )
}
