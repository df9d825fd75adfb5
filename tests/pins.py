"""Writes api/deploy/requirements.txt: the exact files that the service is installed from, by their hashes.

python -m tests.pins            asks the package index for the versions of constraints.txt
python -m tests.pins SBOM.json  checks that an SBOM of an environment names only what is in the file

The file holds what the service and its extras need on Linux, for each Python that it supports, on x86_64 and
aarch64.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
CONSTRAINTS: Final = ROOT / "constraints.txt"
REQUIREMENTS: Final = ROOT / "api/deploy/requirements.txt"
EXTRAS: Final = ("console", "sigma", "tracing")
PYTHONS: Final = ("3.11", "3.12", "3.13")
MACHINES: Final = ("x86_64", "aarch64")
PLATFORMS: Final = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
HEAD: Final = """\
# The files that the service may be installed from: `pip install --require-hashes -r requirements.txt`.
# Written by `python -m tests.pins` from constraints.txt.
"""


def plain(name: str) -> str:
    """Return the name of a package as all tools compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required() -> list[str]:
    """Return what the service, its extras and its build require, as pyproject.toml has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    chosen = [requirement for extra in EXTRAS for requirement in extras[extra]]
    return [*project["build-system"]["requires"], *project["project"]["dependencies"], *chosen]


def resolved(python: str, machine: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, version and SHA-256 of each file that pip would install there."""
    platforms = [option for platform in PLATFORMS for option in ("--platform", f"{platform}_{machine}")]
    # Nothing is installed, but pip requires a target all the same.
    with tempfile.NamedTemporaryFile(suffix=".json") as report, tempfile.TemporaryDirectory() as nowhere:
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"),
                *("--target", nowhere),
                *("--only-binary", ":all:", "--python-version", python, *platforms),
                *("--report", report.name, "--constraint", CONSTRAINTS, *required()),
            ],
            check=True,
        )
        installed: list[dict[str, Any]] = json.load(report)["install"]
    for item in installed:
        hashes = item["download_info"]["archive_info"]["hashes"]
        yield (
            re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower(),
            item["metadata"]["version"],
            hashes["sha256"],
        )


def pinned() -> dict[str, str]:
    """Return the versions in the file by name."""
    return dict(re.findall(r"^(\S+)==(\S+) ", REQUIREMENTS.read_text(), re.MULTILINE))


def check(sbom: Path) -> None:
    """Compare an SBOM, as CycloneDX has it, with the file; raise SystemExit where they differ."""
    components = json.loads(sbom.read_bytes())["components"]
    found = {plain(one["name"]): one["version"] for one in components}
    # The project itself, and what every environment begins with.
    for name in ("rule-detector", "pip", "setuptools"):
        found.pop(name, None)
    if not found or (others := found.items() - pinned().items()):
        raise SystemExit(
            f"{sbom} names what {REQUIREMENTS.name} does not: {sorted(others) if found else 'nothing'}"
        )
    print(f"the SBOM names {len(found)} packages, all from {REQUIREMENTS.name}")


def write() -> None:
    """Write the file."""
    found = defaultdict[tuple[str, str], set[str]](set)
    for python in PYTHONS:
        for machine in MACHINES:
            for name, version, digest in resolved(python, machine):
                found[name, version].add(digest)
    lines = [
        " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in sorted(digests))])
        for (name, version), digests in sorted(found.items())
    ]
    REQUIREMENTS.write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    check(Path(sys.argv[1])) if sys.argv[1:] else write()
