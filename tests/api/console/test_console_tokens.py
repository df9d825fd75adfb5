"""The console in a real browser, with tokens that may not do everything."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.api.console.test_console_browser import CHROMIUM, Console, browser, console_at
from tests.api.http.scopes.tokens import token

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.storm,
]
__all__ = ["browser"]


@pytest_asyncio.fixture(loop_scope="module")
async def console(browser: Browser, tmp_path: Path) -> AsyncIterator[Console]:
    async with console_at(browser, tmp_path / "data") as console:
        yield console


async def test_what_a_token_may_not_do_is_not_shown(console: Console) -> None:
    page = console.page
    detector = await console.create("logins", "a == 1")
    await console.create("other")
    buttons = {
        "": ["Copy", "Delete", "Create"],
        "rules": ["New rule", "Edit", "Delete"],
        "relations": ["Create"],
        "event": ["Evaluate and record"],
    }
    hidden_from = {
        "reader": {one for names in buttons.values() for one in names} | {"Cluster"},
        "writer": {"Cluster", "Evaluate and record"},
        "all": set[str](),
    }
    bounds = {
        "reader": {"scopes": ["read"], "detectors": [detector]},
        "writer": {"scopes": ["read", "write"]},
        "all": {},
    }
    for kind, hidden in hidden_from.items():
        await console.sign_in(await token(console.caller, **bounds[kind]))
        await expect(page.get_by_role("link", name="logins")).to_be_visible()
        await expect(page.get_by_role("link", name="other")).to_have_count(0 if kind == "reader" else 1)
        await expect(page.get_by_role("link", name="Cluster")).to_have_count(int("Cluster" not in hidden))
        for view, names in buttons.items():
            if view:
                await console.open(detector, view)
                await expect(page.locator("nav a[aria-current]")).to_have_attribute(
                    "href", f"#/d/{detector}/{view}"
                )
                await expect(page.locator("main[aria-busy]")).to_have_count(0)
            for name in names:
                found = page.get_by_role("button", name=name, exact=True).first
                await (expect(found).to_be_hidden() if name in hidden else expect(found).to_be_visible())
        await console.open(detector, "rules")
        on = page.get_by_role("checkbox").first
        await (expect(on).to_be_disabled() if kind == "reader" else expect(on).to_be_enabled())
        await page.get_by_role("button", name="Sign out").click()
        await page.goto(f"{console.root}/console")
    assert console.trouble == []


async def test_a_token_that_may_not_read_is_told_so(console: Console) -> None:
    await console.sign_in(await token(console.caller, scopes=["evaluate"]))
    await expect(console.page.get_by_role("alert")).to_have_text("the token does not have the scope `read`")
