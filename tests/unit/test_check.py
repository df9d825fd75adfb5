import subprocess
from pathlib import Path

import pytest

from tests import check

FILES = (
    "engine/kernel/code/access.py",
    "snapshots/takeover/claim.py",
    "api/cli/check.py",
    "api/client/calls.py",
    "tests/reference.py",
    "tests/unit/conftest.py",
    "tests/unit/test_names.py",
    "tests/unit/test_pages.py",
    "tests/unit/kernel/test_kernel.py",
    "tests/unit/cli/test_check.py",
    "tests/unit/client/test_calls.py",
    "tests/unit/snapshots/takeover/test_claim.py",
    "tests/unit/snapshots/test_clock.py",
    "tests/api/client/test_page.py",
    "tests/api/http/test_http.py",
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"README.md"' if "page" in name else "")
    monkeypatch.setattr(check, "ROOT", tmp_path)


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("file", "paths"),
    [
        ("engine/kernel/code/access.py", {"tests/unit/kernel"}),
        ("engine/__init__.py", {"tests/unit"}),
        ("snapshots/takeover/claim.py", {"tests/unit/snapshots/takeover"}),
        ("snapshots/files.py", {"tests/unit/snapshots"}),
        ("api/cli/check.py", {"tests/unit/cli"}),
        ("api/client/calls.py", {"tests/unit/client", "tests/api/client"}),
        ("api/gone/gone.py", {"tests/unit", "tests/api"}),
        ("api/README.md", {"tests/unit/test_pages.py", "tests/api/client/test_page.py"}),
        ("tests/unit/test_names.py", {"tests/unit/test_names.py"}),
        ("tests/unit/kernel/test_gone.py", {"tests/unit/kernel"}),
        ("tests/unit/conftest.py", {"tests/unit"}),
        ("tests/reference.py", {"tests"}),
        ("pyproject.toml", set()),
    ],
)
def test_a_file_stands_for_the_tests_at_its_path(file: str, paths: set[str]) -> None:
    assert set(check.paths_for(Path(file))) == paths


@pytest.mark.usefixtures("tree")
def test_nothing_runs_twice_and_tests_about_all_files_always_run() -> None:
    always = ["tests/unit/test_names.py", "tests/unit/test_pages.py"]
    assert check.paths_to_test([]) == always
    files = [Path("snapshots/files.py"), Path("snapshots/takeover/claim.py")]
    assert check.paths_to_test(files) == ["tests/unit/snapshots", *always]
    assert check.paths_to_test([Path("tests/unit/conftest.py")]) == ["tests/unit"]


def test_what_changed_is_what_differs_from_where_the_branch_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=e")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True)

    def write(**files: str) -> None:
        for name, text in files.items():
            (tmp_path / name).write_text(text)

    git("init", "-q", "-b", "main")
    write(same="", edited="", moved="text", staged="")
    git("add", ".")
    git("commit", "-qm", "one")
    git("switch", "-qc", "branch")
    git("mv", "moved", "there")
    git("commit", "-qam", "two")
    git("switch", "-q", "main")
    write(of_main="")
    git("add", ".")
    git("commit", "-qm", "three")
    git("switch", "-q", "branch")
    write(edited="2", new="", staged="2")
    git("add", "staged")
    monkeypatch.setattr(check, "ROOT", tmp_path)
    assert list(map(str, check.changed_files())) == ["edited", "moved", "new", "staged", "there"]


@pytest.mark.parametrize(
    ("broken", "status", "said"), [(False, 0, "all is well"), (True, 1, "failed: mypy, tests")]
)
def test_all_steps_run_and_those_that_fail_are_named(
    broken: bool, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, int(broken and bool({"mypy", "pytest"} & {*command})))

    monkeypatch.setattr(check, "changed_files", lambda: [Path("engine/patterns/sets.py")])
    monkeypatch.setattr(check.subprocess, "run", run)
    assert check.main() == status
    assert capsys.readouterr().out.splitlines()[-1] == said
    assert len(ran) == len(check.STEPS) + 1
    assert "tests/unit/patterns" in ran[-1]
