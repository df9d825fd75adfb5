"""Checks a change before it is committed: ruff, mypy, imports, and the fast tests of what changed.

python -m tests.check [BASE]

What changed is what differs from the commit at which the branch left BASE (main), committed or not. A file of
the product stands for the folder of tests at its path: `engine/patterns/sets.py` for `tests/unit/patterns`. A
file of tests stands for itself, a page for the tests that read pages. What has no folder of tests stands for
the next folder above it that has some. The tests in `tests/unit` itself always run.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.each_python import FAST

ROOT: Final = Path(__file__).parents[1]
STEPS: Final[dict[str, tuple[str, ...]]] = {
    "ruff check": ("-m", "ruff", "check", "."),
    "ruff format": ("-m", "ruff", "format", "--check", "."),
    "mypy": ("-m", "mypy"),
    "imports": ("-c", "from importlinter.cli import lint_imports_command as main; main()"),
}
HOMES: Final = {
    "engine": ("tests/unit",),
    "snapshots": ("tests/unit/snapshots",),
    "api": ("tests/unit", "tests/api"),
}
"""The folders with the tests of a product folder, under the same names."""


def changed_files(base: str = "main") -> list[Path]:
    """Return the paths that differ from the point where the branch left the base, including deleted files."""

    def git(*arguments: str) -> list[str]:
        ran = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
        return ran.stdout.splitlines()

    (left,) = git("merge-base", base, "HEAD")
    tracked = git("diff", "--name-only", "--no-renames", left)
    return sorted(map(Path, {*tracked, *git("ls-files", "--others", "--exclude-standard")}))


def paths_for(file: Path) -> Iterator[str]:
    """Yield the files and folders of tests for a changed file."""
    top, *inside = file.parts
    if file.suffix == ".md":
        for test in (ROOT / "tests").rglob("test_*.py"):
            if ".md" in test.read_text("utf-8"):
                yield str(test.relative_to(ROOT))
    elif top == "tests":
        yield str(file) if file.match("test_*.py") and (ROOT / file).exists() else _nearest(file.parent)
    elif top in HOMES:
        found = {home: _nearest(Path(home, *inside).parent) for home in HOMES[top]}
        # `api/cli` has a folder in `tests/unit`, but none in `tests/api`.
        yield from [folder for home, folder in found.items() if folder != home] or found


def _nearest(folder: Path) -> str:
    while not any((ROOT / folder).rglob("test_*.py")):
        folder = folder.parent
    return str(folder)


def paths_to_test(files: list[Path]) -> list[str]:
    """Return the paths for pytest, without those inside others."""
    always = (str(test.relative_to(ROOT)) for test in (ROOT / "tests/unit").glob("test_*.py"))
    found = {*always, *(path for file in files for path in paths_for(file))}
    return sorted(path for path in found if not found & {str(parent) for parent in Path(path).parents})


def main(*arguments: str) -> int:
    """Run all steps, and print which failed. Return 1 if any did."""
    paths = paths_to_test(changed_files(*arguments))
    pytest = ("-m", "pytest", "-q", "-n", "auto", "-m", FAST, *paths)
    failed = []
    for name, command in {**STEPS, "tests": pytest}.items():
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all is well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
