"""The page on the meaning of conditions: its traces are true, and its pictures show them."""

import re
from pathlib import Path

import pytest

from engine import Detector
from engine.language.condition import Condition
from engine.language.text.parser import parse
from tests import reference
from tests.drawing.picture import svg
from tests.drawing.traces import drawn, read

ENGINE = Path(__file__).parents[4] / "engine"
PAGE = (ENGINE / "SEMANTICS.md").read_text("utf-8")
TRACES = re.findall(r"^```trace\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
DRAWN = drawn(PAGE)


@pytest.mark.parametrize("block", TRACES, ids=lambda block: block.split("\n")[0])
def test_a_trace_has_the_verdicts_that_it_shows(block: str) -> None:
    trace = read(block)
    detector = Detector()
    detector.add_rule(name="shown", condition=trace.condition)
    history = []
    for event in trace.events:
        history.append(reference.Event(round(event.time_s * 1e6), event.fields, {}))
        fired = bool(detector.evaluate(event.fields, event.time_s * 1e3))
        assert (event, fired, reference.verdict(trace.condition, history)) == (event, event.verdict, fired)


def test_every_picture_is_of_a_trace_and_every_file_of_a_picture() -> None:
    assert set(re.findall(r"drawings/([a-z-]+)\.svg", PAGE)) == set(DRAWN)
    assert {path.stem for path in (ENGINE / "drawings").iterdir()} == set(DRAWN)


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_shows_its_trace(name: str) -> None:
    """Draw it anew with `python -m tests.drawing`."""
    assert (ENGINE / "drawings" / f"{name}.svg").read_text("utf-8") == svg(DRAWN[name])


def test_every_form_of_condition_has_a_meaning() -> None:
    for form in Condition.__args__:
        member = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", form.__name__).lower()
        assert f"| `{member}` |" in PAGE, member


def test_the_code_in_running_text_is_of_the_language() -> None:
    prose = re.sub(r"^(?:```.*?^```|\|.*?)$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    conditions = [text for text in re.findall(r"`([^`]+)`", prose) if re.search(r" (?:==|!=) ", text)]
    assert len(conditions) >= 3
    for text in conditions:
        parse(text)
