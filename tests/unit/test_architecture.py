import ast
import gc
import itertools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "snapshots", "api")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
LINES_MAX = 400

FILES_MAX = 8
"""The most files of a folder, besides its `__init__.py`."""

MEMBERS_MIN = 3
"""The fewest files and folders of a folder."""

GRAPH = (*PACKAGES, "rule_detector", "rule_detector_client")

SMALLER_FOLDERS = {
    "api/console": "what is in `static` is no Python",
    "api/cli/sample": "its recording and rules are no Python",
    "engine/library/rule_detector": "names the engine's classes for those who use it as a library",
    "api/deploy/wheel": "one file is a step of the build; the other files for deployment are no Python",
}


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parsed(path: Path) -> ast.Module:
    # The collector would look through all trees again and again.
    gc.disable()
    try:
        return ast.parse(path.read_text("utf-8"))
    finally:
        gc.enable()


def circles(*packages: str) -> set[tuple[str, str]]:
    """Imports to remove, so that no members of a package import each other in a circle.

    A module's import of a package around it is one, since the package's `__init__.py` imports its modules.
    """
    graph = grimp.build_graph(*packages, cache_dir=None)
    of_own_package = {
        (importer, imported)
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if importer.startswith(f"{imported}.")
    }
    return of_own_package.union(*map(graph.nominate_cycle_breakers, graph.modules))


def test_there_are_sources_to_look_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)


def test_inside_each_package_imports_form_no_circle() -> None:
    assert circles(*GRAPH) == set()


@pytest.mark.parametrize(
    ("low", "circular"),
    [
        ("import json", False),
        ("import planted.top.high", True),
        ("def late():\n    from ..top import high", True),
        ("from planted.low import two", True),
        ("from planted.low import NAME", True),
    ],
)
def test_a_planted_circle_is_found(
    low: str, circular: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "__init__": "",
        "top/__init__": "",
        "top/high": "from planted.low import one",
        "low/__init__": "NAME = 1",
        "low/one": low,
        "low/two": "from . import one",
    }
    for name, text in files.items():
        file = tmp_path / "planted" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert bool(circles("planted")) is circular


@pytest.mark.parametrize("module", ["engine", "snapshots"])
def test_importing_it_starts_neither_ray_nor_the_front_end(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert module in loaded
    assert {"ray", "quart", "hypercorn"}.isdisjoint(loaded)


@pytest.mark.slow
def test_checking_conditions_needs_no_ray() -> None:
    code = "import sys, api.cli; api.cli.main.get_command(None, 'check'); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "api.cli.check" in loaded
    assert {"ray", "quart", "hypercorn"}.isdisjoint(loaded)


def test_ray_is_started_in_one_place_and_tried_in_another() -> None:
    starts = {shown(path) for path in SOURCES if re.search(r"\bray\.init\(", path.read_text("utf-8"))}
    session = "engine/runtime/cluster/session"
    assert starts == {f"{session}/ray_session.py", f"{session}/joining.py"}


def test_what_is_printed_as_json_has_no_infinities() -> None:
    """Python prints `Infinity` and `NaN`, which JSON does not have, unless it is told not to."""
    calls = [
        (shown(path), node.lineno, {keyword.arg for keyword in node.keywords})
        for path in SOURCES
        # To look at every node takes a second, and to write each call as text several.
        if "dump" in path.read_text("utf-8")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        if getattr(node.func, "attr", getattr(node.func, "id", "")) in {"dumps", "dump"}
        if ast.unparse(node.func) in {"json.dumps", "dumps", "json.dump"}
    ]
    assert len(calls) > 10
    assert [(file, line) for file, line, keywords in calls if "allow_nan" not in keywords] == []


@pytest.mark.slow
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
    assert wanted - pinned == {"rule-detector"}


HELD_BY_IDENTITY = {
    "api/cli/trying/mismatches.py": "only while the condition is walked, which holds its nodes",
    "engine/evaluation/explanation/predicates.py": "for one event, while rules hold their predicates",
    "engine/evaluation/kernel/buckets/index.py": "only while the list holds the buckets",
    "engine/evaluation/kernel/buckets/triggers.py": "each entry holds its node",
    "engine/evaluation/kernel/indexing/rows.py": "a function holds what it is given, and is held weakly",
    "engine/evaluation/rule_book/verdicts.py": "only while the tuples are in the list that it goes through",
    "engine/language/hints/hints.py": "only while the condition is walked, which holds its nodes",
    "engine/evaluation/wire/events.py": "only while the tuples are in the list that it goes through",
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


@pytest.mark.slow
def test_nothing_is_looked_up_by_the_identity_of_an_object_that_may_be_gone() -> None:
    """Python gives the identity of an object that is gone to the next one."""
    assert {shown(path) for path in SOURCES if names_of_id(parsed(path))} == set(HELD_BY_IDENTITY)
