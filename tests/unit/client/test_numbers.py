"""The client takes the same values as the library, and refuses the same, by the name of the field."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from engine import Detector, Refusal
from rule_detector_client import Event, ServiceError, calls


def sent(fields: Any, timestamp_ms: Any = 1_700_000_000_000) -> list[Any]:
    """Return the event as each way of sending it writes it."""
    alone = json.loads(calls.evaluate("d", fields, timestamp_ms).body or b"")["event"]
    explained = json.loads(calls.explain("d", fields, timestamp_ms).body or b"")["event"]
    return [alone, explained, json.loads(Event(fields, timestamp_ms).json())]


@pytest.mark.parametrize(
    ("value", "number"),
    [(Decimal("10.5"), 10.5), (Decimal(7), 7), (Fraction(1, 4), 0.25), (2**70, 2**70), ((1, 2), [1, 2])],
)
def test_numbers_of_any_type_are_sent_as_numbers(value: Any, number: Any) -> None:
    for event in sent({"amount": value, "in": {"amount": value}}):
        assert event["fields"] == {"amount": number, "in": {"amount": number}}
    body = calls.evaluate("d", {}, 1, {"limit": value}).body
    assert json.loads(body or b"")["context"] == {"vars": {"limit": number}}


@pytest.mark.parametrize("value", [nan, inf, Decimal("NaN"), b"x", {1}, datetime(2024, 1, 1, tzinfo=UTC)])
def test_what_json_cannot_express_is_refused_as_by_the_library(value: Any) -> None:
    with pytest.raises(Refusal, match=r"^fields\.user\.amount: ") as there:
        Detector().evaluate({"user": {"amount": value}}, 1)
    for send in (
        lambda: Event({"user": {"amount": value}}, 1).json(),
        lambda: calls.evaluate("d", {"user": {"amount": value}}, 1),
        lambda: calls.explain("d", {"user": {"amount": value}}, 1),
    ):
        with pytest.raises(ServiceError) as here:
            send()
        assert [(one.code, one.message) for one in here.value.entries] == [*there.value.entries]
    with pytest.raises(ServiceError, match=r"^vars\.limit: "):
        calls.evaluate("d", {}, 1, {"limit": value})


def test_a_time_may_be_a_datetime_and_fields_may_be_json() -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    for event in sent(msgspec.Raw(b'{"a": 1}'), at):
        assert event == {"fields": {"a": 1}, "timestamp_ms": 1_704_067_200_000}


def test_the_types_of_an_event_allow_what_it_takes() -> None:
    fields = MappingProxyType({"a": 1})
    assert Event(fields, datetime(1970, 1, 1, tzinfo=UTC)).json() == b'{"fields":{"a":1},"timestamp_ms":0.0}'
