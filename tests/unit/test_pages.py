"""The pages for people are true: links lead somewhere, options exist, tables are those of the program."""

import ast
import re
from pathlib import Path

import click
import pytest

from api.cli import main
from api.settings import settings

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(
            page
            for folder in ("api", "engine", "snapshots", "tests")
            for page in (ROOT / folder).rglob("*.md")
        ),
    ]
)
FILES = [
    f"/{file.relative_to(ROOT)}"
    for folder in (".", "api", "engine", "snapshots", "tests")
    for file in (ROOT / folder).glob("*" if folder == "." else "**/*")
]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def options(command: click.Command) -> set[str]:
    """The options of a command and of its subcommands."""
    own = {name for parameter in command.params for name in [*parameter.opts, *parameter.secondary_opts]}
    if isinstance(command, click.Group):
        context = click.Context(command)
        nested = [command.get_command(context, name) for name in command.list_commands(context)]
        own |= {name for each in nested if each for name in options(each)}
    return own


def anchors(page: Path) -> set[str]:
    """The fragments that lead to a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_no_page_has_both_sides_of_a_conflict() -> None:
    assert [page for page in PAGES if re.search(r"^[<>]{7} ", page.read_text("utf-8"), re.MULTILINE)] == []


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text("utf-8")):
        if target.startswith("http"):
            continue
        linked = page.parent / target if target else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"`(?:\.\./)*([\w./-]+\.(?:py|toml|lark))`", text))
    assert {name for name in named if not any(file.endswith(f"/{name}") for file in FILES)} == set()


@every_page
def test_functions_named_beside_a_link_to_their_file_are_in_it(page: Path) -> None:
    linked = r"\]\(([^)\s]+\.py)\) `([A-Za-z_.]+)`"
    for target, name in re.findall(linked, page.read_text("utf-8")):
        body = ast.parse((page.parent / target).read_text("utf-8")).body
        for part in name.split("."):
            found = [node for node in body if getattr(node, "name", None) == part]
            assert found, f"{target} {name}"
            body = getattr(found[0], "body", [])


@every_page
def test_options_and_variables_that_are_mentioned_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    mentioned = set(re.findall(r"`(--[a-z-]+)(?: [A-Z]+)?`", text))
    assert mentioned - options(main) == set()
    known = {setting.variable for setting in settings()}
    known |= {
        f"RULE_DETECTOR_{name}"
        for name in ("URL", "CA_FILE", "TOKEN", "TOKEN_FILE", "SEED", "PROFILE", "TEST_DATA")
    }
    assert set(re.findall(r"\b(RULE_DETECTOR_[A-Z_]*[A-Z])\b", text)) - known == set()


def test_the_table_of_settings_is_that_of_the_program() -> None:
    rows = [
        f"| `{setting.option}` | `{setting.variable}` | {setting.shown_default} | {setting.text} |"
        for setting in settings()
    ]
    table = "\n".join(["| option | variable | default | what it is |", "|---|---|---|---|", *rows])
    assert f"<!-- settings -->\n{table}\n\n" in (ROOT / "api" / "SETTINGS.md").read_text("utf-8")


def test_the_two_commands_name_files_and_extras_that_are_there() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for marker in ("the demo", "the tests"):
        found = re.search(rf"<!-- {marker} -->\n```sh\n(.*)\n```\n", readme)
        assert found, marker
        assert found[1].startswith("python3 -m venv .venv && ")
        assert "-c constraints.txt" in found[1]
    assert (ROOT / "constraints.txt").is_file()


@pytest.mark.parametrize("marks", [("ray",), ("storm",), ("ray", "storm")], ids=" and ".join)
def test_the_page_of_the_tests_has_a_command_for_all_marked_tests(marks: tuple[str, ...]) -> None:
    def selects(expression: str) -> bool:
        terms = expression.split(" and ")
        return all((term.removeprefix("not ") in marks) != term.startswith("not ") for term in terms)

    expressions = re.findall(r'-m "(.*?)"', (ROOT / "tests" / "README.md").read_text("utf-8"))
    assert any(map(selects, expressions))
