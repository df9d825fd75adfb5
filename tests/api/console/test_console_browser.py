"""The console in a real browser: what its users do, and what hostile names and 5 000 rules do."""

import asyncio
import json
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, Route, async_playwright, expect

from api.http.app import Application
from api.settings import Settings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.wire import served
from tests.local_runtime.actors import LocalNodes
from tests.local_runtime.service import local_service

# Without the windows of a whole browser, it takes half of the processor time.
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser"))), None
)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.asyncio(loop_scope="module"),
]

HOSTILE = "<img src=x onerror=\"document.title = 'owned'\"> </script>"
_KEEP_WHAT_IS_DRAWN = """() => {
    const real = uPlot;
    globalThis.uPlot = function (options, data, target) {
        globalThis.drawn = data;
        const nine = 1709542800, [axis] = options.axes;
        globalThis.nine = [options.tzDate(nine).getHours(), ...axis.values(null, [nine])];
        return new real(options, data, target);
    };
    Object.assign(globalThis.uPlot, real);
}"""
FIELDS = {"user": "ada", "action": "login", "ok": False}


class Console:
    """A browser's page at the console, and the service behind it."""

    def __init__(self, page: Page, root: str, caller: Caller) -> None:
        self.page, self.root, self.caller = page, root, caller
        self.trouble: list[str] = []
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("console", lambda said: self.trouble.append(said.text) if said.type == "error" else None)
        self.requests: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))

    async def sign_in(self, token: str = BOOTSTRAP) -> None:
        await self.page.goto(f"{self.root}/console")
        await self.page.get_by_label("Token").fill(token)
        await self.page.keyboard.press("Enter")

    async def create(self, name: str, *conditions: str, notify: bool = False) -> str:
        detector = (await self.caller("POST", "/api/detectors", {"name": name})).result["id"]
        for condition in conditions:
            rule = {"name": f"rule {condition}"[:255], "condition": condition, "notify": notify}
            assert (await self.caller("POST", f"/api/detectors/{detector}/rules", rule)).result["id"]
        return detector

    async def open(self, detector: str, view: str) -> None:
        if not self.requests:
            await self.sign_in()
        await self.page.goto(f"{self.root}/console#/d/{detector}/{view}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """A browser for all tests; each has a context of its own."""
    async with async_playwright() as playwright:
        # Root needs --no-sandbox, and so do containers.
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@asynccontextmanager
async def console_at(
    browser: Browser, folder: Path, *, nodes: LocalNodes | None = None, **viewport: int
) -> AsyncIterator[Console]:
    settings = Settings(data=folder, bootstrap_token=BOOTSTRAP)
    quick = {"ask_s": 0.0, "shutdown_s": 0.1, "turn_s": 0.0, "nodes_s": 0.02, "spares": 1}
    async with local_service(folder, nodes=nodes, **quick) as service:
        app = Application(settings, service.backend)
        async with served(app, settings) as wire:
            # The pages are in UTC, wherever the browser is.
            size = {"width": 1280, "height": 900, **viewport}
            page = await browser.new_page(viewport=size, timezone_id="America/New_York")
            try:
                yield Console(page, f"http://127.0.0.1:{wire.port}", Caller(app, BOOTSTRAP))
            finally:
                await page.close()


@pytest_asyncio.fixture(loop_scope="module")
async def console(browser: Browser, tmp_path: Path) -> AsyncIterator[Console]:
    async with console_at(browser, tmp_path / "data") as console:
        yield console
        assert console.trouble == []


@pytest.mark.storm
async def test_a_detector_is_copied_with_what_it_remembers(console: Console) -> None:
    page = console.page
    detector = await console.create("source", "once a == 1")
    event = {"event": {"fields": {"a": 1}, "timestamp_ms": 1}}
    await console.caller("POST", f"/api/detectors/{detector}/evaluate", event)
    await console.sign_in()
    page.once("dialog", lambda dialog: asyncio.ensure_future(dialog.accept("the copy")))
    await page.get_by_role("button", name="Copy").click()
    await expect(page.get_by_role("heading", name="the copy")).to_be_visible()
    await expect(page.get_by_text("1 to 1 of 1 rule")).to_be_visible()
    copied = page.url.split("/")[-2]
    event["event"] = {"fields": {}, "timestamp_ms": 2}
    answer = await console.caller("POST", f"/api/detectors/{copied}/evaluate", event)
    assert len(answer.result["actions"]) == 1


@pytest.mark.storm
async def test_a_rule_is_compared_with_its_draft_which_is_promoted(console: Console) -> None:
    page = console.page
    detector = await console.create("source")
    rule = await console.caller.rule(detector, "a == 1")
    await console.caller.rule(detector, "a in [1, 2]", name=HOSTILE, shadow=True, draftOf=rule)
    for a in (1, 2, 2):
        await console.caller.evaluate(detector, {"a": a, "said": HOSTILE})
    await console.open(detector, "rules")
    await page.locator("summary").first.click()
    comparison = page.get_by_label("Comparison with the draft")
    await expect(comparison).to_contain_text("3 events. Fired: only the rule 0, only the draft 2, both 1")
    await expect(comparison.get_by_text('"a":2')).to_have_count(2)
    await console.caller.evaluate(detector, {"a": 2, "b": 1})
    await expect(comparison).to_contain_text("4 events. Fired: only the rule 0, only the draft 3, both 1")
    await comparison.locator("summary").filter(has_text='"b":1').click()
    await expect(comparison.locator(".explained")).to_contain_text(["falsea == 1", "truea in [1, 2]"])
    await comparison.get_by_role("button", name="Promote the draft").click()
    await expect(page.locator("summary").first).to_contain_text("a in [1, 2]")
    answer = await console.caller.evaluate(detector, {"a": 2})
    assert [action["ruleId"] for action in answer.result["actions"]] == [rule]


@pytest.mark.storm
async def test_a_rule_is_edited_as_it_was_written(console: Console) -> None:
    page = console.page
    detector = await console.create("shop")
    rule = await console.caller.rule(detector, "a==1 # as agreed")
    await console.open(detector, "rules")
    await expect(page.locator("summary code")).to_have_text("a == 1")
    await page.get_by_role("button", name="Edit").click()
    await expect(page.get_by_label("Condition")).to_have_value("a==1 # as agreed")
    await page.get_by_label("Condition").fill("a==2 # as agreed")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator("summary code")).to_have_text("a == 2")
    shown = await console.caller("GET", f"/api/detectors/{detector}/rules/{rule}")
    assert shown.result["source"] == "a==2 # as agreed"


@pytest.mark.storm
async def test_a_rule_goes_back_to_a_version(console: Console) -> None:
    page = console.page
    detector = await console.create("shop")
    first = {"name": "r", "description": HOSTILE, "labels": {"severity": "high", "score": 7}}
    rule = await console.caller.rule(detector, "a==1 # as agreed", **first)
    path = f"/api/detectors/{detector}/rules/{rule}"
    other = {"name": HOSTILE, "condition": "a == 2", "labels": {}, "description": "", "notify": True}
    await console.caller("PATCH", path, other)
    await console.open(detector, "rules")
    await page.locator("summary").first.click()
    await page.locator("summary", has_text="Versions").click()
    rows = page.locator(".versions tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("present")
    await expect(rows.last).to_contain_text("a==1 # as agreed")
    await expect(rows.last).to_contain_text("severity: high · score: 7")
    await page.get_by_role("button", name="Revert").click()
    await expect(page.locator("summary code").first).to_have_text("a == 1")
    shown = (await console.caller("GET", path)).result
    assert shown["source"] == "a==1 # as agreed"
    assert {name: shown[name] for name in first} == first
    assert shown["notify"] is False
    versions = (await console.caller("GET", f"{path}/versions")).result["versions"]
    assert [each["version"] for each in versions] == [3, 2, 1]
    assert await page.title() != "owned"


@pytest.mark.storm
async def test_description_and_labels_are_edited(console: Console) -> None:
    page = console.page
    detector = await console.create("shop")
    rule = await console.caller.rule(detector, "a == 1", labels={"score": 7, "code": "7"})
    await console.open(detector, "rules")
    await page.get_by_role("button", name="Edit").click()
    labels = page.get_by_label("Labels of its actions")
    await expect(labels).to_have_value('score: 7\ncode: "7"')
    await labels.fill("no label")
    await page.get_by_label("Description").fill("What it is for.")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_role("alert")).to_contain_text("A label is a line such as")
    await labels.fill("score: 8\nhot: true\nteam: blue: sky")
    await page.keyboard.press("Control+Enter")
    await page.locator("summary").first.click()
    await expect(page.get_by_text("score: 8 · hot: true · team: blue: sky")).to_be_visible()
    shown = (await console.caller("GET", f"/api/detectors/{detector}/rules/{rule}")).result
    assert shown["labels"] == {"score": 8, "hot": True, "team": "blue: sky"}
    assert shown["description"] == "What it is for."


@pytest.mark.storm
async def test_a_relation_is_made_searched_changed_and_deleted(console: Console) -> None:
    page = console.page
    detector = await console.create("shop", "`bad hosts`(host)")
    path = f"/api/detectors/{detector}/relations"
    await console.caller("PUT", f"{path}/owns", {"tuples": [["ada", number] for number in range(1_100)]})
    await console.open(detector, "relations")
    await expect(page.get_by_role("row", name="owns 1,100 2")).to_be_visible()
    await page.get_by_label("Name", exact=True).fill("bad hosts")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("It has no tuples.")).to_be_visible()
    for value in (HOSTILE, '["b", 1]', "[9007199254740993]", '["b"]'):
        await page.get_by_label("Tuple", exact=False).first.fill(value)
        await page.get_by_role("button", name="Add").click()
        if value == '["b", 1]':
            await expect(page.locator("#said .failed")).to_contain_text("expected a tuple of 1, got one of 2")
            # The browser itself reports the refused request.
            console.trouble.clear()
        else:
            await expect(page.locator("section table code", has_text=value[:4])).to_be_visible()
    fired = await console.caller.evaluate(detector, {"host": HOSTILE})
    assert len(fired.result["actions"]) == 1
    await page.get_by_label("Find tuples").fill("ONERROR")
    await expect(page.get_by_text("1 tuple", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_text("No tuple contains “ONERROR”.")).to_be_visible()
    await page.get_by_label("Find tuples").fill("9007199254740993")
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_text("No tuple contains “9007199254740993”.")).to_be_visible()
    assert (await console.caller("GET", f"{path}/bad%20hosts")).result["tuples"] == [["b"]]

    await page.get_by_role("link", name="owns").click()
    await expect(
        page.get_by_text("1,000 tuples, and more that are not loaded; the first 200")
    ).to_be_visible()
    await page.get_by_role("button", name="Load more").click()
    await page.get_by_label("Find tuples").fill('a",1099]')
    await page.get_by_role("button", name="Remove").click()
    await expect(page.get_by_text("No tuple contains")).to_be_visible()
    await page.get_by_label("Find tuples").fill('a",1098]')
    await expect(page.get_by_text("1 tuple", exact=True)).to_be_visible()
    page.once("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
    await page.get_by_role("row", name="owns").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("row", name="owns")).to_have_count(0)
    left = (await console.caller("GET", path)).result["relations"]
    assert [one["name"] for one in left] == ["bad hosts"]
    assert await page.title() != "owned"


@pytest.mark.storm
async def test_a_wrong_token_is_refused_and_a_right_one_stays_out_of_the_address(console: Console) -> None:
    page = console.page
    await console.sign_in("not-the-token")
    await expect(page.get_by_role("alert")).to_contain_text("token")
    # The browser itself reports the refused request.
    console.trouble.clear()
    await console.sign_in()
    await expect(page.get_by_role("heading", name="Detectors")).to_be_visible()
    assert not [url for url in [page.url, *console.requests] if BOOTSTRAP in url]
    assert await page.evaluate("localStorage.length + document.cookie.length") == 0
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    assert BOOTSTRAP not in await page.evaluate("JSON.stringify(sessionStorage)")


@pytest.mark.storm
async def test_from_nothing_to_a_rule_that_is_explained_with_the_keyboard_alone(console: Console) -> None:
    page = console.page
    await console.sign_in()
    await page.get_by_label("Name", exact=True).fill("shop")
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="New rule").focus()
    await page.keyboard.press("Enter")
    await page.keyboard.type("failed twice")
    await page.keyboard.press("Tab")
    await page.keyboard.type("per user (count(ok == false) wihtin 10m >= 2)")
    await expect(page.locator(".told .failed")).to_contain_text("did you mean")
    assert await page.locator(".under mark").text_content() == "wihtin"
    await page.get_by_label("Condition").fill("per user (count(ok = false) within 10m >= 2)")
    await expect(page.locator(".told")).to_contain_text("per user count(ok == false) within 10m >= 2")
    await expect(page.locator(".told")).to_contain_text("3 conditions")
    await expect(page.locator(".told")).to_contain_text("It remembers up to 2 times or values for each user.")
    console.trouble.clear()
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_text("failed twice")).to_be_visible()

    await page.get_by_role("link", name="Try an event").click()
    await page.get_by_label("Fields").fill(json.dumps(FIELDS))
    await page.get_by_role("button", name="Evaluate and record").click()
    await expect(page.get_by_text("0 rules fired")).to_be_visible()
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_text("1 rule of 1 would fire. Nothing was recorded.")).to_be_visible()
    await expect(page.locator(".explained")).to_contain_text("found 2")
    await expect(page.locator(".explained small").filter(has_text="for another").first).to_contain_text("Z, ")


@pytest.mark.storm
async def test_names_and_values_from_callers_are_only_text(console: Console) -> None:
    detector = await console.create(HOSTILE, f"`{HOSTILE}` == {json.dumps(HOSTILE)}")
    page = console.page
    await console.sign_in()
    await expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
    await console.open(detector, "rules")
    await page.locator("summary").first.click()
    await expect(page.locator("summary code")).to_contain_text("onerror")
    await console.open(detector, "event")
    await page.get_by_label("Fields").fill(json.dumps({HOSTILE: HOSTILE}))
    await page.get_by_role("button", name="Explain").click()
    await expect(page.locator(".explained small").first).to_contain_text("onerror")
    assert await page.locator("main img").count() == 0
    assert await page.title() != "owned"


@pytest.mark.storm
async def test_firings_are_there_when_it_opens_and_appear_as_they_come(console: Console) -> None:
    detector = await console.create("shop", "per user (x == 1 and count(x == 1) within 1h >= 1)", notify=True)
    await console.caller.evaluate(detector, {"user": "ada", "x": 1}, 1000)
    page = console.page
    await console.open(detector, "firings")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(1)
    await expect(rows.first).to_contain_text('{"user":"ada"}')
    await expect(rows.first).to_contain_text("count(x == 1) within 1h 1")
    for user in ("bob", HOSTILE):
        await console.caller.evaluate(detector, {"user": user, "x": 1}, 2000)
    await expect(rows).to_have_count(3)
    await expect(rows.first).to_contain_text("onerror")
    assert await page.locator("main img").count() == 0
    await page.get_by_label("Key").fill("bob")
    await expect(rows).to_have_count(1)
    await page.reload()
    await expect(rows).to_have_count(1)
    await expect(rows.first).to_contain_text("bob")
    await rows.first.get_by_text("Why").click()
    await expect(rows.first.get_by_text("Version 1 of the rule was")).to_be_visible()
    await page.get_by_label("Rule").fill("no such rule")
    await expect(page.get_by_text("None of them is of such a rule and key.")).to_be_visible()


@pytest.mark.storm
async def test_a_timed_rule_is_made_counts_down_fires_and_is_changed(console: Console) -> None:
    page = console.page
    detector = await console.create("hosts")
    await console.open(detector, "rules")
    await page.get_by_role("button", name="New rule").click()
    await page.get_by_label("Name", exact=True).fill("silent")
    await page.get_by_label("Condition").fill("per host (not once within 4s exists beat)")
    await page.get_by_label("Notify:").check()
    await page.get_by_label("Timed:").check()
    await page.get_by_label("At most once in so many seconds").fill("600")
    await page.get_by_label("… for each of these facts").fill("host,zone")
    await page.keyboard.press("Control+Enter")
    row = page.locator("summary").first
    await expect(row).to_contain_text("timed")
    path = f"/api/detectors/{detector}/rules"
    [rule] = (await console.caller("GET", path)).result["rules"]
    assert (rule["timed"], rule["every_secs"], rule["every_by"]) == (True, 600, ["host", "zone"])

    await console.open(detector, "event")
    await page.get_by_label("Fields").fill('{"host": "a", "beat": 1}')
    await page.get_by_role("button", name="Explain").click()
    countdown = page.get_by_role("timer")
    await expect(countdown).to_have_text(re.compile("^in [1-4] s$"))
    await expect(countdown).to_have_text("now", timeout=10_000)

    await page.get_by_role("button", name="Evaluate and record").click()
    await expect(page.get_by_text("0 rules fired")).to_be_visible()
    await console.open(detector, "state")
    await page.get_by_role("button", name="Look").first.click()
    await expect(countdown).to_have_text(re.compile("^in [1-4] s$"))
    fired_by = (await console.caller("GET", f"/api/detectors/{detector}/state")).result["clock_ms"] + 4_001
    await console.caller("POST", f"/api/detectors/{detector}/tick", {"timestamp_ms": fired_by})
    # It has fired, so nothing is due any more.
    await expect(countdown).to_have_count(0, timeout=10_000)
    await console.open(detector, "firings")
    await expect(page.locator("tbody tr").first).to_contain_text("silent by time")

    for seconds, names, acts in (
        ("60", "", "timed · at most once in 60 s"),
        ("60", "zone", "timed · at most once in 60 s for each zone"),
        ("", "zone", None),
    ):
        await console.open(detector, "rules")
        await page.get_by_role("button", name="Edit").click()
        await page.get_by_label("At most once in so many seconds").fill(seconds)
        await page.get_by_label("… for each of these facts").fill(names)
        await page.get_by_label("Timed").set_checked(acts is not None)
        await page.keyboard.press("Control+Enter")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await row.click()
        if acts:
            await expect(page.get_by_text(acts, exact=True)).to_be_visible()
        await page.goto("about:blank")
    [rule] = (await console.caller("GET", path)).result["rules"]
    assert not {"timed", "every_secs", "every_by"} & set(rule)


@pytest.mark.storm
async def test_a_row_for_a_count_begins_where_it_is_known_and_nothing_comes_before_events(
    console: Console,
) -> None:
    detector = await console.create("shop", "per user count(ok == false) within 10m >= 2")
    for at_ms, user in ((1000, "ada"), (5000, "ada"), (61_000, "bob")):
        await console.caller.evaluate(detector, {"user": user, "ok": False}, at_ms)
    page = console.page
    await console.sign_in()
    await page.evaluate(_KEEP_WHAT_IS_DRAWN)
    await console.open(detector, 'timeline?key={"user":"ada"}')
    await expect(page.locator(".plot canvas")).to_be_visible()
    times, _, counted = await page.evaluate("drawn")
    assert (times, counted) == ([1, 5, 61], [None, 0.5, 0.5])
    await console.caller.evaluate(detector, {"user": "ada"}, 62_000)
    await expect(page.get_by_text("1 event seen")).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(1)
    # The timeline is there already when somebody looks again.
    await console.open(detector, "rules")
    await expect(page.get_by_text("1 to 1 of 1 rule")).to_be_visible()
    await console.open(detector, 'timeline?key={"user":"ada"}')
    await expect(page.locator(".plot canvas")).to_be_visible()
    assert (await page.evaluate("drawn"))[0] == [62]


@pytest.mark.storm
async def test_a_run_is_drawn_true_once_it_has_lasted_and_in_utc(console: Console) -> None:
    detector = await console.create("shop", "per host (historically for 5s strong not error == true)")
    for at_ms in (61_000, 63_000, 68_000):
        await console.caller.evaluate(detector, {"host": "a"}, at_ms)
    page = console.page
    await console.sign_in()
    await page.evaluate(_KEEP_WHAT_IS_DRAWN)
    await console.open(detector, 'timeline?key={"host":"a"}')
    await expect(page.locator(".plot canvas")).to_be_visible()
    times, _, held = await page.evaluate("drawn")
    assert (times, held) == ([8, 66, 68], [None, 0.5, 0.5])
    assert await page.evaluate("nine") == [9, "09:00:00Z\n2024-03-04"]
    await expect(page.get_by_text("All times are in UTC.")).to_be_visible()


@pytest.mark.storm
async def test_how_long_a_verdict_stays_goes_by_the_clock_of_the_detector(console: Console) -> None:
    detector = await console.create("shop", "per user once within 10m ok == false")
    clock_s = int(time.time()) - 3600
    await console.caller.evaluate(detector, {"user": "ada", "ok": False}, clock_s * 1000)
    await console.caller.evaluate(detector, {"user": "ada"}, (clock_s + 120) * 1000)
    page = console.page
    await console.open(detector, "state")
    await page.get_by_role("button", name="Look").click()
    await expect(page.locator(".explained")).to_contain_text(", 2 m before")
    await expect(page.locator(".explained")).to_contain_text("Z, for another 8 m")
    await console.open(detector, "event")
    await page.get_by_label("Fields").fill('{"user": "ada"}')
    late = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(clock_s + 60))
    await page.get_by_placeholder("now").fill(late)
    await page.get_by_role("button", name="Explain").click()
    at = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(clock_s + 120))
    await expect(page.get_by_text(f"At {at}, 1 rule of 1 would fire.")).to_be_visible()
    await expect(page.locator(".explained")).to_contain_text("Z, for another 8 m")


@pytest.mark.storm
async def test_the_state_shows_keys_memories_and_costs_and_a_key_is_looked_into(console: Console) -> None:
    detector = await console.create("shop", "a == 1", "per user once within 10m ok == false")
    for user in ("ada", "bob"):
        event = {"fields": {**FIELDS, "user": user}, "timestamp_ms": 1000}
        await console.caller("POST", f"/api/detectors/{detector}/evaluate", {"event": event})
    page = console.page
    await console.open(detector, "state")
    await expect(page.locator("dl.facts")).to_contain_text("1970-01-01 00:00:01Z")
    await expect(page.locator("dl.facts")).to_contain_text("2 of 2 on")
    await expect(
        page.get_by_role("row", name="once within 10m ok == false user 2 64 B 1 rule")
    ).to_be_visible()
    keys = page.locator("tbody tr").filter(has=page.get_by_role("button", name="Look"))
    await expect(keys).to_have_count(2)
    await page.get_by_role("searchbox", name="Find keys").fill("bo")
    await page.keyboard.press("Enter")
    await expect(keys).to_have_count(1)
    await page.get_by_role("button", name="Look").click()
    await expect(page.get_by_label("Rule", exact=True)).to_have_value(
        "rule per user once within 10m ok == false"
    )
    await expect(page.locator(".explained")).to_contain_text("settled at 1970-01-01 00:00:01Z")
    await expect(page.get_by_role("cell", name="once within 10m ok == false", exact=True)).to_be_visible()


@pytest.mark.storm
async def test_figures_come_before_long_lists_and_rules_by_cost(console: Console) -> None:
    detector = await console.create("shop", "a == 1", "per user once within 10m ok == false")
    page, read = console.page, asyncio.Event()

    async def wait(route: Route) -> None:
        await read.wait()
        await route.continue_()

    await page.route("**/state?list=keys*", wait)
    await console.open(detector, "state")
    await expect(page.locator("dl.facts")).to_contain_text("2 of 2 on")
    await expect(page.get_by_text("Loading …")).to_have_count(1)
    await expect(page.locator("tbody").last.locator("tr").first).to_contain_text("once within")
    read.set()
    await expect(page.get_by_text("Loading …")).to_have_count(0)


@pytest.mark.storm
async def test_a_detector_is_moved_and_a_node_is_drained_after_a_question(
    browser: Browser, tmp_path: Path
) -> None:
    nodes = LocalNodes(n=8, m=8)
    async with console_at(browser, tmp_path / "data", nodes=nodes) as console:
        page = console.page
        await console.create(HOSTILE, "a == 1")

        async def place() -> str:
            shown = (await console.caller("GET", "/api/cluster")).result["workers"]
            return "".join(one["node"] for one in shown if one.get("detectors"))

        async def moved_to(node: str) -> None:
            # The picture is at most a second old.
            await expect(page.locator("tbody").last.locator("tr")).to_contain_text(f"{node} (")
            while await place() != node:  # noqa: ASYNC110 -- the same picture, asked for once more
                await asyncio.sleep(0.05)

        async def answered(button: Locator, *, accept: bool) -> str:
            async with page.expect_event("dialog") as event:
                clicking = asyncio.ensure_future(button.click())
                dialog = await event.value
                await (dialog.accept() if accept else dialog.dismiss())
                await clicking
            return dialog.message

        while not (first := await place()):  # noqa: ASYNC110 -- the picture may be from before it was activated
            await asyncio.sleep(0.05)
        other = {"n": "m", "m": "n"}[first]
        await console.sign_in()
        await page.get_by_role("link", name="Cluster").click()
        await expect(page.get_by_text("1 active detector")).to_be_visible()
        await page.get_by_label(f"Node for {HOSTILE}").select_option(other)
        said = await answered(page.get_by_role("button", name="Move"), accept=True)
        assert HOSTILE in said
        await expect(page.get_by_role("status").filter(has_text="is active on")).to_be_visible()
        await moved_to(other)
        row = page.locator("tbody").first.locator("tr").filter(has_text=f"{other}{other}")
        await answered(row.get_by_role("button", name="Drain"), accept=False)
        assert not nodes.drained
        await answered(row.get_by_role("button", name="Drain"), accept=True)
        await expect(row).to_contain_text("drained")
        assert nodes.drained == {other}
        await moved_to(first)
        await answered(row.get_by_role("button", name="Undrain"), accept=True)
        await expect(row).to_contain_text("takes workers")
        assert not nodes.drained
        assert await page.locator("main img").count() == 0
        assert await page.title() != "owned"
        assert console.trouble == []


_COVERED = """() => {
    const said = document.getElementById("said").getBoundingClientRect();
    const page = document.getElementById("page").getBoundingClientRect();
    const main = [...document.querySelectorAll("#main *")].filter((one) => one.checkVisibility());
    const seen = main.map((one) => one.getBoundingClientRect())
        .map(({ top, bottom }) => [Math.max(top, page.top), Math.min(bottom, page.bottom)]);
    return seen.filter(([top, bottom]) => bottom > top && bottom > said.top + 1).length;
}"""
"""How many elements of the page a message covers."""


@pytest.mark.storm
@pytest.mark.parametrize("width", [390, 800, 1400])
async def test_a_message_covers_nothing_and_goes_when_its_cause_has_gone(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    async with console_at(browser, tmp_path / "data", width=width, height=844) as console:
        page = console.page
        detector = await console.create("shop", "a == 1")
        failed, said = page.locator("#said .failed"), page.locator("#said p")
        await console.open(detector, "event")
        fields = page.get_by_label("Fields")
        for given in ("{bad", "{}"):
            await fields.fill("{bad")
            await page.get_by_role("button", name="Explain").click()
            await expect(failed).to_be_visible()
            assert await page.evaluate(_COVERED) == 0
            await fields.fill(given + " ")
            await expect(said).to_have_count(0)
            await expect(page.get_by_role("alert")).to_have_count(0)
        await fields.fill("{bad")
        await page.get_by_role("button", name="Explain").click()
        await page.get_by_role("button", name="Close the message").click()
        await expect(said).to_have_count(0)
        await page.get_by_role("button", name="Explain").click()
        await expect(failed).to_be_visible()
        await page.get_by_role("link", name="State").click()
        await expect(said).to_have_count(0)
        # The service does not answer for a while.
        await page.get_by_role("link", name="Cluster").click()
        await expect(page.get_by_role("heading", name="Cluster")).to_be_visible()
        await page.route("**/api/cluster", lambda route: route.abort())
        await expect(failed).to_contain_text("does not answer", timeout=20_000)
        await page.unroute("**/api/cluster")
        await expect(said).to_have_count(0, timeout=20_000)


@pytest.mark.storm
async def test_still_loading_is_said_until_it_is_loaded(console: Console) -> None:
    page, read = console.page, asyncio.Event()
    detector = await console.create("shop", "a == 1")

    async def wait(route: Route) -> None:
        await read.wait()
        await route.continue_()

    await console.sign_in()
    await page.route("**/rules?*", wait)
    await console.open(detector, "rules")
    await expect(page.get_by_text("Still loading")).to_be_visible()
    # It does not go by time: it would have by now.
    await page.wait_for_timeout(4500)
    await expect(page.get_by_text("Still loading")).to_be_visible()
    read.set()
    await expect(page.get_by_text("1 to 1 of 1 rule")).to_be_visible()
    await expect(page.get_by_text("Still loading")).to_have_count(0)


@pytest.mark.storm
async def test_a_view_is_shown_once_its_detector_answers(console: Console) -> None:
    page = console.page
    detector = await console.create("shop", "a == 1")
    await console.sign_in()
    starting = {"success": False, "errors": [{"code": 1501, "message": "it is starting"}], "messages": []}

    async def start(route: Route) -> None:
        await route.fulfill(status=503, json={**starting, "result": {}})

    await page.route("**/rules?*", start)
    await console.open(detector, "rules")
    await expect(page.get_by_role("alert")).to_have_text("it is starting")
    await page.unroute("**/rules?*")
    await expect(page.get_by_text("1 to 1 of 1 rule")).to_be_visible()
    console.trouble = [said for said in console.trouble if "503" not in said]


@pytest.mark.storm
async def test_a_key_is_looked_into_where_it_stands(browser: Browser, tmp_path: Path) -> None:
    async with console_at(browser, tmp_path / "data", width=390, height=844) as console:
        page = console.page
        detector = await console.create("shop", "per user once within 10m ok == false")
        for number in range(20):
            await console.caller.evaluate(detector, {"user": f"user {number}", "ok": False}, number)
        await console.open(detector, "state")
        asked = page.locator("tbody tr").filter(has=page.get_by_role("button", name="Look")).nth(2)
        look = asked.get_by_role("button", name="Look")
        await look.click()
        below = asked.locator("xpath=following-sibling::tr[1]")
        await expect(below.locator(".explained")).to_contain_text("once within 10m")
        await expect(below.locator(".explained")).to_be_in_viewport()
        await expect(below).to_contain_text('{"user":"user 17"}')
        await look.click()
        await expect(page.locator(".explained")).to_have_count(0)


@pytest.mark.storm
async def test_an_open_rule_with_a_draft_is_short(browser: Browser, tmp_path: Path) -> None:
    async with console_at(browser, tmp_path / "data", width=390, height=844) as console:
        page = console.page
        detector = await console.create("shop")
        rule = await console.caller.rule(detector, "per user (count(a >= 1) within 1h >= 2)")
        await console.caller.rule(
            detector, "per user (count(a >= 1) within 2h >= 3)", name="draft", shadow=True, draftOf=rule
        )
        long = {f"field {number}": "x" * 50 for number in range(20)}
        for number in range(12):
            await console.caller.evaluate(detector, {"user": "ada", "a": number % 3, **long}, number)
        await console.open(detector, "rules")
        await page.locator("summary").first.click()
        await expect(page.get_by_label("Comparison with the draft")).to_be_visible()
        row = page.locator("tbody tr").first
        assert await row.evaluate("row => row.getBoundingClientRect().height") < 1000
        await expect(row.locator("pre:visible")).to_have_count(0)
        await row.locator("summary").filter(has_text="JSON").click()
        await expect(row.locator("pre").last).to_contain_text("window_secs")


@pytest.mark.storm
async def test_empty_lists_say_why(console: Console) -> None:
    page = console.page
    nothing = page.locator(".nothing:visible")
    await console.sign_in()
    await expect(nothing).to_contain_text("There are no detectors yet")
    detector = await console.create("shop")
    await page.get_by_role("link", name="Cluster").click()
    await page.get_by_role("link", name="Rule Detector").click()
    await page.get_by_placeholder("Filter by name or id").fill("no such")
    await expect(nothing).to_contain_text("No name or id contains “no such”")
    await console.open(detector, "rules")
    await expect(nothing).to_contain_text("The detector has no rules yet")
    await console.open(detector, "timeline")
    await expect(nothing).to_contain_text("nothing to watch")
    await console.open(detector, "state")
    await expect(nothing).to_contain_text(["No event has come yet", "looks back", "no rules yet"])
    await console.caller.rule(detector, "a == 1")
    await console.caller.evaluate(detector, {"a": 2})
    await console.open(detector, "rules")
    await page.get_by_placeholder("Filter by name or by what").fill("no such")
    await expect(nothing).to_contain_text("contains “no such”")
    await console.open(detector, "timeline")
    await expect(nothing).to_contain_text("fired at none of the events")
    await console.open(detector, "state")
    await expect(nothing).to_contain_text(["No rule remembers anything for a key", "looks back"])
    await expect(page.get_by_text("Since the first event.")).to_be_visible()
    await console.open(detector, "event")
    await page.get_by_label("Fields").fill("{}")
    await page.get_by_label("Only rules that fire").check()
    await page.get_by_role("button", name="Explain").click()
    await expect(nothing).to_contain_text("No rule fires")


_OVERLAPS = """(texts) => {
    const spans = texts.map(([, x, width]) => [x - width / 2, x + width / 2]);
    spans.sort((one, two) => one[0] - two[0]);
    return spans.filter(([left], place) => place && left < spans[place - 1][1]).length;
}"""
_NOTE_TEXTS = """() => {
    const fill = CanvasRenderingContext2D.prototype.fillText;
    globalThis.texts = [];
    // A drawing begins with an empty canvas.
    const clear = CanvasRenderingContext2D.prototype.clearRect;
    CanvasRenderingContext2D.prototype.clearRect = function (...area) {
        globalThis.texts = [];
        return clear.call(this, ...area);
    };
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const { e, f } = this.getTransform();
        globalThis.texts.push([text, x + e, this.measureText(text).width, y + f]);
        return fill.call(this, text, x, y);
    };
}"""


@pytest.mark.storm
@pytest.mark.parametrize(("width", "apart_ms"), [(390, 1), (390, 86_400_000), (800, 700), (1400, 86_400_000)])
async def test_a_timeline_has_values_and_conditions_in_its_rows_and_dates_that_do_not_overlap(
    browser: Browser, tmp_path: Path, width: int, apart_ms: int
) -> None:
    async with console_at(browser, tmp_path / "data", width=width, height=844) as console:
        page = console.page
        detector = await console.create(
            "shop", "per user once within 10m ok == false and not previous a == 1"
        )
        await console.sign_in()
        await page.evaluate(_NOTE_TEXTS)
        await console.open(detector, "timeline")
        await expect(page.get_by_text("Watching.")).to_be_visible()
        for number in range(9):
            fields = {"user": "ada" if number else "bob", "ok": number != 1, "a": number}
            await console.caller.evaluate(detector, fields, 1_709_542_800_000 + number * apart_ms)
        await expect(page.get_by_text("9 events seen")).to_be_visible()
        lanes, at = page.locator(".plot .lane"), page.locator(".plot .at")
        conditions = await page.locator(".plot ol code").all_text_contents()
        await expect(lanes.locator("code")).to_have_text(conditions)
        tops = [(await lane.bounding_box() or {})["y"] for lane in await lanes.all()]
        assert all(30 < below - above < 60 for above, below in pairwise(tops)), tops
        await expect(at).to_contain_text("event 9")
        box = await page.locator(".plot .u-over").bounding_box()
        assert box is not None
        await page.mouse.move(box["x"] + 1, box["y"] + box["height"] / 2)
        await expect(at).to_contain_text('event 1 · {"user":"bob"}')
        await expect(lanes.first.locator(".verdict")).to_have_text("false")
        await page.mouse.move(0, 0)
        await page.locator(".plot").focus()
        await page.keyboard.press("ArrowLeft")
        await expect(at).to_contain_text("event 8")
        texts = await page.evaluate("globalThis.texts")
        assert texts
        for height in {y for *_, y in texts}:
            assert await page.evaluate(_OVERLAPS, [text for text in texts if text[3] == height]) == 0
        assert console.trouble == []


@pytest.mark.storm
async def test_five_thousand_rules_are_listed_and_searched(browser: Browser, tmp_path: Path) -> None:
    async with console_at(browser, tmp_path / "data", width=420) as console:
        detector = await console.create("many")
        path = f"/api/detectors/{detector}/rules"
        for number in range(0, 5000, 100):
            wanted = [{"name": f"rule {n}", "condition": f"kind == {n}"} for n in range(number, number + 100)]
            await asyncio.gather(*(console.caller("POST", path, rule) for rule in wanted))
        page, read = console.page, asyncio.Event()

        async def wait(route: Route) -> None:
            await read.wait()
            await route.continue_()

        await page.route("**/rules?*after=1000&*", wait)
        await console.open(detector, "rules")
        await expect(page.get_by_text("1 to 50 of 1,000 rules; more are being read")).to_be_visible()
        await page.get_by_text("rule 7", exact=True).click()
        await expect(page.get_by_text("JSON", exact=True)).to_be_visible()
        read.set()
        await expect(page.get_by_text("1 to 50 of 5,000 rules", exact=True)).to_be_visible()
        # What somebody reads meanwhile stays.
        await expect(page.get_by_text("JSON", exact=True)).to_be_visible()
        await page.get_by_role("button", name="Next").click()
        await expect(page.get_by_text("51 to 100 of 5,000 rules")).to_be_visible()
        await page.get_by_role("searchbox").fill("rule 4999")
        await expect(page.get_by_text("1 to 1 of 1 rule")).to_be_visible()
        await page.get_by_role("checkbox").click()
        await expect(page.get_by_role("status").filter(has_text="is off")).to_be_visible()
        rules: list[Any] = (await console.caller("GET", path)).result["rules"]
        assert [rule["enabled"] for rule in rules if rule["name"] == "rule 4999"] == [False]
        await console.open(detector, "event")
        await page.get_by_label("Fields").fill(json.dumps({"kind": 4998}))
        await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_text("1 rule of 5000 would fire.")).to_be_visible()
        await expect(page.get_by_text("only those that fire are shown")).to_be_visible()
        await expect(page.locator("details.rule")).to_have_count(1)
        # The browser itself reports that the first request was refused.
        console.trouble.clear()
        await page.get_by_label("Rule", exact=True).fill("rule 499")
        assert await page.locator("datalist option").count() == 11
        await page.get_by_label("Rule", exact=True).fill("rule 4997")
        await page.get_by_role("button", name="Explain").click()
        await expect(page.locator("details.rule")).to_contain_text("rule 4997")
        # Nothing is wider than the window.
        assert await page.evaluate("document.getElementById('page').scrollWidth <= innerWidth")
        assert console.trouble == []


@pytest.mark.storm
async def test_words_are_offered_while_a_condition_is_typed(console: Console) -> None:
    detector = await console.create("shop", "per customer_id (amount > 3)")
    await console.open(detector, "rules")
    page = console.page
    await page.get_by_role("button", name="New rule").click()
    condition = page.get_by_label("Condition")
    await condition.press_sequentially("per cust")
    await expect(page.get_by_role("option")).to_have_text(["customer_id"])
    await condition.press("Tab")
    await condition.press_sequentially(" (hist")
    await expect(page.get_by_role("option")).to_have_text(["historically"])
    # It closes the list, and not the form.
    await condition.press("Escape")
    await expect(page.get_by_role("option")).to_have_count(0)
    await condition.press_sequentially("o")
    await page.get_by_role("option").click()
    await expect(condition).to_have_value("per customer_id (historically")
    await condition.press_sequentially(" o")
    offers = page.get_by_role("option")
    await expect(offers.first).to_have_attribute("aria-selected", "true")
    await condition.press("ArrowDown")
    await expect(offers.nth(1)).to_have_attribute("aria-selected", "true")
    # The browser reports that the service refused what was not yet a condition, if that was asked for.
    assert [each for each in console.trouble if "status of 400" not in each] == []
    console.trouble.clear()


@pytest.mark.storm
async def test_integers_stay_exact_wherever_they_are_shown_or_sent(console: Console) -> None:
    page, account = console.page, 1234567890123456789
    condition = f"account == {account} and per account once abs(account) <= {10 * account}"
    detector = await console.create("shop", condition, notify=True)
    await console.caller.evaluate(detector, {"account": account})
    await console.open(detector, "rules")
    await expect(page.locator(".condition")).to_have_text(condition)
    await page.locator("summary").first.click()
    await page.get_by_text("JSON").click()
    assert str(account) in await page.locator("details pre").inner_text()
    await expect(page.locator(".tree")).to_contain_text(f"abs(account) <= {10 * account}")
    await console.open(detector, "event")
    await page.get_by_label("Fields").fill(json.dumps({"account": account}))
    await page.get_by_label("Time").fill("60000")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.get_by_text("1 rule of 1 would fire")).to_be_visible()
    await console.open(detector, "firings")
    await expect(page.locator("tbody tr")).to_contain_text(f'{{"account":{account}}}')
    await console.open(detector, "state")
    await page.get_by_role("button", name="Look").click()
    await expect(page.locator("tr.looked .tree > li.true")).to_have_count(1)


@pytest.mark.storm
async def test_rules_are_found_by_their_texts_and_doubts_are_told(console: Console) -> None:
    page = console.page
    detector = await console.create("shop", "per user once a == 1", "b == 2")
    await console.open(detector, "rules")
    await expect(page.get_by_text("1 to 2 of 2 rules")).to_be_visible()
    await page.get_by_placeholder("Filter").fill("once A ==")
    await expect(page.get_by_text("1 to 1 of 1 rule")).to_be_visible()
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_label("Condition").fill("a == 1 and not a == 1")
    await expect(page.locator("dialog .note")).to_contain_text("is never true together with")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#said p")).to_contain_text("is never true together with")
    await page.get_by_role("button", name="Close the message").click()
    await console.caller.evaluate(detector, {"a": 1}, 200_000)
    await console.open(detector, "event")
    await page.get_by_label("Time").fill("100000")
    for button in ("Explain", "Evaluate and record"):
        await page.get_by_role("button", name=button).click()
        await expect(page.get_by_text("the event came 100000 ms late")).to_be_visible()


@pytest.mark.storm
async def test_a_stream_goes_on_after_a_failure_and_a_timeline_with_another_condition(
    console: Console,
) -> None:
    page = console.page
    detector = await console.create("shop", "once a == 1")
    await console.open(detector, "timeline")
    await expect(page.get_by_text("Watching.")).to_be_visible()
    await console.caller.evaluate(detector, {"a": 1})
    await expect(page.get_by_text("1 event seen")).to_be_visible()
    [rule] = (await console.caller("GET", f"/api/detectors/{detector}/rules")).result["rules"]
    changed = {"condition": "once a == 2 and once b == 2"}
    await console.caller("PATCH", f"/api/detectors/{detector}/rules/{rule['id']}", changed)
    await console.caller.evaluate(detector, {"a": 1})
    # The timeline begins anew with the next look, and the event may have come before.
    await page.wait_for_timeout(1200)
    await console.caller.evaluate(detector, {"a": 2, "b": 2})
    await expect(page.locator(".lane")).to_have_count(3)
    await expect(page.locator(".lane .verdict.true")).to_have_count(3)
    moved = b'data:{"errors":[{"code":1501,"message":"the detector is moving"}]}\n\n'
    answers = iter([(200, moved), (503, b"<html>")])

    async def fail(route: Route) -> None:
        if answer := next(answers, None):
            await route.fulfill(status=answer[0], body=answer[1], content_type="text/event-stream")
        else:
            await route.continue_()

    await page.route("**/firings?*", fail)
    await console.open(detector, "firings")
    await expect(page.get_by_text("the detector is moving")).to_be_visible()
    await expect(page.get_by_text("Firings appear here as they come.")).to_be_visible()
    await console.caller("PATCH", f"/api/detectors/{detector}/rules/{rule['id']}", {"notify": True})
    await console.caller.evaluate(detector, {})
    await expect(page.locator("tbody tr")).to_have_count(1)
    console.trouble = [said for said in console.trouble if "503" not in said]


@pytest.mark.storm
async def test_who_is_signed_out_is_told_why(console: Console) -> None:
    page = console.page
    detector = await console.create("shop", "a == 1")
    token = (await console.caller("POST", "/api/token")).result
    await console.sign_in(token["token"])
    await page.goto(f"{console.root}/console#/d/{detector}/firings")
    await expect(page.get_by_text("Firings appear here")).to_be_visible()
    await console.caller("DELETE", f"/api/token/{token['id']}")
    await expect(page.get_by_role("alert")).to_have_text("the token is unknown or revoked")
    await expect(page.get_by_label("Token")).to_be_focused()


@pytest.mark.storm
async def test_a_very_long_word_pushes_nothing_aside(console: Console) -> None:
    page = console.page
    detector = await console.create("shop")
    long = {"name": "W" * 255, "condition": f'`{"w" * 250}` == "{"v" * 5000}"', "notify": True}
    await console.caller("POST", f"/api/detectors/{detector}/rules", long)
    await console.caller.evaluate(detector, {"w" * 250: "v" * 5000})
    for view in ("rules", "firings", "state", "event"):
        await console.open(detector, view)
        if view == "event":
            await page.get_by_role("button", name="Explain").click()
        await expect(page.get_by_text("W" * 255).first).to_be_visible()
        assert await page.evaluate(
            "[...document.querySelectorAll('.scroll')].every((e) => e.scrollWidth <= e.clientWidth)"
        )
        assert await page.evaluate("document.getElementById('page').scrollWidth <= innerWidth"), view


@pytest.mark.storm
async def test_the_keyboard_stays_where_it_is(console: Console) -> None:
    page = console.page
    detector = await console.create("shop", *(f"a == {n} and per user once b == 1" for n in range(60)))
    await console.caller.evaluate(detector, {"user": "ada", "b": 1})
    await console.open(detector, "rules")
    second = page.locator("tbody tr").nth(1)
    edit, on = second.get_by_role("button", name="Edit"), second.get_by_role("checkbox")
    for leave in ("Escape", "Control+Enter"):
        await edit.press("Enter")
        await expect(page.locator("dialog .told code").first).to_be_visible()
        await page.keyboard.press(leave)
        await expect(edit).to_be_focused()
    await on.press("Space")
    await expect(page.get_by_text("is off")).to_be_visible()
    await expect(on).to_be_focused()
    await expect(on).not_to_be_checked()
    following = page.get_by_role("button", name="Next")
    await following.press("Enter")
    await expect(page.get_by_text("51 to 60 of 60 rules")).to_be_visible()
    # There is no next page, so the button is disabled.
    await expect(page.locator("main")).to_be_focused()
    await console.open(detector, "state")
    look = page.get_by_role("button", name="Look")
    await look.press("Enter")
    await expect(page.locator("tr.looked")).to_be_visible()
    await expect(look).to_be_focused()
