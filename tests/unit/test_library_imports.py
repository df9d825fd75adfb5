"""The engine and the client are libraries: they need few packages, and none of the service's."""

import subprocess
import sys
from pathlib import Path

import pytest

import engine

ONLY_THESE = """
import sys

class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if not (top in ALLOWED or top in sys.stdlib_module_names or top.startswith("_")):
            raise ModuleNotFoundError(f"{name} is not among the packages of the library", name=name)

sys.meta_path.insert(0, Only())
"""
ENGINE = {"engine", "google", "lark", "msgpack", "msgspec", "re2"}
USE_ENGINE = """
import engine
detector = engine.Detector()
detector.add_rule("r", "x matches 'a+' and per k once within 10m y == 1")
detector.evaluate({"x": "aa", "k": 1, "y": 1}, 0)
assert engine.explain(detector, {"x": "aa", "k": 1}, 1).rules[0].verdict
assert detector._repr_html_()
assert engine.Detector.load(detector.dump(), engine.Detector.STATE_VERSION).rules()
"""
CLIENT = {
    "api",
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
from api.client import AsyncClient, Client, calls
Client("http://127.0.0.1:1", "t").close()
AsyncClient("http://127.0.0.1:1", "t")
"""


def run(allowed: set[str], program: str) -> subprocess.CompletedProcess[str]:
    code = f"ALLOWED = {allowed!r}\n{ONLY_THESE}\n{program}"
    root = Path(engine.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False, timeout=170
    )


@pytest.mark.parametrize(("allowed", "program"), [(ENGINE, USE_ENGINE), (CLIENT, USE_CLIENT)])
def test_a_library_imports_no_more_than_its_own_packages(allowed: set[str], program: str) -> None:
    ran = run(allowed, program)
    assert ran.returncode == 0, ran.stderr


def test_the_packages_of_the_service_would_be_refused() -> None:
    unwanted = ["ray", "quart", "hypercorn", "click", "pandas"]
    tries = [f"try: import {name}\nexcept ModuleNotFoundError as error: print(error)" for name in unwanted]
    ran = run(ENGINE, "\n".join([USE_ENGINE, *tries]))
    told = [f"{name} is not among the packages of the library" for name in unwanted]
    assert ran.stdout.splitlines() == told, ran.stderr
