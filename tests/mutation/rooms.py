"""The rooms of the product whose code is mutated, and the tests that judge the mutants of each."""

from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests"


class Room(NamedTuple):
    """A folder of the product, or one file."""

    name: str
    folder: str
    tests: tuple[str, ...]
    """Patterns of paths below tests/. Each must match."""
    importing: tuple[str, ...] = ("",)
    """The packages from one of which a test must import to judge. By default, all of the tests judge."""
    files: tuple[str, ...] = ("**/*.py",)
    """Patterns of paths below the folder. Each must match."""
    marks: str = "not ray and not storm and not long"
    """The tests in these files that judge."""
    templates: tuple[str, ...] = ()
    """The files whose strings are code, which is mutated too."""
    replayed: tuple[str, ...] = ()
    """The parts of a recording of the executable specification that mutants also answer."""

    @property
    def package(self) -> str:
        return self.folder.partition("/")[0]

    def sources(self, root: Path) -> list[str]:
        """Return the paths of its files below its folder, in a copy of the product."""
        return _matching(root / self.folder, self.files)

    def test_files(self) -> list[Path]:
        found = [TESTS / path for path in _matching(TESTS, self.tests)]
        return [path for path in found if any(one in path.read_text("utf-8") for one in self.importing)]


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
                "unit/evaluation/persistence/test_*.py",
                "unit/evaluation/rule_book/test_*.py",
                "unit/evaluation/test_detector.py",
                "unit/evaluation/events/test_submitting.py",
                "unit/evaluation/explanation/test_differences.py",
                "unit/evaluation/explanation/test_holdings.py",
                "unit/evaluation/facts/test_values.py",
                "unit/evaluation/wire/test_results.py",
                "unit/runtime/detector/test_kept_histories.py",
                "property/looking/test_dry_runs.py",
                "property/verdicts/test_kept_histories.py",
                "unit/evaluation/facts/test_lookups.py",
                "unit/evaluation/facts/test_look_up.py",
                "unit/evaluation/explanation/test_futures.py",
            ),
            files=(
                "detector.py",
                "rule_book/changes/keeping.py",
                "rule_book/rule_book.py",
                "rule_book/shadows.py",
                "facts/values.py",
                "persistence/capturing.py",
                "persistence/packing.py",
                "persistence/columns.py",
                "persistence/migration.py",
                "persistence/saved.py",
            ),
            marks="not ray and not long",
            replayed=("verdicts", "actions", "times"),
        ),
        Room(
            "kernel",
            "engine/evaluation",
            tests=(
                "unit/evaluation/kernel/**/test_*.py",
                "unit/evaluation/operators/test_*.py",
                "unit/evaluation/slices/test_*.py",
                "unit/evaluation/test_paths.py",
                "unit/evaluation/test_requirements.py",
                "unit/evaluation/events/test_warnings.py",
                "unit/evaluation/explanation/test_futures.py",
                "unit/evaluation/facts/test_names.py",
                "unit/evaluation/facts/test_texts.py",
                "unit/evaluation/rule_book/test_budgets.py",
                "property/state/test_*.py",
                "property/verdicts/test_engine_against_reference.py",
                "property/verdicts/test_hostile_values.py",
                "property/verdicts/test_timed_rules.py",
                "property/looking/test_explanations.py",
            ),
            files=(
                "operators/**/*.py",
                "slices/**/*.py",
                "kernel/**/*.py",
                "generated.py",
                "stamps.py",
                "times.py",
                "key_sizes.py",
                "paths.py",
                "requirements.py",
            ),
            marks="not ray and not long",
            templates=(
                "operators/compare.py",
                "operators/counting/aggregates.py",
                "operators/counting/count.py",
                "operators/counting/distinct.py",
                "operators/counting/panes.py",
                "operators/memories.py",
                "operators/temporal/aged.py",
                "operators/temporal/historically.py",
                "operators/temporal/once.py",
                "operators/temporal/since.py",
                "operators/terms/clock.py",
                "operators/terms/past.py",
                "operators/terms/present.py",
                "kernel/code/access.py",
                "kernel/code/condition_code.py",
                "kernel/code/event_code.py",
                "kernel/code/given_code.py",
                "kernel/code/predicates.py",
                "kernel/indexing/rows.py",
                "kernel/stream.py",
            ),
            replayed=("verdicts", "actions", "times"),
        ),
        Room(
            "explanation",
            "engine/evaluation/explanation",
            tests=(
                "unit/evaluation/explanation/test_*.py",
                "unit/evaluation/rule_book/test_shadows.py",
                "unit/runtime/detector/test_dry_runs.py",
                "unit/runtime/detector/test_shadows.py",
                "property/looking/test_explanations.py",
                "property/looking/test_standing.py",
                "property/looking/test_dry_runs.py",
                "property/looking/test_shadows.py",
            ),
        ),
        Room(
            "inspecting",
            "engine/evaluation/inspecting",
            tests=(
                "unit/evaluation/explanation/test_*.py",
                "unit/evaluation/wire/test_*.py",
                "unit/evaluation/rule_book/test_shadows.py",
                "unit/runtime/detector/test_dry_runs.py",
                "unit/runtime/detector/test_shadows.py",
                "property/looking/test_standing.py",
                "property/looking/test_dry_runs.py",
                "property/looking/test_shadows.py",
            ),
        ),
        Room(
            "firings",
            "engine/evaluation/firings",
            tests=(
                "unit/evaluation/firings/test_*.py",
                "unit/evaluation/explanation/test_explanations.py",
                "property/verdicts/test_at_most_once.py",
            ),
            replayed=("actions",),
        ),
        Room(
            "timed",
            "engine/evaluation/timed",
            tests=("unit/evaluation/timed/test_*.py", "unit/evaluation/explanation/test_futures.py"),
            replayed=("times",),
        ),
        Room(
            "wire",
            "engine/evaluation/wire",
            tests=(
                "unit/evaluation/wire/test_*.py",
                "unit/evaluation/events/test_hostile_events.py",
                "property/wire/test_bodies.py",
            ),
        ),
        Room(
            "events",
            "engine/evaluation",
            tests=(
                "unit/evaluation/wire/test_events.py",
                "unit/evaluation/events/test_intake.py",
                "unit/evaluation/events/test_frames.py",
                "unit/evaluation/wire/test_results.py",
                "unit/evaluation/facts/test_pattern_events.py",
                "unit/evaluation/events/test_warnings.py",
                "unit/runtime/detector/persistence/test_kept_answers.py",
                "unit/evaluation/test_detector.py",
            ),
            files=("events/*.py",),
        ),
        Room(
            "facts",
            "engine/evaluation/facts",
            tests=(
                "unit/evaluation/facts/test_texts.py",
                "unit/evaluation/facts/test_names.py",
                "unit/evaluation/facts/test_shown.py",
                "unit/evaluation/explanation/test_explanations.py",
                "unit/evaluation/facts/test_pattern_work.py",
                "unit/evaluation/facts/test_pattern_events.py",
                "unit/evaluation/facts/test_literals.py",
                "unit/evaluation/facts/test_lookups.py",
                "unit/evaluation/facts/test_look_up.py",
            ),
            files=(
                "look_up.py",
                "lookups.py",
                "names.py",
                "pattern_work.py",
                "relations.py",
                "shown.py",
                "texts.py",
            ),
        ),
        Room(
            "relations",
            "engine/evaluation/relations",
            tests=(
                "unit/evaluation/relations/test_*.py",
                "unit/evaluation/facts/test_lookups.py",
            ),
        ),
        Room(
            "rules",
            "engine/evaluation",
            tests=(
                "unit/evaluation/test_detector.py",
                "unit/evaluation/rule_book/test_*.py",
            ),
            files=(
                "rules.py",
                "rule_book/changes/differences.py",
                "rule_book/changes/many_rules.py",
                "rule_book/meanings.py",
                "rule_book/budgets.py",
                "rule_book/verdicts.py",
                "rule_book/changes/versions.py",
            ),
        ),
        Room(
            "language",
            "engine/language",
            tests=(
                "unit/language/**/test_*.py",
                "unit/evaluation/operators/test_new_operator.py",
                "unit/evaluation/rule_book/test_preparation.py",
                "unit/patterns/test_compiled_pattern.py",
                "property/language/test_language*.py",
            ),
        ),
        Room(
            "patterns",
            "engine/patterns",
            tests=(
                "unit/patterns/test_*.py",
                "unit/evaluation/facts/test_pattern_*.py",
                "unit/evaluation/rule_book/test_preparation.py",
                "property/language/test_pattern_trees.py",
                "property/language/test_pattern_sets.py",
            ),
            marks="not ray and not long",
        ),
        Room(
            "snapshots",
            "snapshots",
            tests=("unit/snapshots/**/test_*.py", "crash/store/test_*.py"),
        ),
        Room(
            "detector",
            "engine/runtime/detector",
            # Those that kill most come first.
            tests=(
                "unit/runtime/detector/persistence/test_*.py",
                "unit/runtime/detector/executor/test_*.py",
                "unit/runtime/**/test_*.py",
            ),
            importing=("engine.runtime.detector", "tests.local_runtime.owners"),
        ),
        Room(
            "settings",
            "api",
            tests=("api/process/test_settings*.py", "unit/test_pages.py"),
            files=("settings.py", "settings_sources.py"),
        ),
        Room(
            "requests",
            "api",
            tests=(
                "api/http/request/test_request_head.py",
                "api/schema/test_envelope.py",
                "api/http/ndjson/test_ndjson_reader.py",
                "api/server/http1/test_request_reader.py",
                "property/wire/test_request_reader.py",
            ),
            files=(
                "http/request/head.py",
                "http/body/ndjson_reader.py",
                "schema/envelope.py",
                "server/requests.py",
            ),
        ),
        Room("client", "api/client/rule_detector_client", tests=("unit/client/test_*.py",)),
        Room(
            "recordings",
            "api/cli",
            tests=(
                "unit/cli/recordings/test_*.py",
                "unit/cli/rule_files/test_*.py",
                "unit/cli/trying/test_check.py",
            ),
            files=("recordings/*.py", "rule_files/*.py"),
        ),
    )
}
