"""The reference for callers is true: its examples are run, its tables are those of the application."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import api
from api.http.routes import OPERATIONS
from api.schema.envelope import CODES, MESSAGE_CODES
from tests.api.caller import Caller

FOLDER = Path(api.__file__).parent
README = (FOLDER / "README.md").read_text("utf-8")
NAMES = ("BATCHES.md", "INSPECTING.md", "SHADOWS.md", "TOKENS.md")
PAGES = [README, *((FOLDER / name).read_text("utf-8") for name in NAMES)]
EXAMPLE = re.compile(
    r"^```http\n(?P<request>.*?)\n\n(?P<status>\d{3})\n(?P<reply>.*?)\n```$", re.MULTILINE | re.DOTALL
)
HEADER = re.compile(r"[A-Z][A-Za-z-]+: ")
SETTLED = re.compile(r"\$[A-Z_]+")


def bind(expected: Any, found: Any, names: dict[str, Any]) -> None:
    """Compare, and take note of what a name stands for where it stands for the first time."""
    match expected:
        case str() if SETTLED.fullmatch(expected):
            assert isinstance(found, str | int)
            assert names.setdefault(expected, found) == found
        case dict():
            assert list(expected) == list(found)
            for name, value in expected.items():
                bind(value, found[name], names)
        case list():
            assert len(expected) == len(found)
            for one, other in zip(expected, found, strict=True):
                bind(one, other, names)
        case _:
            assert expected == found


async def test_its_examples_can_be_run_from_page_to_page_and_from_top_to_bottom(caller: Caller) -> None:
    examples = [example for page in PAGES for example in EXAMPLE.finditer(page)]
    assert len(examples) == sum(page.count("```http") for page in PAGES) > 20
    names: dict[str, str] = {}
    for example in examples:
        start, *lines = example["request"].split("\n")
        headers = dict(line.split(": ", 1) for line in lines if HEADER.match(line))
        body = "\n".join(lines[len(headers) :])
        method, path = start.split()
        path, body = (SETTLED.sub(lambda name: names[name[0]], part) for part in (path, body))
        if headers.get("Content-Type") == "application/x-ndjson":
            sent = {**headers, "Authorization": f"Bearer {caller.token}"}
            streamed = await caller.plain(method, path, content=body.encode(), headers=sent)
            assert streamed.status_code == int(example["status"])
            for expected, found in zip(example["reply"].split("\n"), streamed.text.split("\n"), strict=False):
                bind(json.loads(expected), json.loads(found), names)
            assert streamed.text.count("\n") == example["reply"].count("\n") + 1
            continue
        reply = await caller(method, path, content=body.encode() if body else None, headers=headers)
        bind(json.loads(example["reply"]), reply.envelope, names)
        assert reply.status == int(example["status"]), start


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_is_in_its_table(operation: Any) -> None:
    own, additions = README.split("## Additions")
    part = additions if operation.is_addition else own
    assert f"| {operation.method} {operation.path} |" in part


def test_its_tables_have_every_code_and_no_other() -> None:
    rows = set(re.findall(r"^\| (\d{4}) \| (.*) \|$", README, re.MULTILINE))
    assert rows == {(str(code), f"{told.status} | {told.meaning}") for code, told in CODES.items()} | {
        (str(code), meaning) for code, meaning in MESSAGE_CODES.items()
    }
