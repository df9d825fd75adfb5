"""The envelope and the codes, on their own."""

import ast
import json
from pathlib import Path

import pytest

from api.schema.envelope import CODES, MESSAGE_CODES, RequestRefusal, error_response, failure, success
from api.schema.operations import OPERATIONS
from engine.language.diagnostics import ConditionError, Entry, Refusal
from engine.runtime.contract.errors import DetectorUnavailable

LATER = {1203}
"""Codes of what this version does not have yet: relations."""


def test_a_result_is_wrapped_and_not_read() -> None:
    assert success(b"[1 ,2]").body == b'{"success":true,"errors":[],"messages":[],"result":[1 ,2]}'
    told = b'[{"code":2001,"message":"late"}]'
    assert success(b"{}", told).body == b'{"success":true,"errors":[],"messages":' + told + b',"result":{}}'


def test_messages_of_any_text_are_sound_json() -> None:
    text = 'a "quoted" \\ line\nand \u00e4 \U0001f600 \x00 </script>'
    reply = failure(400, [Entry(1300, text)])
    assert json.loads(reply.body)["errors"] == [{"code": 1300, "message": text}]


@pytest.mark.parametrize("code", CODES)
def test_each_code_has_its_status_wherever_it_comes_from(code: int) -> None:
    status = CODES[code].status
    for error in (Refusal(Entry(code, "x")), ConditionError(Entry(code, "x")), RequestRefusal(code, "x")):
        reply = error_response(error)
        assert reply.status == status
        assert json.loads(reply.body) == {
            "success": False,
            "errors": [{"code": code, "message": "x"}],
            "messages": [],
            "result": {},
        }
    assert error_response(DetectorUnavailable(code, "x")).status == status


@pytest.mark.parametrize(("after_s", "shown"), [(0.1, b"1"), (1.0, b"1"), (1.2, b"2"), (30, b"30")])
def test_retry_after_is_in_whole_seconds_and_never_too_early(after_s: float, shown: bytes) -> None:
    reply = error_response(DetectorUnavailable(1401, "too many", after_s))
    assert (b"retry-after", shown) in reply.headers


def test_several_defects_are_all_listed() -> None:
    reply = error_response(Refusal(Entry(1301, "first"), Entry(1302, "second")))
    assert [entry["message"] for entry in json.loads(reply.body)["errors"]] == ["first", "second"]
    assert reply.status == 400


def test_every_code_is_reached_by_some_operation() -> None:
    told = {code for operation in OPERATIONS for code in operation.codes}
    assert told | {1004, 1005} | LATER == set(CODES)


def test_every_code_is_expected_by_some_test() -> None:
    """A code that no test names is one that nobody has seen; this reads the numbers in these tests."""
    named: set[int] = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        if path.name == Path(__file__).name:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and type(node.value) is int:
                named.add(node.value)
    assert set(CODES) - LATER <= named
    assert {2001} <= named & set(MESSAGE_CODES)
