"""The envelope and the codes, on their own."""

import json
import re

import pytest

from api.http.routes import OPERATIONS
from api.schema.envelope import (
    CODES,
    MESSAGE_CODES,
    DeadlinePassed,
    RequestRefusal,
    answered,
    error_response,
    failure,
    success,
)
from engine.evaluation.wire.events import Done, Refused
from engine.language.diagnostics import ConditionError, Entry, Refusal
from engine.runtime.contract.errors import DetectorUnavailable

STATUSES = {
    **dict.fromkeys((1000, 1001, 1006, 1300, 1301, 1302, 1303), 400),
    **dict.fromkeys((1100, 1101), 401),
    1102: 403,
    **dict.fromkeys((1004, 1200, 1201, 1202, 1203, 1204), 404),
    1005: 405,
    1400: 409,
    1003: 413,
    1002: 415,
    1402: 422,
    1401: 429,
    1500: 500,
    1501: 503,
    1502: 504,
    1503: 503,
}
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


def test_there_are_these_codes() -> None:
    assert [*CODES] == sorted(STATUSES)
    assert [*MESSAGE_CODES] == [2001, 2002, 2003, 2004, 2005, 2006, 2007, 2008]


@pytest.mark.parametrize(("code", "status"), STATUSES.items())
def test_each_code_has_its_status_wherever_it_comes_from(code: int, status: int) -> None:
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


@pytest.mark.parametrize(
    ("after_s", "shown"), [(0, b"1"), (0.1, b"1"), (1.0, b"1"), (1.2, b"2"), (30, b"30")]
)
def test_retry_after_is_in_whole_seconds_and_never_too_early(after_s: float, shown: bytes) -> None:
    reply = error_response(DetectorUnavailable(1401, "too many", after_s))
    assert (b"retry-after", shown) in reply.headers


def test_several_defects_are_all_listed() -> None:
    reply = error_response(Refusal(Entry(1400, "first"), Entry(1302, "second")))
    assert [entry["message"] for entry in json.loads(reply.body)["errors"]] == ["first", "second"]
    assert reply.status == 409


def test_the_answer_of_a_detector_becomes_a_success_or_a_failure() -> None:
    assert answered(Done(b"[1]", b"[2]")) == success(b"[1]", b"[2]")
    assert success(b"[1]").status == 200
    entries = (Entry(1401, "first"), Entry(1400, "second"))
    assert answered(Refused(entries)) == failure(429, entries, ((b"retry-after", b"10"),))


@pytest.mark.parametrize("code", CODES)
def test_an_answer_says_when_to_try_again_where_that_can_help(code: int) -> None:
    after_s = {1401: b"10", 1501: b"5"}
    headers = ((b"retry-after", after_s[code]),) if code in after_s else ()
    assert answered(Refused((Entry(code, "x"),))).headers == headers


def test_a_deadline_that_passed_leaves_the_outcome_unknown() -> None:
    said = "the deadline passed before an answer; whether the request was carried out is not known"
    assert error_response(DeadlinePassed()) == failure(504, [Entry(1502, said)])


def test_an_unexpected_error_is_logged_under_the_reference_that_the_caller_gets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = ZeroDivisionError("secret")
    reply = error_response(error)
    assert reply.status == 500
    [shown] = json.loads(reply.body)["errors"]
    [record] = caplog.records
    reference = record.getMessage().removeprefix("internal error ")
    assert shown == {"code": 1500, "message": f"an internal error; its reference is {reference}"}
    assert re.fullmatch("[0-9a-f]{12}", reference)
    assert record.exc_info is not None
    assert (record.levelname, record.exc_info[1], record.fields) == ("ERROR", error, {})


def test_every_code_is_reached_by_some_operation() -> None:
    told = {code for operation in OPERATIONS for code in operation.codes}
    assert told | {1004, 1005} | LATER == set(CODES)
