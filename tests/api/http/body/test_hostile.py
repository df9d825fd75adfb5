"""Bodies that are not what they seem: each is told from JSON in the one place where JSON is decoded."""

import json

import pytest

from tests.api.caller import Caller

NOT_JSON = {
    "empty": b"",
    "half": b'{"name":',
    "trailing": b'{"name": "n"} x',
    "NaN": b'{"name": NaN}',
    "past a double": b'{"name": 1e999}',
    "lone surrogate": b'{"name": "\\ud800"}',
    "UTF-16": '{"name": "n"}'.encode("utf-16"),
    "invalid UTF-8": b'{"name": "\xff"}',
    "invalid UTF-8 in a key": b'{"\xff": 1}',
    "5 000 digits": b'{"name": ' + b"1" * 5_000 + b"}",
    "depth 65": b'{"name": ' + b"[" * 64 + b"]" * 64 + b"}",
    "depth 9 000": b"[" * 9_000 + b"]" * 9_000,
    "depth without end": b'{"a":' * 3_000,
}
"""Some of what the decoder's own tests have (unit/evaluation/wire/test_bodies.py)."""


@pytest.mark.parametrize("service", ["here"], indirect=True)
async def test_what_is_not_json_is_1000_everywhere(caller: Caller) -> None:
    detector = await caller.detector()
    rule = await caller.rule(detector, "a == 1")
    base = f"/api/detectors/{detector}"
    for method, path in (
        ("POST", "/api/detectors"),
        ("POST", f"{base}/rules"),
        ("PATCH", f"{base}/rules/{rule}"),
        ("POST", f"{base}/evaluate"),
        ("POST", f"{base}/evaluate/batch"),
        ("POST", "/api/conditions/parse"),
    ):
        for what, content in NOT_JSON.items():
            reply = await caller(method, path, content=content)
            assert (reply.status, reply.codes) == (400, [1000]), (path, what)


def condition(value: bytes) -> bytes:
    return b'{"condition": {"leaf": {"fact": "a", "op": "eq", "value": ' + value + b"}}}"


def deep(levels: int) -> bytes:
    leaf = b'{"leaf": {"fact": "a", "op": "eq", "value": 1}}'
    return b'{"condition": ' + b'{"not": ' * levels + leaf + b"}" * levels + b"}"


@pytest.mark.parametrize("service", ["here"], indirect=True)
@pytest.mark.parametrize(
    ("content", "code"),
    [
        (condition(b"1e999"), 1300),
        (condition(b"1" * 5_000), 1300),
        (condition(b'"\\ud800"'), 1300),
        (condition(b"NaN"), 1000),
        (condition(b'"\xff"'), 1000),
        (condition(b"01"), 1000),
        (condition(b"[" * 500 + b"]" * 500), 1303),
        (deep(64), 1303),
        (deep(64).replace(b"{", b"{ ").replace(b"}", b" }"), 1303),
        (deep(900), 1303),
        (deep(1_500), 1303),
        (b'{"condition": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", 1001),
        (b'{"x": ' + b"[" * 5_000 + b"]" * 5_000 + b', "condition": "a == 1"}', 1000),
        (b'{"x": 1e999, "condition": "a == 1"}', 1000),
        (b'{"x": 1, "condition": {"leaf": {"fact": "a", "op": "eq", "value": 1e999}}}', 1001),
        (b'{"condition": "a ==", "condition": ' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"}", 1303),
        (b'{"condition": ' + b"[" * 200 + b"]" * 200 + b', "condition": "a == 1"}', 1000),
        (b'{"condition": "a ==", "x": 1}', 1001),
        (b'{"condition": {"condition": "a =="}}', 1301),
        (b'{"condition": null}', 1001),
        (b'{"condition": 1e999}', 1001),
        (b'{"condition": 7}', 1001),
        (b'{"condition": true}', 1001),
        (b'{"condition": []}', 1001),
        (b'{"condition": {}}', 1301),
        (b'{"condition": {"leaf": {"fact": "", "op": "eq", "value": 1}}}', 1301),
        (b'{"condition": ""}', 1300),
        (b'{"condition": "{"}', 1300),
        (b'{"condition": "a == null"}', 1300),
        (b'{"condition": "a matches \'(\'"}', 1302),
        (b'{"condition": "' + b"not " * 100 + b'a == 1"}', 1303),
    ],
)
async def test_within_a_condition_it_is_the_condition_that_is_refused(
    caller: Caller, content: bytes, code: int
) -> None:
    reply = await caller("POST", "/api/conditions/parse", content=content)
    assert (reply.status, set(reply.codes)) == (400, {code})


async def test_a_deep_condition_that_is_valid_is_taken_in_each_form(caller: Caller) -> None:
    given = json.loads(deep(63))["condition"]
    for source in (given, json.dumps(given), "not " * 63 + "a == 1"):
        reply = await caller("POST", "/api/conditions/parse", {"condition": source})
        assert reply.result["condition"] == given
