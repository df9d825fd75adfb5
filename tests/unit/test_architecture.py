import ast
import itertools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "snapshots", "api")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
LINES_MAX = 400

FILES_MAX = 8
"""The most files of a folder, besides its `__init__.py`."""

MEMBERS_MIN = 3
"""The fewest files and folders of a folder."""

SMALLER_FOLDERS = {
    "api/console": "one file serves what is in `static`, which is no Python",
    "api/cli/sample": "its recording and rules are no Python",
    "api/deploy/wheel": "one file is a step of the build; the other files for deployment are no Python",
}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def imports(path: Path) -> set[str]:
    """The modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def importing(module: str) -> set[str]:
    return {
        shown(path)
        for path in SOURCES
        if any(name == module or name.startswith(module + ".") for name in imports(path))
    }


def test_there_are_sources_to_look_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)


def test_imports_point_down_only() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("module", ["engine", "snapshots"])
def test_importing_it_starts_neither_ray_nor_the_front_end(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert module in loaded
    assert {"ray", "quart", "hypercorn"}.isdisjoint(loaded)


def test_checking_conditions_needs_no_ray() -> None:
    code = "import sys, api.cli; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "api.cli.check" in loaded
    assert {"ray", "quart", "hypercorn"}.isdisjoint(loaded)


def test_lark_is_imported_by_the_parser_and_its_transformer_alone() -> None:
    text = "engine/language/text"
    assert importing("lark") == {f"{text}/parser.py", f"{text}/transformer.py"}


def test_the_parts_around_ray_are_imported_where_they_belong() -> None:
    assert all(name.startswith("engine/runtime/") for name in importing("ray"))
    assert all(name.startswith("api/http/") for name in importing("quart") | importing("werkzeug"))


def test_hypercorn_and_the_reader_of_requests_are_imported_where_they_belong() -> None:
    assert importing("hypercorn") == {"api/server/connection.py", "api/server/hypercorn_config.py"}
    assert importing("httptools") == {
        "api/server/http1/request_head.py",
        "api/server/http1/request_reader.py",
    }
    assert importing("h11") == {"api/client/stream.py"}


def test_patterns_from_outside_meet_re2_only() -> None:
    assert importing("re2") == {
        "engine/patterns/compiled_pattern.py",
        "engine/patterns/literals.py",
        "engine/patterns/named_groups.py",
    }


def test_ray_is_started_in_one_place_and_tried_in_another() -> None:
    starts = {shown(path) for path in SOURCES if re.search(r"\bray\.init\(", path.read_text("utf-8"))}
    session = "engine/runtime/cluster/session"
    assert starts == {f"{session}/ray_session.py", f"{session}/joining.py"}


def test_what_is_printed_as_json_has_no_infinities() -> None:
    """Python prints `Infinity` and `NaN`, which JSON does not have, unless it is told not to."""
    calls = [
        (shown(path), node.lineno, {keyword.arg for keyword in node.keywords})
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"json.dumps", "dumps", "json.dump"}
    ]
    assert len(calls) > 10
    assert [(file, line) for file, line, keywords in calls if "allow_nan" not in keywords] == []


def test_a_file_has_one_purpose_and_is_finished() -> None:
    for path in SOURCES:
        text = path.read_text("utf-8")
        assert text.count("\n") <= LINES_MAX, path
        assert not re.search(r"\b(TODO|FIXME|XXX|NotImplementedError)\b", text), path
        assert path.stem not in ("utils", "helpers", "manager", "common", "misc"), path
        if path.name != "__init__.py" or text:
            assert ast.get_docstring(parsed(path)), f"{path} does not say what it is"


def members(folder: Path) -> set[str]:
    """The modules and packages in a folder."""
    return {
        path.stem
        for path in folder.iterdir()
        if (path / "__init__.py").exists() or (path.suffix == ".py" and path.name != "__init__.py")
    }


def test_a_folder_has_three_to_eight_files() -> None:
    folders = {shown(path.parent): path.parent for path in SOURCES}
    files = Counter(shown(path.parent) for path in SOURCES if path.name != "__init__.py")
    assert {folder for folder, number in files.items() if number > FILES_MAX} == set()
    small = {name for name, folder in folders.items() if len(members(folder)) < MEMBERS_MIN}
    assert small == set(SMALLER_FOLDERS)


def test_every_package_is_held_by_a_contract_on_its_layers() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    held = {
        container
        for contract in linter["contracts"]
        if contract["type"] == "layers" and contract.get("exhaustive")
        for container in contract.get("containers", ())
    }
    packages = {
        shown(path.parent).replace("/", ".")
        for path in SOURCES
        if path.name == "__init__.py" and len(members(path.parent)) > 1
    }
    assert held == packages


def test_constraints_are_exact_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert pins
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+", line)] == []


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {
        re.split(r"[^A-Za-z0-9-]", line)[0].lower()
        for line in [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    }
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines}
    assert {"ray", "quart", "pytest", "zen-engine"} <= wanted
    assert wanted - pinned == set()


HELD_BY_IDENTITY = {
    "engine/evaluation/explanation/predicates.py": "for one event, while rules hold their predicates",
    "engine/evaluation/kernel/indexing/analysis.py": "each entry holds its node",
    "engine/evaluation/kernel/indexing/rows.py": "a function holds what it is given, and is held weakly",
    "engine/evaluation/rule_book/verdicts.py": "only while the tuples are in the list that it goes through",
    "engine/language/hints/contradictions.py": "only while the condition is walked, which holds its nodes",
    "engine/language/hints/hints.py": "only while the condition is walked, which holds its nodes",
    "engine/evaluation/wire/results.py": "only while the tuples are in the list that it goes through",
}
"""The files that look something up by `id`, and what keeps the object alive for as long."""


def names_of_id(node: ast.AST) -> bool:
    """Whether something inside a node names Python's `id`, rather than a parameter of that name."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        parameters = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
        if "id" in parameters:
            return False
    if isinstance(node, ast.Name) and node.id == "id" and isinstance(node.ctx, ast.Load):
        return True
    return any(map(names_of_id, ast.iter_child_nodes(node)))


def test_nothing_is_looked_up_by_the_identity_of_an_object_that_may_be_gone() -> None:
    """Python gives the identity of an object that is gone to the next one."""
    assert {shown(path) for path in SOURCES if names_of_id(parsed(path))} == set(HELD_BY_IDENTITY)
