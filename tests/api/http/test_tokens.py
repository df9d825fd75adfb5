"""Who may call."""

import logging
import string
import time

import pytest

from api.http.app import Application
from api.settings import Settings
from engine.runtime.contract.errors import DetectorUnavailable
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.api.scripted import TOKEN, ScriptedBackend
from tests.local_runtime.service import LocalService

MEMBERS = [
    *("scopes", "detectors", "expires_ms", "events_per_s"),
    *("id", "hint", "name", "created_ms", "used_ms"),
]
UNKNOWN = "0" * 32


async def test_a_token_is_shown_once_and_works(caller: Caller) -> None:
    minted = (await caller("POST", "/api/token")).result
    assert list(minted) == ["id", "token", "hint"]
    assert minted["token"].startswith("rd_")
    secret = minted["token"].removeprefix("rd_")
    assert len(secret) == 43
    assert set(secret) <= set(string.ascii_letters + string.digits + "-_")
    assert minted["hint"] == minted["token"][-4:]
    assert len(minted["id"]) == 32
    caller.token = minted["token"]
    assert (await caller("GET", "/api/detectors")).result == []


async def test_a_revoked_token_is_refused_at_once(caller: Caller) -> None:
    first = caller.token
    minted = (await caller("POST", "/api/token")).result
    assert (await caller("DELETE", f"/api/token/{minted['id']}")).result == {"id": minted["id"]}
    assert (await caller("DELETE", f"/api/token/{minted['id']}")).codes == [1202]
    caller.token = minted["token"]
    reply = await caller("GET", "/api/detectors")
    assert (reply.status, reply.codes, reply.headers["www-authenticate"]) == (401, [1101], "Bearer")
    caller.token = first
    assert (await caller("GET", "/api/detectors")).status == 200


async def test_tokens_are_listed_without_their_secrets_and_with_what_is_known_of_them(caller: Caller) -> None:
    plain = (await caller("POST", "/api/token")).result
    named = (await caller("POST", "/api/tokens", {"name": "shop"})).result
    assert list(named) == ["id", "token", "hint"]
    listed = (await caller("GET", "/api/tokens")).result["tokens"]
    assert [list(token) for token in listed] == [MEMBERS] * 2
    for token, minted, name in zip(listed, (plain, named), ("", "shop"), strict=True):
        assert (token["id"], token["hint"], token["name"]) == (minted["id"], minted["hint"], name)
        assert abs(token["created_ms"] / 1_000 - time.time()) < 60
        assert token["used_ms"] is None
    assert (await caller("DELETE", f"/api/token/{plain['id']}")).status == 200
    caller.token = named["token"]
    [used] = (await caller("GET", "/api/tokens")).result["tokens"]
    assert used["id"] == named["id"]
    assert abs(used["used_ms"] / 1_000 - time.time()) < 60


async def test_the_name_of_a_token_is_checked_as_others_are(caller: Caller) -> None:
    for body in ({}, {"name": ""}, {"name": "a\0"}, {"name": "x" * 256}, {"name": "x", "more": 1}):
        assert (await caller("POST", "/api/tokens", body)).codes == [1001]
    assert (await caller("GET", "/api/tokens")).result == {"tokens": []}


@pytest.mark.parametrize("token_id", [UNKNOWN, "x", "A" * 32, "%2F", "the-first-token"])
async def test_an_unknown_token_cannot_be_revoked(caller: Caller, token_id: str) -> None:
    reply = await caller("DELETE", f"/api/token/{token_id}")
    assert (reply.status, reply.codes) == (404, [1202])


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ("Bearer {}", None),
        ("bearer {}", None),
        ("Bearer  {}", 1100),
        ("Bearer\t{}", 1100),
        ("Bearer {} x", 1100),
        ("Bearer ", 1100),
        ("{}", 1100),
        ("Basic {}", 1100),
        ("xBearer {}", 1100),
        ("", 1100),
        ("Bearer x{}", 1101),
        ("Bearer {}x", 1101),
    ],
)
@pytest.mark.parametrize("path", ["/api/detectors", f"/api/detectors/{'a' * 32}/evaluate"])
async def test_the_form_of_the_header(
    scripted_caller: Caller, form: str, code: int | None, path: str
) -> None:
    scripted_caller.token = None
    method = "GET" if path == "/api/detectors" else "POST"
    headers = {"Authorization": form.format(TOKEN)}
    reply = await scripted_caller(method, path, headers=headers)
    found = None if reply.status == 200 or reply.codes == [1000] else reply.codes[0]
    assert found == code
    if code is not None:
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == "Bearer"


async def test_two_authorizations_are_of_no_form(scripted_caller: Caller) -> None:
    headers = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")]
    response = await scripted_caller.plain("GET", "/api/detectors", headers=headers)
    assert [entry["code"] for entry in response.json()["errors"]] == [1100]


async def test_the_owner_of_the_tokens_is_asked_before_an_unknown_one_is_refused(
    scripted: ScriptedBackend, scripted_caller: Caller
) -> None:
    assert (await scripted_caller("GET", "/api/detectors")).status == 200
    assert scripted.lookups == 0
    scripted_caller.token = "unknown"
    assert (await scripted_caller("GET", "/api/detectors")).codes == [1101]
    assert scripted.lookups == 1


async def test_a_view_that_is_too_old_is_not_trusted(
    scripted: ScriptedBackend, scripted_caller: Caller
) -> None:
    scripted.stale = DetectorUnavailable(1501, "there was no word for 15 seconds", 1.0)
    for path in ("/api/detectors", f"/api/detectors/{'a' * 32}/evaluate"):
        reply = await scripted_caller("GET" if path.endswith("s") else "POST", path)
        assert (reply.status, reply.codes, reply.headers["retry-after"]) == (503, [1501], "1")


async def test_the_bootstrap_token_needs_no_view(scripted: ScriptedBackend) -> None:
    scripted.stale = DetectorUnavailable(1501, "there was no word for 15 seconds", 1.0)
    caller = Caller(Application(Settings(bootstrap_token=BOOTSTRAP), scripted), BOOTSTRAP)
    assert (await caller("GET", "/api/detectors")).status == 200
    caller.token = "s3cret"
    assert (await caller("GET", "/api/detectors")).codes == [1501]


async def test_where_no_bootstrap_token_is_set_there_is_none(service: LocalService) -> None:
    for token in ("the-first-token", "None"):
        caller = Caller(Application(Settings(), service.backend), token)
        assert (await caller("GET", "/api/detectors")).codes == [1101]


async def test_no_token_ever_reaches_the_log(
    scripted: ScriptedBackend, scripted_caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def broken(*_: object) -> None:
        raise RuntimeError("something broke")

    scripted.answers = broken  # type: ignore[assignment]
    reply = await scripted_caller.evaluate("a" * 32, {})
    assert reply.codes == [1500]
    await scripted_caller("GET", f"/api/detectors/{'a' * 32}/rules")
    assert "something broke" in caplog.text
    assert TOKEN not in caplog.text
    assert "Bearer" not in caplog.text
