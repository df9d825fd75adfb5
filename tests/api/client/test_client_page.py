"""The page about the client is true: its examples are run against a service over a real socket."""

import asyncio
import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import api
from api.cli import main
from api.http.app import Application
from api.settings import Settings
from tests.api.conftest import BOOTSTRAP
from tests.api.wire import served
from tests.local_runtime.service import LocalService

PAGE = (Path(api.__file__).parent / "CLIENT.md").read_text("utf-8")


def run_python(url: str) -> list[str]:
    """Run the examples in Python in one session; what was not as the page has it."""
    examples = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    names = {"url": url, "token": BOOTSTRAP}
    test = doctest.DocTestParser().get_doctest(examples, names, "CLIENT.md", "CLIENT.md", 0)
    assert len(test.examples) > 15
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append, clear_globs=False)
    test.globs["client"].close()
    return said


def run_shell(url: str) -> Iterator[tuple[str, str]]:
    """Run the examples in the shell; what each printed, and what the page has.

    The commands run in this process, which has imported them; only what reads their output has its own.
    """
    service = {"RULE_DETECTOR_URL": url, "RULE_DETECTOR_TOKEN": BOOTSTRAP}
    for console in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for example in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            line, _, expected = example.partition("\n")
            command, _, reader = line.partition(" | ")
            program, *arguments = shlex.split(command)
            assert program == "rule-detector"
            ran = CliRunner().invoke(main, arguments, env=service)
            assert ran.exit_code == 0, ran.output
            read = subprocess.run(
                shlex.split(reader or "cat"), input=ran.output, stdout=subprocess.PIPE, text=True, check=True
            )
            yield re.sub(r"\b[0-9a-f]{32}\b", "ID", read.stdout).strip(), expected.strip()


@pytest.mark.slow
@pytest.mark.parametrize("service", ["apart"], indirect=True)
async def test_its_examples_can_be_run_from_top_to_bottom(service: LocalService, settings: Settings) -> None:
    async with served(Application(settings, service.backend), settings) as wire:
        url = f"http://127.0.0.1:{wire.port}"
        assert await asyncio.to_thread(run_python, url) == []
        examples = await asyncio.to_thread(list, run_shell(url))
        assert len(examples) > 10
        for printed, expected in examples:
            assert printed == expected


def test_completion_is_what_the_page_says() -> None:
    for shell in re.findall(r"_RULE_DETECTOR_COMPLETE=([a-z_]+)", PAGE):
        if shell == "bash_source" and sys.platform == "darwin":
            continue
        ran = CliRunner().invoke(
            main, prog_name="rule-detector", env={"_RULE_DETECTOR_COMPLETE": shell}, catch_exceptions=False
        )
        assert "_RULE_DETECTOR_COMPLETE" in ran.stdout
