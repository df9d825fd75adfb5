"""Every setting takes effect: a request that it refuses shows this, or the runtime has it, or it is read."""

import dataclasses
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import api
from api.http.app import Application
from api.server.hypercorn_config import REFUSALS_S, server_config
from api.settings import Settings, settings
from tests.api.caller import Caller
from tests.api.conftest import BOOTSTRAP
from tests.local_runtime.service import local_service

Act = Callable[[Caller, str], Awaitable[set[int]]]
"""Sends a request to a detector, and gives the codes of all errors and messages in the reply."""


def codes_in(envelope: Any) -> set[int]:
    found = {entry["code"] for entry in [*envelope["errors"], *envelope["messages"]]}
    results = envelope["result"].get("results", []) if isinstance(envelope["result"], dict) else []
    for result in results:
        found |= {entry["code"] for entry in [*result.get("errors", []), *result.get("messages", [])]}
    return found


def event(at_ms: float = 0, **fields: object) -> dict[str, object]:
    return {"fields": fields, "timestamp_ms": at_ms}


def evaluated(*events: dict[str, object], rule: str | None = None) -> Act:
    """Evaluate events one by one, after a rule was made."""

    async def act(caller: Caller, detector: str) -> set[int]:
        if rule is not None:
            await caller.rule(detector, rule)
        replies = [
            await caller("POST", f"/api/detectors/{detector}/evaluate", {"event": each}) for each in events
        ]
        return set().union(*(codes_in(reply.envelope) for reply in replies))

    return act


def in_a_batch(*events: dict[str, object], rule: str | None = None) -> Act:
    async def act(caller: Caller, detector: str) -> set[int]:
        if rule is not None:
            await caller.rule(detector, rule)
        reply = await caller("POST", f"/api/detectors/{detector}/evaluate/batch", {"events": events})
        return codes_in(reply.envelope)

    return act


def rules(*conditions: str) -> Act:
    async def act(caller: Caller, detector: str) -> set[int]:
        found: set[int] = set()
        for condition in conditions:
            document = {"name": "r", "condition": condition}
            found |= codes_in((await caller("POST", f"/api/detectors/{detector}/rules", document)).envelope)
        return found

    return act


async def with_a_long_header(caller: Caller, detector: str) -> set[int]:
    reply = await caller("GET", f"/api/detectors/{detector}/rules", headers={"X-Long": "x" * 2_000})
    return codes_in(reply.envelope)


async def of_half_a_minute_ahead(caller: Caller, detector: str) -> set[int]:
    return codes_in((await caller.evaluate(detector, {}, time.time() * 1_000 + 30_000)).envelope)


async def one_more_detector(caller: Caller, _: str) -> set[int]:
    return codes_in((await caller("POST", "/api/detectors", {"name": "one more"})).envelope)


async def two_more_tokens(caller: Caller, _: str) -> set[int]:
    named = {"name": "one more"}
    return codes_in((await caller("POST", "/api/token")).envelope) | codes_in(
        (await caller("POST", "/api/tokens", named)).envelope
    )


def relation(*tuples: object) -> Act:
    async def act(caller: Caller, detector: str) -> set[int]:
        path = f"/api/detectors/{detector}/relations/owns"
        return codes_in((await caller("PUT", path, {"tuples": tuples})).envelope)

    return act


def deep(levels: int) -> object:
    return [deep(levels - 1)] if levels else 1


@dataclass(frozen=True)
class Reach:
    """A value of a setting, and a request that is answered with `code` for it, and not by default."""

    value: Any
    code: int
    act: Act
    more: tuple[tuple[str, Any], ...] = ()
    """Other settings that have to be set along with it."""


REFUSED: dict[str, Reach] = {
    "max_header_bytes": Reach(1_024, 1006, with_a_long_header),
    "max_body_bytes": Reach(200, 1003, evaluated(event(text="x" * 300))),
    "max_batch_body_bytes": Reach(300, 1003, in_a_batch(event(text="x" * 400)), (("max_body_bytes", 200),)),
    "max_body_depth": Reach(6, 1000, evaluated(event(x=deep(8)))),
    "max_batch_events": Reach(2, 1400, in_a_batch(event(), event(), event())),
    "max_rules": Reach(1, 1400, rules("a == 1", "a == 2")),
    "max_rules_bytes": Reach(80, 1400, rules("a == 1", "a == 2")),
    "max_keys": Reach(
        2, 2002, in_a_batch(*(event(k=number) for number in range(1_000)), rule="per k once k == k")
    ),
    "max_condition_bytes": Reach(5, 1303, rules("a == 1")),
    "max_condition_nodes": Reach(2, 1303, rules("a == 1 and b == 2")),
    "max_condition_depth": Reach(1, 1303, rules("not a == 1")),
    "max_pattern_program": Reach(5, 1302, rules("a matches 'abcdefgh'")),
    "max_pattern_text_chars": Reach(3, 2004, evaluated(event(a="long"), rule="a matches 'x'")),
    "max_pattern_work": Reach(
        100,
        2004,
        evaluated(event(a="ab" * 20), rule="a matches '[ab].{30}c'"),
        (("max_pattern_event_work", 10**6),),
    ),
    "max_pattern_event_work": Reach(100, 2004, evaluated(event(a="ab" * 20), rule="a matches '[ab].{30}c'")),
    "max_body_values": Reach(20, 1000, evaluated(event(x=[1] * 30))),
    "max_event_values": Reach(40, 1000, evaluated(event(x=[1] * 60))),
    "max_answer_bytes": Reach(
        100, 1400, in_a_batch(event(), event(), event(), rule="historically a != 1 or not a == 1")
    ),
    "max_detectors": Reach(1, 1400, one_more_detector),
    "max_tokens": Reach(1, 1400, two_more_tokens),
    "max_state_bytes": Reach(
        10_000, 2002, in_a_batch(*(event(k=str(n) * 90) for n in range(1_000)), rule="per k once k == k")
    ),
    "max_condition_preparation": Reach(5, 1302, rules("a matches 'abcdefgh'")),
    "max_detector_preparation": Reach(1, 1400, rules("a matches 'c+d'")),
    "max_pattern_event_bytes": Reach(100, 2004, evaluated(event(a="ab" * 200), rule="a matches 'c+d'")),
    "max_relation_tuples": Reach(2, 1400, relation("a", "b", "c")),
    "max_relations_bytes": Reach(2_000, 1400, relation("x" * 4_000)),
    "max_relation_body_bytes": Reach(100, 1003, relation("x" * 200), (("max_body_bytes", 100),)),
    "max_late_ms": Reach(1_000, 1402, evaluated(event(5_000), event(3_000)), (("max_ahead_ms", 1_000),)),
    "max_ahead_ms": Reach(0, 1402, of_half_a_minute_ahead),
}


async def asked(folder: Path, act: Act, **chosen: Any) -> set[int]:
    values = Settings(data=folder, bootstrap_token=BOOTSTRAP, **chosen)
    given = values.runtime_settings()
    rest = {name: value for name, value in vars(given).items() if name != "data"}
    async with local_service(folder, **rest) as service:
        caller = Caller(Application(values, service.backend), BOOTSTRAP)
        return await act(caller, await caller.detector())


@pytest.mark.parametrize("name", REFUSED)
async def test_a_limit_that_is_set_is_the_one_that_refuses(tmp_path: Path, name: str) -> None:
    reach = REFUSED[name]
    limited = await asked(tmp_path / "limited", reach.act, **dict(reach.more), **{name: reach.value})
    assert reach.code in limited


async def test_by_default_none_of_them_refuses(tmp_path: Path) -> None:
    async def all_asked(caller: Caller, _: str) -> set[int]:
        found = {name: await reach.act(caller, await caller.detector()) for name, reach in REFUSED.items()}
        return {REFUSED[name].code for name, codes in found.items() if REFUSED[name].code in codes}

    assert await asked(tmp_path, all_asked) == set()


SETTING_FILES = ("setting.py", "settings.py", "settings_sources.py", "listening_settings.py")


def reaches_the_runtime(name: str) -> bool:
    """Tell whether one setting of the runtime changes with this one of the service."""
    usual = getattr(Settings(), name)
    other = {"data": Path("elsewhere"), "journal_sync": "off"}.get(name) or usual + 1
    # An embedded Ray is asked for nothing.
    joined = {"ray_address": "127.0.0.1:6379"}
    before, after = (
        dataclasses.asdict(Settings(**joined, **chosen).runtime_settings()) for chosen in ({}, {name: other})
    )
    return sum(after[field] != before[field] for field in after) == 1


def test_every_other_setting_is_one_of_the_runtime_or_is_read() -> None:
    files = [path for path in Path(api.__file__).parent.rglob("*.py") if path.name not in SETTING_FILES]
    read = "".join(path.read_text("utf-8") for path in files)
    for setting in settings():
        name = setting.name
        if name in REFUSED:
            continue
        # Settings share it among front ends.
        made = {"max_reading_bytes": "bodies_bytes_max"}.get(name, name)
        is_read = re.search(rf"\b(?:settings|chosen|values)\.{made}\b", read) is not None
        assert is_read or name == "bootstrap_token_file" or reaches_the_runtime(name), name


def test_the_server_is_given_its_times() -> None:
    config = server_config(Settings(shutdown_grace_s=3, keep_alive_s=4))
    assert (config.graceful_timeout - REFUSALS_S, config.keep_alive_timeout) == (3, 4)
