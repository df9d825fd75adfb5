"""A condition, as text or as JSON, is a rule that can be evaluated, or an error with a code and a place."""

import functools
import json
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Detector, parse
from engine.language.condition import Condition
from engine.language.diagnostics import ConditionError
from engine.language.json.writer import condition_to_document
from engine.language.text.printer import format as text_of
from engine.language.validation.document import condition_from_json
from tests.api.fuzz.changes import changed, fuzz, tries

VECTORS: Final = sorted((Path(__file__).parents[2] / "conformance").glob("*.json"))
TEXTS: Final = [
    rule["condition"]
    for path in VECTORS
    for vector in json.loads(path.read_bytes())
    for rule in vector.get("rules", [])
    if isinstance(rule["condition"], str)
]
EVENTS: Final = ({}, {"a": "x" * 1_000, "b": 1}, {"a": [1, "x", {"a": 1}], "user": "u", "b": {"a": 1}})


@functools.cache
def documents() -> list[bytes]:
    """Return the vectors' conditions as JSON. Parsing them takes a twentieth of collecting all tests."""
    return [json.dumps(condition_to_document(parse(text))).encode() for text in TEXTS]


def condition_of(data: bytes) -> Condition:
    """Read a condition as callers send it."""
    if data.startswith(b"{"):
        return condition_from_json(data)
    return parse(data.decode("utf-8", "surrogateescape"))


def answer(data: bytes) -> None:
    """Read a condition, and evaluate it over a few events."""
    try:
        condition = condition_of(data)
    except ConditionError:
        return
    assert parse(text_of(condition)) == condition
    detector = Detector()
    detector.add_rule("r", condition_to_document(condition))
    for second, fields in enumerate(EVENTS):
        detector.evaluate(fields, 1_000 * second)


@pytest.mark.slow
@fuzz(300)
@given(changed([text.encode() for text in TEXTS]))
def test_a_text(data: bytes) -> None:
    for _ in tries():
        answer(data)


@pytest.mark.slow
@fuzz(300)
@given(st.deferred(lambda: changed(documents())))
def test_a_document(data: bytes) -> None:
    for _ in tries():
        answer(data)
