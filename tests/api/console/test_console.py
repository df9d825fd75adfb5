"""The files of the console: all there, for everyone, and closed to what comes from elsewhere."""

import posixpath
import re

import pytest

from api.http.pages import console_pages
from tests.api.caller import Caller

PAGES = console_pages()


async def test_the_page_and_its_files_need_no_token(caller: Caller) -> None:
    caller.token = None
    for path in PAGES:
        reply = await caller.plain("GET", path)
        assert (reply.status_code, reply.content) == (200, PAGES[path].body)
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_whatever_a_file_names_is_there() -> None:
    index = PAGES["/console"].body.decode()
    named = set(re.findall(r'(?:href|src)="(console/[^"]+)"', index))
    for path, page in PAGES.items():
        named |= {name.removeprefix("/") for name in _imported_by(path)}
        named |= set(re.findall(r'new URL\("(console/[^"]+)"', page.body.decode()))
    assert {f"/{name}" for name in named} | {"/console"} == set(PAGES)


def _imported_by(path: str) -> set[str]:
    if not path.endswith(".js"):
        return set()
    names = re.findall(r'^import .* from "(\.[^"]+)"', PAGES[path].body.decode(), re.MULTILINE)
    return {posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) for name in names}


@pytest.mark.parametrize("path", [path for path in PAGES if "uplot" not in path])
def test_nothing_is_inline_and_nothing_comes_from_elsewhere(path: str) -> None:
    text = PAGES[path].body.decode()
    assert not re.search(
        r"https?://|innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    assert "<style" not in text
    assert not re.search(r"<script(?![^>]* src=)", text)
    assert not re.search(r'<[a-z][^>]* (?:on\w+|style)="', text)


def test_plots_are_drawn_by_the_library() -> None:
    """Without its package, this would be a page that says what is missing."""
    assert b"var uPlot = " in PAGES["/console/uplot.js"].body


def test_the_policy_allows_this_service_only() -> None:
    for page in PAGES.values():
        policy = dict(page.headers)[b"content-security-policy"].decode()
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
        assert rules["require-trusted-types-for"] == "'script'"
