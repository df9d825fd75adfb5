"""Builds tell which they are: the version, and the commit in a wheel or a checkout."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from api.cli import main
from api.observability.metrics_page import BUILD
from engine.runtime.contract import build
from engine.runtime.contract.build import Protocols


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the package `engine` of another install."""
    monkeypatch.setattr(build, "_ENGINE", tmp_path / "engine")
    (tmp_path / "engine").mkdir()
    build.build_version.cache_clear()
    yield tmp_path / "engine"
    build.build_version.cache_clear()


def test_an_install_without_a_commit_tells_the_version_only(package: Path) -> None:
    assert "+" not in build.build_version()


def test_a_wheel_tells_the_commit_that_it_was_built_from(package: Path) -> None:
    (package / build.COMMIT_FILE).write_text("0123456789ab\n")
    assert build.build_version().endswith("+g0123456789ab")


def test_a_checkout_tells_its_commit(package: Path) -> None:
    root = package.parent
    one = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.com",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "one",
    ]
    for arguments in (["init", "-q"], one):
        subprocess.run(["git", "-C", str(root), *arguments], check=True, timeout=60)
    asked = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=60
    )
    assert build.build_version().endswith(f"+g{asked.stdout[:12]}")


def test_the_program_and_the_metric_tell_the_build() -> None:
    shown = CliRunner().invoke(main, ["--version"])
    assert shown.output == f"rule-detector, version {build.build_version()}\n"
    assert BUILD["version"] == build.build_version()


def test_protocols_meet_if_one_is_spoken_by_both() -> None:
    ours = Protocols(2, 3)
    meeting = [Protocols(1, 2), Protocols(2, 3), Protocols(3, 4), Protocols(1, 5)]
    assert all(ours.meet(theirs) and theirs.meet(ours) for theirs in meeting)
    apart = [Protocols(1, 1), Protocols(4, 5)]
    assert not any(ours.meet(theirs) or theirs.meet(ours) for theirs in apart)
