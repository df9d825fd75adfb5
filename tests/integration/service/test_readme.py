"""The commands on the first page print what the page shows."""

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.service_process import Served, environment, served

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text("utf-8")


def block(marker: str) -> str:
    """The fenced block after a marker."""
    found = re.search(rf"<!-- {re.escape(marker)} -->\n```\w*\n(.*?)```\n", README, re.DOTALL)
    assert found, marker
    return found[1]


def examples() -> list[tuple[str, str]]:
    """Each block of commands without a marker, and the output in the block after it."""
    blocks = re.findall(r"(<!--.*?-->\n)?```(\w*)\n(.*?)```\n", README, re.DOTALL)
    return [
        (re.sub(r"export RULE_DETECTOR_URL.*\n", "", commands), output)
        for (marker, kind, commands), (_, shown_as, output) in pairwise(blocks)
        if kind == "sh" and not marker and shown_as != "sh"
    ]


def comparable(output: str) -> str:
    """The output, with what differs between runs blanked out."""
    output = re.sub(r"\b[0-9a-f]{32}\b", "ID", output)
    return re.sub(r"in \d+\.\d s, \d+/s", "in T s, N/s", output).strip()


def run_examples(service: Served, commands: list[str]) -> list[str]:
    """Run commands in one shell and folder, as a reader would; return the output of each."""
    end = "=== the end of one example ==="
    script = "".join(f"{command}\necho '{end}'\n" for command in commands)
    shell = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
        cwd=service.output.parent,
        env=environment(RULE_DETECTOR_URL=service.url, RULE_DETECTOR_TOKEN=service.token),
    )
    assert shell.returncode == 0, shell.stdout + shell.stderr
    assert shell.stderr == ""
    return shell.stdout.split(end)[:-1]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("readme")
    (folder / ".venv").symlink_to(sys.prefix)
    assert block("the service") == ".venv/bin/rule-detector serve --data my-data\n"
    with served(folder / "my-data") as running:
        yield running


@pytest.mark.ray
def test_the_examples_print_what_is_shown(service: Served) -> None:
    if subprocess.run(["bash", "-c", "command -v curl"], capture_output=True, check=False).returncode != 0:
        pytest.skip("curl is not installed")
    shown = examples()
    assert [len(expected.splitlines()) for _, expected in shown] == [4, 3]
    outputs = run_examples(service, [command for command, _ in shown])
    for (command, expected), output in zip(shown, outputs, strict=True):
        assert comparable(output) == comparable(expected), command
