"""The engine and the client are libraries: they need few packages, and none of the service's."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import engine
import rule_detector

ONLY_THESE = """
import sys

class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if not (top in ALLOWED or top in sys.stdlib_module_names or top.startswith("_")):
            raise ModuleNotFoundError(f"{name} is not among the packages of the library", name=name)

sys.meta_path.insert(0, Only())
"""
ENGINE = {"rule_detector", "engine", "google", "lark", "msgpack", "msgspec", "re2"}
USE_ENGINE = """
import rule_detector
detector = rule_detector.Detector()
detector.add_rule("r", "x matches 'a+' and per k once within 10m y == 1")
detector.evaluate({"x": "aa", "k": 1, "y": 1}, 0)
assert rule_detector.explain(detector, {"x": "aa", "k": 1}, 1).rules[0].verdict
assert detector._repr_html_()
assert rule_detector.Detector.load(detector.dump(), rule_detector.Detector.STATE_VERSION).rules()
"""
CLIENT = {
    "rule_detector_client",
    "msgspec",
    "httpx",
    "httpcore",
    "h11",
    "anyio",
    "sniffio",
    "certifi",
    "idna",
    "typing_extensions",
}
USE_CLIENT = """
from rule_detector_client import AsyncClient, Client, calls
Client("http://127.0.0.1:1", "t").close()
AsyncClient("http://127.0.0.1:1", "t")
"""


def run(allowed: set[str], program: str) -> subprocess.CompletedProcess[str]:
    code = f"ALLOWED = {allowed!r}\n{ONLY_THESE}\n{program}"
    root = Path(engine.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=170
    )


@pytest.mark.slow
@pytest.mark.parametrize(("allowed", "program"), [(ENGINE, USE_ENGINE), (CLIENT, USE_CLIENT)])
def test_a_library_imports_no_more_than_its_own_packages(allowed: set[str], program: str) -> None:
    ran = run(allowed, program)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_the_packages_of_the_service_would_be_refused() -> None:
    unwanted = ["ray", "quart", "hypercorn", "click", "pandas"]
    tries = [f"try: import {name}\nexcept ModuleNotFoundError as error: print(error)" for name in unwanted]
    ran = run(ENGINE, "\n".join([USE_ENGINE, *tries]))
    told = [f"{name} is not among the packages of the library" for name in unwanted]
    assert ran.stdout.splitlines() == told, ran.stderr


@pytest.fixture
def beside_foreign_folders(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs a program from a folder that has packages `api` and `engine` of its own."""
    for name in ("api", "engine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("FOREIGN = True")
    return lambda program: subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )


def test_the_client_is_found_beside_foreign_folders(beside_foreign_folders) -> None:
    ran = beside_foreign_folders(f"import api, engine\nassert api.FOREIGN and engine.FOREIGN\n{USE_CLIENT}")
    assert ran.returncode == 0, ran.stderr


def test_the_library_names_a_foreign_engine(beside_foreign_folders, tmp_path: Path) -> None:
    ran = beside_foreign_folders("import rule_detector")
    assert ran.returncode == 1
    assert f"but Python finds <module 'engine' from '{tmp_path / 'engine' / '__init__.py'}'>" in ran.stderr


def test_the_library_has_the_classes_of_the_engine() -> None:
    assert {name: getattr(rule_detector, name) for name in rule_detector.__all__} == {
        name: getattr(engine, name) for name in engine.__all__
    }


@pytest.mark.parametrize("allowed", [ENGINE, CLIENT])
def test_the_command_says_that_its_packages_are_missing(allowed: set[str]) -> None:
    ran = run(allowed | {"api"}, "from api.command import main\nmain()")
    assert ran.returncode == 1
    assert ran.stderr.startswith("rule-detector: the package `click` is missing.")
    assert "Traceback" not in ran.stderr
