"""Generated code: its lines can be seen, and of rules that come and go a process keeps little."""

import gc
import linecache
import traceback
from types import FunctionType

import pytest

from engine import Detector
from engine.evaluation.generated import SOURCES_MAX, function
from tests.differential.modes import MODES, in_mode

PREDICATES = 10


def test_tracebacks_show_the_lines_of_generated_code() -> None:
    divide = function(" return lambda number: (\n  number // zero\n )\n", [("zero", 0)])
    with pytest.raises(ZeroDivisionError) as raised:
        divide(1)
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (frame.filename[:7], frame.line) == ("<rules ", "number // zero")


def functions_kept() -> list[FunctionType]:
    """Find the functions that were generated since `gc.freeze`."""
    gc.collect()
    return [
        found
        for found in gc.get_objects()
        if type(found) is FunctionType and found.__code__.co_filename.startswith("<rules ")
    ]


def shaped(number: int) -> str:
    """Write a condition of which no other number has the shape."""
    return "hit == 1 and " + " and ".join(
        f"f{place} {'!=' if number >> place & 1 else '=='} 1" for place in range(PREDICATES)
    )


@pytest.mark.parametrize(
    "slow",
    ['p matches "a[0-9]+b"', "some p (it == 1)", "r(p)", '(q == 2 or not p matches "a[0-9]+b")'],
)
@pytest.mark.parametrize("word", ["and", "or"])
def test_what_takes_long_is_asked_last(slow: str, word: str) -> None:
    detector = Detector()
    detector.add_rule("rule", f"{slow} {word} quick == 1")
    # Names are numbered in the order in which the code asks for them.
    assert "n0 = 'quick'" in detector.code()


@pytest.mark.storm
@pytest.mark.parametrize("mode", ["fused", "indexed"])
def test_the_code_of_rules_that_are_gone_is_let_go(mode: str) -> None:
    gc.freeze()
    with in_mode(mode):
        for number in range(SOURCES_MAX + 50):
            detector = Detector()
            for place in range(2):
                detector.add_rule("rule", shaped(number + place))
            detector.evaluate({"hit": 1}, 0)
    assert 1 <= len(functions_kept()) <= 10
    assert len([name for name in linecache.cache if name.startswith("<rules ")]) <= SOURCES_MAX


@pytest.mark.parametrize("mode", MODES)
def test_an_element_finds_no_variables_where_an_event_has_no_context(mode: str) -> None:
    with in_mode(mode):
        detector = Detector()
        detector.add_rule("rule", "some a (it == $v or it == 2)")
        events = [({"a": [1]}, 0, None), ({"a": [2]}, 0, None), ({"a": [1]}, 0, {"v": 1})]
        assert [len(fired) for fired in detector.evaluate_many(events)] == [0, 1, 1]
